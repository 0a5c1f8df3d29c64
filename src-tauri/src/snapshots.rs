//! Caches of chats as files, so that a chat that is opened again need not be read again.
//!
//! One file for each chat, in a folder of their own, under a limit for all of them. None of them is needed: where one
//! is missing, damaged or of another model, the chat's text is read again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use engine::protocol::{Message, Request, SessionId};
use tokio::time::{Instant, sleep, timeout_at};

use crate::api::{AppEvent, SnapshotUse, SnapshotWork};
use crate::chats::{self, Store};
use crate::error::Problem;
use crate::events::Outbox;
use crate::worker::{Worker, answer};

/// A chat that nothing has happened in for so long is saved.
const IDLE: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 30_000 });
/// The worker holds on to so many chats; of others that are saved the memory is given back.
const KEPT_OPEN: usize = 3;
/// All snapshots together, where the person has not said otherwise.
const DEFAULT_LIMIT: u64 = 8 << 30;
/// The setting that says otherwise, in bytes.
const LIMIT: &str = "snapshot_limit";
/// What a snapshot leaves free on the disk: chats and downloads come first.
const LEFT_FREE: u64 = 256 << 20;
/// A file that is not whole and was not written to for so long never will be.
const GIVEN_UP: Duration = Duration::from_secs(600);
const EXTENSION: &str = "snapshot";

/// Saves and restores caches. Clones share it.
#[derive(Clone)]
pub struct Snapshots {
    folder: PathBuf,
    store: Store,
    outbox: Outbox,
    worker: Worker,
    /// What the worker holds now.
    held: Arc<Mutex<HashMap<SessionId, Held>>>,
    /// The chat that the window shows.
    shown: Arc<Mutex<Option<SessionId>>>,
}

/// A session that the worker holds.
#[derive(Debug, Clone)]
struct Held {
    /// Of its hot cache and store.
    bytes: u64,
    /// Rises with everything that the file does not know of yet.
    changes: u64,
    saved: u64,
    /// A turn is under way.
    busy: bool,
    /// What the worker has been asked to do with its file.
    work: Option<SnapshotWork>,
    used: Instant,
}

impl Held {
    fn new(busy: bool) -> Self {
        Self { bytes: 0, changes: 0, saved: 0, busy, work: None, used: Instant::now() }
    }
}

