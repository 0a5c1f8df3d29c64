//! How much the cache may hold: the budget and the store's limit, as they are set, and as memory that ran out leaves them.

use std::ops::Range;

use super::policy::{MIN_BUDGET, MIN_RECENT, Plan};
use super::{Cache, MOST_TOKENS, tokens_in};
use crate::error::{Error, Result};
use crate::protocol::{CacheOptions, KvType};

/// The most that a conversation may take, where memory has run out before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ceiling {
    pub(super) budget: u32,
    pub(super) store: u64,
}

impl Ceiling {
    pub(super) const NONE: Self = Self { budget: u32::MAX, store: u64::MAX };
}

impl Cache {
    /// Changes policy and protections from here on; entries over the budget go at once.
    ///
    /// # Errors
    /// [`Error::Options`] where the options cannot work, or the device fails.
    pub fn set_options(&mut self, options: &CacheOptions, budget: u32, store_limit: u64) -> Result<()> {
        let budget = checked_budget(options.budget.unwrap_or(budget))?.min(self.ceiling.budget);
        check_options(&CacheOptions { kv: self.options.kv, ..options.clone() }, self.shape.head_dim)?;
        let plan = Plan::by_name(options.policy);
        // What is refused changes nothing.
        check(&plan, budget, &self.pins)?;
        self.plan = plan;
        self.options = CacheOptions { kv: self.options.kv, ..options.clone() };
        if let Some(store) = &mut self.store {
            store.set_limit(options.store_limit.unwrap_or(store_limit).min(self.ceiling.store));
        }
        self.set_budget(budget)
    }

    /// From here on, no budget is larger; what is over it goes at once.
    ///
    /// # Errors
    /// [`Error::Options`] where it is too small, or the device fails.
    pub fn lower_budget(&mut self, budget: u32) -> Result<()> {
        self.ceiling.budget = budget;
        match self.set_budget(budget) {
            // There is none to refill with.
            Err(Error::OutOfMemory { .. }) => Ok(()),
            lowered => lowered,
        }
    }

    /// From here on, the store takes no more bytes; what is over it is forgotten at once.
    ///
    /// # Errors
    /// When the device fails.
    pub fn lower_store(&mut self, limit: u64) -> Result<()> {
        self.ceiling.store = limit;
        if let Some(store) = &mut self.store {
            store.set_limit(limit);
        }
        (0..self.layers.len()).try_for_each(|i| self.keep_store_small(i, self.n_seen))
    }

    /// Forgets that memory ran out: the person asks for more.
    pub fn lift_ceiling(&mut self) {
        self.ceiling = Ceiling::NONE;
    }

    /// The smallest budget that leaves room beside what is pinned; `None` where the policy keeps everything.
    pub fn least_budget(&self) -> Option<u32> {
        (!self.plan.prompt.keeps_all()).then(|| MIN_BUDGET.max(tokens_in(&self.pins) + MIN_RECENT))
    }

    /// Changes the budget: down evicts at once and gives the memory back, up refills from the store.
    ///
    /// # Errors
    /// [`Error::Options`] where it is too small; [`Error::OutOfMemory`] where not every layer could be refilled, the
    /// budget being changed all the same; or the device fails.
    pub fn set_budget(&mut self, budget: u32) -> Result<()> {
        check(&self.plan, checked_budget(budget)?, &self.pins)?;
        self.budget = budget;
        self.settle_pins();
        let past = self.past_context();
        if past {
            // What comes back needs angles of its own, of which a smaller budget left fewer.
            self.angle = self.angle.max(self.budget.min(self.n_seen - 1));
        }
        let mut refilled = Ok(());
        for i in 0..self.layers.len() {
            let len = self.layers[i].len();
            let room = if self.plan.prompt.keeps_all() { usize::MAX } else { self.layer_budget(i) as usize };
            let stored = self.store.as_ref().map_or(0, |store| store.layers[i].len() as usize);
            if len > room {
                self.evict(i, self.n_seen, self.layer_budget(i))?;
            } else if len < room.min(stored) && refilled.is_ok() {
                refilled = self.refill(i, self.n_seen);
            }
        }
        self.peak_bytes = self.peak_bytes.max(self.bytes());
        self.shrink()?;
        if past {
            refilled = refilled.and(self.close_ranks());
        }
        refilled
    }

    /// Gives back the memory that only prefill needed.
    ///
    /// # Errors
    /// When the device fails.
    pub fn shrink(&mut self) -> Result<()> {
        if self.plan.prompt.keeps_all() {
            return Ok(());
        }
        for i in 0..self.layers.len() {
            self.shrink_layer(i)?;
        }
        Ok(())
    }

    pub(super) fn shrink_layer(&mut self, i: usize) -> Result<()> {
        let room = (self.layer_budget(i) + self.options.evict_every) as usize;
        if self.layers[i].capacity() <= room || self.plan.prompt.keeps_all() {
            return Ok(());
        }
        match self.layers[i].set_capacity(room) {
            // Smaller buffers are had beside the larger ones. Without, these go on.
            Err(Error::OutOfMemory { .. }) => Ok(()),
            shrunk => shrunk,
        }
    }
}

/// Pinned entries count inside the budget, and the newest need some of it.
pub(super) fn check(plan: &Plan, budget: u32, pins: &[Range<u32>]) -> Result<()> {
    let pinned = tokens_in(pins);
    if plan.prompt.keeps_all() || pinned + MIN_RECENT <= budget {
        return Ok(());
    }
    Err(Error::Options(format!(
        "{pinned} tokens are pinned, which leaves no room in a budget of {budget}; set at least {}, or pin less.",
        pinned + MIN_RECENT
    )))
}

pub(super) fn check_options(options: &CacheOptions, head_dim: usize) -> Result<()> {
    let refuse = |text: String| Err(Error::Options(text));
    if options.chunk == 0 || options.evict_every == 0 || options.recall_every == Some(0) {
        return refuse("A chunk, an eviction and a recall take at least 1 token; raise the value.".into());
    }
    let sizes = [Some(options.chunk), Some(options.evict_every), Some(options.sinks), options.recent];
    if sizes.into_iter().flatten().any(|size| size > MOST_TOKENS) {
        return refuse(format!("More than {MOST_TOKENS} tokens at once are more than any chat has; lower the value."));
    }
    if !(0.0..=1.0).contains(&options.recall_share) {
        return refuse(format!("A recall share of {} is no share; set it from 0 to 1.", options.recall_share));
    }
    if let Some(share) = options.recent_share.filter(|share| !(0.0..=1.0).contains(share)) {
        return refuse(format!("A recent share of {share} is no share; set it from 0 to 1."));
    }
    if options.kv == KvType::Q8_0 && !head_dim.is_multiple_of(32) {
        return refuse(format!("The heads of this model are {head_dim} wide, which q8_0 cannot hold; choose f16."));
    }
    Ok(())
}

pub(super) fn checked_budget(budget: u32) -> Result<u32> {
    match budget {
        MIN_BUDGET.. => Ok(budget.min(MOST_TOKENS)),
        _ => Err(Error::Options(format!(
            "A budget of {budget} tokens is too small for a sentence; set {MIN_BUDGET} or more."
        ))),
    }
}
