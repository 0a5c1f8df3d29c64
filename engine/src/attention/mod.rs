//! Attention over slots that also yields what the policies need: for every entry, the sum over the queries
//! of the softmax, averaged over the query heads that share the KV head ("column sums").
//!
//! [`cpu`] reads the entries as they lie; [`ops`] says the same in candle's operations, for every other
//! device, and is what the CPU kernel is tested against.

pub mod cpu;
pub mod ops;
pub mod probe;

pub use cpu::Slices;

use candle_core::{CpuStorage, Storage, Tensor};

use crate::error::Result;

/// Runs `f` on the numbers of a contiguous f32 tensor in host memory.
pub(crate) fn floats<T>(x: &Tensor, f: impl FnOnce(&[f32]) -> T) -> Result<T> {
    let (storage, layout) = x.storage_and_layout();
    match (&*storage, layout.contiguous_offsets()) {
        (Storage::Cpu(CpuStorage::F32(x)), Some((start, end))) => Ok(f(&x[start..end])),
        _ => Err(candle_core::Error::msg("a contiguous f32 tensor in host memory is expected").into()),
    }
}
