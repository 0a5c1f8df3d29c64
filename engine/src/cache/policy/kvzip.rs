use super::{Entries, H2o, MIN_RECENT, Observes, Policy, Protection};

/// What the model attends to when it repeats the text, whatever will be asked about it: arXiv 2505.23416,
/// section 3. What was never repeated, such as an answer, ranks by its mean attention.
pub struct KvZip;

impl Policy for KvZip {
    fn protection(&self, budget: u32, sinks: u32, recent: Option<u32>) -> Protection {
        Protection { sinks, recent: recent.unwrap_or(budget / 8).max(MIN_RECENT) }
    }

    fn observes(&self) -> Observes {
        Observes::Repetition
    }

    fn ranks(&self, entries: &Entries) -> Vec<f32> {
        let mut ranks = H2o.ranks(entries);
        for (rank, &repeated) in ranks.iter_mut().zip(entries.observed.unwrap_or_default()) {
            if !repeated.is_nan() {
                *rank = repeated;
            }
        }
        ranks
    }
}
