//! Chats, their documents and the settings, in one SQLite file.
//!
//! Two windows may share a data folder: the file is in WAL mode and writers wait for each other.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::protocol::{FinishReason, TurnStats};
use rusqlite::Connection;
use rusqlite_migration::{M, Migrations};

use crate::error::Problem;

mod branches;
pub mod comparisons;
mod documents;
mod files;
mod list;
mod names;
mod search;
mod settings;
#[cfg(test)]
mod tests;
mod transfer;
mod writing;

pub use branches::{chat, conversation, leaf, show_branch};
pub use files::{file_of, forget_file, loose_files, note_file, pages_of};
pub use list::{all_ids, chats, delete, find, pin, purge, rename, restore};
pub use search::search;
pub use settings::{forget_model, own_models, remember_model, set_setting, setting};
pub use transfer::{from_json, to_json, to_markdown};
pub use writing::{Asked, answer_anew, append, ask, end, take_up};

/// Each step is final once released: later changes are appended.
const STEPS: &[M<'static>] = &[
    M::up(include_str!("chats/01_first.sql")),
    M::up(include_str!("chats/02_branches.sql")),
    M::up(include_str!("chats/03_list.sql")),
    M::up(include_str!("chats/04_files.sql")),
    M::up(include_str!("chats/05_comparisons.sql")),
];
const MIGRATIONS: Migrations<'static> = Migrations::from_slice(STEPS);

/// How an answer ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// As it should.
    Finished(FinishReason, TurnStats),
    /// It failed or was cut off, for the reason given in one sentence.
    Broken(String),
}

/// The database. Clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    connection: Arc<Mutex<Connection>>,
}

impl Store {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// When it cannot be opened, or was written by a later version.
    pub fn open(path: &Path) -> Result<Self, Problem> {
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_secs(5))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        MIGRATIONS.to_latest(&mut connection)?;
        search::catch_up(&connection)?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)) })
    }

    /// Runs `work` on the database, away from the threads that serve the window.
    ///
    /// # Errors
    /// Those of `work`.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let connection = Arc::clone(&self.connection);
        tokio::task::spawn_blocking(move || work(&mut connection.lock().unwrap_or_else(PoisonError::into_inner)))
            .await
            .map_err(|_| Problem::Closing)?
    }
}

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
