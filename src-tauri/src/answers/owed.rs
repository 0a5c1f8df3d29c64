//! Answers that have ended and that the disk has not taken yet: nothing of them is lost while the program runs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::sleep;

use crate::api::Chat;
use crate::chats::{self, Ending, Store};
use crate::error::Problem;

/// Until it is tried again.
const AGAIN: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 1_000 });

/// Stores how answers end. Clones share it.
#[derive(Clone)]
pub struct Owed {
    store: Store,
    ended: Arc<Mutex<Vec<Ended>>>,
}

#[derive(Clone)]
struct Ended {
    answer: i64,
    /// The text of it that is not stored.
    rest: String,
    ending: Ending,
}

impl Owed {
    pub fn new(store: Store) -> Self {
        Self { store, ended: Arc::default() }
    }

    /// Stores how an answer ended, or holds on to it.
    ///
    /// # Errors
    /// Why it, or one before it, could not be stored.
    pub async fn end(&self, answer: i64, rest: String, ending: Ending) -> Result<(), Problem> {
        let mut ended = self.ended.lock().await;
        ended.push(Ended { answer, rest, ending });
        self.store_all(&mut ended).await
    }

    /// Stores what was held on to.
    ///
    /// # Errors
    /// Why it could not be stored.
    pub async fn pay(&self) -> Result<(), Problem> {
        self.store_all(&mut self.ended.lock().await).await
    }

    /// The same, tried until it is done.
    pub async fn pay_later(&self) {
        loop {
            sleep(AGAIN).await;
            if let Ok(()) | Err(Problem::Closing) = self.pay().await {
                return;
            }
        }
    }

    /// A chat as it is stored, and with what is not.
    ///
    /// # Errors
    /// When it is gone or cannot be read.
    pub async fn chat(&self, id: String) -> Result<Chat, Problem> {
        let ended = self.ended.lock().await;
        let mut chat = self.store.run(move |db| chats::chat(db, &id)).await?;
        for Ended { answer, rest, ending } in ended.iter() {
            let Some(message) = chat.messages.iter_mut().find(|message| message.id == *answer) else { continue };
            message.text.push_str(rest);
            match ending {
                Ending::Finished(reason, stats) => {
                    (message.finish, message.stats) = (Some(*reason), Some(stats.clone()));
                }
                Ending::Broken(problem) => message.problem = Some(problem.clone()),
            }
        }
        Ok(chat)
    }

    async fn store_all(&self, ended: &mut MutexGuard<'_, Vec<Ended>>) -> Result<(), Problem> {
        while let Some(Ended { answer, rest, ending }) = ended.first().cloned() {
            self.store.run(move |db| chats::end(db, answer, &rest, &ending)).await?;
            ended.remove(0);
        }
        Ok(())
    }
}
