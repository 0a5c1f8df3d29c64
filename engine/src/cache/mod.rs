//! The hot cache of one conversation: at most *budget* entries per layer and KV head, and the store behind it.
//!
//! [`evict`](self) is what happens to a layer as a pass goes through it, `recall` what a question brings back.

mod budget;
mod evict;
mod layer;
mod ledger;
mod missed;
#[cfg(test)]
mod operations;
pub mod policy;
mod queries;
mod recall;
mod rows;
pub mod snapshot;
mod store;

use std::ops::Range;
use std::time::Duration;

use candle_core::Device;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::model::{Config, Rope};
use crate::protocol::{CacheOptions, CacheState, KeptPatch, KvType, Recalled};

use budget::{Ceiling, check, check_options, checked_budget};
pub use evict::Repeating;
use layer::HotLayer;
use ledger::Ledger;
use policy::expected::Moments;
use policy::{MIN_BUDGET, Observes, Plan, Policy};
use queries::Queries;
use store::Store;

/// No conversation has more tokens: where sizes are added up, none can pass what a number holds.
const MOST_TOKENS: u32 = 1 << 28;

/// Wishes may take this part of the budget: a quarter.
const WISH_SHARE: u32 = 4;

/// What the coming tokens are, and so when entries over the budget go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// A chunk of a prompt: after it, down to the budget.
    Streaming,
    /// A prompt that goes through layer by layer: when [`Cache::finish_layer`] says so.
    Exact,
    /// A chunk of a prompt that will be repeated: when [`Cache::evict_all`] says so.
    Held,
    /// A generated token: once `evict_every` entries are over the budget, all of them.
    Decode,
}

/// The hot cache, the store, and their bookkeeping.
pub struct Cache {
    layers: Vec<HotLayer>,
    store: Option<Store>,
    ledger: Ledger,
    plan: Plan,
    options: CacheOptions,
    budget: u32,
    /// What must stay; sorted, without overlaps.
    pins: Vec<Range<u32>>,
    /// What should stay while there is room, the dearest last.
    wishes: Vec<Range<u32>>,
    /// Pins and as many of the wishes as there is room for; sorted, without overlaps.
    pinned: Vec<Range<u32>>,
    /// What the current turn recalled, by layer and KV head, ascending.
    recalled: Vec<Vec<Vec<u32>>>,
    /// The last queries of each layer, as many as something looks at.
    tails: Vec<Queries>,
    /// Of each layer's query heads, where the policy asks for them.
    moments: Vec<Vec<Moments>>,
    /// From this position on, queries bring entries back.
    ask: Option<u32>,
    /// Queries from there on in the layer at hand.
    asking: Queries,
    /// What the layers below asked for, by position.
    asked: Vec<f32>,
    recall_time: Duration,
    /// What each head of the layers that were looked at misses, while that is asked for.
    looking: Option<Vec<f32>>,
    shape: Shape,
    rope: Rope,
    n_seen: u32,
    /// The position that the next token's key is rotated for.
    angle: u32,
    phase: Phase,
    /// Tokens of the prompt before the chunk at hand, while layers see it one by one.
    offset: u32,
    peak_bytes: u64,
    /// What memory that ran out has left: no budget and no store of this conversation is larger.
    ceiling: Ceiling,
}

/// What the cache knows of its model.
#[derive(Debug, Clone, Copy)]
struct Shape {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    bytes_per_token: u64,
}

impl Shape {
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }
}

