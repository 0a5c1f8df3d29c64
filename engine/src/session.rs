//! One conversation: messages in, events out. Only tokens that are new since the last turn are prefilled.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use candle_core::Tensor;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::protocol::{
    CacheOptions, Event, FinishReason, Message, Role, Sampling, SessionId, Span, SpanKind, TurnStats,
};
use crate::sampler::Sampler;

/// Progress and cache states are reported at most this often.
const REPORT_EVERY: Duration = Duration::from_millis(60);

/// What other threads may do to a session while it works.
#[derive(Debug, Default)]
pub struct Control {
    stop: AtomicBool,
    budget: Mutex<Option<Option<u32>>>,
    ids: Mutex<Vec<u32>>,
}

impl Control {
    /// Ends prefill or generation within one token.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Makes the next turn start although an earlier one was stopped.
    pub fn rearm(&self) {
        self.stop.store(false, Ordering::Relaxed);
    }

    /// Asks for another budget, which holds from the next token or chunk on.
    pub fn set_budget(&self, budget: Option<u32>) {
        *self.budget.lock().unwrap_or_else(PoisonError::into_inner) = Some(budget);
    }

    /// The tokens of the conversation in `range`, also of those that are only being read.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn ids(&self, range: Range<u32>) -> Result<Vec<u32>> {
        let ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.get(range.start as usize..range.end as usize).map(<[u32]>::to_vec).ok_or(Error::Range {
            start: range.start,
            end: range.end,
            n_seen: ids.len() as u32,
        })
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn take_budget(&self) -> Option<Option<u32>> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set_ids(&self, ids: &[u32]) {
        ids.clone_into(&mut self.ids.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn push_id(&self, id: u32) {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    }
}

/// An answer and what it took.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The text, as the events carried it.
    pub text: String,
    /// Why it ended.
    pub reason: FinishReason,
    /// What it took.
    pub stats: TurnStats,
}

/// One conversation on an open model.
pub struct Session {
    id: SessionId,
    context: Context,
    control: Arc<Control>,
    /// Answers as they were generated, by the index of their message: a text may tokenize differently.
    replies: HashMap<usize, (String, Vec<u32>)>,
}

impl Session {
    /// A conversation that has not begun; other threads act on it through `control`.
    ///
    /// # Errors
    /// [`Error::Options`] for options that cannot work.
    pub fn new(id: SessionId, model: Arc<Model>, options: &CacheOptions, control: Arc<Control>) -> Result<Self> {
        let context = Context::new(model, options)?;
        Ok(Self { id, context, control, replies: HashMap::new() })
    }

    /// What the model has seen and the cache still holds.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Applies what [`Control::set_budget`] asked for, between turns; during one it holds by itself.
    ///
    /// # Errors
    /// [`Error::Options`] where it is too small.
    pub fn apply_budget(&mut self, emit: &mut dyn FnMut(Event)) -> Result<()> {
        if self.apply_pending_budget()? {
            emit(self.cache_event());
        }
        Ok(())
    }

