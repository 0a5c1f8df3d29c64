//! Attention of a few queries to many keys, without values: what the policies that look at certain queries,
//! and recall, judge entries by.

use std::collections::VecDeque;

use rayon::prelude::*;

use super::Slices;
use super::cpu::TILE;
use crate::math::{exp, gemm_f32};

/// Cap on the logits that are held at once, in bytes.
const BLOCK_BYTES: usize = 16 << 20;

/// How the queries' attention to one key becomes one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduce {
    /// The sum over all queries.
    Sum,
    /// The largest.
    Max,
}

/// Keys of one KV head, read a few at a time.
pub trait Keys: Sync {
    /// How many.
    fn count(&self) -> usize;

    /// Writes those from `start` on as f32, as many as fit.
    fn widen(&self, start: usize, out: &mut [f32]);
}

/// Rows of one head among many: from number `base` on, `len` rows of `head_dim`.
pub struct HeadKeys<'a> {
    /// All rows.
    pub slices: Slices<'a>,
    /// Where the head begins.
    pub base: usize,
    /// Rows of the head.
    pub len: usize,
    /// Width of a row.
    pub head_dim: usize,
}

impl Keys for HeadKeys<'_> {
    fn count(&self) -> usize {
        self.len
    }

    fn widen(&self, start: usize, out: &mut [f32]) {
        self.slices.widen(self.base + start * self.head_dim, out);
    }
}

/// Softmax of `q kᵀ / √d`, each query's over the keys that it sees, reduced over the queries: one number a key.
///
/// `q` is `[rows, d]`; query `i` sees the first `visible(i)` keys, at least one.
pub fn probe(
    q: &[f32],
    keys: &dyn Keys,
    d: usize,
    visible: impl Fn(usize) -> usize + Sync,
    reduce: Reduce,
) -> Vec<f32> {
    let (rows, n) = (q.len() / d, keys.count());
    if rows == 0 || n == 0 {
        return vec![0.0; n];
    }
    let mut out = match reduce {
        Reduce::Sum => vec![0.0; n],
        Reduce::Max => vec![f32::NEG_INFINITY; n],
    };
    // Every key is widened once for as many queries as the cap allows.
    let scale = 1.0 / (d as f32).sqrt();
    let tiles = n.div_ceil(TILE);
    let block = (BLOCK_BYTES / (tiles * TILE * size_of::<f32>())).clamp(1, rows);
    let mut logits = vec![0f32; block * tiles * TILE];
    for first in (0..rows).step_by(block) {
        let here = block.min(rows - first);
        let q = &q[first * d..(first + here) * d];
        let seen: Vec<usize> = (first..first + here).map(|row| visible(row).clamp(1, n)).collect();
        // Of each tile, [here, TILE], and of each of its rows the largest and the sum of e to what is less.
        let parts: Vec<Vec<(f32, f32)>> = logits[..here * tiles * TILE]
            .par_chunks_mut(here * TILE)
            .enumerate()
            .map_init(
                || vec![0f32; TILE * d],
                |wide, (tile, logits)| {
                    let some = TILE.min(n - tile * TILE);
                    keys.widen(tile * TILE, &mut wide[..some * d]);
                    // SAFETY: q is here × d, wide holds some × d, logits is here × TILE and belongs to this task.
                    unsafe {
                        let dst = (logits.as_mut_ptr(), TILE);
                        gemm_f32((here, some, d), dst, (q.as_ptr(), 1, d), (wide.as_ptr(), d, 1), scale, false);
                    }
                    let rows = logits.chunks_exact(TILE).zip(&seen);
                    rows.map(|(row, &seen)| part(&row[..some.min(seen.saturating_sub(tile * TILE))])).collect()
                },
            )
            .collect();
        // The logarithm of each row's whole.
        let wholes: Vec<f32> = (0..here)
            .map(|row| {
                let max = parts.iter().map(|tile| tile[row].0).fold(f32::NEG_INFINITY, f32::max);
                max + parts.iter().map(|tile| tile[row].1 * (tile[row].0 - max).exp()).sum::<f32>().ln()
            })
            .collect();
        out.par_chunks_mut(TILE).zip(logits.par_chunks(here * TILE)).enumerate().for_each(|(tile, (out, logits))| {
            for ((row, &seen), &whole) in logits.chunks_exact(TILE).zip(&seen).zip(&wholes) {
                let row = &row[..out.len().min(seen.saturating_sub(tile * TILE))];
                match reduce {
                    Reduce::Sum => out.iter_mut().zip(row).for_each(|(out, x)| *out += exp((x - whole).min(0.0))),
                    // The largest logarithm is that of the largest: one exponential less for each key.
                    Reduce::Max => out.iter_mut().zip(row).for_each(|(out, x)| *out = out.max(*x - whole)),
                }
            }
        });
    }
    if reduce == Reduce::Max {
        out.iter_mut().for_each(|x| *x = x.exp());
    }
    out
}