impl Cache {
    /// An empty cache for a model of this shape; `budget` and `store_limit` are in force where the options
    /// leave them open.
    ///
    /// # Errors
    /// [`Error::Options`] for options that cannot work.
    pub fn new(
        config: &Config,
        rope: &Rope,
        options: &CacheOptions,
        budget: u32,
        store_limit: u64,
        device: &Device,
    ) -> Result<Self> {
        let budget = checked_budget(options.budget.unwrap_or(budget))?;
        check_options(options, config.head_dim)?;
        let layers: Vec<_> =
            (0..config.layers).map(|_| HotLayer::new(config, options.kv, device)).collect::<Result<_>>()?;
        let limit = options.store_limit.unwrap_or(store_limit);
        let store = (limit > 0)
            .then(|| Store::new(Store::kind(options.kv), config.layers, config.kv_heads, config.head_dim, limit));
        Ok(Self {
            store,
            ledger: Ledger::new((config.layers * config.kv_heads) as u32),
            plan: Plan::by_name(options.policy),
            options: options.clone(),
            budget,
            pins: Vec::new(),
            wishes: Vec::new(),
            pinned: Vec::new(),
            recalled: vec![vec![Vec::new(); config.kv_heads]; config.layers],
            tails: vec![Queries::default(); config.layers],
            moments: vec![vec![Moments::default(); config.heads]; config.layers],
            ask: None,
            asking: Queries::default(),
            asked: Vec::new(),
            recall_time: Duration::ZERO,
            looking: None,
            shape: Shape {
                heads: config.heads,
                kv_heads: config.kv_heads,
                head_dim: config.head_dim,
                bytes_per_token: bytes_per_token(config, options.kv),
            },
            rope: rope.clone(),
            n_seen: 0,
            angle: 0,
            phase: Phase::Streaming,
            offset: 0,
            peak_bytes: 0,
            ceiling: Ceiling::NONE,
            layers,
        })
    }

