//! A quantized matrix, and who multiplies by it.

use std::borrow::Cow;
use std::sync::Arc;

use candle_core::quantized::{QMatMul, QTensor};
use candle_core::{DType, Module, Tensor};

use super::matmul::{add_products, gated};
use super::packed::{Packed, packed};
use crate::error::{Error, Result};
use crate::math::floats;

/// `y = x Wᵀ + b`, with `W` `[out, in]` as the file quantizes it. On the CPU the common packings are multiplied by our
/// own [`matmul`](super::matmul), the others, and those on other devices, by candle.
#[derive(Debug)]
pub struct Linear {
    weight: Arc<QTensor>,
    matmul: QMatMul,
    bias: Option<Bias>,
}

/// `[out]`
#[derive(Debug)]
struct Bias {
    there: Tensor,
    here: Vec<f32>,
}

impl Linear {
    /// Takes the weights, and a bias of `[out]`.
    ///
    /// # Errors
    /// When the device fails.
    pub fn new(weight: Arc<QTensor>, bias: Option<Tensor>) -> Result<Self> {
        let matmul = QMatMul::from_arc(weight.clone())?;
        let bias = match bias {
            Some(there) => Some(Bias { here: there.to_vec1()?, there }),
            None => None,
        };
        Ok(Self { weight, matmul, bias })
    }

    /// `x` is `[n, in]`, the result `[n, out]`, both f32.
    ///
    /// # Errors
    /// When the device fails.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [y] = Self::together([self], x)?;
        Ok(y)
    }

    /// The products with several matrices, which share a pass over the activations.
    ///
    /// # Errors
    /// When the device fails.
    pub fn together<const N: usize>(linears: [&Self; N], x: &Tensor) -> Result<[Tensor; N]> {
        let n = x.dim(0)?;
        let y = on_the_cpu(linears, x, |matrices, x, n_in| {
            let start = |(linear, matrix): (&Self, &&dyn Packed)| match &linear.bias {
                Some(bias) => bias.here.repeat(n),
                None => vec![0.0; n * matrix.n_out()],
            };
            let mut y: Vec<_> = linears.into_iter().zip(matrices).map(start).collect();
            add_products(matrices, x, n_in, &mut y);
            y
        })?;
        let y = match y {
            Some(y) => y.into_iter().map(|y| tensor(y, n, x)).collect::<Result<Vec<_>>>()?,
            None => linears.into_iter().map(|linear| linear.forward_candle(x)).collect::<Result<_>>()?,
        };
        y.try_into().map_err(|_| candle_core::Error::msg("there is one product for each matrix").into())
    }

    /// `to + x Wᵀ + b`
    ///
    /// # Errors
    /// When the device fails.
    pub fn forward_onto(&self, x: &Tensor, to: &Tensor) -> Result<Tensor> {
        if self.bias.is_none() {
            let y = on_the_cpu([self], x, |matrices, x, n_in| {
                let mut y = floats(&to.contiguous()?, <[f32]>::to_vec)?;
                add_products(matrices, x, n_in, std::slice::from_mut(&mut y));
                Ok::<_, Error>(y)
            })?;
            if let Some(y) = y {
                return tensor(y?, x.dim(0)?, x);
            }
        }
        Ok((to + self.forward(x)?)?)
    }

    /// `silu(x Gᵀ) · (x Uᵀ)`, the first half of a feed-forward layer (SwiGLU; Shazeer, 2020).
    ///
    /// # Errors
    /// When the device fails.
    pub fn gated(gate: &Self, up: &Self, x: &Tensor) -> Result<Tensor> {
        if gate.bias.is_none() && up.bias.is_none() {
            let y = on_the_cpu([gate, up], x, |matrices, x, n_in| gated(matrices[0], matrices[1], x, n_in))?;
            if let Some(y) = y {
                return tensor(y, x.dim(0)?, x);
            }
        }
        let [gate, up] = Self::together([gate, up], x)?;
        Ok((candle_nn::ops::silu(&gate)? * up)?)
    }

    fn forward_candle(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.matmul.forward(x)?;
        Ok(match &self.bias {
            Some(bias) => y.broadcast_add(&bias.there)?,
            None => y,
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
        weight + self.bias.as_ref().map_or(0, |bias| bias.here.len() * DType::F32.size_in_bytes())
    }
}

/// What `f` makes of the matrices and `x[n, n_in]`; `None` for another device, and where one is packed in a way that is
/// not ours.
fn on_the_cpu<T, const N: usize>(
    linears: [&Linear; N],
    x: &Tensor,
    f: impl FnOnce(&[&dyn Packed], &[f32], usize) -> T,
) -> Result<Option<T>> {
    if !x.device().is_cpu() {
        return Ok(None);
    }
    let data = linears.iter().map(|linear| Ok(linear.weight.data()?)).collect::<Result<Vec<Cow<[u8]>>>>()?;
    let mut matrices = Vec::with_capacity(N);
    for (linear, data) in linears.iter().zip(&data) {
        let (n_out, n_in) = linear.weight.shape().dims2()?;
        match packed(linear.weight.dtype(), data, n_in, n_out) {
            Some(matrix) => matrices.push(matrix),
            None => return Ok(None),
        }
    }
    let matrices: Vec<&dyn Packed> = matrices.iter().map(|matrix| &**matrix).collect();
    let n_in = x.dim(1)?;
    Ok(Some(floats(&x.contiguous()?, |x| f(&matrices, x, n_in))?))
}

/// `[n, …]`, where `x` is.
fn tensor(y: Vec<f32>, n: usize, x: &Tensor) -> Result<Tensor> {
    let width = y.len() / n;
    Ok(Tensor::from_vec(y, (n, width), x.device())?)
}
