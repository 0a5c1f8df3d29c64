//! Copies of attached files, by the hash of what is in them, so that a document can be looked at whatever became of
//! the file it came from. Each stands there once, and goes with the last chat that uses it.
//!
//! Only PDFs are copied: of a text, the chat itself holds everything.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};
use tokio::fs;

use crate::api::Attachment;
use crate::chats::{self, Store};
use crate::error::Problem;
use crate::files;

#[cfg(test)]
mod tests;

/// A file that was attached but never sent is kept this long: another window may be about to send it.
const UNSENT_MS: i64 = 24 * 60 * 60 * 1000;

/// The copies. Clones share them.
#[derive(Debug, Clone)]
pub struct Documents {
    folder: PathBuf,
    store: Store,
    /// What was attached and not sent yet: the file's path, and the hash of what was in it.
    unsent: Arc<Mutex<HashMap<String, String>>>,
}

impl Documents {
    /// Copies in `folder`, which is made when the first one comes.
    pub fn new(folder: PathBuf, store: Store) -> Self {
        Self { folder, store, unsent: Arc::default() }
    }

    /// The bytes of a file that is being attached. Of a PDF, a copy is kept.
    ///
    /// # Errors
    /// When it is no document, cannot be read, or cannot be copied.
    pub async fn attach(&self, path: &Path) -> Result<Vec<u8>, Problem> {
        let bytes = files::read(path).await?;
        if files::is_pdf(path) {
            let hash = hash(&bytes);
            self.keep(&hash, &bytes).await?;
            self.unsent().insert(path.to_string_lossy().into_owned(), hash);
        }
        Ok(bytes)
    }

    /// Puts the copy's hash in place of the file that each attachment was read from, and says which files those were.
    pub fn claim(&self, attachments: &mut [Attachment]) -> Vec<String> {
        let unsent = self.unsent();
        let mut files = Vec::new();
        for attachment in attachments {
            let file = attachment.file.take();
            attachment.file = file.as_ref().and_then(|file| unsent.get(file)).cloned();
            files.extend(file);
        }
        files
    }

    /// These files were sent: their copies belong to a chat now.
    pub fn sent(&self, files: &[String]) {
        let mut unsent = self.unsent();
        for file in files {
            unsent.remove(file);
        }
    }

    /// The bytes of a document of a chat.
    ///
    /// # Errors
    /// When there is no such document, or no copy of its file.
    pub async fn read(&self, document: i64) -> Result<Vec<u8>, Problem> {
        let hash = self.store.run(move |db| chats::file_of(db, document)).await?.ok_or(Problem::NoCopy)?;
        let path = self.path(&hash);
        fs::read(&path).await.map_err(|error| Problem::File { path, error })
    }

    /// Removes the copies that no chat uses any more.
    ///
    /// # Errors
    /// When the database cannot be read. A copy that cannot be removed is tried again the next time.
    pub async fn sweep(&self) -> Result<(), Problem> {
        let unsent: Vec<String> = self.unsent().values().cloned().collect();
        for hash in self.store.run(|db| chats::loose_files(db, UNSENT_MS)).await? {
            if unsent.contains(&hash) {
                continue;
            }
            match fs::remove_file(self.path(&hash)).await {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {}
                _ => self.store.run(move |db| chats::forget_file(db, &hash)).await?,
            }
        }
        Ok(())
    }

    async fn keep(&self, hash: &str, bytes: &[u8]) -> Result<(), Problem> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| Problem::Folder { path, error }
        };
        fs::create_dir_all(&self.folder).await.map_err(failed(&self.folder))?;
        // Noted first: what is written from here on is either used or swept.
        let noted = hash.to_owned();
        self.store.run(move |db| chats::note_file(db, &noted)).await?;
        let path = self.path(hash);
        if fs::try_exists(&path).await.unwrap_or(false) {
            return Ok(());
        }
        files::replace(&path, bytes).await.map_err(|error| Problem::File { path, error })
    }

    fn path(&self, hash: &str) -> PathBuf {
        self.folder.join(hash).with_extension("pdf")
    }

    fn unsent(&self) -> std::sync::MutexGuard<'_, HashMap<String, String>> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
