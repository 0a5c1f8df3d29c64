//! A layer's part in a pass: append, attend, add the column sums, and only then evict.

use candle_core::{Device, Tensor};
use rayon::prelude::*;

use super::layer::{HotLayer, Slots};
use super::ledger::Ledger;
use super::policy::{self, Claims, Entries, Observes, expected};
use super::rows::Rows;
use super::store::Store;
use super::{Cache, Phase, pinned_in};
use crate::attention::Slices;
use crate::attention::probe::{HeadKeys, Reduce, probe};
use crate::error::Result;
use crate::memory::{self, Site};
use crate::model::Attend;

/// Queries that recall looks back at while an answer is generated.
const LOOK_BACK: usize = 16;

/// Most tokens of a question whose queries are kept for a recall after the layer.
const MOST_ASKING: usize = 512;

impl Attend for Cache {
    fn attend(&mut self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let n = k.dim(1)?;
        let (first, angle) = (self.n_seen + self.offset, self.angle + self.offset);
        let kv = self.options.kv;
        let (k_rows, v_rows) = (Rows::encode(k, kv)?, Rows::encode(v, kv)?);
        if let Some(store) = &mut self.store {
            memory::claim(&Device::Cpu, store.bytes_of(n), Site::Store)?;
            let host = |x: &Tensor, rows: &Rows| match kv == store.kv() {
                true => rows.to_host(n),
                false => Rows::encode(x, store.kv())?.to_host(n),
            };
            let (k, v) = (host(k, &k_rows)?, host(v, &v_rows)?);
            store.append(layer, &k, &v, angle);
        }
        self.look_at(layer, q, first, angle)?;
        if matches!(self.phase, Phase::Streaming | Phase::Decode | Phase::Held) {
            self.recall_before(layer, first)?;
        }
        self.reserve(layer, n)?;
        let hot = &mut self.layers[layer];
        hot.append(&k_rows, &v_rows, first, angle)?;
        self.ledger.add(first, n as u32, self.shape.kv_heads as u32);
        let out = hot.attend(q, first)?;
        self.look_at_missed(layer, q)?;
        let hot = &mut self.layers[layer];
        let over = hot.len().saturating_sub(self.layer_budget(layer) as usize);
        self.peak_bytes = self.peak_bytes.max(self.bytes());
        let due = match self.phase {
            Phase::Streaming => over > 0,
            Phase::Exact | Phase::Held => false,
            Phase::Decode => over >= self.options.evict_every as usize,
        };
        if due {
            self.evict(layer, first + n as u32, self.layer_budget(layer))?;
        }
        if matches!(self.phase, Phase::Streaming | Phase::Decode) {
            self.keep_store_small(layer, first + n as u32)?;
        }
        Ok(out)
    }
}

impl Cache {
    /// Begins a layer that will see `n` tokens of a prompt before it is cut back.
    ///
    /// # Errors
    /// When the device has no memory for them.
    pub fn begin_layer(&mut self, i: usize, n: usize) -> Result<()> {
        self.asking.clear();
        let need = self.layers[i].len() + n;
        self.layers[i].make_room(need)
    }

    /// Ends a layer that has seen all `n` tokens of a prompt: what the question asks for is chosen, and the rest
    /// cut back to the budget.
    ///
    /// # Errors
    /// When the device fails.
    pub fn finish_layer(&mut self, i: usize, n: u32) -> Result<()> {
        let end = self.n_seen + n;
        let asking = std::mem::take(&mut self.asking);
        if let Some(ask) = self.ask
            && asking.n > 0
        {
            self.choose(i, &asking, ask, end)?;
        }
        self.evict(i, end, self.layer_budget(i))?;
        self.bring_back(i, end)?;
        self.keep_store_small(i, end)?;
        self.shrink_layer(i)
    }

    /// Cuts every layer back to the budget.
    ///
    /// # Errors
    /// When the device fails.
    pub fn evict_all(&mut self) -> Result<()> {
        for i in 0..self.layers.len() {
            self.evict(i, self.n_seen, self.layer_budget(i))?;
            self.keep_store_small(i, self.n_seen)?;
        }
        Ok(())
    }

