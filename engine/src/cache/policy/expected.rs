//! ExpectedAttention: arXiv 2510.00636, section 3. Queries are taken to be normally distributed as those so
//! far; a key's expected attention over the coming positions then has a closed form, weighted by the value's
//! length. No query in particular is asked, so it suits documents that will be asked many questions.

use crate::attention::cpu::TILE;
use crate::attention::probe::Keys;
use crate::math::dot;

use super::{Entries, H2o, MIN_RECENT, Observes, Policy, Protection};

/// Coming positions that the rotation of queries is averaged over.
pub const FUTURE: u32 = 512;

/// First positions whose queries are outliers and do not count.
pub const SKIPPED: u32 = 4;

/// Top by [`scores`], beside sinks and recent entries.
pub struct Expected;

impl Policy for Expected {
    fn protection(&self, budget: u32, sinks: u32, recent: Option<u32>) -> Protection {
        Protection { sinks, recent: recent.unwrap_or(budget / 8).max(MIN_RECENT) }
    }

    fn observes(&self) -> Observes {
        Observes::Statistics
    }

    fn ranks(&self, entries: &Entries) -> Vec<f32> {
        entries.observed.map_or_else(|| H2o.ranks(entries), <[f32]>::to_vec)
    }
}

/// Sums of the unrotated queries of one query head.
#[derive(Debug, Clone, Default)]
pub struct Moments {
    /// Queries.
    pub count: f32,
    /// Their sum, `[d]`.
    pub sum: Vec<f32>,
    /// The sum of their outer products, `[d, d]`.
    pub outer: Vec<f32>,
}

impl Moments {
    /// Adds queries `[n, d]`.
    pub fn add(&mut self, q: &[f32], d: usize) {
        self.sum.resize(d, 0.0);
        self.outer.resize(d * d, 0.0);
        self.count += (q.len() / d) as f32;
        for q in q.chunks_exact(d) {
            for (i, &x) in q.iter().enumerate() {
                self.sum[i] += x;
                for (out, &y) in self.outer[i * d..(i + 1) * d].iter_mut().zip(q) {
                    *out = x.mul_add(y, *out);
                }
            }
        }
    }

    /// Mean `[d]` and covariance `[d, d]`.
    fn normal(&self, d: usize) -> (Vec<f32>, Vec<f32>) {
        let by = 1.0 / self.count.max(1.0);
        let mean: Vec<f32> = self.sum.iter().map(|x| x * by).collect();
        let covariance = (0..d * d).map(|at| self.outer[at] * by - mean[at / d] * mean[at % d]).collect();
        (mean, covariance)
    }
}

/// The mean of the rotations for the coming positions: cosine and sine of each pair, and which numbers of a
/// head are the pairs.
pub struct Rotation<'a> {
    /// Mean cosine and sine, `[d / 2]`.
    pub turns: &'a [(f32, f32)],
    /// Pairs are neighbours, or halves of the head.
    pub interleaved: bool,
}

impl Rotation<'_> {
    fn apply(&self, x: &mut [f32], stride: usize) {
        let half = self.turns.len();
        for (i, &(cos, sin)) in self.turns.iter().enumerate() {
            let (a, b) = if self.interleaved { (2 * i, 2 * i + 1) } else { (i, i + half) };
            let (x0, x1) = (x[a * stride], x[b * stride]);
            x[a * stride] = x0 * cos - x1 * sin;
            x[b * stride] = x0 * sin + x1 * cos;
        }
    }
}

/// The expected attention of each key, weighted by its value's length: for each query head of the group
/// `softmax(μᵀk/√d + kᵀΣk/(2d))`, mean over the group. Keys are rotated for their own positions.
pub fn scores(keys: &dyn Keys, values: &dyn Keys, d: usize, group: &[Moments], rotation: &Rotation) -> Vec<f32> {
    let n = keys.count();
    let mut out = vec![0f32; n];
    let mut tile = vec![0f32; TILE * d];
    for moments in group.iter().filter(|moments| moments.count > 0.0) {
        let (mut mean, mut covariance) = moments.normal(d);
        // R μ, and R Σ Rᵀ: the rotation on every column, then on every row.
        rotation.apply(&mut mean, 1);
        (0..d).for_each(|column| rotation.apply(&mut covariance[column..], d));
        covariance.chunks_exact_mut(d).for_each(|row| rotation.apply(row, 1));
        let scale = 1.0 / (d as f32).sqrt();
        let mut logits = Vec::with_capacity(n);
        each_row(keys, d, &mut tile, |_, k| {
            let square: f32 = covariance.chunks_exact(d).zip(k).map(|(row, x)| x * dot(row, k)).sum();
            logits.push(dot(&mean, k) * scale + square / (2.0 * d as f32));
        });
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f32 = logits.iter().map(|x| (x - max).exp()).sum();
        let by = 1.0 / (total * group.len() as f32);
        out.iter_mut().zip(&logits).for_each(|(out, x)| *out += (x - max).exp() * by);
    }
    each_row(values, d, &mut tile, |i, v| out[i] *= dot(v, v).sqrt());
    out
}

fn each_row(rows: &dyn Keys, d: usize, tile: &mut [f32], mut f: impl FnMut(usize, &[f32])) {
    for start in (0..rows.count()).step_by(TILE) {
        let some = &mut tile[..TILE.min(rows.count() - start) * d];
        rows.widen(start, some);
        some.chunks_exact(d).enumerate().for_each(|(i, row)| f(start + i, row));
    }
}
