use super::{Entries, Policy, Protection};

/// Keeps everything: the baseline.
pub struct Full;

impl Policy for Full {
    fn keeps_all(&self) -> bool {
        true
    }

    fn protection(&self, _budget: u32, sinks: u32, _recent: Option<u32>) -> Protection {
        Protection { sinks, recent: u32::MAX }
    }

    fn ranks(&self, entries: &Entries) -> Vec<f32> {
        vec![0.0; entries.positions.len()]
    }
}
