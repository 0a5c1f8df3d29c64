use super::{Entries, Policy, Protection};

/// Sinks and the most recent entries: StreamingLLM, arXiv 2309.17453, section 3.2.
pub struct Window;

impl Policy for Window {
    fn protection(&self, budget: u32, sinks: u32, _recent: Option<u32>) -> Protection {
        Protection { sinks, recent: budget.saturating_sub(sinks) }
    }

    fn ranks(&self, entries: &Entries) -> Vec<f32> {
        entries.positions.iter().map(|&position| position as f32).collect()
    }
}