    /// Prefills what is new in `messages` and answers the last one. Everything worth showing goes to `emit`;
    /// [`Event::Finished`] comes last.
    ///
    /// # Errors
    /// For options that cannot work, a template that cannot be rendered, or a device that fails. Whatever
    /// happens, the next turn can go on from what was read.
    pub fn send(
        &mut self,
        messages: &[Message],
        options: &CacheOptions,
        sampling: &Sampling,
        max_tokens: u32,
        emit: &mut dyn FnMut(Event),
    ) -> Result<Answer> {
        let started = Instant::now();
        if messages.last().is_none_or(|last| last.role != Role::User) {
            return Err(Error::Empty);
        }
        let mut sampler = Sampler::new(sampling)?;
        self.replies.retain(|&i, (text, _)| messages.get(i).is_some_and(|message| message.text == *text));
        let model = self.context.model().clone();
        let replies = &self.replies;
        let built = model.prompt.build(&model.tokenizer, messages, &|i| replies.get(&i).map(|(_, ids)| ids.clone()))?;

        if options.kv == self.context.cache().options().kv {
            self.context.set_options(options)?;
        } else {
            self.context = Context::new(model.clone(), options)?;
        }
        let reused = self.rewind(&built.ids)?;
        self.control.set_ids(&built.ids);
        self.context.cache_mut().set_pins(pins(&built.spans, messages))?;
        emit(Event::Layout {
            session: self.id.clone(),
            n_tokens: built.ids.len() as u32,
            reused,
            spans: built.spans.clone(),
        });

        let mut stats = TurnStats { prefilled: built.ids.len() as u32 - reused, ..TurnStats::default() };
        let logits = match self.prefill(&built.ids[reused as usize..], emit) {
            Ok(logits) => logits,
            Err(Error::Stopped) => {
                stats.prefilled = self.context.cache().n_seen().saturating_sub(reused);
                stats.prefill_s = started.elapsed().as_secs_f32();
                return Ok(self.finish(String::new(), FinishReason::Stopped, stats, emit));
            }
            Err(error) => return Err(error),
        };
        stats.prefill_s = started.elapsed().as_secs_f32();

        let mut reply = Reply { ids: Vec::new(), text: String::new(), started, first: None };
        let reason = self.generate(logits, &mut sampler, max_tokens, &mut reply, emit)?;
        stats.generated = reply.ids.len() as u32;
        stats.ttft_s = reply.first.unwrap_or(started).duration_since(started).as_secs_f32();
        stats.tok_s = reply.tok_s();
        let end = built.ids.len() as u32 + stats.generated;
        let mut spans = built.spans;
        spans.push(Span {
            start: built.ids.len() as u32,
            end,
            message: Some(messages.len() as u32),
            kind: SpanKind::Text { role: Role::Assistant },
        });
        emit(Event::Layout { session: self.id.clone(), n_tokens: end, reused, spans });
        self.replies.insert(messages.len(), (reply.text.clone(), reply.ids));
        Ok(self.finish(reply.text, reason, stats, emit))
    }

    /// Goes back to where `ids` and the cache part ways, and says how many tokens need no prefill. The last
    /// token is always read again: its logits are what the answer begins with.
    fn rewind(&mut self, ids: &[u32]) -> Result<u32> {
        let common = self.context.ids().iter().zip(ids).take_while(|(a, b)| a == b).count();
        let reused = common.min(ids.len().saturating_sub(1)) as u32;
        let cache = self.context.cache();
        if reused < cache.n_seen() {
            let (budget, was_whole) = (cache.budget(), cache.state().kept >= 1.0);
            self.context.truncate(reused)?;
            // What was evicted for the sake of the dropped tokens is missing now. Where that is most of the
            // budget, reading again is the honest way.
            let enough = budget.min(reused) / 2;
            if !was_whole && (self.context.cache().least_entries() as u32) < enough {
                self.context.truncate(0)?;
                return Ok(0);
            }
        }
        Ok(reused)
    }

    fn prefill(&mut self, ids: &[u32], emit: &mut dyn FnMut(Event)) -> Result<Tensor> {
        let (control, session) = (self.control.clone(), self.id.clone());
        let (total, layers) = (ids.len() as f32, self.context.model().config.layers as f32);
        let started = Instant::now();
        let mut reported = started;
        let mut hidden = Err(Error::Empty);
        let mut done = 0.0;
        for chunk in ids.chunks(self.context.cache().options().chunk as usize) {
            let share = chunk.len() as f32 / layers;
            hidden = Ok(self.context.read(chunk, &mut |layer| {
                if reported.elapsed() >= REPORT_EVERY {
                    reported = Instant::now();
                    // In tokens' worth of work: so many layers of a chunk are so many of its tokens.
                    emit(prefill_event(&session, done + layer as f32 * share, total, started));
                }
                !control.stopped()
            })?);
            done += chunk.len() as f32;
            self.apply_pending_budget()?;
            emit(prefill_event(&session, done, total, started));
            emit(self.cache_event());
        }
        self.context.cache_mut().shrink()?;
        emit(self.cache_event());
        self.context.model().logits(&hidden?)
    }

