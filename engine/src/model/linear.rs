//! A quantized matrix and the two ways to multiply by it.

use std::sync::Arc;

use candle_core::quantized::k_quants::{
    BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4_1, BlockQ4K, BlockQ5_0, BlockQ5_1, BlockQ5K, BlockQ6K, BlockQ8_0, GgmlType,
};
use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{DType, Module, Tensor};
use gemm::Parallelism;
use rayon::prelude::*;

use super::gemv::gemv;
use crate::attention::floats;
use crate::error::Result;

/// From this many rows on, the CPU dequantizes a tile of K-quants once and multiplies in f32: the
/// dequantization is shared by all rows, and a GEMM beats one dot product at a time.
const K_QUANT_GEMM_ROWS: usize = 24;

/// Bytes of one dequantized tile: it stays in the L2 cache of a core.
const TILE_BYTES: usize = 256 << 10;

/// `y = x Wᵀ + b`, with `W` `[out, in]` as the file quantizes it.
#[derive(Debug)]
pub struct Linear {
    weight: Arc<QTensor>,
    matmul: QMatMul,
    bias: Option<Tensor>,
}

impl Linear {
    /// Takes the weights, and a bias of `[out]`.
    ///
    /// # Errors
    /// When the device fails.
    pub fn new(weight: Arc<QTensor>, bias: Option<Tensor>) -> Result<Self> {
        let matmul = QMatMul::from_arc(weight.clone())?;
        Ok(Self { weight, matmul, bias })
    }

    /// `x` is `[n, in]`, the result `[n, out]`, both f32.
    ///
    /// # Errors
    /// When the device fails.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = match x.device().is_cpu() {
            true => self.forward_cpu(x)?,
            false => None,
        };
        let y = match y {
            Some(y) => y,
            None => self.matmul.forward(x)?,
        };
        Ok(match &self.bias {
            Some(bias) => y.broadcast_add(bias)?,
            None => y,
        })
    }

    /// `None` where candle's own way is the better one: plain tensors, and few rows times K-quants.
    fn forward_cpu(&self, x: &Tensor) -> Result<Option<Tensor>> {
        let (n_out, n_in) = self.weight.shape().dims2()?;
        let n = x.dim(0)?;
        let k_quant = self.weight.dtype().block_size() > 32;
        if k_quant && n < K_QUANT_GEMM_ROWS {
            return Ok(None);
        }
        let x = x.contiguous()?;
        let data = self.weight.data()?;
        let mut y = vec![0f32; n * n_out];
        let done = floats(&x, |x| {
            if n == 1 {
                return gemv(self.weight.dtype(), &data, x, &mut y);
            }
            let shape = (n, n_in, n_out);
            match self.weight.dtype() {
                GgmlDType::Q4_0 => gemm_tiles::<BlockQ4_0>(x, &data, shape, &mut y),
                GgmlDType::Q4_1 => gemm_tiles::<BlockQ4_1>(x, &data, shape, &mut y),
                GgmlDType::Q5_0 => gemm_tiles::<BlockQ5_0>(x, &data, shape, &mut y),
                GgmlDType::Q5_1 => gemm_tiles::<BlockQ5_1>(x, &data, shape, &mut y),
                GgmlDType::Q8_0 => gemm_tiles::<BlockQ8_0>(x, &data, shape, &mut y),
                GgmlDType::Q2K => gemm_tiles::<BlockQ2K>(x, &data, shape, &mut y),
                GgmlDType::Q3K => gemm_tiles::<BlockQ3K>(x, &data, shape, &mut y),
                GgmlDType::Q4K => gemm_tiles::<BlockQ4K>(x, &data, shape, &mut y),
                GgmlDType::Q5K => gemm_tiles::<BlockQ5K>(x, &data, shape, &mut y),
                GgmlDType::Q6K => gemm_tiles::<BlockQ6K>(x, &data, shape, &mut y),
                _ => return false,
            }
            true
        })?;
        Ok(match done {
            true => Some(Tensor::from_vec(y, (n, n_out), x.device())?),
            false => None,
        })
    }

    /// Bytes that the weights take on the device.
    pub fn bytes(&self) -> usize {
        let weight = match &self.matmul {
            QMatMul::QTensor(weight) => weight.storage_size_in_bytes(),
            QMatMul::Tensor(weight) | QMatMul::TensorF16(weight) => {
                weight.elem_count() * weight.dtype().size_in_bytes() + self.weight.storage_size_in_bytes()
            }
        };
        weight + self.bias.as_ref().map_or(0, |bias| bias.elem_count() * DType::F32.size_in_bytes())
    }
}

/// `y[n, out] = x[n, in] Wᵀ` for rows of blocks `B`; each task dequantizes its own tile of rows.
fn gemm_tiles<B: GgmlType>(x: &[f32], data: &[u8], (n, n_in, n_out): (usize, usize, usize), y: &mut [f32]) {
    // SAFETY: the bytes come from candle's own `Vec<B>`, which holds `n_out` rows of whole blocks.
    let blocks = unsafe { std::slice::from_raw_parts(data.as_ptr().cast::<B>(), data.len() / size_of::<B>()) };
    let row_blocks = n_in / B::BLCK_SIZE;
    assert_eq!(blocks.len(), n_out * row_blocks, "a tensor holds whole rows");
    let tile_rows = (TILE_BYTES / (n_in * size_of::<f32>())).clamp(16, 256);
    let y = SendPtr(y.as_mut_ptr());
    (0..n_out.div_ceil(tile_rows)).into_par_iter().for_each_init(Vec::new, |tile: &mut Vec<f32>, i| {
        let rows = i * tile_rows..((i + 1) * tile_rows).min(n_out);
        tile.resize(rows.len() * n_in, 0.0);
        B::to_float(&blocks[rows.start * row_blocks..rows.end * row_blocks], tile);
        let y = &y;
        // SAFETY: `x` is `n × n_in`, `tile` `rows × n_in`, and this task alone writes the columns `rows` of `y`.
        unsafe {
            gemm::gemm(
                n,
                rows.len(),
                n_in,
                y.0.add(rows.start),
                1,
                n_out as isize,
                false,
                x.as_ptr(),
                1,
                n_in as isize,
                tile.as_ptr(),
                n_in as isize,
                1,
                0.0,
                1.0,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
    });
}

/// Lets tasks write disjoint columns of one matrix.
struct SendPtr(*mut f32);
// SAFETY: every user writes its own columns only, as the caller's comment says.
unsafe impl Sync for SendPtr {}
// SAFETY: see above.
unsafe impl Send for SendPtr {}
