use super::{Entries, H2o, MIN_RECENT, Observes, Policy, Protection};

/// What the last query attends to, beside sinks and recent entries: arXiv 2401.06104, section 3.2, which
/// evicts one entry a step by the attention of that step alone. Entries in the store have none; among them
/// the mean decides, as for [`H2o`].
pub struct Tova;

impl Policy for Tova {
    fn protection(&self, _budget: u32, sinks: u32, recent: Option<u32>) -> Protection {
        Protection { sinks, recent: recent.unwrap_or(MIN_RECENT).max(MIN_RECENT) }
    }

    fn observes(&self) -> Observes {
        Observes::Queries(1)
    }

    fn ranks(&self, entries: &Entries) -> Vec<f32> {
        entries.observed.map_or_else(|| H2o.ranks(entries), <[f32]>::to_vec)
    }
}
