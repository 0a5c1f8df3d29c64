//! Answers that are being written: from the question to the last token, each kept in the database as it grows.
//!
//! The worker's events pass through here on their way to the window, so that what the window shows and what is
//! stored never differ by more than a moment.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::protocol::{CacheOptions, Event, FinishReason, Request, Sampling, SessionId, TurnStats, WorkerMemory};
use rusqlite::Connection;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::api::{Again, AgainHow, AppEvent, Chat, Question, Sent, Status};
use crate::chats::{self, Asked, Ending, Store};
use crate::error::Problem;
use crate::events::Outbox;
use crate::models;
use crate::snapshots::Snapshots;
use crate::worker::{Notice, Worker, answer};

mod owed;
#[cfg(test)]
mod tests;

use owed::Owed;

/// The longest that streamed text waits to be stored.
const STORE_WITHIN: Duration = Duration::from_millis(100);

/// Sends questions and takes in what the worker says. Clones share it.
#[derive(Clone)]
pub struct Answers {
    store: Store,
    outbox: Outbox,
    worker: Worker,
    snapshots: Snapshots,
    memory: Arc<watch::Sender<WorkerMemory>>,
    /// Whether a model is ready, as far as notices were taken in.
    ready: Arc<watch::Sender<bool>>,
    /// Held while an event is taken in, so that whoever reads sees text and count agree.
    running: Arc<Mutex<HashMap<SessionId, Running>>>,
    owed: Owed,
    /// Whether the window knows that text cannot be stored.
    complained: Arc<AtomicBool>,
}

/// An answer that is being written.
struct Running {
    answer: i64,
    /// Whether the worker has the question; until then it waits for a model to be ready.
    sent: bool,
    unsaved: String,
    generated: u32,
}

/// How an answer is to be written.
struct Terms {
    cache: CacheOptions,
    sampling: Sampling,
    max_tokens: u32,
}

impl Answers {
    /// Takes in `notices` until the worker's supervisor ends.
    pub fn start(
        store: Store,
        outbox: Outbox,
        worker: Worker,
        snapshots: Snapshots,
        notices: mpsc::UnboundedReceiver<Notice>,
    ) -> Self {
        let memory = Arc::new(watch::channel(WorkerMemory::default()).0);
        let ready = Arc::new(watch::channel(false).0);
        let (running, owed, complained) = (Arc::default(), Owed::new(store.clone()), Arc::default());
        let answers = Self { store, outbox, worker, snapshots, memory, ready, running, owed, complained };
        tokio::spawn(answers.clone().take_in(notices));
        answers
    }

    /// What the worker last said of its memory.
    pub fn memory(&self) -> WorkerMemory {
        self.memory.borrow().clone()
    }

    /// Stores a question and sends it as soon as a model is ready.
    ///
    /// # Errors
    /// When there is nothing to send, no model to send it to, or the chat is still being answered.
    pub async fn send(&self, question: Question) -> Result<Sent, Problem> {
        let Question { chat, edits, system, text, documents, cache, sampling, max_tokens } = question;
        if text.trim().is_empty() {
            return Err(Problem::EmptyQuestion);
        }
        let asked = Asked { chat, edits, system, text, attachments: documents };
        let terms = Terms { cache, sampling, max_tokens };
        self.begin(asked.chat.clone(), terms, move |db| chats::ask(db, &asked)).await
    }

    /// Has an answer written anew, or its rest.
    ///
    /// # Errors
    /// As [`Answers::send`], and when nothing is missing from an answer that is to be continued.
    pub async fn again(&self, again: Again) -> Result<Sent, Problem> {
        let Again { chat, answer, how, cache, sampling, max_tokens } = again;
        self.begin(Some(chat.clone()), Terms { cache, sampling, max_tokens }, move |db| match how {
            AgainHow::Anew => chats::answer_anew(db, &chat, answer),
            AgainHow::Continue => chats::take_up(db, &chat, answer),
        })
        .await
    }

