//! One conversation: messages in, events out. Only tokens that are new since the last turn are prefilled.

mod control;
mod events;
mod pins;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use candle_core::Tensor;

use crate::cache::snapshot::{self, Extra};
use crate::context::{self, Context, Progress};
use crate::error::{Error, Result};
use crate::guard::{Guard, Measure};
use crate::model::Model;
use crate::prompt::Built;
use crate::protocol::{
    CacheOptions, Event, FinishReason, Message, Passage, Role, Sampling, SessionId, Span, SpanKind, TurnStats,
};
use crate::relief::{Reliefs, Without};
use crate::sampler::Sampler;
use crate::tokenizer::Special;

pub use control::Control;
use events::{cache_event, layers_event, notice, prefill_event};
use pins::{OwnPins, own_pins, repin, set_pins};

/// Progress and cache states are reported at most this often.
const REPORT_EVERY: Duration = Duration::from_millis(60);

const NO_PASSAGE: &str = "This passage is not in the chat, so it cannot be pinned; select text that was sent.";

/// Hears what happens in a session.
pub type Emit<'a> = &'a mut (dyn FnMut(Event) + Send);

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
    /// What the system prompt and the template take, newest turn last.
    own_pins: OwnPins,
    /// What the person pinned.
    user_pins: Vec<Range<u32>>,
    /// What was given up for want of memory, until it is said.
    reliefs: Reliefs,
}

impl Session {
    /// A conversation that has not begun; other threads act on it through `control`.
    ///
    /// # Errors
    /// [`Error::Options`] for options that cannot work.
    pub fn new(id: SessionId, model: Arc<Model>, options: &CacheOptions, control: Arc<Control>) -> Result<Self> {
        let context = Context::new(model, options)?;
        Ok(Self::from_parts(id, context, control, Extra::default()))
    }

    fn from_parts(id: SessionId, context: Context, control: Arc<Control>, extra: Extra) -> Self {
        let Extra { replies, user_pins } = extra;
        Self { id, context, control, replies, own_pins: OwnPins::default(), user_pins, reliefs: Reliefs::default() }
    }

    /// The same conversation under another name, from here on on its own; `control` acts on it.
    ///
    /// # Errors
    /// When the device has no memory for it.
    pub fn fork(&mut self, id: SessionId, control: Arc<Control>) -> Result<Self> {
        control.set_ids(self.context.ids());
        Ok(Self {
            id,
            context: self.context.fork()?,
            control,
            replies: self.replies.clone(),
            own_pins: self.own_pins.clone(),
            user_pins: self.user_pins.clone(),
            reliefs: Reliefs::default(),
        })
    }

    /// Writes the conversation's cache to `path`, so that [`Session::restore`] goes on where this stands.
    ///
    /// # Errors
    /// [`Error::Snapshot`] where the file cannot be written.
    pub fn save(&mut self, path: &Path) -> Result<()> {
        let extra = Extra { replies: self.replies.clone(), user_pins: self.user_pins.clone() };
        snapshot::write(path, &mut self.context, &extra)
    }

    /// A conversation that goes on where [`Session::save`] left it.
    ///
    /// # Errors
    /// [`Error::Snapshot`] for a file that is damaged, of another version or of another model.
    pub fn restore(id: SessionId, model: Arc<Model>, path: &Path, control: Arc<Control>) -> Result<Self> {
        let (context, extra) = snapshot::read(path, model)?;
        control.set_ids(context.ids());
        Ok(Self::from_parts(id, context, control, extra))
    }

    /// What the model has seen and the cache still holds.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Applies what [`Control`] was asked for, between turns; during one it holds by itself.
    ///
    /// # Errors
    /// [`Error::Options`] where a budget is too small for what is pinned.
    pub fn apply(&mut self, emit: Emit) -> Result<()> {
        if let Some(bins) = self.control.take_layers() {
            emit(layers_event(&self.id, self.context.cache(), bins));
        }
        if self.apply_pending(emit)? {
            emit(self.cache_event());
        }
        Ok(())
    }

    /// The state of the cache, as an event; what it says of kept fractions is what changed since the last one.
    pub fn cache_event(&mut self) -> Event {
        cache_event(&self.id, self.context.cache_mut())
    }

