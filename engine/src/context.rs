//! A model and the cache of one run of tokens: prefill in chunks, decode one by one.

use std::sync::Arc;

use candle_core::Tensor;

use crate::cache::{Cache, Phase, bytes_per_token};
use crate::device;
use crate::error::{Error, Result};
use crate::model::{Attend, Model};
use crate::protocol::CacheOptions;

/// An automatic budget takes at most this share of the free memory.
const AUTO_SHARE: f64 = 0.5;

/// An automatic budget is never smaller.
const AUTO_LEAST: u32 = 256;

/// Tokens that have been through a model, and what its cache still holds of them.
pub struct Context {
    model: Arc<Model>,
    cache: Cache,
    ids: Vec<u32>,
}

impl Context {
    /// Nothing read yet.
    ///
    /// # Errors
    /// [`Error::Options`] for options that cannot work.
    pub fn new(model: Arc<Model>, options: &CacheOptions) -> Result<Self> {
        let budget = auto_budget(&model, options);
        let cache = Cache::new(&model.config, options, budget, model.device())?;
        Ok(Self { model, cache, ids: Vec::new() })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The cache, to change its budget or pins.
    pub fn cache_mut(&mut self) -> &mut Cache {
        &mut self.cache
    }

    /// Every token that has been through the model.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Reads `ids` in chunks and returns the logits after the last, `[vocab]`.
    ///
    /// # Errors
    /// [`Error::Empty`] without ids, or when the device fails.
    pub fn prefill(&mut self, ids: &[u32]) -> Result<Tensor> {
        let mut hidden = Err(Error::Empty);
        for chunk in ids.chunks(self.cache.options().chunk as usize) {
            hidden = Ok(self.read(chunk, &mut |_| true)?);
        }
        self.cache.shrink()?;
        self.model.logits(&hidden?)
    }

    /// Reads one chunk of a prompt and returns its hidden states, `[n, width]`. `watch` hears of each layer
    /// before it begins; where it answers `false`, the chunk is dropped whole.
    ///
    /// # Errors
    /// [`Error::Stopped`], or when the device fails.
    pub fn read(&mut self, chunk: &[u32], watch: &mut dyn FnMut(usize) -> bool) -> Result<Tensor> {
        self.cache.set_phase(Phase::Prefill);
        self.pass(chunk, watch)
    }

    /// Reads one generated token and returns the logits after it, `[vocab]`.
    ///
    /// # Errors
    /// When the device fails.
    pub fn step(&mut self, id: u32) -> Result<Tensor> {
        self.cache.set_phase(Phase::Decode);
        let hidden = self.pass(&[id], &mut |_| true)?;
        self.model.logits(&hidden)
    }

    /// Forgets every token from position `n` on.
    ///
    /// # Errors
    /// When the device fails.
    pub fn truncate(&mut self, n: u32) -> Result<()> {
        self.cache.truncate(n)?;
        self.ids.truncate(n as usize);
        Ok(())
    }

    /// Takes other options for what comes; entries over the new budget go at once.
    ///
    /// # Errors
    /// [`Error::Options`] for options that cannot work.
    pub fn set_options(&mut self, options: &CacheOptions) -> Result<()> {
        let budget = auto_budget(&self.model, options);
        self.cache.set_options(options, budget)
    }

    /// Sets the budget; `None` follows the free memory as it is now.
    ///
    /// # Errors
    /// [`Error::Options`] where it is too small.
    pub fn set_budget(&mut self, budget: Option<u32>) -> Result<()> {
        self.set_options(&CacheOptions { budget, ..self.cache.options().clone() })
    }

    /// All layers for one chunk; where it fails, the cache stands where it stood before.
    fn pass(&mut self, ids: &[u32], watch: &mut dyn FnMut(usize) -> bool) -> Result<Tensor> {
        let config = &self.model.config;
        self.cache.stay_in_context(ids.len() as u32, config.context, self.model.rope())?;
        let (start, angle) = (self.cache.n_seen(), self.cache.angle());
        let mut watched = Watched { cache: &mut self.cache, watch };
        match self.model.forward(ids, angle, &mut watched) {
            Ok(hidden) => {
                self.cache.advance(ids.len() as u32);
                self.ids.extend_from_slice(ids);
                Ok(hidden)
            }
            Err(error) => {
                self.cache.truncate(start)?;
                Err(error)
            }
        }
    }
}

/// The budget that the free memory allows, up to the model's context.
pub fn auto_budget(model: &Model, options: &CacheOptions) -> u32 {
    let context = model.config.context.max(AUTO_LEAST);
    let free = device::free_memory(model.device()).unwrap_or(0) as f64;
    let tokens = free * AUTO_SHARE / bytes_per_token(&model.config, options.kv) as f64;
    (tokens as u32).clamp(AUTO_LEAST, context)
}

/// A cache that is asked after every layer whether to go on.
struct Watched<'a> {
    cache: &'a mut Cache,
    watch: &'a mut dyn FnMut(usize) -> bool,
}

impl Attend for Watched<'_> {
    fn attend(&mut self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        match (self.watch)(layer) {
            true => self.cache.attend(layer, q, k, v),
            false => Err(Error::Stopped),
        }
    }
}
