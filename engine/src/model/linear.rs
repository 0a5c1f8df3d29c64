//! A quantized matrix, and who multiplies by it.

use std::sync::Arc;

use candle_core::quantized::{QMatMul, QTensor};
use candle_core::{DType, Module, Tensor};

use super::matmul::matmul;
use crate::attention::floats;
use crate::error::Result;

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

    /// `None` for what is not packed in one of our [`formats`](super::formats): candle multiplies by it.
    fn forward_cpu(&self, x: &Tensor) -> Result<Option<Tensor>> {
        let (n_out, n_in) = self.weight.shape().dims2()?;
        let data = self.weight.data()?;
        let y = floats(&x.contiguous()?, |x| matmul(self.weight.dtype(), &data, x, n_in, n_out))?;
        Ok(match y {
            Some(y) => Some(Tensor::from_vec(y, (x.dim(0)?, n_out), x.device())?),
            None => None,
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
