//! What an answer misses: the attention that its tokens would give to entries that are only in the store.

use candle_core::Tensor;
use rayon::prelude::*;

use super::Cache;
use super::layer::Slots;
use crate::attention::probe::{Reduce, probe};
use crate::error::Result;

/// Of the layers that bring something back, so many are looked at, for one token's queries.
const SAMPLE: usize = 3;

impl Cache {
    /// Looks at what the next token misses; [`Cache::take_missed`] says it.
    pub fn look(&mut self) {
        self.looking = Some(Vec::new());
    }

    /// The share of the last token's attention that went to entries which are only in the store, where it was looked at:
    /// the mean over all heads that were.
    pub fn take_missed(&mut self) -> Option<f32> {
        let shares = self.looking.take()?;
        Some(shares.iter().sum::<f32>() / shares.len().max(1) as f32)
    }

    /// Whether an answer is to be watched: something that it may need is only in the store.
    pub fn watches(&self) -> bool {
        self.options.guard && !self.past_context() && self.recalls()
    }

    fn sampled(&self, i: usize) -> bool {
        let (layers, lowest) = (self.layers.len(), self.lowest());
        let step = ((layers - lowest) / SAMPLE).max(1);
        i >= lowest && (layers - 1 - i).is_multiple_of(step)
    }

    /// Notes what `q` `[heads, n, head_dim]` would attend to in the store of one layer, and is not hot.
    pub(super) fn look_at_missed(&mut self, i: usize, q: &Tensor) -> Result<()> {
        let (Some(_), Some(store)) = (&self.looking, &self.store) else { return Ok(()) };
        if !self.sampled(i) {
            return Ok(());
        }
        let (d, group) = (self.shape.head_dim, self.shape.group());
        let rows: Vec<f32> = q.flatten_all()?.to_vec1()?;
        let of_head = rows.len() / self.shape.kv_heads;
        let positions = store.layers[i].positions();
        let missed = |(head, slots): (usize, &Slots)| -> f32 {
            let rows = &rows[head * of_head..(head + 1) * of_head];
            let shares = probe(rows, &store.keys(i, head, &positions), d, |_| positions.len(), Reduce::Sum);
            let mut hot = slots.positions.iter().peekable();
            let away = positions.iter().zip(shares).filter(|&(p, _)| {
                while hot.next_if(|&held| held < p).is_some() {}
                hot.peek() != Some(&p)
            });
            away.map(|(_, share)| share).sum::<f32>() / group as f32
        };
        let shares: Vec<f32> = self.layers[i].heads.par_iter().enumerate().map(missed).collect();
        if let Some(all) = &mut self.looking {
            all.extend(shares);
        }
        Ok(())
    }
}
