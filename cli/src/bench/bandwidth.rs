//! What memory can do: the roof that no speed of writing passes, since each token reads every weight.

use std::time::Instant;

use rayon::prelude::*;

/// Far beyond every processor's cache.
const BYTES: usize = 256 << 20;

/// Passes of which the fastest counts.
const PASSES: usize = 3;

/// Bytes a second that all threads together read.
pub fn read() -> f64 {
    let numbers = vec![1u64; BYTES / size_of::<u64>()];
    let pass = || {
        let started = Instant::now();
        let sum: u64 = numbers.par_chunks(1 << 17).map(|chunk| chunk.iter().sum::<u64>()).sum();
        assert_eq!(sum, numbers.len() as u64);
        BYTES as f64 / started.elapsed().as_secs_f64()
    };
    (0..PASSES).map(|_| pass()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    #[test]
    fn memory_reads_faster_than_a_disk() {
        assert!(super::read() > 1e8);
    }
}
