//! What the window is told, in batches of at most 20 a second.
//!
//! A message through a Tauri channel costs over a millisecond whatever its size, and a model writes faster than
//! anyone reads: so events wait for the next batch, and those that follow each other there are joined.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::protocol::Event;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::api::{AppEvent, Gauge, Status};

/// The shortest time between two batches.
const PACE: Duration = Duration::from_millis(50);

/// Where batches go; `false` when nobody listens any more.
pub type Listener = Box<dyn Fn(Vec<AppEvent>) -> bool + Send + Sync>;

/// Collects events and hands them on in batches. Clones share it.
#[derive(Clone)]
pub struct Outbox {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Default)]
struct State {
    listener: Option<Listener>,
    pending: Vec<AppEvent>,
    /// Told first to whoever subscribes.
    status: Option<Status>,
    gauge: Option<Gauge>,
    /// Files that nobody has been told of.
    opened: Vec<String>,
    /// What went wrong before anybody listened.
    missed: Vec<AppEvent>,
    sent: Option<Instant>,
}

impl Outbox {
    /// An outbox that nobody listens to yet. Must be made inside the async runtime.
    pub fn new() -> Self {
        let shared = Arc::new(Shared { state: Mutex::default(), filled: Notify::new() });
        let pump = Arc::clone(&shared);
        tokio::spawn(async move {
            loop {
                pump.filled.notified().await;
                let early = pump.lock().sent.map_or(Duration::ZERO, |sent| PACE.saturating_sub(sent.elapsed()));
                sleep(early).await;
                pump.lock().flush();
            }
        });
        Self { shared }
    }

    /// Makes `listener` the one that is told, in place of any other, beginning with the state of things.
    pub fn subscribe(&self, listener: Listener) {
        let mut state = self.shared.lock();
        state.listener = Some(listener);
        state.pending.clear();
        let status = state.status.clone().map(|status| AppEvent::Status { status });
        let gauge = state.gauge.clone().map(|gauge| AppEvent::Gauge { gauge });
        state.pending.extend(status.into_iter().chain(gauge));
        let paths = std::mem::take(&mut state.opened);
        if !paths.is_empty() {
            state.pending.push(AppEvent::Opened { paths });
        }
        let missed = std::mem::take(&mut state.missed);
        state.pending.extend(missed);
        state.flush();
    }

    /// Tells the window, soon.
    pub fn push(&self, event: AppEvent) {
        let mut state = self.shared.lock();
        match &event {
            AppEvent::Status { status } => state.status = Some(status.clone()),
            AppEvent::Gauge { gauge } => state.gauge = Some(gauge.clone()),
            AppEvent::Opened { paths } if state.listener.is_none() => state.opened.extend_from_slice(paths),
            AppEvent::Worker { event: Event::Failed { session: None, .. } } if state.listener.is_none() => {
                state.missed.push(event.clone());
            }
            _ => {}
        }
        if state.listener.is_some() {
            join(&mut state.pending, event);
            drop(state);
            self.shared.filled.notify_one();
        }
    }

    /// Tells the window what waits, now.
    pub fn flush(&self) {
        self.shared.lock().flush();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn flush(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.pending);
        if self.listener.as_ref().is_some_and(|tell| !tell(batch)) {
            self.listener = None;
        }
        self.sent = Some(Instant::now());
    }
}

/// Adds an event to those that wait, joined to the last of its kind where nothing in between depends on the order.
fn join(pending: &mut Vec<AppEvent>, event: AppEvent) {
    for waiting in pending.iter_mut().rev() {
        match merge(waiting, &event) {
            Merge::Done => return,
            Merge::Unrelated => {}
            Merge::Barrier => break,
        }
    }
    pending.push(event);
}

enum Merge {
    /// The event is in what waited.
    Done,
    /// They have nothing to do with each other.
    Unrelated,
    /// The event must come after what waited.
    Barrier,
}

fn merge(waiting: &mut AppEvent, event: &AppEvent) -> Merge {
    match (waiting, event) {
        (AppEvent::Worker { event: waiting }, AppEvent::Worker { event }) => merge_worker(waiting, event),
        (AppEvent::Status { status: waiting }, AppEvent::Status { status }) => {
            waiting.clone_from(status);
            Merge::Done
        }
        (AppEvent::Gauge { gauge: waiting }, AppEvent::Gauge { gauge }) => {
            waiting.clone_from(gauge);
            Merge::Done
        }
        (AppEvent::Fetch { fetch: waiting }, AppEvent::Fetch { fetch }) if waiting.id == fetch.id => {
            waiting.clone_from(fetch);
            Merge::Done
        }
        (AppEvent::ChatsChanged, AppEvent::ChatsChanged) => Merge::Done,
        _ => Merge::Unrelated,
    }
}

fn merge_worker(waiting: &mut Event, event: &Event) -> Merge {
    if session_of(waiting) != session_of(event) {
        return Merge::Unrelated;
    }
    match (waiting, event) {
        (
            Event::Token { text: before, generated: last, tok_s: speed, .. },
            Event::Token { text, generated, tok_s, .. },
        ) => {
            before.push_str(text);
            *last = *generated;
            *speed = *tok_s;
            Merge::Done
        }
        (
            Event::Cache { state: last, kept: before, forgotten: gone, pinned: stuck, .. },
            Event::Cache { state, kept, forgotten, pinned, .. },
        ) => {
            last.clone_from(state);
            before.extend_from_slice(kept);
            gone.clone_from(forgotten);
            stuck.clone_from(pinned);
            Merge::Done
        }
        (waiting @ Event::Prefill { .. }, Event::Prefill { .. })
        | (waiting @ Event::Memory { .. }, Event::Memory { .. }) => {
            waiting.clone_from(event);
            Merge::Done
        }
        (
            Event::Token { .. } | Event::Cache { .. } | Event::Prefill { .. } | Event::Memory { .. },
            Event::Token { .. } | Event::Cache { .. } | Event::Prefill { .. } | Event::Memory { .. },
        ) => Merge::Unrelated,
        // Layouts and endings keep their place among a session's events.
        _ => Merge::Barrier,
    }
}

/// The conversation that an event belongs to.
pub fn session_of(event: &Event) -> Option<&str> {
    match event {
        Event::Layout { session, .. }
        | Event::Prefill { session, .. }
        | Event::Token { session, .. }
        | Event::Cache { session, .. }
        | Event::Recalled { session, .. }
        | Event::Layers { session, .. }
        | Event::Notice { session, .. }
        | Event::Finished { session, .. } => Some(session),
        Event::Failed { session, .. } => session.as_deref(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