    fn generate(
        &mut self,
        mut logits: Tensor,
        sampler: &mut Sampler,
        max_tokens: u32,
        reply: &mut Reply,
        emit: &mut dyn FnMut(Event),
    ) -> Result<FinishReason> {
        let model = self.context.model().clone();
        let mut decoder = model.tokenizer.decoder();
        let mut said = self.context.ids().to_vec();
        let mut reported = Instant::now();
        let reason = loop {
            if self.control.stopped() {
                break FinishReason::Stopped;
            }
            if reply.ids.len() as u32 >= max_tokens {
                break FinishReason::Length;
            }
            let id = sampler.sample(&logits, &said)?;
            if model.tokenizer.eog(id) {
                break FinishReason::Eos;
            }
            said.push(id);
            self.control.push_id(id);
            reply.push(id);
            if let Some(text) = decoder.push(id) {
                self.emit_text(&text, reply, emit);
            }
            logits = self.context.step(id)?;
            let budget_changed = self.apply_pending_budget()?;
            if budget_changed || reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                emit(self.cache_event());
            }
        };
        if let Some(text) = decoder.flush() {
            self.emit_text(&text, reply, emit);
        }
        Ok(reason)
    }

    fn emit_text(&self, text: &str, reply: &mut Reply, emit: &mut dyn FnMut(Event)) {
        reply.text.push_str(text);
        emit(Event::Token {
            session: self.id.clone(),
            text: text.to_owned(),
            generated: reply.ids.len() as u32,
            tok_s: reply.tok_s(),
        });
    }

    fn finish(&mut self, text: String, reason: FinishReason, stats: TurnStats, emit: &mut dyn FnMut(Event)) -> Answer {
        emit(self.cache_event());
        emit(Event::Finished { session: self.id.clone(), reason, stats: stats.clone() });
        Answer { text, reason, stats }
    }

    fn apply_pending_budget(&mut self) -> Result<bool> {
        match self.control.take_budget() {
            Some(budget) => self.context.set_budget(budget).map(|()| true),
            None => Ok(false),
        }
    }

    fn cache_event(&mut self) -> Event {
        let cache = self.context.cache_mut();
        Event::Cache { session: self.id.clone(), state: cache.state(), kept: cache.changes() }
    }
}

fn prefill_event(session: &SessionId, done: f32, total: f32, started: Instant) -> Event {
    let tok_s = done / started.elapsed().as_secs_f32().max(1e-6);
    let remaining_s = (done >= 1.0).then(|| (total - done) / tok_s);
    Event::Prefill { session: session.clone(), done: done as u32, total: total as u32, tok_s, remaining_s }
}

/// An answer while it is being written.
struct Reply {
    ids: Vec<u32>,
    text: String,
    started: Instant,
    first: Option<Instant>,
}

impl Reply {
    fn push(&mut self, id: u32) {
        self.ids.push(id);
        self.first.get_or_insert_with(Instant::now);
    }

    /// Tokens a second since the first.
    fn tok_s(&self) -> f32 {
        let seconds = self.first.unwrap_or(self.started).elapsed().as_secs_f32();
        self.ids.len().saturating_sub(1) as f32 / seconds.max(1e-6)
    }
}

/// The system prompt and what the template puts before the first message of the person.
fn pins(spans: &[Span], messages: &[Message]) -> Vec<Range<u32>> {
    let is_system =
        |span: &Span| span.message.is_none_or(|i| messages.get(i as usize).is_some_and(|m| m.role == Role::System));
    let end = spans.iter().take_while(|span| is_system(span)).last().map_or(0, |span| span.end);
    if end == 0 { Vec::new() } else { vec![Range { start: 0, end }] }
}
