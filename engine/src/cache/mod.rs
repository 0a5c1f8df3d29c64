//! The hot cache of one conversation: at most *budget* entries per layer and KV head.

mod layer;
mod ledger;
pub mod policy;

use std::ops::Range;

use candle_core::{Device, Tensor};

use crate::error::{Error, Result};
use crate::model::{Attend, Config, Rope};
use crate::protocol::{CacheOptions, CacheState, KeptPatch, KvType};

use layer::HotLayer;
use ledger::Ledger;
use policy::{MIN_BUDGET, MIN_RECENT, Policy};

/// When entries over the budget go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// After every chunk, down to the budget.
    Prefill,
    /// Once `evict_every` entries are over the budget, all of them.
    Decode,
}

/// The hot cache and its bookkeeping.
pub struct Cache {
    layers: Vec<HotLayer>,
    ledger: Ledger,
    policy: Box<dyn Policy>,
    options: CacheOptions,
    budget: u32,
    pins: Vec<Range<u32>>,
    bytes_per_token: u64,
    n_seen: u32,
    /// The position that the next token's key is rotated for.
    angle: u32,
    phase: Phase,
    peak_bytes: u64,
}

impl Cache {
    /// An empty cache for a model of this shape; `budget` is in force where the options leave it open.
    ///
    /// # Errors
    /// [`Error::Options`] for options that cannot work.
    pub fn new(config: &Config, options: &CacheOptions, budget: u32, device: &Device) -> Result<Self> {
        let budget = checked_budget(options.budget.unwrap_or(budget))?;
        if options.chunk == 0 || options.evict_every == 0 {
            return Err(Error::Options("A chunk and an eviction take at least 1 token; raise the value.".into()));
        }
        let layers = (0..config.layers).map(|_| HotLayer::new(config, options.kv, device)).collect::<Result<_>>()?;
        Ok(Self {
            layers,
            ledger: Ledger::new((config.layers * config.kv_heads) as u32),
            policy: policy::by_name(options.policy),
            options: options.clone(),
            budget,
            pins: Vec::new(),
            bytes_per_token: bytes_per_token(config, options.kv),
            n_seen: 0,
            angle: 0,
            phase: Phase::Prefill,
            peak_bytes: 0,
        })
    }

    /// Tokens that have been through all layers.
    pub fn n_seen(&self) -> u32 {
        self.n_seen
    }

    /// The budget in force.
    pub fn budget(&self) -> u32 {
        self.budget
    }

    /// The options it was made with.
    pub fn options(&self) -> &CacheOptions {
        &self.options
    }

    /// Says what the coming tokens are.
    pub fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Counts `n` tokens as seen, once they have been through all layers.
    pub fn advance(&mut self, n: u32) {
        self.n_seen += n;
        self.angle += n;
    }

    /// The position that the next token's query and key are rotated for: its own, until the chat passes the
    /// trained context.
    pub fn angle(&self) -> u32 {
        self.angle
    }

    /// Makes room for `n` more tokens inside a trained context of `context`: where they would pass it, the
    /// kept keys are rotated back to neighbouring angles, as StreamingLLM does (arXiv 2309.17453, section
    /// 3.2). Positions keep counting.
    ///
    /// # Errors
    /// [`Error::ContextFull`] where the policy keeps more than the context holds.
    pub fn stay_in_context(&mut self, n: u32, context: u32, rope: &Rope) -> Result<()> {
        if self.angle + n <= context {
            return Ok(());
        }
        if self.policy.keeps_all() {
            return Err(Error::ContextFull(context));
        }
        // Where the budget itself fills the context, an eighth of it makes way, and not for every token anew.
        let most = self.budget.min(context - context / 8).min(context.saturating_sub(n)).max(MIN_BUDGET);
        for i in 0..self.layers.len() {
            self.evict(i, self.n_seen, most)?;
        }
        let end = self.layers.iter().map(HotLayer::len).max().unwrap_or(0) as u32;
        for layer in self.layers.iter_mut().filter(|layer| layer.len() > 0) {
            layer.rotate_to(end, rope)?;
        }
        self.angle = end;
        Ok(())
    }

