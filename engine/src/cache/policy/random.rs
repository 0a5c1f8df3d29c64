use super::{Entries, MIN_RECENT, Policy, Protection};

/// Chance, with the protection that [`super::H2o`] gives: the control that tells what a score is worth.
pub struct Random;

impl Policy for Random {
    fn protection(&self, budget: u32, sinks: u32, recent: Option<u32>) -> Protection {
        Protection { sinks, recent: recent.unwrap_or(budget / 2).max(MIN_RECENT) }
    }

    /// A position's chance never changes, so that the same run always gives the same result.
    fn ranks(&self, entries: &Entries) -> Vec<f32> {
        entries.positions.iter().map(|&position| (mix(position) >> 8) as f32).collect()
    }
}

/// The 32-bit finalizer of MurmurHash3: every bit of the input changes half of the output's.
fn mix(mut x: u32) -> u32 {
    x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
    x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}