impl Snapshots {
    /// With files in `folder`, which is made.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(folder: PathBuf, store: Store, outbox: Outbox, worker: Worker) -> Result<Self, Problem> {
        std::fs::create_dir_all(&folder).map_err(|error| Problem::Folder { path: folder.clone(), error })?;
        Ok(Self { folder, store, outbox, worker, held: Arc::default(), shown: Arc::default() })
    }

    /// The window shows this chat now.
    pub fn show(&self, session: &str) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(session.to_owned());
    }

    /// The chat that the window shows.
    pub fn shown(&self) -> Option<SessionId> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether there is a file of a chat that the worker holds nothing of.
    pub fn has(&self, session: &str) -> bool {
        !self.lock().contains_key(session) && self.file(session).is_file()
    }

    /// Has the worker read a chat's file, unless it holds something of the chat already. Whatever comes of it, the
    /// next turn reads what is missing.
    pub fn restore(&self, session: &str, messages: &[Message]) {
        let path = self.file(session);
        // Held on to while it is submitted: a turn that begins now must come after it.
        let mut held = self.lock();
        if held.contains_key(session) || !path.is_file() {
            return;
        }
        held.insert(session.to_owned(), Held::new(false));
        touch(&path);
        let request = Request::Restore { session: session.to_owned(), path, messages: messages.to_vec() };
        let reply = self.worker.submit(request);
        self.begin_work(&mut held, session, SnapshotWork::Restoring);
        let (this, session) = (self.clone(), session.to_owned());
        tokio::spawn(async move {
            // Where it is not refused, the state of the cache follows, and is the end of it.
            if answer(reply).await.is_err() {
                this.end_work(&session, SnapshotWork::Restoring);
            }
        });
    }

    fn begin_work(&self, held: &mut HashMap<SessionId, Held>, session: &str, work: SnapshotWork) {
        if let Some(entry) = held.get_mut(session) {
            entry.work = Some(work);
            self.tell(session, Some(work));
        }
    }

    fn end_work(&self, session: &str, work: SnapshotWork) {
        if let Some(entry) = self.lock().get_mut(session)
            && entry.work == Some(work)
        {
            entry.work = None;
            self.tell(session, None);
        }
    }

    fn tell(&self, session: &str, work: Option<SnapshotWork>) {
        self.outbox.push(AppEvent::Snapshot { chat: session.to_owned(), work });
    }

    /// The worker is about to be given a turn of this chat.
    pub fn begin(&self, session: &str, messages: &[Message]) {
        self.restore(session, messages);
        self.lock().entry(session.to_owned()).or_insert_with(|| Held::new(true)).busy = true;
    }

    /// A turn has ended, or something else has changed; it is saved when nothing more happens in the session.
    pub fn changed(&self, session: &str) {
        let changes = match self.lock().get_mut(session) {
            Some(entry) => {
                entry.changes += 1;
                entry.busy = false;
                entry.used = Instant::now();
                entry.changes
            }
            None => return,
        };
        let (this, session) = (self.clone(), session.to_owned());
        tokio::spawn(async move {
            sleep(IDLE).await;
            if this.lock().get(&session).is_some_and(|entry| entry.changes == changes) {
                this.save(&session).await;
            }
        });
    }

    /// What a session takes in memory, as the worker last said.
    pub fn measured(&self, session: &str, bytes: u64) {
        if let Some(entry) = self.lock().get_mut(session) {
            entry.bytes = bytes;
        }
        self.end_work(session, SnapshotWork::Restoring);
    }

    /// The worker holds nothing any more.
    pub fn lost(&self) {
        for (session, entry) in self.lock().drain() {
            if entry.work.is_some() {
                self.tell(&session, None);
            }
        }
    }

    /// The worker is about to hold nothing of this chat any more.
    pub fn forget(&self, session: &str) {
        if self.lock().remove(session).is_some_and(|entry| entry.work.is_some()) {
            self.tell(session, None);
        }
    }

    /// Saves what has changed, before the model goes or the program ends; what is not done by `until` is left.
    pub async fn save_all(&self, until: Instant) {
        let changed: Vec<_> = {
            let held = self.lock();
            held.iter().filter(|(_, entry)| entry.changes > entry.saved).map(|(session, _)| session.clone()).collect()
        };
        for session in changed {
            if timeout_at(until, self.save(&session)).await.is_err() {
                return;
            }
        }
    }

    async fn save(&self, session: &str) {
        let Ok(limit) = self.limit().await else { return };
        let Some(entry) = self.lock().get(session).cloned() else { return };
        let room = fs4::available_space(&self.folder).map_or(u64::MAX, |free| free.saturating_sub(LEFT_FREE));
        if entry.changes == entry.saved || entry.bytes > limit.min(room) {
            return;
        }
        let request = Request::Save { session: session.to_owned(), path: self.file(session) };
        let reply = self.worker.submit(request);
        self.begin_work(&mut self.lock(), session, SnapshotWork::Saving);
        let saved = answer(reply).await;
        self.end_work(session, SnapshotWork::Saving);
        // Where it cannot be written, for want of space for instance, the chat is read again some day.
        if saved.is_ok() {
            if let Some(now) = self.lock().get_mut(session) {
                now.saved = entry.changes;
            }
            self.keep_to(limit);
            self.let_go();
        }
    }

    /// Gives back the memory of chats that were not used for longest, where a file has all of them.
    fn let_go(&self) {
        let shown = self.shown();
        let mut held = self.lock();
        let mut idle: Vec<_> = held
            .iter()
            .filter(|(session, entry)| {
                !entry.busy
                    && entry.changes == entry.saved
                    && shown.as_ref() != Some(session)
                    && self.file(session).is_file()
            })
            .map(|(session, entry)| (entry.used, session.clone()))
            .collect();
        idle.sort();
        let more = held.len().saturating_sub(KEPT_OPEN);
        for (_, session) in idle.into_iter().take(more) {
            held.remove(&session);
            drop(self.worker.submit(Request::Close { session }));
        }
    }

    /// Deletes the files of chats that are no more, and those that were given up before their end.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn sweep(&self) -> Result<(), Problem> {
        let chats = self.store.run(|db| chats::all_ids(db)).await?;
        for (path, used, _) in files(&self.folder) {
            let whole = path.extension().is_some_and(|extension| extension == EXTENSION);
            let of_a_chat = path.file_stem().is_some_and(|stem| chats.iter().any(|chat| stem == chat.as_str()));
            let being_written = !whole && used.elapsed().is_ok_and(|age| age < GIVEN_UP);
            if !(whole && of_a_chat || being_written) {
                remove(&path);
            }
        }
        Ok(())
    }

    /// How much there is, and may be.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn usage(&self) -> Result<SnapshotUse, Problem> {
        let files = files(&self.folder);
        let bytes = files.iter().map(|(_, _, bytes)| bytes).sum();
        let chats = u32::try_from(files.len()).unwrap_or(u32::MAX);
        Ok(SnapshotUse { chats, bytes, limit: self.limit().await? })
    }

    /// Sets how much there may be; 0 keeps none.
    ///
    /// # Errors
    /// When the database cannot be written to.
    pub async fn set_limit(&self, limit: u64) -> Result<(), Problem> {
        self.store.run(move |db| chats::set_setting(db, LIMIT, &limit.to_string())).await?;
        self.keep_to(limit);
        Ok(())
    }

    async fn limit(&self) -> Result<u64, Problem> {
        let set = self.store.run(|db| chats::setting(db, LIMIT)).await?;
        Ok(set.and_then(|bytes| bytes.parse().ok()).unwrap_or(DEFAULT_LIMIT))
    }

    /// Deletes those that were not used for longest, until all are within `limit`.
    fn keep_to(&self, limit: u64) {
        let mut files = files(&self.folder);
        files.sort_by_key(|(_, used, _)| *used);
        let mut total: u64 = files.iter().map(|(_, _, bytes)| bytes).sum();
        for (path, _, bytes) in files {
            if total <= limit {
                return;
            }
            remove(&path);
            total -= bytes;
        }
    }

    fn file(&self, session: &str) -> PathBuf {
        self.folder.join(session).with_extension(EXTENSION)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What lies in the folder, with the time of its last use and its bytes.
fn files(folder: &Path) -> Vec<(PathBuf, SystemTime, u64)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let meta = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
            Some((entry.path(), meta.modified().ok()?, meta.len()))
        })
        .collect()
}

/// A file that cannot be deleted only takes space.
fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
}

fn touch(path: &Path) {
    if let Ok(file) = std::fs::File::options().append(true).open(path) {
        let _ = file.set_modified(SystemTime::now());
    }
}