    /// Keeps what somebody will want to know of these queries.
    fn look_at(&mut self, i: usize, q: &Tensor, first: u32, angle: u32) -> Result<()> {
        let observes = self.policy().observes();
        let window = if let Observes::Queries(n) = observes { n } else { 0 };
        let tail = window.max(if self.options.recall_every.is_some() || self.watches() { LOOK_BACK } else { 0 });
        if tail > 0 {
            self.tails[i].push(q, first, tail)?;
        }
        let n = q.dim(1)?;
        if let Some(ask) = self.ask
            && first + n as u32 > ask
        {
            let from = ask.saturating_sub(first) as usize;
            self.asking.push(&q.narrow(1, from, n - from)?, first + from as u32, MOST_ASKING)?;
        }
        if observes == Observes::Statistics {
            let skipped = expected::SKIPPED.saturating_sub(first).min(n as u32) as usize;
            if skipped < n {
                let q = q.narrow(1, skipped, n - skipped)?.contiguous()?;
                let plain = self.rope.unrotate(&q, angle + skipped as u32)?;
                let d = self.shape.head_dim;
                let rows: Vec<f32> = plain.flatten_all()?.to_vec1()?;
                let of_heads = rows.chunks_exact((n - skipped) * d);
                self.moments[i].iter_mut().zip(of_heads).for_each(|(moments, q)| moments.add(q, d));
            }
        }
        Ok(())
    }

    /// Makes room for `n` more entries, without more than the phase will need.
    fn reserve(&mut self, i: usize, n: usize) -> Result<()> {
        let budget = self.layer_budget(i);
        let layer = &mut self.layers[i];
        let need = layer.len() + n;
        if layer.has_room(need) {
            return Ok(());
        }
        // Growing by a share keeps the copies few; where a budget bounds the cache, never past its bound.
        let grown = need.max(layer.capacity() + layer.capacity() / 4);
        let bound = match (self.plan.prompt.keeps_all(), self.phase) {
            (true, _) => usize::MAX,
            (false, Phase::Decode) => (budget + self.options.evict_every) as usize,
            (false, _) => budget as usize + n,
        };
        layer.set_capacity(grown.min(bound.max(need)))
    }

    /// Evicts from one layer down to `budget`, once `n_seen` tokens have been through it.
    pub(super) fn evict(&mut self, i: usize, n_seen: u32, budget: u32) -> Result<()> {
        if self.layers[i].len() <= budget as usize || self.policy().keeps_all() {
            return Ok(());
        }
        self.layers[i].fetch_scores()?;
        let observed = self.observed(i, n_seen)?;
        let pinned = pinned_in(&self.pinned);
        let slots: Vec<Vec<u32>> = (self.layers[i].heads.iter().enumerate())
            .map(|(head, slots)| {
                let entries = Entries {
                    positions: &slots.positions,
                    scores: &slots.scores,
                    missed: &slots.missed,
                    observed: observed.as_ref().map(|observed| observed[head].as_slice()),
                    n_seen,
                };
                let claims = Claims { pinned: &pinned, recalled: &self.recalled[i][head] };
                policy::keep(self.policy(), &entries, budget, &self.options, &claims)
            })
            .collect();
        drop_entries(&mut self.layers[i], i, &mut self.ledger, self.store.as_mut(), &slots, n_seen)
    }

    /// What the policy asks for, by KV head and slot.
    fn observed(&self, i: usize, n_seen: u32) -> Result<Option<Vec<Vec<f32>>>> {
        let layer = &self.layers[i];
        let (d, group, len) = (self.shape.head_dim, self.shape.group(), layer.len());
        Ok(match self.policy().observes() {
            Observes::Nothing => None,
            Observes::Repetition => Some(layer.heads.iter().map(|slots| slots.repeated.clone()).collect()),
            Observes::Queries(window) => Some(layer.k.with_slices(len, |slices, capacity| {
                let of_head = |(head, slots): (usize, &Slots)| {
                    let (rows, positions) = self.tails[i].of_group(head, group, window);
                    let visible: Vec<usize> = positions.iter().map(|&p| slots.before(p + 1)).collect();
                    let keys = HeadKeys { slices, base: head * capacity * d, len, head_dim: d };
                    let mut votes = probe(&rows, &keys, d, |row| visible[row], Reduce::Sum);
                    votes.iter_mut().for_each(|vote| *vote /= group as f32);
                    votes
                };
                layer.heads.iter().enumerate().map(of_head).collect()
            })?),
            Observes::Statistics => {
                let turns = self.rope.mean_turns(self.angle + (n_seen - self.n_seen), expected::FUTURE);
                let rotation = expected::Rotation { turns: &turns, interleaved: self.rope.interleaved() };
                Some(layer.k.with_slices(len, |k, k_capacity| {
                    layer.v.with_slices(len, |v, v_capacity| {
                        let of_head = |head: usize| {
                            let keys = HeadKeys { slices: k, base: head * k_capacity * d, len, head_dim: d };
                            let values = HeadKeys { slices: v, base: head * v_capacity * d, len, head_dim: d };
                            let moments = &self.moments[i][head * group..(head + 1) * group];
                            expected::scores(&keys, &values, d, moments, &rotation)
                        };
                        (0..self.shape.kv_heads).into_par_iter().map(of_head).collect()
                    })
                })??)
            }
        })
    }

