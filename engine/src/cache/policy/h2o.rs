use super::{Entries, MIN_RECENT, Policy, Protection};

/// Heavy hitters by *mean* attention: arXiv 2306.14048, section 4, with the accumulated attention divided by
/// the number of queries that could see the entry, so that age alone is no merit.
pub struct H2o;

impl Policy for H2o {
    fn protection(&self, budget: u32, sinks: u32, recent: Option<u32>) -> Protection {
        Protection { sinks, recent: recent.unwrap_or(budget / 2).max(MIN_RECENT) }
    }

    fn ranks(&self, entries: &Entries) -> Vec<f32> {
        (0..entries.positions.len()).map(|slot| entries.scores[slot] / entries.visible(slot) as f32).collect()
    }
}
