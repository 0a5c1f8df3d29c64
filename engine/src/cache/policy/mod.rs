//! Policies: which entries of a KV head stay. Pure functions of scores, positions and budget.

pub mod expected;
mod full;
mod h2o;
mod h2o_paper;
mod kvzip;
mod pyramidkv;
mod random;
pub mod snapkv;
mod tova;
mod window;

use crate::protocol::{CacheOptions, PolicyName};

pub use expected::Expected;
pub use full::Full;
pub use h2o::H2o;
pub use h2o_paper::H2oPaper;
pub use kvzip::KvZip;
pub use pyramidkv::PyramidKv;
pub use random::Random;
pub use snapkv::SnapKv;
pub use tova::Tova;
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
    /// Tokens that passed while the entry was not in the hot cache, of each slot.
    pub missed: &'a [u32],
    /// What the policy asked for with [`Policy::observes`], of each slot; `None` where it cannot be had, as
    /// when entries come back from the store.
    pub observed: Option<&'a [f32]>,
    /// Tokens that the layer has seen; the newest position is one less.
    pub n_seen: u32,
}

impl Entries<'_> {
    /// Queries that could see the entry, at least 1.
    pub fn visible(&self, slot: usize) -> u32 {
        (self.n_seen - self.positions[slot]).saturating_sub(self.missed[slot]).max(1)
    }
}

/// What never leaves, whatever its rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protection {
    /// First positions.
    pub sinks: u32,
    /// Last positions.
    pub recent: u32,
}

/// What a policy judges by besides the accumulated column sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observes {
    /// Nothing.
    Nothing,
    /// The attention of the last so many queries: their softmax, summed over them, mean over the group.
    Queries(usize),
    /// The attention that can be expected of queries distributed as those so far; see [`expected`].
    Statistics,
    /// The largest attention while the text is repeated; not a number where it was not.
    Repetition,
}

/// Ranks entries for eviction.
pub trait Policy: Send + Sync {
    /// Whether it keeps everything, so that the budget does not apply.
    fn keeps_all(&self) -> bool {
        false
    }

    /// What it protects at this budget, given what the options ask for.
    fn protection(&self, budget: u32, sinks: u32, recent: Option<u32>) -> Protection;

    /// What it judges by.
    fn observes(&self) -> Observes {
        Observes::Nothing
    }

    /// The budget of one of `layers` layers, where all have `budget` on average.
    fn layer_budget(&self, budget: u32, _layer: usize, _layers: usize) -> u32 {
        budget
    }

    /// The rank of every slot; the lowest are evicted first, of equals the younger.
    fn ranks(&self, entries: &Entries) -> Vec<f32>;
}

/// The policies of a conversation: some judge a prompt in another way than what is generated after it.
pub struct Plan {
    /// While a prompt is read; its layers' budgets hold for what is generated too.
    pub prompt: Box<dyn Policy>,
    /// While an answer is generated.
    pub decode: Box<dyn Policy>,
}

impl Plan {
    /// By the name of the command line.
    pub fn by_name(name: PolicyName) -> Self {
        let (prompt, decode): (Box<dyn Policy>, Box<dyn Policy>) = match name {
            PolicyName::Full => (Box::new(Full), Box::new(Full)),
            PolicyName::Window => (Box::new(Window), Box::new(Window)),
            PolicyName::H2o => (Box::new(H2o), Box::new(H2o)),
            PolicyName::H2oPaper => (Box::new(H2oPaper), Box::new(H2oPaper)),
            PolicyName::Tova => (Box::new(Tova), Box::new(Tova)),
            PolicyName::SnapKv => (Box::new(SnapKv), Box::new(H2o)),
            PolicyName::PyramidKv => (Box::new(PyramidKv), Box::new(H2o)),
            PolicyName::Expected => (Box::new(Expected), Box::new(Expected)),
            PolicyName::KvZip => (Box::new(KvZip), Box::new(KvZip)),
            PolicyName::Random => (Box::new(Random), Box::new(Random)),
        };
        Self { prompt, decode }
    }
}

/// The newest part of the recent entries, without which the model loses the sentence it is writing.
pub fn newest(budget: u32) -> u32 {
    (budget / 8).max(MIN_RECENT)
}

/// Which entries come before what a policy ranks, by position.
pub struct Claims<'a> {
    /// Kept for good.
    pub pinned: &'a dyn Fn(u32) -> bool,
    /// Brought back for this turn, by the KV head at hand; ascending.
    pub recalled: &'a [u32],
}

/// The slots of `entries` that stay within `budget`, ascending. Protected entries count inside it, and are given
/// room in this order: pinned, sinks, the [`newest`] of the recent, recalled, recent.
pub fn keep(policy: &dyn Policy, entries: &Entries, budget: u32, options: &CacheOptions, claims: &Claims) -> Vec<u32> {
    let n = entries.positions.len();
    if n <= budget as usize {
        return (0..n as u32).collect();
    }
    let Protection { sinks, recent } = policy.protection(budget, options.sinks, options.recent_at(budget));
    let first_recent = entries.n_seen.saturating_sub(recent);
    let first_newest = entries.n_seen.saturating_sub(newest(budget).min(recent));
    let tier = |position: u32| match position {
        p if (claims.pinned)(p) => 0,
        p if p < sinks => 1,
        p if p >= first_newest => 2,
        p if claims.recalled.binary_search(&p).is_ok() => 3,
        p if p >= first_recent => 4,
        _ => 5,
    };
    let ranks = policy.ranks(entries);
    let mut order: Vec<(u8, f32, u32)> = (0..n)
        .map(|slot| {
            let position = entries.positions[slot];
            let rank = match tier(position) {
                // Where the recent alone exceed the room, the newest of them stay.
                2 | 4 => position as f32,
                3 | 5 => ranks[slot],
                _ => 0.0,
            };
            (tier(position), rank, slot as u32)
        })
        .collect();
    let before = |a: &(u8, f32, u32), b: &(u8, f32, u32)| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2));
    order.select_nth_unstable_by(budget as usize, before);
    let mut slots: Vec<u32> = order[..budget as usize].iter().map(|&(_, _, slot)| slot).collect();
    slots.sort_unstable();
    slots
}

#[cfg(test)]
mod tests;
