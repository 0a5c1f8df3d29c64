//! A model and the cache of one run of tokens: prefill exactly or in a stream, decode one by one.

use std::sync::Arc;

use candle_core::Tensor;

use crate::cache::{Cache, Phase, Repeating, bytes_per_token};
use crate::device;
use crate::error::{Error, Result};
use crate::memory::{self, Site};
use crate::model::{Attend, Model};
use crate::protocol::{CacheOptions, KvType, PrefillMode};
use crate::relief::Without;
use crate::tokenizer::Special;

/// An automatic budget takes at most this share of the free memory.
const AUTO_SHARE: f64 = 0.5;

/// An automatic budget is never smaller.
const AUTO_LEAST: u32 = 256;

/// A store without a limit of its own takes at most this share of the free host memory.
const STORE_SHARE: f64 = 0.5;

/// Exact prefill may take at most this share of the free memory.
const EXACT_SHARE: f64 = 0.5;

/// What the model is told before it repeats a text: arXiv 2505.23416, section 3.2.
const REPEAT: &str = "\n\nRepeat the previous context exactly:\n";

/// Where a prefill stands.
pub struct Progress<'a> {
    /// Tokens' worth of work that is done: so many layers of a chunk are so many of its tokens.
    pub done: f32,
    /// How the prompt is read.
    pub mode: PrefillMode,
    /// The cache, where it may be looked at or have its budget changed.
    pub cache: Option<&'a mut Cache>,
}

