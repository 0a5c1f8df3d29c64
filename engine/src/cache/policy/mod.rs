//! Policies: which entries of a KV head stay. Pure functions of scores, positions and budget.

mod full;
mod h2o;
mod h2o_paper;
mod window;

use crate::protocol::{CacheOptions, PolicyName};

pub use full::Full;
pub use h2o::H2o;
pub use h2o_paper::H2oPaper;
pub use window::Window;

/// However small a share is asked for, this many of the newest entries stay: without them the model loses
/// the sentence it is writing.
pub const MIN_RECENT: u32 = 16;

/// The smallest budget that leaves room for sinks, recent entries and a choice.
pub const MIN_BUDGET: u32 = 32;

/// The entries of one KV head in one layer, by slot; positions ascend.
#[derive(Debug, Clone, Copy)]
pub struct Entries<'a> {
    /// Position of each slot.
    pub positions: &'a [u32],
    /// Accumulated column sums of each slot.
    pub scores: &'a [f32],
    /// Tokens that the layer has seen; the newest position is one less.
    pub n_seen: u32,
}

/// What never leaves, whatever its rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protection {
    /// First positions.
    pub sinks: u32,
    /// Last positions.
    pub recent: u32,
}

/// Ranks entries for eviction.
pub trait Policy: Send + Sync {
    /// Whether it keeps everything, so that the budget does not apply.
    fn keeps_all(&self) -> bool {
        false
    }

    /// What it protects at this budget, given what the options ask for.
    fn protection(&self, budget: u32, sinks: u32, recent: Option<u32>) -> Protection;

    /// The rank of a slot; the lowest are evicted first, of equals the younger.
    fn rank(&self, entries: &Entries, slot: usize) -> f32;
}

/// The policy of that name.
pub fn by_name(name: PolicyName) -> Box<dyn Policy> {
    match name {
        PolicyName::Full => Box::new(Full),
        PolicyName::Window => Box::new(Window),
        PolicyName::H2o => Box::new(H2o),
        PolicyName::H2oPaper => Box::new(H2oPaper),
    }
}

/// The slots of `entries` that stay within `budget`, ascending. Pinned, sink and recent entries count
/// inside it, and are given room in that order; `pinned` says it for a position.
pub fn keep(
    policy: &dyn Policy,
    entries: &Entries,
    budget: u32,
    options: &CacheOptions,
    pinned: &dyn Fn(u32) -> bool,
) -> Vec<u32> {
    let n = entries.positions.len();
    let budget = budget as usize;
    if n <= budget || policy.keeps_all() {
        return (0..n as u32).collect();
    }
    let Protection { sinks, recent } = policy.protection(budget as u32, options.sinks, options.recent);
    let first_recent = entries.n_seen.saturating_sub(recent);
    let tier = |position: u32| match position {
        p if pinned(p) => 0,
        p if p < sinks => 1,
        p if p >= first_recent => 2,
        _ => 3,
    };
    let mut order: Vec<(u8, f32, u32)> = (0..n)
        .map(|slot| {
            let position = entries.positions[slot];
            let rank = match tier(position) {
                // Where the recent alone exceed the room, the newest of them stay.
                2 => position as f32,
                3 => policy.rank(entries, slot),
                _ => 0.0,
            };
            (tier(position), rank, slot as u32)
        })
        .collect();
    let before = |a: &(u8, f32, u32), b: &(u8, f32, u32)| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2));
    order.select_nth_unstable_by(budget, before);
    let mut slots: Vec<u32> = order[..budget].iter().map(|&(_, _, slot)| slot).collect();
    slots.sort_unstable();
    slots
}

#[cfg(test)]
mod tests;