    /// Stores what `store` makes of it, and has the answer written as soon as a model is ready.
    async fn begin(
        &self,
        chat: Option<String>,
        terms: Terms,
        store: impl FnOnce(&mut Connection) -> Result<Sent, Problem> + Send + 'static,
    ) -> Result<Sent, Problem> {
        answerable(self.worker.status())?;
        let mut running = self.running.lock().await;
        if chat.is_some_and(|chat| running.contains_key(&chat)) {
            return Err(Problem::Busy);
        }
        self.owed.pay().await?;
        let sent = self.store.run(store).await?;
        let (session, id) = (sent.chat.id.clone(), sent.answer.id);
        running.insert(session.clone(), Running { answer: id, sent: false, unsaved: String::new(), generated: 0 });
        drop(running);
        self.outbox.push(AppEvent::ChatsChanged);

        let deliverer = self.clone();
        tokio::spawn(async move {
            if let Err(problem) = deliverer.deliver(&session, id, terms).await {
                deliverer.fail(&session, id, problem.code(), &problem.to_string()).await;
            }
        });
        Ok(sent)
    }

    /// Waits for the model and gives the question to it.
    async fn deliver(&self, session: &str, id: i64, terms: Terms) -> Result<(), Problem> {
        self.settled().await?;
        let messages = self.store.run(move |db| chats::conversation(db, id)).await?;
        let Terms { cache, sampling, max_tokens } = terms;
        let reply = {
            let mut running = self.running.lock().await;
            match running.get_mut(session) {
                // Under the lock: a stop that comes now reaches the worker after the question.
                Some(entry) if entry.answer == id => {
                    entry.sent = true;
                    self.snapshots.begin(session, &messages);
                    let session = session.to_owned();
                    self.worker.submit(Request::Send { session, messages, cache, sampling, max_tokens })
                }
                _ => return Ok(()),
            }
        };
        answer(reply).await.map(drop)
    }

    /// Waits for the model, and until the notice of it was taken in: what was said before it, that the worker holds
    /// nothing, must not be said of the turn that begins now.
    async fn settled(&self) -> Result<(), Problem> {
        let mut ready = self.ready.subscribe();
        loop {
            answerable(self.worker.settled().await)?;
            if *ready.borrow_and_update() || ready.changed().await.is_err() {
                return Ok(());
            }
        }
    }

    /// Ends an answer within one token.
    pub async fn stop(&self, chat: &str) {
        let mut running = self.running.lock().await;
        match running.get(chat) {
            // Its end comes as an event. A worker that died meanwhile has ended it in another way.
            Some(entry) if entry.sent => drop(self.worker.submit(Request::Stop { session: chat.to_owned() })),
            Some(_) => {
                if let Some(entry) = running.remove(chat) {
                    let (reason, stats) = (FinishReason::Stopped, TurnStats::default());
                    self.end(entry, Ending::Finished(reason, stats.clone())).await;
                    self.tell(Event::Finished { session: chat.to_owned(), reason, stats });
                }
            }
            None => {}
        }
    }

    /// Ends every answer, before its model goes.
    pub async fn stop_all(&self) {
        let chats: Vec<_> = self.running.lock().await.keys().cloned().collect();
        for chat in chats {
            self.stop(&chat).await;
        }
    }