    /// Brings the store inside its limit.
    pub(super) fn keep_store_small(&mut self, i: usize, n_seen: u32) -> Result<()> {
        let Some(store) = &mut self.store else { return Ok(()) };
        if !store.over(i) {
            return Ok(());
        }
        let layer = &mut self.layers[i];
        layer.fetch_scores()?;
        for (head, slots) in layer.heads.iter().enumerate() {
            store.note(i, head, slots, 0..slots.len(), n_seen);
        }
        store.enforce(i, &pinned_in(&self.pinned));
        Ok(())
    }
}

/// Keeps only `slots` of a layer; the rest is counted as gone, and what is known of it goes to the store.
pub(super) fn drop_entries(
    layer: &mut HotLayer,
    i: usize,
    ledger: &mut Ledger,
    mut store: Option<&mut Store>,
    slots: &[Vec<u32>],
    n_seen: u32,
) -> Result<()> {
    for (head, (entries, slots)) in layer.heads.iter().zip(slots).enumerate() {
        let mut kept = slots.iter().copied().peekable();
        let gone: Vec<usize> = (0..entries.len()).filter(|&slot| kept.next_if_eq(&(slot as u32)).is_none()).collect();
        ledger.remove(gone.iter().map(|&slot| entries.positions[slot]));
        if let Some(store) = &mut store {
            store.note(i, head, entries, gone.into_iter(), n_seen);
        }
    }
    layer.retain(slots)
}

/// A pass that repeats a piece of the text: it attends to all that is hot, leaves nothing behind but, for each
/// entry of the piece, the largest attention that it got (KVzip, arXiv 2505.23416, section 3.2).
pub struct Repeating<'a> {
    /// The cache that holds the text.
    pub cache: &'a mut Cache,
    /// Positions of the piece.
    pub piece: std::ops::Range<u32>,
    /// Position after everything that is hot.
    pub end: u32,
}

impl Attend for Repeating<'_> {
    fn attend(&mut self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let Cache { layers, options, shape, peak_bytes, .. } = &mut *self.cache;
        let n = k.dim(1)?;
        let hot = &mut layers[layer];
        hot.fetch_scores()?;
        let len = hot.len();
        let before = hot.heads.clone();
        hot.make_room(len + n)?;
        hot.append(&Rows::encode(k, options.kv)?, &Rows::encode(v, options.kv)?, self.end, self.end)?;
        *peak_bytes = (*peak_bytes).max(layers.iter().map(HotLayer::bytes).sum());
        let hot = &mut layers[layer];
        let out = hot.attend(q, self.end)?;

        // The attention is taken among the sinks, the piece and the repetition itself.
        let (d, group) = (shape.head_dim, shape.group());
        let rows = q.flatten_all()?.to_vec1::<f32>()?;
        hot.fetch_scores()?;
        hot.heads = before;
        let HotLayer { k, heads, .. } = hot;
        k.with_slices(len + n, |slices, capacity| {
            for (head, slots) in heads.iter_mut().enumerate() {
                let sinks = slots.before(options.sinks.min(self.piece.start));
                let piece = slots.before(self.piece.start)..slots.before(self.piece.end);
                let mut among = vec![0f32; (sinks + piece.len() + n) * d];
                let mut at = 0;
                for run in [0..sinks, piece.clone(), len..len + n] {
                    let numbers = run.len() * d;
                    slices.widen((head * capacity + run.start) * d, &mut among[at..at + numbers]);
                    at += numbers;
                }
                let seen = sinks + piece.len();
                let among = HeadKeys { slices: Slices::F32(&among), base: 0, len: seen + n, head_dim: d };
                let rows = &rows[head * group * n * d..(head + 1) * group * n * d];
                let most = probe(rows, &among, d, |row| seen + row % n + 1, Reduce::Max);
                for (repeated, most) in slots.repeated[piece].iter_mut().zip(&most[sinks..]) {
                    *repeated = repeated.max(*most);
                }
            }
        })?;
        Ok(out)
    }
}
