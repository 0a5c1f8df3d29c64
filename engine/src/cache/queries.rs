//! The last queries of a layer, in host memory.

use candle_core::Tensor;

use crate::error::Result;
use crate::math::{dot, floats};

/// Rotated queries of neighbouring tokens, `[heads, n, head_dim]`.
#[derive(Debug, Clone, Default)]
pub struct Queries {
    /// Position of the first.
    pub first: u32,
    /// Tokens.
    pub n: usize,
    head_dim: usize,
    data: Vec<f32>,
}

impl Queries {
    /// Adds the queries `q` `[heads, n, head_dim]` of tokens at positions from `first` and keeps the last
    /// `keep`. What does not join on to them goes.
    ///
    /// # Errors
    /// When the device fails.
    pub fn push(&mut self, q: &Tensor, first: u32, keep: usize) -> Result<()> {
        let (heads, n, d) = q.dims3()?;
        let old = if self.first + self.n as u32 == first && self.head_dim == d { self.n } else { 0 };
        let from_new = n.min(keep);
        let from_old = old.min(keep - from_new);
        let host = q.narrow(1, n - from_new, from_new)?.contiguous()?.to_device(&candle_core::Device::Cpu)?;
        let mut data = Vec::with_capacity(heads * (from_old + from_new) * d);
        floats(&host, |new| {
            for head in 0..heads {
                let end = (head + 1) * self.n * d;
                data.extend_from_slice(&self.data[end.min(self.data.len()) - from_old * d..end.min(self.data.len())]);
                data.extend_from_slice(&new[head * from_new * d..(head + 1) * from_new * d]);
            }
        })?;
        *self =
            Self { first: first + n as u32 - (from_old + from_new) as u32, n: from_old + from_new, head_dim: d, data };
        Ok(())
    }

    /// Queries `[heads, n, head_dim]` of tokens at positions from `first`.
    pub fn from_parts(first: u32, n: usize, head_dim: usize, data: Vec<f32>) -> Self {
        Self { first, n, head_dim, data }
    }

    /// `[heads, n, head_dim]`.
    pub fn shape(&self) -> Vec<usize> {
        vec![self.data.len() / (self.n * self.head_dim).max(1), self.n, self.head_dim]
    }

    /// The numbers.
    pub fn data(&self) -> &[f32] {
        &self.data
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The queries of the `group` heads that share a KV head, of the last `last` tokens: rows
    /// `[group * tokens, head_dim]`, and the position of each.
    pub fn of_group(&self, kv_head: usize, group: usize, last: usize) -> (Vec<f32>, Vec<u32>) {
        let d = self.head_dim;
        let from = self.n.saturating_sub(last);
        let heads = kv_head * group..(kv_head + 1) * group;
        let rows = heads.clone().flat_map(|head| &self.data[(head * self.n + from) * d..(head + 1) * self.n * d]);
        let positions = heads.flat_map(|_| (from..self.n).map(|t| self.first + t as u32));
        (rows.copied().collect(), positions.collect())
    }

    /// Of all their queries at most `most` rows: one of the last token, then always the one that is least like those
    /// chosen. Much of a question is phrase and template, which ask for the same, and so do heads.
    pub fn unlike(&self, kv_head: usize, group: usize, most: usize) -> (Vec<f32>, Vec<u32>) {
        let (rows, positions) = self.of_group(kv_head, group, self.n);
        let rows: Vec<&[f32]> = rows.chunks_exact(self.head_dim).collect();
        let norms: Vec<f32> = rows.iter().map(|row| dot(row, row).sqrt().max(f32::MIN_POSITIVE)).collect();
        let mut chosen: Vec<usize> = Vec::new();
        let mut nearest = vec![f32::NEG_INFINITY; rows.len()];
        let mut next = self.n.checked_sub(1);
        while let Some(row) = next.filter(|_| chosen.len() < most) {
            chosen.push(row);
            for (other, nearest) in nearest.iter_mut().enumerate() {
                *nearest = nearest.max(dot(rows[row], rows[other]) / (norms[row] * norms[other]));
            }
            next =
                (0..rows.len()).filter(|row| !chosen.contains(row)).min_by(|&a, &b| nearest[a].total_cmp(&nearest[b]));
        }
        chosen.sort_unstable();
        let data = chosen.iter().flat_map(|&row| rows[row]).copied().collect();
        (data, chosen.into_iter().map(|row| positions[row]).collect())
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn the_last_queries_stay_and_a_gap_begins_anew() {
        let q = |range: std::ops::Range<u32>| {
            let rows: Vec<f32> = (0..2).flat_map(|h| range.clone().flat_map(move |p| [h as f32, p as f32])).collect();
            Tensor::from_vec(rows, (2, range.len(), 2), &Device::Cpu).unwrap()
        };
        let mut queries = Queries::default();
        queries.push(&q(0..3), 0, 4).unwrap();
        queries.push(&q(3..5), 3, 4).unwrap();
        assert_eq!((queries.first, queries.n), (1, 4));
        let (rows, positions) = queries.of_group(1, 1, 9);
        assert_eq!(rows, [1.0, 1.0, 1.0, 2.0, 1.0, 3.0, 1.0, 4.0]);
        assert_eq!(positions, [1, 2, 3, 4]);
        assert_eq!(queries.of_group(0, 2, 2), (vec![0.0, 3.0, 0.0, 4.0, 1.0, 3.0, 1.0, 4.0], vec![3, 4, 3, 4]));
        // The first head's are all alike but for their length; of the second, that at 1 is least like them.
        assert_eq!(queries.unlike(0, 2, 2), (vec![0.0, 4.0, 1.0, 1.0], vec![4, 1]));
        assert_eq!(queries.unlike(0, 2, 9).1, [1, 2, 3, 4, 1, 2, 3, 4]);
        queries.push(&q(9..10), 9, 4).unwrap();
        assert_eq!((queries.first, queries.n), (9, 1));
    }
}
