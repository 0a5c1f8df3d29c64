//! The same question under several caches: each answered in a session of its own, one after the other, so that
//! they never share memory or time. A chat's own session is left alone.
//!
//! [`Comparisons`] stands between the worker and [`Answers`](crate::answers::Answers): it takes in what belongs to
//! its sessions and hands on the rest.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::protocol::{
    CacheOptions, Event, FinishReason, Message, PolicyName, Request, Sampling, SessionId, TurnStats, WorkerMemory,
};
use tokio::sync::mpsc;

use crate::answers::answerable;
use crate::api::{ApiError, AppEvent, CompareRequest, CompareStarted, ComparedColumn, Comparison, Status};
use crate::chats::comparisons as kept;
use crate::chats::{Store, now_ms};
use crate::error::Problem;
use crate::events::{Outbox, session_of};
use crate::gauge::Meter;
use crate::worker::{Notice, Worker, answer};

#[cfg(test)]
mod tests;

/// What the sessions of comparisons are called, so that they are never taken for a chat.
const PREFIX: &str = "compare-";

/// Of the free memory, what a column may take: the rest is for what computes.
const SHARE: f64 = 0.9;

/// Runs one comparison at a time. Clones share it.
#[derive(Clone)]
pub struct Comparisons {
    store: Store,
    outbox: Outbox,
    worker: Worker,
    running: Arc<Mutex<Option<Running>>>,
}

/// A comparison that is being answered.
struct Running {
    id: String,
    result: Comparison,
    /// Hears of the column at work.
    steps: mpsc::UnboundedSender<Step>,
    /// The column at work, once the worker has its question.
    at: Option<usize>,
    stopped: bool,
}

enum Step {
    /// This many tokens are to be held.
    LaidOut(u32),
    Ended,
}

impl ComparedColumn {
    fn waiting(options: &CacheOptions) -> Self {
        Self { options: options.clone(), text: String::new(), finish: None, stats: None, cache: None, problem: None }
    }

    fn ended(&self) -> bool {
        self.finish.is_some() || self.problem.is_some()
    }
}

impl Comparisons {
    /// Takes what is its own out of `notices`; what comes back is for everyone else.
    pub fn start(
        store: Store,
        outbox: Outbox,
        worker: Worker,
        mut notices: mpsc::UnboundedReceiver<Notice>,
    ) -> (Self, mpsc::UnboundedReceiver<Notice>) {
        let comparisons = Self { store, outbox, worker, running: Arc::default() };
        let (others, rest) = mpsc::unbounded_channel();
        let own = comparisons.clone();
        tokio::spawn(async move {
            while let Some(notice) = notices.recv().await {
                if let Some(notice) = own.sift(notice)
                    && others.send(notice).is_err()
                {
                    return;
                }
            }
        });
        (comparisons, rest)
    }

    /// Begins a comparison; what its columns say arrives as events.
    ///
    /// # Errors
    /// When there is nothing to compare, no model to ask, or another comparison is being answered.
    pub async fn begin(&self, request: CompareRequest) -> Result<CompareStarted, Problem> {
        if !(2..=3).contains(&request.columns.len()) {
            return Err(Problem::CompareColumns);
        }
        if request.text.trim().is_empty() {
            return Err(Problem::EmptyQuestion);
        }
        let status = self.worker.status();
        let model = match &status {
            Status::Ready { model } | Status::Sleeping { model } => model.name.clone(),
            _ => String::new(),
        };
        answerable(status)?;
        let asked = request.clone();
        let messages = self.store.run(move |db| kept::conversation(db, &asked)).await?;

        let id = uuid::Uuid::now_v7().simple().to_string();
        let sessions = (0..request.columns.len()).map(|i| session(&id, i)).collect();
        let columns = request.columns.iter().map(ComparedColumn::waiting).collect();
        let result = Comparison { question: request.text.clone(), model, asked_ms: now_ms(), columns };
        {
            let mut running = self.lock();
            if running.is_some() {
                return Err(Problem::CompareBusy);
            }
            let (steps, _) = mpsc::unbounded_channel();
            *running = Some(Running { id: id.clone(), result, steps, at: None, stopped: false });
        }
        let own = self.clone();
        let started = CompareStarted { id: id.clone(), sessions };
        tokio::spawn(async move { own.run(id, request, messages).await });
        Ok(started)
    }

    /// Ends the comparison within one token of the column at work; those after it are left out.
    pub fn stop(&self) {
        let mut running = self.lock();
        if let Some(running) = running.as_mut() {
            running.stopped = true;
            if let Some(at) = running.at {
                // Its end comes as an event.
                drop(self.worker.submit(Request::Stop { session: session(&running.id, at) }));
            }
        }
    }

    async fn run(&self, id: String, request: CompareRequest, messages: Vec<Message>) {
        let sampling =
            Sampling { temperature: 0.0, repetition_penalty: request.repetition_penalty, ..Sampling::default() };
        for (i, options) in request.columns.iter().enumerate() {
            let ask = Request::Send {
                session: session(&id, i),
                messages: messages.clone(),
                cache: options.clone(),
                sampling: sampling.clone(),
                max_tokens: request.max_tokens,
            };
            if let Err(problem) = self.column(&id, i, options, ask).await {
                self.fail(i, problem.code(), &problem.to_string());
            }
            // The next column finds the memory as this one found it.
            let _ = self.worker.ask(Request::Close { session: session(&id, i) }).await;
        }
        let result = self.lock().take().map(|running| running.result);
        if let (Some(chat), Some(result)) = (request.chat, result)
            && result.columns.iter().any(|column| !column.text.is_empty())
            && let Err(problem) = self.store.run(move |db| kept::keep_comparison(db, &chat, &result)).await
        {
            let (code, message) = (problem.code().to_owned(), problem.to_string());
            self.tell(Event::Failed { session: None, code, message });
        }
        self.outbox.push(AppEvent::CompareEnded { id });
    }

