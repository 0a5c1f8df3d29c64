//! Attention in candle's own operations, for any device.

use candle_core::{D, DType, Tensor};

use crate::error::Result;

/// Cap on the scores of one block of queries, in bytes.
pub const BLOCK_BYTES: usize = 64 << 20;

/// Attends with `q` `[heads, n, head_dim]`, whose queries stand at `first`, `first + 1`, …, to `k` and `v`
/// `[kv_heads, len, head_dim]`, all f32; `positions` `[kv_heads][len]` are theirs.
/// Returns the output `[n, heads * head_dim]` and the column sums `[kv_heads, len]`, both f32.
///
/// # Errors
/// When the device fails.
pub fn attend(q: &Tensor, k: &Tensor, v: &Tensor, first: u32, positions: &[&[u32]]) -> Result<(Tensor, Tensor)> {
    let (heads, n, d) = q.dims3()?;
    let (kv_heads, len, _) = k.dims3()?;
    let group = heads / kv_heads;
    let (k, v) = (k.contiguous()?, v.contiguous()?);
    let block = (BLOCK_BYTES / (heads * len * size_of::<f32>())).clamp(1, n);
    let mut outputs = Vec::new();
    let mut sums: Option<Tensor> = None;
    for t in (0..n).step_by(block) {
        let rows = block.min(n - t);
        // [kv_heads, group * rows, d]: the query heads of a group read the same entries.
        let q = q.narrow(1, t, rows)?.contiguous()?.reshape((kv_heads, group * rows, d))?;
        let p = (q.matmul(&k.t()?)? / (d as f64).sqrt())?.reshape((kv_heads, group, rows, len))?;
        let p = match mask(positions, first + t as u32, rows, len) {
            Some(mask) => p.broadcast_add(&Tensor::from_vec(mask, (kv_heads, 1, rows, len), q.device())?)?,
            None => p,
        };
        let p = candle_nn::ops::softmax(&p, D::Minus1)?;
        let block_sums = (p.sum(2)?.sum(1)? / group as f64)?;
        sums = Some(match sums {
            Some(sums) => (sums + block_sums)?,
            None => block_sums,
        });
        let o = p.reshape((kv_heads, group * rows, len))?.matmul(&v)?;
        outputs.push(o.reshape((heads, rows, d))?.transpose(0, 1)?.reshape((rows, heads * d))?);
    }
    let sums = match sums {
        Some(sums) => sums,
        None => Tensor::zeros((kv_heads, len), DType::F32, q.device())?,
    };
    Ok((Tensor::cat(&outputs, 0)?, sums))
}

/// Minus infinity wherever an entry's position is after the query's, `[kv_heads, rows, len]`;
/// `None` where every query sees every entry.
fn mask(positions: &[&[u32]], first: u32, rows: usize, len: usize) -> Option<Vec<f32>> {
    if positions.iter().all(|of_head| of_head[..len].iter().all(|&p| p <= first)) {
        return None;
    }
    let mut mask = Vec::with_capacity(positions.len() * rows * len);
    for of_head in positions {
        for t in 0..rows as u32 {
            mask.extend(of_head[..len].iter().map(|&p| if p <= first + t { 0.0 } else { f32::NEG_INFINITY }));
        }
    }
    Some(mask)
}
