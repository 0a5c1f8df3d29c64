//! SnapKV: the prompt's end votes.

use super::{Entries, H2o, Observes, Policy, Protection};
use crate::attention::probe::max_pool;

/// Queries at the prompt's end that vote: W of arXiv 2404.14469, section 4.
pub const WINDOW: u32 = 32;

/// Votes are pooled over positions up to this far away: kernel size 7.
pub const REACH: u32 = 3;

/// The last [`WINDOW`] entries, and of the others what those queries attend to, pooled over neighbours:
/// arXiv 2404.14469, section 4. No sinks, as published: they get votes enough.
pub struct SnapKv;

impl Policy for SnapKv {
    fn protection(&self, _budget: u32, _sinks: u32, _recent: Option<u32>) -> Protection {
        Protection { sinks: 0, recent: WINDOW }
    }

    fn observes(&self) -> Observes {
        Observes::Queries(WINDOW as usize)
    }

    fn ranks(&self, entries: &Entries) -> Vec<f32> {
        match entries.observed {
            Some(votes) => max_pool(votes, entries.positions, REACH),
            None => H2o.ranks(entries),
        }
    }
}