    /// Has one column answered, and waits for its end.
    async fn column(&self, id: &str, i: usize, options: &CacheOptions, ask: Request) -> Result<(), Problem> {
        answerable(self.worker.settled().await)?;
        let (steps, mut said) = mpsc::unbounded_channel();
        let reply = {
            let mut running = self.lock();
            let Some(running) = running.as_mut() else { return Ok(()) };
            if running.stopped {
                running.result.columns[i].finish = Some(FinishReason::Stopped);
                let (session, stats) = (session(id, i), TurnStats::default());
                self.tell(Event::Finished { session, reason: FinishReason::Stopped, stats });
                return Ok(());
            }
            running.steps = steps;
            running.at = Some(i);
            // Under the lock: a stop that comes now reaches the worker after the question.
            self.worker.submit(ask)
        };
        let taken = answer(reply).await;
        if taken.is_ok() {
            while let Some(step) = said.recv().await {
                match step {
                    Step::LaidOut(tokens) => {
                        if let Some(problem) = self.hopeless(tokens, options).await {
                            drop(self.worker.submit(Request::Stop { session: session(id, i) }));
                            self.fail(i, problem.code(), &problem.to_string());
                        }
                    }
                    Step::Ended => break,
                }
            }
        }
        if let Some(running) = self.lock().as_mut() {
            running.at = None;
        }
        taken.map(drop)
    }

    /// Why a column cannot be answered, as far as that can be told before its text is read.
    async fn hopeless(&self, tokens: u32, options: &CacheOptions) -> Option<Problem> {
        let Status::Ready { model } = self.worker.status() else { return None };
        if options.policy == PolicyName::Full && tokens > model.context {
            return Some(Problem::CompareContext { tokens, context: model.context });
        }
        let seen = self.worker.seen();
        let gauge =
            tokio::task::spawn_blocking(move || Meter::new().read(&seen, &WorkerMemory::default())).await.ok()?;
        let free = gauge.total?.checked_sub(gauge.used?)?;
        let needs = held(tokens, options) * u64::from(model.kv_bytes_per_token);
        (needs as f64 > free as f64 * SHARE).then_some(Problem::CompareMemory { needs, free })
    }

    /// Takes in what belongs to a comparison, and gives back the rest.
    fn sift(&self, notice: Notice) -> Option<Notice> {
        match notice {
            Notice::Event(event) if session_of(&event).is_some_and(|session| session.starts_with(PREFIX)) => {
                self.take(event);
                None
            }
            Notice::Lost { sessions, how } => {
                let (own, others): (Vec<_>, Vec<_>) =
                    sessions.into_iter().partition(|session| session.starts_with(PREFIX));
                let says = format!(
                    "The engine stopped while it wrote this answer, because {how}; compare smaller budgets, or try again."
                );
                for session in own {
                    if let Some(i) = self.index_of(&session) {
                        self.fail(i, Problem::WorkerLost.code(), &says);
                    }
                }
                (!others.is_empty()).then_some(Notice::Lost { sessions: others, how })
            }
            notice => Some(notice),
        }
    }

    fn take(&self, event: Event) {
        let Some(i) = session_of(&event).and_then(|session| self.index_of(session)) else { return };
        if let Event::Failed { code, message, .. } = &event {
            return self.fail(i, code, message);
        }
        let mut running = self.lock();
        let Some(running) = running.as_mut() else { return };
        let column = &mut running.result.columns[i];
        if column.ended() {
            return;
        }
        let step = match &event {
            Event::Layout { n_tokens, .. } => Some(Step::LaidOut(*n_tokens)),
            Event::Token { text, .. } => {
                column.text.push_str(text);
                None
            }
            Event::Cache { state, .. } => {
                column.cache = Some(state.clone());
                None
            }
            Event::Finished { reason, stats, .. } => {
                column.finish = Some(*reason);
                column.stats = Some(stats.clone());
                Some(Step::Ended)
            }
            _ => None,
        };
        self.tell(event);
        if let Some(step) = step {
            let _ = running.steps.send(step);
        }
    }

    /// Marks a column as failed and says so, unless it has ended already.
    fn fail(&self, i: usize, code: &str, message: &str) {
        let mut running = self.lock();
        let Some(running) = running.as_mut() else { return };
        let column = &mut running.result.columns[i];
        if !column.ended() {
            column.problem = Some(ApiError { code: code.to_owned(), message: message.to_owned() });
            let session = Some(session(&running.id, i));
            self.tell(Event::Failed { session, code: code.to_owned(), message: message.to_owned() });
        }
        let _ = running.steps.send(Step::Ended);
    }

    /// The column of the running comparison that a session stands for.
    fn index_of(&self, session: &str) -> Option<usize> {
        let running = self.lock();
        let running = running.as_ref()?;
        let i = session.strip_prefix(PREFIX)?.strip_prefix(running.id.as_str())?.strip_prefix('-')?.parse().ok()?;
        (i < running.result.columns.len()).then_some(i)
    }

    fn tell(&self, event: Event) {
        self.outbox.push(AppEvent::Worker { event });
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn session(id: &str, column: usize) -> SessionId {
    format!("{PREFIX}{id}-{column}")
}

/// Entries per layer and KV head that a conversation of so many tokens leaves in the hot cache.
fn held(tokens: u32, options: &CacheOptions) -> u64 {
    let most = if options.policy == PolicyName::Full { None } else { options.budget };
    u64::from(most.map_or(tokens, |budget| tokens.min(budget)))
}