    /// Prefills what is new in `messages` and answers the last one, or goes on with it where it is an answer that
    /// ended early. Everything worth showing goes to `emit`; [`Event::Finished`] comes last.
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
        emit: Emit,
    ) -> Result<Answer> {
        let started = Instant::now();
        let mut sampler = Sampler::new(sampling)?;
        let (messages, begun) = begun(messages);
        self.context.without = Without::default();
        let mut stats = TurnStats::default();
        let mut first = None;
        let (built, reused, answer, logits) = loop {
            let Begun { built, reused, answer } = self.begin(messages, begun, options, false, emit)?;
            let n = built.ids.len() as u32;
            // Where memory runs out and the turn begins again, what it has read stays.
            stats.prefilled = n - *first.get_or_insert(reused);
            stats.generated = n - answer;
            let ask = ask(&built.spans, messages).max(reused);
            let rest = &built.ids[reused as usize..];
            let logits = match rest {
                // An answer goes on in the turn that it began in: what the question brought back stays.
                &[last] if begun.is_some() => self.context.step(last),
                rest => self.prefill(rest, Some(ask), emit),
            };
            match logits {
                Err(error @ Error::OutOfMemory { .. }) => self.relieve(error, Some(rest.len() as u32), emit)?,
                logits => break (built, reused, answer, logits),
            }
        };
        let logits = match logits {
            Ok(logits) => logits,
            Err(Error::Stopped) => {
                stats.prefilled = self.context.cache().n_seen().saturating_sub(reused);
                stats.prefill_s = started.elapsed().as_secs_f32();
                return Ok(self.finish(String::new(), FinishReason::Stopped, stats, emit));
            }
            Err(error) => return Err(error),
        };
        stats.prefill_s = started.elapsed().as_secs_f32();
        stats.recall_s = self.context.cache().recall_time().as_secs_f32();
        self.say_recalled(emit);

        let ids = built.ids[answer as usize..].to_vec();
        let text = begun.map(|message| message.text.clone()).unwrap_or_default();
        let mut reply = Reply { before: ids.len(), ids, text, started, first: None, looked_again: 0 };
        let reason = self.generate(logits, &mut sampler, max_tokens, &mut reply, emit)?;
        stats.generated = reply.ids.len() as u32;
        stats.looked_again = reply.looked_again;
        stats.ttft_s = reply.first.unwrap_or(started).duration_since(started).as_secs_f32();
        stats.tok_s = reply.tok_s();
        let end = answer + stats.generated;
        let mut spans = built.spans;
        spans.retain(|span| span.start < answer);
        spans.push(answer_span(answer..end, messages));
        emit(Event::Layout { session: self.id.clone(), n_tokens: end, reused, spans });
        self.replies.insert(messages.len(), (reply.text.clone(), reply.ids));
        Ok(self.finish(reply.text, reason, stats, emit))
    }

    /// Reads what stands before the question that `messages` end with, so that the question itself is soon
    /// answered, whatever it will be. Ends early where [`Control::stop`] says so.
    ///
    /// # Errors
    /// As [`Session::send`].
    pub fn read_ahead(&mut self, messages: &[Message], options: &CacheOptions, emit: Emit) -> Result<()> {
        self.context.without = Without::default();
        loop {
            let Begun { built, reused, .. } = self.begin(messages, None, options, true, emit)?;
            let rest = &built.ids[reused as usize..];
            let read = if rest.is_empty() { Ok(()) } else { self.prefill(rest, None, emit).map(drop) };
            match read {
                Err(error @ Error::OutOfMemory { .. }) => self.relieve(error, Some(rest.len() as u32), emit)?,
                Ok(()) | Err(Error::Stopped) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// After `error`, makes room so that what it ended can be tried again, and says so.
    ///
    /// # Errors
    /// `error` itself, where it is no lack of memory or nothing is left to give.
    fn relieve(&mut self, error: Error, reading: Option<u32>, emit: Emit) -> Result<()> {
        match self.context.make_room(&error, reading)? {
            Some(relief) => {
                self.reliefs.add(relief);
                emit(self.cache_event());
                Ok(())
            }
            None => {
                self.say_reliefs(emit);
                Err(error)
            }
        }
    }

    /// Says what the cache holds of a conversation, and drops what it holds of another one.
    ///
    /// # Errors
    /// When the template refuses the conversation, or the device fails.
    pub fn show(&mut self, messages: &[Message], emit: Emit) -> Result<()> {
        let (messages, begun) = begun(messages);
        let (built, _) = self.build(messages, begun)?;
        let held = self.context.ids().iter().zip(&built.ids).take_while(|(a, b)| a == b).count() as u32;
        self.context.truncate(held)?;
        let mut spans = built.spans;
        spans.retain(|span| span.start < held);
        if let Some(last) = spans.last_mut() {
            last.end = last.end.min(held);
        }
        self.control.set_ids(self.context.ids());
        self.own_pins = own_pins(&spans, messages);
        emit(Event::Layout { session: self.id.clone(), n_tokens: held, reused: held, spans });
        emit(self.cache_event());
        Ok(())
    }

    fn say_reliefs(&mut self, emit: Emit) {
        self.reliefs.take(&self.id).into_iter().for_each(emit);
    }

    /// The conversation in tokens, and where the answer begins.
    fn build(&mut self, messages: &[Message], begun: Option<&Message>) -> Result<(Built, u32)> {
        let said = |i: usize| messages.get(i).or(begun.filter(|_| i == messages.len()));
        self.replies.retain(|&i, (text, _)| said(i).is_some_and(|message| message.text == *text));
        let model = self.context.model();
        let replies = &self.replies;
        let mut built =
            model.prompt.build(&model.tokenizer, messages, &|i| replies.get(&i).map(|(_, ids)| ids.clone()))?;
        let answer = built.ids.len() as u32;
        if let Some(begun) = begun {
            let encode = || model.tokenizer.encode_after(&begun.text, Special::AsText, built.ids.last().copied());
            let ids = replies.get(&messages.len()).map_or_else(encode, |(_, ids)| ids.clone());
            built.ids.extend(ids);
            built.spans.push(answer_span(answer..built.ids.len() as u32, messages));
        }
        Ok((built, answer))
    }

    /// Puts the conversation into tokens, goes back to where they part from the cache, and says how many need no
    /// prefill. `ahead` leaves out the question; `begun` is an answer to it that is to go on.
    fn begin(
        &mut self,
        messages: &[Message],
        begun: Option<&Message>,
        options: &CacheOptions,
        ahead: bool,
        emit: Emit,
    ) -> Result<Begun> {
        loop {
            match self.lay_out(messages, begun, options, ahead, emit) {
                Err(error) => self.relieve(error, None, emit)?,
                began => return began,
            }
        }
    }

    fn lay_out(
        &mut self,
        messages: &[Message],
        begun: Option<&Message>,
        options: &CacheOptions,
        ahead: bool,
        emit: Emit,
    ) -> Result<Begun> {
        if messages.last().is_none_or(|last| last.role != Role::User) {
            return Err(Error::Empty);
        }
        let (mut built, answer) = self.build(messages, begun)?;
        if ahead {
            let end = ask(&built.spans, messages);
            built.ids.truncate(end as usize);
            built.spans.retain(|span| span.end <= end);
        }

        let model = self.context.model().clone();
        if options.kv == self.context.cache().options().kv {
            self.context.set_options(options)?;
        } else {
            self.context = Context::new(model, options)?;
        }
        let reused = self.rewind(&built.ids, !ahead)?;
        self.control.set_ids(&built.ids);
        self.own_pins = own_pins(&built.spans, messages);
        self.user_pins.retain(|range| range.end <= built.ids.len() as u32);
        self.pin(self.control.take_pins(), &built.ids, emit)?;
        // The template's own pins move with every turn.
        set_pins(self.context.cache_mut(), &self.own_pins, &self.user_pins)?;
        emit(Event::Layout {
            session: self.id.clone(),
            n_tokens: built.ids.len() as u32,
            reused,
            spans: built.spans.clone(),
        });
        Ok(Begun { built, reused, answer })
    }

    /// Goes back to where `ids` and the cache part ways, and says how many tokens need no prefill. Where an
    /// answer follows, the last token is always read again: its logits are what the answer begins with.
    fn rewind(&mut self, ids: &[u32], answers: bool) -> Result<u32> {
        let common = self.context.ids().iter().zip(ids).take_while(|(a, b)| a == b).count();
        let reused = common.min(ids.len().saturating_sub(usize::from(answers))) as u32;
        let cache = self.context.cache();
        if reused < cache.n_seen() {
            let (budget, was_whole) = (cache.budget(), cache.state().kept >= 1.0);
            self.context.truncate(reused)?;
            // Without a store, what was evicted for the sake of the dropped tokens is missing now. Where that is
            // most of the budget, reading again is the honest way.
            let enough = budget.min(reused) / 2;
            if !was_whole && (self.context.cache().least_entries() as u32) < enough {
                self.context.truncate(0)?;
                return Ok(0);
            }
        }
        Ok(reused)
    }

    fn prefill(&mut self, ids: &[u32], ask: Option<u32>, emit: Emit) -> Result<Tensor> {
        let (control, session, model) = (self.control.clone(), self.id.clone(), self.context.model().clone());
        let reliefs = &mut self.reliefs;
        let total = ids.len() as f32;
        let started = Instant::now();
        let mut reported = started;
        self.context.read(ids, ask, &mut |Progress { done, mode, cache }| {
            // What was given up has helped as far as to here.
            if done > 0.0 {
                reliefs.take(&session).into_iter().for_each(&mut *emit);
            }
            if let Some(cache) = cache {
                if let Some(budget) = control.take_budget()
                    && let Err(error) = context::set_budget(&model, cache, budget)
                {
                    emit(notice(&session, error)?);
                }
                emit(prefill_event(&session, done, total, mode, started));
                emit(cache_event(&session, cache));
                if let Some(bins) = control.take_layers() {
                    emit(layers_event(&session, cache, bins));
                }
            } else if reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                emit(prefill_event(&session, done, total, mode, started));
            }
            Ok(!control.stopped())
        })
    }

    fn generate(
        &mut self,
        mut logits: Tensor,
        sampler: &mut Sampler,
        max_tokens: u32,
        reply: &mut Reply,
        emit: Emit,
    ) -> Result<FinishReason> {
        let model = self.context.model().clone();
        let mut decoder = model.tokenizer.decoder();
        for &id in &reply.ids {
            decoder.push(id);
        }
        let mut said = self.context.ids().to_vec();
        let mut guard = Guard::default();
        let mut bring_back = false;
        let mut reported = Instant::now();
        let reason = loop {
            if self.control.stopped() {
                break FinishReason::Stopped;
            }
            if (reply.ids.len() - reply.before) as u32 >= max_tokens {
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
            if self.context.cache().watches() && guard.saw(&logits.to_vec1::<f32>()?, &said) {
                self.context.cache_mut().look();
            }
            logits = loop {
                match self.context.step(id) {
                    Err(error) => self.relieve(error, None, emit)?,
                    logits => break logits?,
                }
            };
            self.say_reliefs(emit);
            if std::mem::take(&mut bring_back) {
                reply.looked_again += 1;
                self.say_recalled(emit);
            }
            if let Some(missed) = self.context.cache_mut().take_missed() {
                bring_back = self.guard(guard.judge(missed), emit)?;
            }
            let changed = self.apply_pending(emit)?;
            if let Some(bins) = self.control.take_layers() {
                emit(layers_event(&self.id, self.context.cache(), bins));
            }
            if changed || reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                emit(self.cache_event());
            }
        };
        if let Some(text) = decoder.flush() {
            self.emit_text(&text, reply, emit);
        }
        Ok(reason)
    }

    /// Does for a running answer what its guard found to be needed; whether the next token brings entries back.
    fn guard(&mut self, measure: Measure, emit: Emit) -> Result<bool> {
        if measure == Measure::Nothing {
            return Ok(false);
        }
        let from = self.context.cache().budget();
        if let (Measure::Raise, Some(to)) = (measure, self.context.larger_budget()) {
            match self.context.cache_mut().set_budget(to) {
                Ok(()) => emit(Event::Notice {
                    session: self.id.clone(),
                    code: "guard_budget".into(),
                    message: format!(
                        "This answer needs more of the chat than fits, so the budget is {to} tokens now instead of {from}; set it lower if memory is short."
                    ),
                }),
                Err(error) => self.relieve(error, None, emit)?,
            }
        }
        self.context.recall_next();
        Ok(true)
    }

    fn say_recalled(&self, emit: Emit) {
        let passages = self.context.cache().passages();
        if !passages.is_empty() {
            emit(Event::Recalled { session: self.id.clone(), passages });
        }
    }

    fn emit_text(&self, text: &str, reply: &mut Reply, emit: Emit) {
        reply.text.push_str(text);
        emit(Event::Token {
            session: self.id.clone(),
            text: text.to_owned(),
            generated: reply.ids.len() as u32,
            tok_s: reply.tok_s(),
        });
    }

    fn finish(&mut self, text: String, reason: FinishReason, stats: TurnStats, emit: Emit) -> Answer {
        emit(self.cache_event());
        emit(Event::Finished { session: self.id.clone(), reason, stats: stats.clone() });
        Answer { text, reason, stats }
    }

    /// Applies what other threads asked for, and says whether anything changed. What cannot be done is said and
    /// left: a turn does not fail for it.
    fn apply_pending(&mut self, emit: Emit) -> Result<bool> {
        let pins = self.control.take_pins();
        let budget = self.control.take_budget();
        let changed = !pins.is_empty() || budget.is_some();
        // Asked for every token: only where there is something to pin may this cost what grows with the chat.
        if !pins.is_empty() {
            let ids = self.context.ids().to_vec();
            self.pin(pins, &ids, emit)?;
        }
        if let Some(budget) = budget
            && let Err(error) = self.context.set_budget(budget)
        {
            // Where it could not be had, there is less.
            match self.relieve(error, None, emit) {
                Ok(()) => self.say_reliefs(emit),
                Err(error) => emit(notice(&self.id, error)?),
            }
        }
        Ok(changed)
    }

    /// Pins and unpins what was asked for among `ids`.
    fn pin(&mut self, asked: Vec<(Passage, bool)>, ids: &[u32], emit: Emit) -> Result<()> {
        for (passage, pinned) in asked {
            let range = match passage {
                Passage::Range { start, end } if start < end && end as usize <= ids.len() => Some(start..end),
                Passage::Range { .. } => None,
                Passage::Text { text } => self.context.model().tokenizer.find(ids, &text),
            };
            let Some(range) = range else {
                emit(notice(&self.id, Error::Options(NO_PASSAGE.into()))?);
                continue;
            };
            let before = self.user_pins.clone();
            repin(&mut self.user_pins, range, pinned);
            if let Err(error) = set_pins(self.context.cache_mut(), &self.own_pins, &self.user_pins) {
                self.user_pins = before;
                emit(notice(&self.id, error)?);
            }
        }
        Ok(())
    }
}

/// The tokens of a turn, up to where new ones are to be generated.
struct Begun {
    built: Built,
    /// Tokens that need no prefill.
    reused: u32,
    /// Where the answer begins.
    answer: u32,
}

/// The conversation, and the answer at its end that is to go on.
fn begun(messages: &[Message]) -> (&[Message], Option<&Message>) {
    match messages.split_last() {
        Some((last, before)) if last.role == Role::Assistant => (before, Some(last)),
        _ => (messages, None),
    }
}

fn answer_span(range: Range<u32>, messages: &[Message]) -> Span {
    let (message, kind) = (Some(messages.len() as u32), SpanKind::Text { role: Role::Assistant });
    Span { start: range.start, end: range.end, message, kind }
}

/// An answer while it is being written.
struct Reply {
    ids: Vec<u32>,
    /// Those of them that an earlier turn wrote.
    before: usize,
    text: String,
    started: Instant,
    first: Option<Instant>,
    /// See [`TurnStats::looked_again`].
    looked_again: u32,
}

impl Reply {
    fn push(&mut self, id: u32) {
        self.ids.push(id);
        self.first.get_or_insert_with(Instant::now);
    }

    /// Tokens a second since the first.
    fn tok_s(&self) -> f32 {
        let seconds = self.first.unwrap_or(self.started).elapsed().as_secs_f32();
        (self.ids.len() - self.before).saturating_sub(1) as f32 / seconds.max(1e-6)
    }
}

/// Where the last message's own words begin: they are the question, what stands before them is what it is about.
fn ask(spans: &[Span], messages: &[Message]) -> u32 {
    let last = messages.len().saturating_sub(1) as u32;
    let words = |span: &&Span| span.message == Some(last) && matches!(span.kind, SpanKind::Text { .. });
    spans.iter().find(words).or(spans.last()).map_or(0, |span| span.start)
}