/// Hears how a prefill goes; where it answers `false`, the prefill ends.
pub type Watch<'a> = &'a mut (dyn FnMut(Progress<'_>) -> Result<bool> + Send);

/// Tokens that have been through a model, and what its cache still holds of them.
pub struct Context {
    model: Arc<Model>,
    cache: Cache,
    ids: Vec<u32>,
    /// Tokens generated since the last recall.
    since_recall: u32,
    /// The next token recalls, whatever the options say of it.
    recall_due: bool,
    /// What this turn does without, for want of memory.
    pub(crate) without: Without,
}

impl Context {
    /// Nothing read yet.
    ///
    /// # Errors
    /// [`Error::Options`] for options that cannot work.
    pub fn new(model: Arc<Model>, options: &CacheOptions) -> Result<Self> {
        let budget = auto_budget(&model, options);
        let cache = Cache::new(&model.config, model.rope(), options, budget, auto_store(), model.device())?;
        Ok(Self::from_parts(model, cache, Vec::new()))
    }

    /// Tokens and the cache that stands for them.
    pub(crate) fn from_parts(model: Arc<Model>, cache: Cache, ids: Vec<u32>) -> Self {
        Self { model, cache, ids, since_recall: 0, recall_due: false, without: Without::default() }
    }

    /// A copy that goes its own way.
    ///
    /// # Errors
    /// When the device has no memory for it.
    pub fn fork(&mut self) -> Result<Self> {
        Ok(Self::from_parts(self.model.clone(), self.cache.fork()?, self.ids.clone()))
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

    /// Reads `ids` and returns the logits after the last, `[vocab]`.
    ///
    /// # Errors
    /// [`Error::Empty`] without ids, or when the device fails.
    pub fn prefill(&mut self, ids: &[u32]) -> Result<Tensor> {
        self.read(ids, None, &mut |_| Ok(true))
    }

    /// Reads a prompt and returns the logits after its last token, `[vocab]`. Tokens from position `ask` on are
    /// the question: they bring entries back from the store.
    ///
    /// What was read stays where a streaming prefill fails or ends early; an exact one leaves nothing.
    ///
    /// # Errors
    /// [`Error::Empty`] without ids, [`Error::Stopped`], or when the device fails.
    pub fn read(&mut self, ids: &[u32], ask: Option<u32>, watch: Watch) -> Result<Tensor> {
        device::computing(|| self.read_here(ids, ask, watch))
    }

    fn read_here(&mut self, ids: &[u32], ask: Option<u32>, watch: Watch) -> Result<Tensor> {
        self.cache.begin_turn();
        self.since_recall = 0;
        let ask = ask.filter(|_| !self.without.recall);
        let (start, n) = (self.cache.n_seen(), ids.len() as u32);
        let mode = self.mode(n);
        let read = match mode {
            _ if ids.is_empty() => Err(Error::Empty),
            PrefillMode::Exact => {
                // What a question asks for has to be hot before its own queries attend: where a part of what came
                // before this prompt is only in the store, the question follows in a stream.
                let recalls = ask.filter(|_| self.cache.recalls());
                let (before, question) =
                    ids.split_at(recalls.map_or(n, |ask| ask.saturating_sub(start).min(n)) as usize);
                match (before, question) {
                    ([], question) => self.stream(question, ask, 0.0, watch),
                    (before, []) => self.exact(before, ask, watch),
                    (before, question) => self
                        .exact(before, None, watch)
                        .and_then(|_| self.stream(question, ask, before.len() as f32, watch)),
                }
            }
            _ => self.stream(ids, ask, 0.0, watch),
        };
        self.cache.set_ask(None);
        let hidden = read?;
        self.cache.shrink()?;
        watch(Progress { done: n as f32, mode, cache: Some(&mut self.cache) })?;
        self.model.logits(&hidden)
    }

    /// How `n` tokens would be read now.
    pub fn mode(&self, n: u32) -> PrefillMode {
        let options = self.cache.options();
        let fits_context = self.cache.angle() + n <= self.model.config.context;
        let fits_memory = || {
            let free = device::free_memory(self.model.device()).unwrap_or(u64::MAX);
            exact_bytes(&self.model, options.kv, u64::from(n)) as f64 <= free as f64 * EXACT_SHARE
        };
        match options.prefill {
            // One chunk goes through layer by layer in either way.
            _ if n <= self.chunk() || self.without.exact => PrefillMode::Streaming,
            PrefillMode::Auto if fits_context && fits_memory() => PrefillMode::Exact,
            PrefillMode::Exact if fits_context => PrefillMode::Exact,
            _ => PrefillMode::Streaming,
        }
    }

    /// Reads one generated token and returns the logits after it, `[vocab]`.
    ///
    /// # Errors
    /// When the device fails.
    pub fn step(&mut self, id: u32) -> Result<Tensor> {
        device::computing(|| self.step_here(id))
    }

    fn step_here(&mut self, id: u32) -> Result<Tensor> {
        self.cache.set_phase(Phase::Decode);
        self.since_recall += 1;
        let every = self.cache.options().recall_every.filter(|_| !self.without.recall);
        let due = every.is_some_and(|every| self.since_recall.is_multiple_of(every))
            || std::mem::take(&mut self.recall_due) && !self.without.recall;
        self.cache.set_ask(due.then(|| self.cache.n_seen()));
        let hidden = self.pass(&[id], &mut |_| Ok(true))?;
        self.cache.set_ask(None);
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
        set_options(&self.model, &mut self.cache, options)
    }

    /// The most tokens that are read at once.
    pub(crate) fn chunk(&self) -> u32 {
        self.cache.options().chunk.min(self.without.larger_chunks.unwrap_or(u32::MAX))
    }

    /// Has the next token bring back what the last ones attend to.
    pub(crate) fn recall_next(&mut self) {
        self.recall_due = true;
    }

    /// Sets the budget, also where memory ran out before; `None` follows the free memory as it is now.
    ///
    /// # Errors
    /// [`Error::Options`] where it is too small, [`Error::OutOfMemory`] where not all of it could be had.
    pub fn set_budget(&mut self, budget: Option<u32>) -> Result<()> {
        set_budget(&self.model, &mut self.cache, budget)
    }

    /// An automatic budget that is larger by a quarter, where the free memory has room for it.
    pub(crate) fn larger_budget(&self) -> Option<u32> {
        let options = self.cache.options();
        let budget = self.cache.budget();
        let larger = (budget + budget / 4).min(self.model.config.context);
        let free = device::free_memory(self.model.device()).unwrap_or(0) as f64;
        let bytes = u64::from(larger - budget) * bytes_per_token(&self.model.config, options.kv);
        (options.budget.is_none() && larger > budget && bytes as f64 <= free * AUTO_SHARE).then_some(larger)
    }

    /// Chunk by chunk through all layers, with eviction after each; so many tokens of the prompt are `done` before.
    fn stream(&mut self, ids: &[u32], ask: Option<u32>, mut done: f32, watch: Watch) -> Result<Tensor> {
        let layers = self.model.config.layers as f32;
        let repeats = self.cache.repeats();
        let mut hidden = Err(Error::Empty);
        for chunk in ids.chunks(self.chunk() as usize) {
            let start = self.cache.n_seen();
            self.cache.set_phase(if repeats { Phase::Held } else { Phase::Streaming });
            self.cache.set_ask(ask.filter(|&ask| ask < start + chunk.len() as u32));
            let share = chunk.len() as f32 / layers;
            hidden = Ok(self.pass(chunk, &mut |layer| {
                watch(Progress { done: done + layer as f32 * share, mode: PrefillMode::Streaming, cache: None })
            })?);
            if repeats {
                let piece = self.repeated(chunk);
                let end = self.cache.n_seen();
                let angle = self.repeat_angle(self.cache.angle(), piece.len());
                let mut repeating = Repeating { cache: &mut self.cache, piece: start..end, end };
                self.model.forward(&piece, angle, &mut repeating)?;
                self.cache.evict_all()?;
            }
            done += chunk.len() as f32;
            let cache = Some(&mut self.cache);
            if !watch(Progress { done, mode: PrefillMode::Streaming, cache })? {
                return Err(Error::Stopped);
            }
        }
        hidden
    }

    /// Layer by layer: the prompt passes one layer in chunks with all of its entries there, the layer is cut back
    /// to its budget, then the next begins. As if everything had been kept and compressed at the end. Where it fails,
    /// the cache stands where it stood before.
    fn exact(&mut self, ids: &[u32], ask: Option<u32>, watch: Watch) -> Result<Tensor> {
        let start = self.cache.n_seen();
        let read = self.layer_by_layer(ids, ask, watch);
        if read.is_err() {
            self.cache.truncate(start)?;
        }
        read
    }

    fn layer_by_layer(&mut self, ids: &[u32], ask: Option<u32>, watch: Watch) -> Result<Tensor> {
        let model = self.model.clone();
        let (n, layers) = (ids.len() as u32, model.config.layers);
        let chunk = self.chunk() as usize;
        let (start, angle) = (self.cache.n_seen(), self.cache.angle());
        self.cache.set_phase(Phase::Exact);
        self.cache.set_ask(ask);

        let hidden_bytes = |n: usize| (n * model.config.width * size_of::<f32>()) as u64;
        memory::claim(model.device(), hidden_bytes(ids.len()), Site::Hidden)?;
        // Hidden states of every chunk, `[chunk, width]`, and of the pieces that are repeated.
        let mut hidden: Vec<Tensor> = ids.chunks(chunk).map(|ids| model.embed(ids)).collect::<Result<_>>()?;
        let asked = ask.map_or(n, |ask| ask.saturating_sub(start));
        let mut pieces = Vec::new();
        if self.cache.repeats() {
            for (j, piece) in ids[..asked as usize].chunks(chunk).enumerate() {
                let first = start + (j * chunk) as u32;
                let repeated = self.repeated(piece);
                let angle = self.repeat_angle(angle + n, repeated.len());
                memory::claim(model.device(), hidden_bytes(repeated.len()), Site::Hidden)?;
                pieces.push((model.embed(&repeated)?, first..first + piece.len() as u32, angle));
            }
        }
        let passes = layers as f32 * if pieces.is_empty() { 1.0 } else { 2.0 };
        let mut done = 0.0;
        for layer in 0..layers {
            self.cache.begin_layer(layer, ids.len())?;
            // Its chunks take as much one after the other.
            let bytes = model.config.pass_bytes(chunk.min(ids.len()), self.cache.most_entries() + ids.len());
            memory::claim(model.device(), bytes, Site::Pass)?;
            for (j, x) in hidden.iter_mut().enumerate() {
                if !watch(Progress { done, mode: PrefillMode::Exact, cache: None })? {
                    return Err(Error::Stopped);
                }
                let offset = (j * chunk) as u32;
                self.cache.set_offset(offset);
                let angles = model.rope().tables(angle + offset, x.dim(0)?, model.device())?;
                *x = model.layer(layer, x, &angles, &mut self.cache)?;
                done += x.dim(0)? as f32 / passes;
            }
            self.cache.set_offset(0);
            for (x, piece, angle) in &mut pieces {
                if !watch(Progress { done, mode: PrefillMode::Exact, cache: None })? {
                    return Err(Error::Stopped);
                }
                let angles = model.rope().tables(*angle, x.dim(0)?, model.device())?;
                done += (piece.end - piece.start) as f32 / passes;
                let mut repeating = Repeating { cache: &mut self.cache, piece: piece.clone(), end: start + n };
                *x = model.layer(layer, x, &angles, &mut repeating)?;
            }
            self.cache.finish_layer(layer, n)?;
        }
        self.cache.advance(n);
        self.ids.extend_from_slice(ids);
        hidden.pop().ok_or(Error::Empty)
    }

    /// The tokens that make the model repeat `piece`.
    fn repeated(&self, piece: &[u32]) -> Vec<u32> {
        let mut ids = self.model.tokenizer.encode(REPEAT, Special::AsText);
        ids.extend_from_slice(piece);
        ids
    }

    /// Where a repetition of `n` tokens is rotated for: after everything, inside the trained context.
    fn repeat_angle(&self, end: u32, n: usize) -> u32 {
        end.min(self.model.config.context.saturating_sub(n as u32))
    }

    /// All layers for one chunk; where it fails, the cache stands where it stood before.
    fn pass(&mut self, ids: &[u32], watch: &mut dyn FnMut(usize) -> Result<bool>) -> Result<Tensor> {
        let bytes = self.model.config.pass_bytes(ids.len(), self.cache.most_entries() + ids.len());
        memory::claim(self.model.device(), bytes, Site::Pass)?;
        self.cache.stay_in_context(ids.len() as u32, self.model.config.context)?;
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

fn set_options(model: &Model, cache: &mut Cache, options: &CacheOptions) -> Result<()> {
    // What the store holds already is not free, but its own.
    let store = cache.state().store_bytes + auto_store();
    cache.set_options(options, auto_budget(model, options), store)
}

/// As [`Context::set_budget`], where a prefill has hold of the context.
///
/// # Errors
/// [`Error::Options`] where it is too small.
pub fn set_budget(model: &Model, cache: &mut Cache, budget: Option<u32>) -> Result<()> {
    cache.lift_ceiling();
    set_options(model, cache, &CacheOptions { budget, ..cache.options().clone() })
}

/// The budget that the free memory allows, up to the model's context.
pub fn auto_budget(model: &Model, options: &CacheOptions) -> u32 {
    let context = model.config.context.max(AUTO_LEAST);
    let free = device::free_memory(model.device()).unwrap_or(0);
    // Mapped weights count as free, but are needed for every token.
    let mapped = if model.device().is_cpu() { model.weight_bytes } else { 0 };
    let free = free.saturating_sub(mapped) as f64;
    let tokens = free * AUTO_SHARE / bytes_per_token(&model.config, options.kv) as f64;
    (tokens as u32).clamp(AUTO_LEAST, context)
}

/// The limit of a store that has none of its own.
fn auto_store() -> u64 {
    (device::free_host_memory().unwrap_or(0) as f64 * STORE_SHARE) as u64
}

/// Bytes on the device that an exact prefill of `n` tokens takes: one layer's entries and the hidden states.
pub fn exact_bytes(model: &Model, kv: KvType, n: u64) -> u64 {
    let layer = bytes_per_token(&model.config, kv) / model.config.layers as u64;
    n * (layer + (model.config.width * size_of::<f32>()) as u64)
}

/// A cache that is asked before every layer whether to go on.
struct Watched<'a> {
    cache: &'a mut Cache,
    watch: &'a mut dyn FnMut(usize) -> Result<bool>,
}

impl Attend for Watched<'_> {
    fn attend(&mut self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        match (self.watch)(layer)? {
            true => self.cache.attend(layer, q, k, v),
            false => Err(Error::Stopped),
        }
    }
}