    /// A copy whose hot cache shares no memory; pages of the store are shared until one of the two writes.
    ///
    /// # Errors
    /// When the device has no memory for it.
    pub fn fork(&mut self) -> Result<Self> {
        Ok(Self {
            layers: self.layers.iter_mut().map(HotLayer::fork).collect::<Result<_>>()?,
            store: self.store.clone(),
            ledger: self.ledger.fork(),
            plan: Plan::by_name(self.options.policy),
            options: self.options.clone(),
            pins: self.pins.clone(),
            wishes: self.wishes.clone(),
            pinned: self.pinned.clone(),
            recalled: self.recalled.clone(),
            tails: self.tails.clone(),
            moments: self.moments.clone(),
            asking: Queries::default(),
            asked: Vec::new(),
            looking: None,
            rope: self.rope.clone(),
            ..*self
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

    /// Layers of the model.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// For each layer and each of `bins` parts of equal length, which share of their positions × KV heads is held:
    /// 0 is nothing, 255 all.
    pub fn layer_shares(&self, bins: u32) -> Vec<u8> {
        let (n, bins) = (u64::from(self.n_seen), u64::from(bins));
        let sizes: Vec<u64> = (0..bins).map(|b| ((b + 1) * n).div_ceil(bins) - (b * n).div_ceil(bins)).collect();
        let of_layer = |layer: &HotLayer| {
            let mut held = vec![0u64; bins as usize];
            let positions = layer.heads.iter().flat_map(|head| &head.positions).map(|&p| u64::from(p));
            positions.filter(|&p| p < n).for_each(|p| held[(p * bins / n) as usize] += 1);
            let whole = layer.heads.len() as u64;
            held.into_iter().zip(&sizes).map(|(held, size)| ledger::share(held, size * whole)).collect::<Vec<_>>()
        };
        self.layers.iter().flat_map(of_layer).collect()
    }

    /// The options it was made with.
    pub fn options(&self) -> &CacheOptions {
        &self.options
    }

    /// Whether a question has something to bring back: entries that are in the store alone.
    pub fn recalls(&self) -> bool {
        let gone = |layer: &HotLayer| layer.len() < self.n_seen as usize;
        self.options.recall && self.store.is_some() && self.layers.iter().any(gone)
    }

    /// Whether there is a store.
    pub fn has_store(&self) -> bool {
        self.store.is_some()
    }

    /// Whether entries have to be rated by repeating the text.
    pub fn repeats(&self) -> bool {
        self.plan.prompt.observes() == Observes::Repetition
    }

    /// Says what the coming tokens are.
    pub fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Says that layers see a prompt one by one, and how many of its tokens lie before the chunk at hand.
    pub fn set_offset(&mut self, offset: u32) {
        self.offset = offset;
    }

    /// From which position on queries are to bring entries back; `None` leaves the hot cache as it is. What an
    /// earlier turn recalled loses its protection once the next layer recalls.
    pub fn set_ask(&mut self, ask: Option<u32>) {
        self.ask = ask;
        self.asking.clear();
    }

    /// Begins a turn: what the last one recalled has no protection any more.
    pub fn begin_turn(&mut self) {
        self.recalled.iter_mut().flatten().for_each(Vec::clear);
        self.recall_time = Duration::ZERO;
    }

    /// Time that recall has taken in this turn.
    pub fn recall_time(&self) -> Duration {
        self.recall_time
    }

    /// Counts `n` tokens as seen, once they have been through all layers.
    pub fn advance(&mut self, n: u32) {
        self.n_seen += n;
        self.angle += n;
        self.offset = 0;
    }

    /// The position that the next token's query and key are rotated for: its own, until the chat passes the
    /// trained context.
    pub fn angle(&self) -> u32 {
        self.angle
    }

    /// Whether the chat has passed the trained context.
    fn past_context(&self) -> bool {
        self.angle < self.n_seen
    }

    /// Makes room for `n` more tokens inside a trained context of `context`: where they would pass it, the
    /// kept keys are rotated back to neighbouring angles, as StreamingLLM does (arXiv 2309.17453, section
    /// 3.2). Positions keep counting.
    ///
    /// # Errors
    /// [`Error::ContextFull`] where the policy keeps more than the context holds.
    pub fn stay_in_context(&mut self, n: u32, context: u32) -> Result<()> {
        if self.angle + n <= context {
            return Ok(());
        }
        if self.plan.prompt.keeps_all() {
            return Err(Error::ContextFull(context));
        }
        // Where the budget itself fills the context, an eighth of it makes way, and not for every token anew.
        let most = self.budget.min(context - context / 8).min(context.saturating_sub(n)).max(MIN_BUDGET);
        for i in 0..self.layers.len() {
            self.evict(i, self.n_seen, self.layer_budget(i).min(most))?;
        }
        self.close_ranks()
    }

    /// Rotates every layer's keys to neighbouring angles that end where the longest layer does.
    fn close_ranks(&mut self) -> Result<()> {
        let end = self.most_entries() as u32;
        if let Some(layer) = self.layers.first() {
            layer.claim_rotation(end as usize)?;
        }
        for layer in self.layers.iter_mut().filter(|layer| layer.len() > 0) {
            layer.rotate_to(end, &self.rope)?;
        }
        self.angle = end;
        Ok(())
    }

    /// Positions that no policy may evict, in place of those before, and others that should stay while they take
    /// no more than a quarter of the budget, the dearest last. What of the first only the store holds comes back.
    ///
    /// # Errors
    /// [`Error::Options`] where the first leave no room in the budget.
    pub fn set_pins(&mut self, pins: Vec<Range<u32>>, wishes: Vec<Range<u32>>) -> Result<()> {
        let pins = joined(pins);
        check(&self.plan, self.budget, &pins)?;
        self.pins = pins;
        self.wishes = wishes;
        self.settle_pins();
        self.bring_back_pinned()
    }

    fn settle_pins(&mut self) {
        let mut room = self.budget / WISH_SHARE;
        let mut pinned = self.pins.clone();
        for range in self.wishes.iter().rev() {
            let n = range.end - range.start;
            if n > room {
                break;
            }
            room -= n;
            pinned.push(range.clone());
        }
        self.pinned = joined(pinned);
    }

    /// Drops every entry at a position from `n` on. Entries that were evicted for their sake come back from the
    /// store, where there is memory for them.
    ///
    /// # Errors
    /// When the device fails.
    pub fn truncate(&mut self, n: u32) -> Result<()> {
        let past = self.past_context();
        self.offset = 0;
        self.set_ask(None);
        for pins in [&mut self.pins, &mut self.wishes] {
            pins.iter_mut().for_each(|range| range.end = range.end.min(n));
            pins.retain(|range| !range.is_empty());
        }
        // A wish that was too long may have room now.
        self.settle_pins();
        for i in 0..self.layers.len() {
            match self.refill(i, n) {
                Err(Error::OutOfMemory { .. }) => self.drop_from(i, n)?,
                refilled => refilled?,
            }
            self.layers[i].heads.iter_mut().for_each(|slots| slots.go_back(n));
        }
        if let Some(store) = &mut self.store {
            store.truncate(n);
        }
        self.ledger.truncate(n);
        self.recalled.iter_mut().flatten().for_each(|positions| positions.retain(|&p| p < n));
        self.n_seen = self.n_seen.min(n);
        match past {
            true => self.close_ranks(),
            false => {
                self.angle = self.n_seen;
                Ok(())
            }
        }
    }

    /// Fewest entries that any layer holds for a KV head.
    pub fn least_entries(&self) -> usize {
        self.layers.iter().map(HotLayer::len).min().unwrap_or(0)
    }

    /// Most entries that any layer holds for a KV head.
    pub fn most_entries(&self) -> usize {
        self.layers.iter().map(HotLayer::len).max().unwrap_or(0)
    }

    /// Kept positions, `[layers][kv_heads]`, ascending.
    pub fn positions(&self) -> Vec<Vec<&[u32]>> {
        self.layers.iter().map(|layer| layer.heads.iter().map(|slots| slots.positions.as_slice()).collect()).collect()
    }

    /// Entries per layer and KV head, on average.
    pub fn hot_entries(&self) -> u32 {
        self.layers.iter().map(HotLayer::len).sum::<usize>().div_ceil(self.layers.len().max(1)) as u32
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
            hot_entries: self.hot_entries(),
            hot_bytes: self.bytes(),
            hot_peak_bytes: self.peak_bytes,
            full_bytes: u64::from(self.n_seen) * self.shape.bytes_per_token,
            kept: self.ledger.mean(),
            past_context: self.past_context(),
            store_bytes: self.store.as_ref().map_or(0, Store::bytes),
            store_limit: self.store.as_ref().map_or(0, Store::limit),
            pinned: tokens_in(&self.pinned),
        }
    }

    /// Kept fractions that changed since this was last asked.
    pub fn changes(&mut self) -> Vec<KeptPatch> {
        self.ledger.changes()
    }

    /// Positions of which nothing is left, neither hot nor in the store: `[start, end)`, ascending.
    pub fn forgotten(&self) -> Vec<(u32, u32)> {
        let candidates = match &self.store {
            Some(store) => store.dropped(),
            None if self.n_seen > 0 => vec![(0, self.n_seen)],
            None => Vec::new(),
        };
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for position in candidates.into_iter().flat_map(|(start, end)| start..end.min(self.n_seen)) {
            match ranges.last_mut() {
                _ if !self.ledger.cold(position) => {}
                Some((_, end)) if *end == position => *end += 1,
                _ => ranges.push((position, position + 1)),
            }
        }
        ranges
    }

    /// Pinned positions: `[start, end)`, ascending.
    pub fn pinned(&self) -> Vec<(u32, u32)> {
        self.pinned.iter().map(|range| (range.start, range.end)).collect()
    }

    /// The passages that the current turn recalled, those that most heads agree on first.
    pub fn passages(&self) -> Vec<Recalled> {
        recall::passages(&self.recalled)
    }

    /// The budget of one layer.
    fn layer_budget(&self, i: usize) -> u32 {
        self.plan.prompt.layer_budget(self.budget, i, self.layers.len())
    }

    /// The policy that judges now.
    fn policy(&self) -> &dyn Policy {
        match self.phase {
            Phase::Decode => &*self.plan.decode,
            _ => &*self.plan.prompt,
        }
    }
}

/// Bytes of one budget token: K and V of every layer and KV head.
pub fn bytes_per_token(config: &Config, kv: KvType) -> u64 {
    (2 * config.layers * config.kv_heads * rows::row_bytes(kv, config.head_dim)) as u64
}

/// Sorted, without overlaps.
fn joined(mut ranges: Vec<Range<u32>>) -> Vec<Range<u32>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u32>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// Of ranges without overlaps.
fn tokens_in(ranges: &[Range<u32>]) -> u32 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

fn pinned_in(pins: &[Range<u32>]) -> impl Fn(u32) -> bool + '_ {
    |position| {
        let after = pins.partition_point(|range| range.start <= position);
        after > 0 && position < pins[after - 1].end
    }
}