/// The largest of `row`, and the sum of e to what each of them is less.
fn part(row: &[f32]) -> (f32, f32) {
    let (chunks, rest) = row.as_chunks::<8>();
    let mut most = [f32::NEG_INFINITY; 8];
    for chunk in chunks {
        for lane in 0..8 {
            most[lane] = most[lane].max(chunk[lane]);
        }
    }
    let max = most.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sums = [0f32; 8];
    for chunk in chunks {
        for lane in 0..8 {
            sums[lane] += exp(chunk[lane] - max);
        }
    }
    (max, sums.iter().sum::<f32>() + rest.iter().map(|x| exp(x - max)).sum::<f32>())
}

/// The largest of each number and its neighbours up to `reach` away, as SnapKV pools (arXiv 2404.14469,
/// section 4.2): `positions` ascend, and neighbours are those whose position is at most `reach` away.
pub fn max_pool(values: &[f32], positions: &[u32], reach: u32) -> Vec<f32> {
    // Numbers that no later one in reach surpasses, the largest first: each enters and leaves once.
    let mut falling: VecDeque<usize> = VecDeque::new();
    let mut next = 0;
    (0..values.len())
        .map(|i| {
            while next < values.len() && positions[next] <= positions[i] + reach {
                while falling.pop_back_if(|last| values[*last] <= values[next]).is_some() {}
                falling.push_back(next);
                next += 1;
            }
            while falling.pop_front_if(|first| positions[*first] + reach < positions[i]).is_some() {}
            values[falling[0]]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive(q: &[f32], k: &[f32], d: usize, visible: &[usize], reduce: Reduce) -> Vec<f64> {
        let mut out = vec![0f64; k.len() / d];
        for (q, &visible) in q.chunks(d).zip(visible) {
            let logits: Vec<f64> = k
                .chunks(d)
                .take(visible)
                .map(|k| q.iter().zip(k).map(|(a, b)| f64::from(a * b)).sum::<f64>() / (d as f64).sqrt())
                .collect();
            let total: f64 = logits.iter().map(|x| x.exp()).sum();
            for (out, x) in out.iter_mut().zip(logits) {
                let p = x.exp() / total;
                *out = if reduce == Reduce::Sum { *out + p } else { out.max(p) };
            }
        }
        out
    }

    #[test]
    fn sums_and_maxima_equal_the_plain_computation() {
        let d = 16;
        let number = |i: usize| ((i * 2_654_435_761 % 1_000) as f32 / 250.0) - 2.0;
        let q: Vec<f32> = (0..70 * d).map(number).collect();
        let k: Vec<f32> = (0..333 * d).map(|i| number(i + 7)).collect();
        let visible: Vec<usize> = (0..70).map(|i| 264 + i).collect();
        for reduce in [Reduce::Sum, Reduce::Max] {
            let keys = HeadKeys { slices: Slices::F32(&k), base: 0, len: 333, head_dim: d };
            let got = probe(&q, &keys, d, |i| visible[i], reduce);
            for (got, want) in got.iter().zip(naive(&q, &k, d, &visible, reduce)) {
                assert!((f64::from(*got) - want).abs() <= 1e-5 * want.max(1e-3), "{reduce:?}: {got} is not {want}");
            }
        }
    }

    #[test]
    fn pooling_reaches_over_slots_but_not_over_gaps() {
        let values = [0.0, 5.0, 1.0, 0.0, 2.0];
        assert_eq!(max_pool(&values, &[0, 1, 2, 3, 4], 1), [5.0, 5.0, 5.0, 2.0, 2.0]);
        assert_eq!(max_pool(&values, &[0, 1, 9, 10, 30], 3), [5.0, 5.0, 1.0, 1.0, 2.0]);
        let number = |i: usize| (i * 2_654_435_761) % 97;
        let values: Vec<f32> = (0..500).map(|i| number(i) as f32).collect();
        let positions: Vec<u32> = (0..500)
            .scan(0, |at, i| {
                *at += 1 + (number(i) / 30) as u32;
                Some(*at)
            })
            .collect();
        for reach in [0, 1, 3, 8] {
            let near = |i: usize, j: &usize| positions[i].abs_diff(positions[*j]) <= reach;
            let largest = |i| (0..500).filter(|j| near(i, j)).map(|j| values[j]).fold(0.0, f32::max);
            assert_eq!(max_pool(&values, &positions, reach), (0..500).map(largest).collect::<Vec<_>>());
        }
    }
}
