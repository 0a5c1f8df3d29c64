use super::{Entries, MIN_RECENT, Policy, Protection};

/// Heavy hitters by raw accumulated attention, half of the budget for recent entries, no sinks:
/// arXiv 2306.14048, section 4, as published.
pub struct H2oPaper;

impl Policy for H2oPaper {
    fn protection(&self, budget: u32, _sinks: u32, recent: Option<u32>) -> Protection {
        Protection { sinks: 0, recent: recent.unwrap_or(budget / 2).max(MIN_RECENT) }
    }

    fn ranks(&self, entries: &Entries) -> Vec<f32> {
        entries.scores.to_vec()
    }
}