    /// Positions that no policy may evict, in place of those before.
    ///
    /// # Errors
    /// [`Error::Options`] where they leave no room in the budget.
    pub fn set_pins(&mut self, pins: Vec<Range<u32>>) -> Result<()> {
        self.check(self.budget, &pins)?;
        self.pins = pins;
        Ok(())
    }

    /// Changes policy and protections from here on; entries over the budget go at once.
    ///
    /// # Errors
    /// [`Error::Options`] where the options cannot work, or the device fails.
    pub fn set_options(&mut self, options: &CacheOptions, budget: u32) -> Result<()> {
        let budget = checked_budget(options.budget.unwrap_or(budget))?;
        self.policy = policy::by_name(options.policy);
        self.options = CacheOptions { kv: self.options.kv, ..options.clone() };
        self.set_budget(budget)
    }

    /// Changes the budget: down evicts at once and gives the memory back.
    ///
    /// # Errors
    /// [`Error::Options`] where it is too small, or the device fails.
    pub fn set_budget(&mut self, budget: u32) -> Result<()> {
        self.check(checked_budget(budget)?, &self.pins)?;
        self.budget = budget;
        for i in 0..self.layers.len() {
            self.evict(i, self.n_seen, self.budget)?;
        }
        self.shrink()
    }

    /// Gives back the memory that only prefill needed.
    ///
    /// # Errors
    /// When the device fails.
    pub fn shrink(&mut self) -> Result<()> {
        if self.policy.keeps_all() {
            return Ok(());
        }
        let room = (self.budget + self.options.evict_every) as usize;
        for layer in &mut self.layers {
            if layer.capacity() > room {
                layer.set_capacity(room)?;
            }
        }
        Ok(())
    }

    /// Drops every entry at a position from `n` on.
    ///
    /// # Errors
    /// When the device fails.
    pub fn truncate(&mut self, n: u32) -> Result<()> {
        for i in 0..self.layers.len() {
            let positions = &self.layers[i].positions;
            // Heads may hold different numbers of older entries, but a layer holds as many of each.
            let len = positions.iter().map(|of_head| of_head.partition_point(|&p| p < n)).min().unwrap_or(0);
            if positions.iter().any(|of_head| of_head.len() != len) {
                self.keep_best(i, n, len as u32)?;
            }
        }
        self.ledger.truncate(n);
        if self.angle == self.n_seen {
            (self.n_seen, self.angle) = (n.min(self.n_seen), n.min(self.n_seen));
            return Ok(());
        }
        self.n_seen = self.n_seen.min(n);
        let last = self.layers.iter().flat_map(|layer| &layer.angles).filter_map(|angles| angles.last());
        self.angle = last.max().map_or(0, |last| last + 1);
        Ok(())
    }

    /// Fewest entries that any layer holds for a KV head.
    pub fn least_entries(&self) -> usize {
        self.layers.iter().map(HotLayer::len).min().unwrap_or(0)
    }

    /// Kept positions, `[layers][kv_heads]`, ascending.
    pub fn positions(&self) -> impl Iterator<Item = &[Vec<u32>]> {
        self.layers.iter().map(|layer| layer.positions.as_slice())
    }

