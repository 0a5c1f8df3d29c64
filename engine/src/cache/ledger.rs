//! What is kept of every position, counted over layers and KV heads: the heatmap's source.

use base64::Engine;

use crate::protocol::KeptPatch;

/// Neighbouring changes closer than this travel as one patch.
const JOIN: usize = 16;

/// For each position, how many layers × KV heads hold its entry.
pub struct Ledger {
    /// Layers × KV heads.
    whole: u32,
    counts: Vec<u32>,
    /// As last reported, 0 to 255; a position that was never reported has no value.
    reported: Vec<u8>,
    sum: u64,
}

impl Ledger {
    /// Of a cache with `whole` layers × KV heads.
    pub fn new(whole: u32) -> Self {
        Self { whole, counts: Vec::new(), reported: Vec::new(), sum: 0 }
    }

    /// One layer appended positions `first..first + n` in all of its `kv_heads`.
    pub fn add(&mut self, first: u32, n: u32, kv_heads: u32) {
        let end = (first + n) as usize;
        if self.counts.len() < end {
            self.counts.resize(end, 0);
        }
        self.counts[first as usize..end].iter_mut().for_each(|count| *count += kv_heads);
        self.sum += u64::from(n * kv_heads);
    }

    /// One KV head of one layer got these positions back.
    pub fn restore(&mut self, positions: impl Iterator<Item = u32>) {
        for position in positions {
            if self.counts.len() <= position as usize {
                self.counts.resize(position as usize + 1, 0);
            }
            self.counts[position as usize] += 1;
            self.sum += 1;
        }
    }

    /// Knows positions up to `n`, hot or not.
    pub fn cover(&mut self, n: u32) {
        if self.counts.len() < n as usize {
            self.counts.resize(n as usize, 0);
        }
    }

    /// Whether nothing of a position is hot.
    pub fn cold(&self, position: u32) -> bool {
        self.counts.get(position as usize).is_none_or(|&count| count == 0)
    }

    /// A copy for another conversation, which reports everything anew.
    pub fn fork(&self) -> Self {
        Self { whole: self.whole, counts: self.counts.clone(), reported: Vec::new(), sum: self.sum }
    }

    /// One KV head of one layer lost these positions.
    pub fn remove(&mut self, positions: impl Iterator<Item = u32>) {
        for position in positions {
            self.counts[position as usize] -= 1;
            self.sum -= 1;
        }
    }

    /// Forgets positions from `n` on; their entries must have been removed.
    pub fn truncate(&mut self, n: u32) {
        self.counts.truncate(n as usize);
        self.reported.truncate(n as usize);
    }

    /// Mean kept fraction over all positions, 0 to 1.
    pub fn mean(&self) -> f32 {
        match self.counts.len() {
            0 => 1.0,
            n => (self.sum as f64 / (n as f64 * f64::from(self.whole))) as f32,
        }
    }

    /// What changed since this was last asked.
    pub fn changes(&mut self) -> Vec<KeptPatch> {
        let values: Vec<u8> = self.counts.iter().map(|&count| share(count.into(), self.whole.into())).collect();
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for (i, value) in values.iter().enumerate() {
            if self.reported.get(i) != Some(value) {
                match ranges.last_mut() {
                    Some((_, end)) if i - *end < JOIN => *end = i + 1,
                    _ => ranges.push((i, i + 1)),
                }
            }
        }
        let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
        let patches = ranges
            .iter()
            .map(|&(start, end)| KeptPatch { start: start as u32, values: encode(&values[start..end]) })
            .collect();
        self.reported = values;
        patches
    }
}

/// A share as one byte. An entry that is somewhere is never shown as gone, nor a gap as whole.
pub fn share(held: u64, whole: u64) -> u8 {
    match held {
        0 => 0,
        n if n < whole => (n * 255 / whole).clamp(1, 254) as u8,
        _ => 255,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_tell_each_position_once_and_never_round_a_part_to_nothing_or_to_all() {
        let mut ledger = Ledger::new(600);
        for _layer in 0..300 {
            ledger.add(0, 4, 2);
        }
        assert_eq!(ledger.changes(), [KeptPatch { start: 0, values: "/////w==".into() }]);
        assert_eq!(ledger.changes(), []);
        for _ in 0..599 {
            ledger.remove([1].into_iter());
        }
        ledger.remove([2].into_iter());
        // 255 1 254 255, from the first change to the last.
        assert_eq!(ledger.changes(), [KeptPatch { start: 1, values: "Af4=".into() }]);
        assert!((ledger.mean() - (2.0 + 1.0 / 600.0 + 599.0 / 600.0) / 4.0).abs() < 1e-6);
    }
}