    /// Waits until nothing is being written any more.
    pub async fn all_ended(&self, until: Instant) {
        while !self.running.lock().await.is_empty() && Instant::now() < until {
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Whether nothing is being written, or waits to be.
    pub async fn is_idle(&self) -> bool {
        self.running.lock().await.is_empty()
    }

    /// A chat as it stands. What the window has been told before belongs to it, what it is told later does not.
    ///
    /// # Errors
    /// When it is gone or cannot be read.
    pub async fn open(&self, id: String) -> Result<Chat, Problem> {
        let mut running = self.running.lock().await;
        self.outbox.flush();
        // A disk that takes nothing more keeps nobody from reading.
        if let Err(problem) = self.save(&mut running).await {
            self.complain(&problem);
        }
        let now = running.get(&id).map(|entry| (entry.answer, entry.generated, entry.unsaved.clone()));
        let mut chat = self.owed.chat(id).await?;
        self.snapshots.show(&chat.summary.id);
        tokio::spawn(self.clone().restore_shown());
        if let Some((answer, generated, unsaved)) = now
            && let Some(message) = chat.messages.iter_mut().find(|message| message.id == answer)
        {
            message.text.push_str(&unsaved);
            message.writing = true;
            message.generated = generated;
        }
        Ok(chat)
    }

    /// Brings back what the model held of the chat that is shown.
    async fn restore_shown(self) {
        let Some(chat) = self.snapshots.shown() else { return };
        if !matches!(self.worker.status(), Status::Ready { .. }) || !self.snapshots.has(&chat) {
            return;
        }
        let id = chat.clone();
        let messages = self.store.run(move |db| match chats::leaf(db, &id)? {
            Some(leaf) => chats::conversation(db, leaf),
            None => Ok(Vec::new()),
        });
        if let Ok(messages) = messages.await {
            self.snapshots.restore(&chat, &messages);
        }
    }

    /// Shows the branch of a chat that a message stands in.
    ///
    /// # Errors
    /// When the chat is being answered, or the message is not in it.
    pub async fn show_branch(&self, chat: String, message: i64) -> Result<Chat, Problem> {
        if self.running.lock().await.contains_key(&chat) {
            return Err(Problem::Busy);
        }
        self.store.run(move |db| chats::show_branch(db, &chat, message)).await
    }

    /// Takes a chat out of the list, and stops what is being written in it.
    ///
    /// # Errors
    /// When the database cannot be written to.
    pub async fn delete(&self, id: String) -> Result<(), Problem> {
        // Taken out first, so that its last tokens find no answer to go to.
        if let Some(entry) = self.running.lock().await.remove(&id) {
            if entry.sent {
                drop(self.worker.submit(Request::Stop { session: id.clone() }));
            }
            self.end(entry, Ending::Finished(FinishReason::Stopped, TurnStats::default())).await;
        }
        self.snapshots.forget(&id);
        drop(self.worker.submit(Request::Close { session: id.clone() }));
        self.store.run(move |db| chats::delete(db, &id)).await?;
        self.outbox.push(AppEvent::ChatsChanged);
        Ok(())
    }

    /// Stores what has been streamed so far; the last thing before the program ends.
    pub async fn save_all(&self) {
        let mut running = self.running.lock().await;
        let _ = self.save(&mut running).await;
        let _ = self.owed.pay().await;
    }

    async fn take_in(self, mut notices: mpsc::UnboundedReceiver<Notice>) {
        let mut save_at: Option<Instant> = None;
        loop {
            let due = async {
                match save_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                notice = notices.recv() => match notice {
                    Some(Notice::Event(event)) => {
                        if matches!(event, Event::Token { .. }) {
                            save_at = save_at.or_else(|| Some(Instant::now() + STORE_WITHIN));
                        }
                        self.take(event).await;
                    }
                    Some(Notice::Status(status)) => {
                        let ready = matches!(status, Status::Ready { .. });
                        if ready {
                            tokio::spawn(self.clone().restore_shown());
                        } else {
                            self.memory.send_replace(WorkerMemory::default());
                            self.snapshots.lost();
                        }
                        self.ready.send_replace(ready);
                        self.outbox.push(AppEvent::Status { status: named(status) });
                    }
                    Some(Notice::Lost { sessions, how }) => self.cut_off(sessions, &how).await,
                    None => return,
                },
                () = due => {
                    save_at = None;
                    let mut running = self.running.lock().await;
                    if let Err(problem) = self.save(&mut running).await {
                        self.complain(&problem);
                    }
                }
            }
        }
    }

    async fn take(&self, event: Event) {
        match &event {
            Event::Token { session, text, generated, .. } => {
                let mut running = self.running.lock().await;
                let Some(entry) = running.get_mut(session) else { return };
                entry.unsaved.push_str(text);
                entry.generated = *generated;
                self.tell(event);
            }
            Event::Finished { session, reason, stats } => {
                let mut running = self.running.lock().await;
                let Some(entry) = running.remove(session) else { return };
                self.snapshots.changed(session);
                self.end(entry, Ending::Finished(*reason, stats.clone())).await;
                self.tell(event);
            }
            Event::Failed { session: Some(session), code, message } => {
                let answer = self.running.lock().await.get(session).map(|entry| entry.answer);
                match answer {
                    Some(answer) => self.fail(session, answer, code, message).await,
                    // A budget that could not be had, for instance.
                    None => self.tell(event),
                }
            }
            Event::Memory { memory } => {
                self.memory.send_replace(memory.clone());
                self.tell(event);
            }
            Event::Cache { session, state, .. } => {
                let (session, bytes) = (session.clone(), state.hot_bytes + state.store_bytes);
                self.tell(event);
                self.snapshots.measured(&session, bytes);
            }
            Event::Layout { .. }
            | Event::Prefill { .. }
            | Event::Recalled { .. }
            | Event::Layers { .. }
            | Event::Notice { .. }
            | Event::Failed { .. } => self.tell(event),
            // The window hears of these as the status, or as the answer to what it asked.
            Event::Hello { .. }
            | Event::ModelLoading { .. }
            | Event::ModelLoaded { .. }
            | Event::ModelUnloaded
            | Event::Counted { .. }
            | Event::Accepted
            | Event::Text { .. }
            | Event::Pieces { .. } => {}
        }
    }

    async fn cut_off(&self, sessions: Vec<SessionId>, how: &str) {
        let message =
            format!("The engine stopped while it wrote this answer, because {how}; ask again to have it written anew.");
        for session in sessions {
            let answer = self.running.lock().await.get(&session).filter(|entry| entry.sent).map(|entry| entry.answer);
            if let Some(answer) = answer {
                self.fail(&session, answer, Problem::WorkerLost.code(), &message).await;
            }
        }
    }

    /// Marks an answer as broken and says so, unless it has ended already.
    async fn fail(&self, session: &str, answer: i64, code: &str, message: &str) {
        let mut running = self.running.lock().await;
        if running.get(session).is_none_or(|entry| entry.answer != answer) {
            return;
        }
        self.snapshots.changed(session);
        if let Some(entry) = running.remove(session) {
            self.end(entry, Ending::Broken(message.to_owned())).await;
        }
        let session = Some(session.to_owned());
        self.tell(Event::Failed { session, code: code.to_owned(), message: message.to_owned() });
    }

    /// Stores how an answer ended, now or as soon as the disk takes it.
    async fn end(&self, entry: Running, ending: Ending) {
        if let Err(problem) = self.owed.end(entry.answer, entry.unsaved, ending).await {
            self.complain(&problem);
            let (owed, outbox) = (self.owed.clone(), self.outbox.clone());
            let complained = Arc::clone(&self.complained);
            tokio::spawn(async move {
                owed.pay_later().await;
                complained.store(false, Ordering::Relaxed);
                outbox.push(AppEvent::ChatsChanged);
            });
        }
        self.outbox.push(AppEvent::ChatsChanged);
    }

    async fn save(&self, running: &mut HashMap<SessionId, Running>) -> Result<(), Problem> {
        for entry in running.values_mut().filter(|entry| !entry.unsaved.is_empty()) {
            let (answer, text) = (entry.answer, entry.unsaved.clone());
            self.store.run(move |db| chats::append(db, answer, &text)).await?;
            entry.unsaved.clear();
            self.complained.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// A disk that is full must not be silent: the text on the screen is not kept. Once is enough, though.
    fn complain(&self, problem: &Problem) {
        if !self.complained.swap(true, Ordering::Relaxed) {
            self.tell(Event::Failed { session: None, code: problem.code().to_owned(), message: problem.to_string() });
        }
    }

    fn tell(&self, event: Event) {
        self.outbox.push(AppEvent::Worker { event });
    }
}

/// Whether a question can be answered in this state, or may be in the one that follows.
///
/// # Errors
/// Why not.
pub fn answerable(status: Status) -> Result<(), Problem> {
    match status {
        Status::Idle => Err(Problem::NoModel),
        Status::Failed { code, message } => Err(Problem::Worker { code, message }),
        Status::Starting
        | Status::Loading { .. }
        | Status::Ready { .. }
        | Status::Sleeping { .. }
        | Status::Restarting { .. } => Ok(()),
    }
}

/// The state with the name that the window lists the model under.
fn named(mut status: Status) -> Status {
    match &mut status {
        Status::Loading { name, .. } => {
            if let Some(known) = models::catalogue_name(name) {
                known.clone_into(name);
            }
        }
        Status::Ready { model } | Status::Sleeping { model } => {
            let file = model.path.file_name().and_then(|name| name.to_str());
            if let Some(known) = file.and_then(models::catalogue_name) {
                known.clone_into(&mut model.name);
            }
        }
        _ => {}
    }
    status
}