    /// Bytes of all buffers now.
    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(HotLayer::bytes).sum()
    }

    /// Counters for the person.
    pub fn state(&self) -> CacheState {
        CacheState {
            n_seen: self.n_seen,
            budget: self.budget,
            auto: self.options.budget.is_none(),
            hot_entries: self.layers.iter().map(HotLayer::len).max().unwrap_or(0) as u32,
            hot_bytes: self.bytes(),
            hot_peak_bytes: self.peak_bytes,
            full_bytes: u64::from(self.n_seen) * self.bytes_per_token,
            kept: self.ledger.mean(),
            past_context: self.angle < self.n_seen,
        }
    }

    /// Kept fractions that changed since this was last asked.
    pub fn changes(&mut self) -> Vec<KeptPatch> {
        self.ledger.changes()
    }

    /// Pinned entries count inside the budget, and the newest need some of it.
    fn check(&self, budget: u32, pins: &[Range<u32>]) -> Result<()> {
        let pinned: u32 = pins.iter().map(|range| range.end - range.start).sum();
        if self.policy.keeps_all() || pinned + MIN_RECENT <= budget {
            return Ok(());
        }
        Err(Error::Options(format!(
            "{pinned} tokens are pinned, which leaves no room in a budget of {budget}; set at least {}.",
            pinned + MIN_RECENT
        )))
    }

    /// Makes room for `n` more entries, without more than the phase will need.
    fn reserve(&mut self, i: usize, n: usize) -> Result<()> {
        let layer = &mut self.layers[i];
        let need = layer.len() + n;
        if need <= layer.capacity() {
            return Ok(());
        }
        // Growing by a share keeps the copies few; where a budget bounds the cache, never past its bound.
        let grown = need.max(layer.capacity() + layer.capacity() / 4);
        let bound = match (self.policy.keeps_all(), self.phase) {
            (true, _) => usize::MAX,
            (false, Phase::Prefill) => self.budget as usize + n,
            (false, Phase::Decode) => (self.budget + self.options.evict_every) as usize,
        };
        layer.set_capacity(grown.min(bound.max(need)))
    }

    /// Evicts from one layer down to `budget`.
    fn evict(&mut self, i: usize, n_seen: u32, budget: u32) -> Result<()> {
        if self.layers[i].len() <= budget as usize || self.policy.keeps_all() {
            return Ok(());
        }
        self.keep_best(i, n_seen, budget)
    }

    /// Keeps the best `budget` entries before position `n` of each KV head of a layer, and nothing after it.
    fn keep_best(&mut self, i: usize, n: u32, budget: u32) -> Result<()> {
        let layer = &mut self.layers[i];
        layer.fetch_scores()?;
        let pinned = pinned_in(&self.pins);
        let slots: Vec<Vec<u32>> = layer
            .positions
            .iter()
            .zip(&layer.scores)
            .map(|(positions, scores)| {
                let end = positions.partition_point(|&p| p < n);
                let entries = policy::Entries { positions: &positions[..end], scores: &scores[..end], n_seen: n };
                match self.policy.keeps_all() {
                    // Only a rewind comes here, after another policy has left the heads uneven.
                    true => (0..budget).collect(),
                    false => policy::keep(&*self.policy, &entries, budget, &self.options, &pinned),
                }
            })
            .collect();
        drop_entries(layer, &mut self.ledger, &slots)
    }
}

impl Attend for Cache {
    /// In the order that DESIGN 3 gives: append, attend, add the column sums, and only then evict.
    fn attend(&mut self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let n = k.dim(1)?;
        self.reserve(layer, n)?;
        let hot = &mut self.layers[layer];
        hot.append(k, v, self.n_seen, self.angle)?;
        self.ledger.add(self.n_seen, n as u32, k.dim(0)? as u32);
        let out = hot.attend(q, self.n_seen)?;
        let over = hot.len().saturating_sub(self.budget as usize);
        self.peak_bytes = self.peak_bytes.max(self.bytes());
        let due = match self.phase {
            Phase::Prefill => over > 0,
            Phase::Decode => over >= self.options.evict_every as usize,
        };
        if due {
            self.evict(layer, self.n_seen + n as u32, self.budget)?;
        }
        Ok(out)
    }
}

/// Bytes of one budget token: K and V of every layer and KV head.
pub fn bytes_per_token(config: &Config, kv: KvType) -> u64 {
    let number = match kv {
        KvType::F16 => 2,
        KvType::F32 => 4,
    };
    (2 * config.layers * config.kv_heads * config.head_dim * number) as u64
}

fn checked_budget(budget: u32) -> Result<u32> {
    match budget {
        MIN_BUDGET.. => Ok(budget),
        _ => Err(Error::Options(format!(
            "A budget of {budget} tokens is too small for a sentence; set {MIN_BUDGET} or more."
        ))),
    }
}

fn pinned_in(pins: &[Range<u32>]) -> impl Fn(u32) -> bool + '_ {
    |position| pins.iter().any(|range| range.contains(&position))
}

/// Keeps only `slots` of a layer and counts the rest as gone.
fn drop_entries(layer: &mut HotLayer, ledger: &mut Ledger, slots: &[Vec<u32>]) -> Result<()> {
    for (positions, slots) in layer.positions.iter().zip(slots) {
        let mut kept = slots.iter().copied().peekable();
        ledger.remove(
            (0..positions.len() as u32)
                .filter(|&slot| kept.next_if_eq(&slot).is_none())
                .map(|slot| positions[slot as usize]),
        );
    }
    layer.retain(slots)
}
