//! What an open model takes of memory, told before it is opened.
//!
//! Weights and entries are counted; the rest was measured on the CPU with models of 135M and 0.5B, where the sum
//! stands within 6% of what a worker holds after a turn.

use std::path::Path;

use crate::error::Result;
use crate::gguf::Gguf;
use crate::model::Config;
use crate::protocol::CacheOptions;

/// Of the worker itself, without a model.
const PROGRAM: u64 = 12 << 20;
/// Of each token of the vocabulary: its text, its merges, and the ways to find them.
const VOCABULARY: u64 = 540;
/// Buffers of a computation that do not grow with the model.
const BUFFERS: u64 = 14 << 20;
/// What is known of an entry beside its key and value: position, angle, score and the like.
const BOOKKEEPING: u64 = 20;

/// What decides how much memory a model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Decoder layers.
    pub layers: u64,
    /// Width of the residual stream.
    pub width: u64,
    /// Width of the feed-forward layer.
    pub ff_width: u64,
    /// KV heads of a layer.
    pub kv_heads: u64,
    /// Width of one head.
    pub head_dim: u64,
    /// Tokens of the vocabulary.
    pub vocab: u64,
    /// Trained context in tokens.
    pub context: u32,
    /// Bytes of all weights.
    pub weights: u64,
    /// Bytes among them of an embedding that is only looked up, which stays in the file where it is mapped.
    pub looked_up: u64,
}

/// Memory on the device that computes, in bytes: `fixed`, and `per_token` for each token of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// Weights, program, tokenizer and scratch.
    pub fixed: u64,
    /// Entries.
    pub per_token: u64,
}

impl Shape {
    /// Reads a file's header.
    ///
    /// # Errors
    /// For a file that could not be opened as a model either.
    pub fn read(path: &Path) -> Result<Self> {
        let gguf = Gguf::open(path)?;
        let config = Config::read(&gguf)?;
        let embedding = gguf.bytes_of("token_embd.weight");
        let tied = !gguf.has("output.weight");
        Ok(Self {
            layers: config.layers as u64,
            width: config.width as u64,
            ff_width: config.ff_width as u64,
            kv_heads: config.kv_heads as u64,
            head_dim: config.head_dim as u64,
            vocab: config.vocab as u64,
            context: config.context,
            weights: gguf.bytes_of_all(),
            looked_up: if tied { 0 } else { embedding },
        })
    }

    /// What it takes of main memory, where the CPU computes.
    pub fn on_cpu(&self) -> Footprint {
        let own = PROGRAM + VOCABULARY.saturating_mul(self.vocab);
        let weights = self.weights.saturating_sub(self.looked_up);
        self.footprint(weights.saturating_add(own), BOOKKEEPING)
    }

    /// What it takes of a GPU's memory.
    pub fn on_gpu(&self) -> Footprint {
        self.footprint(self.weights, 0)
    }

    fn footprint(&self, base: u64, bookkeeping: u64) -> Footprint {
        let options = CacheOptions::default();
        let numbers = 2 * self.head_dim * size_of::<half::f16>() as u64;
        let per_token = self.layers.saturating_mul(self.kv_heads).saturating_mul(numbers.saturating_add(bookkeeping));
        // A chunk in the feed-forward layer, three times over, and beside it in the residual stream.
        let chunk = u64::from(options.chunk) * size_of::<f32>() as u64;
        let scratch = chunk.saturating_mul(3 * self.ff_width + 4 * self.width).saturating_add(BUFFERS);
        let appended = per_token.saturating_mul(u64::from(options.evict_every));
        Footprint { fixed: base.saturating_add(scratch).saturating_add(appended), per_token }
    }
}

impl Footprint {
    /// With a budget of so many tokens.
    pub fn at(&self, budget: u32) -> u64 {
        self.fixed.saturating_add(self.per_token.saturating_mul(u64::from(budget)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMOLLM2: Shape = Shape {
        layers: 30,
        width: 576,
        ff_width: 1536,
        kv_heads: 3,
        head_dim: 64,
        vocab: 49152,
        context: 8192,
        weights: 96_520_000,
        looked_up: 0,
    };

    #[test]
    fn a_budget_costs_its_entries_and_nothing_else() {
        let footprint = SMOLLM2.on_gpu();
        assert_eq!(footprint.per_token, 30 * 3 * 64 * 2 * 2);
        assert_eq!(footprint.at(1024) - footprint.at(512), 512 * 23_040);
        assert!(SMOLLM2.on_cpu().fixed > footprint.fixed, "tokenizer and program lie in main memory");
    }

    #[test]
    fn absurd_figures_of_a_hostile_file_do_not_overflow() {
        let absurd = Shape { layers: u64::from(u32::MAX), kv_heads: u64::from(u32::MAX), weights: u64::MAX, ..SMOLLM2 };
        assert_eq!(absurd.on_cpu().at(u32::MAX), u64::MAX);
    }
}
