//! Settings that the shell itself obeys. What only the window needs, the window keeps.

use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::watch;

use crate::api::ShellSettings;
use crate::chats::{self, Store};
use crate::error::Problem;

const OFFLINE: &str = "offline";
const IDLE_MINUTES: &str = "idle_minutes";

/// The settings in force. Clones share them.
#[derive(Clone)]
pub struct Settings {
    store: Store,
    now: Arc<watch::Sender<ShellSettings>>,
}

impl Settings {
    /// As they were stored.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn open(store: Store) -> Result<Self, Problem> {
        let stored = store.run(|db| read(db)).await?;
        Ok(Self { store, now: Arc::new(watch::channel(stored).0) })
    }

    /// The settings in force.
    pub fn now(&self) -> ShellSettings {
        self.now.borrow().clone()
    }

    /// Follows their changes.
    pub fn watch(&self) -> watch::Receiver<ShellSettings> {
        self.now.subscribe()
    }

    /// Stores them and puts them in force.
    ///
    /// # Errors
    /// When they cannot be stored; then those before stay in force.
    pub async fn change(&self, to: ShellSettings) -> Result<(), Problem> {
        let stored = to.clone();
        self.store.run(move |db| write(db, &stored)).await?;
        self.now.send_replace(to);
        Ok(())
    }
}

fn read(db: &Connection) -> Result<ShellSettings, Problem> {
    let idle_minutes = chats::setting(db, IDLE_MINUTES)?.and_then(|text| text.parse().ok()).filter(|&n| n > 0);
    Ok(ShellSettings { offline: chats::setting(db, OFFLINE)?.as_deref() == Some("true"), idle_minutes })
}

fn write(db: &mut Connection, settings: &ShellSettings) -> Result<(), Problem> {
    let tx = db.transaction()?;
    chats::set_setting(&tx, OFFLINE, if settings.offline { "true" } else { "false" })?;
    chats::set_setting(&tx, IDLE_MINUTES, &settings.idle_minutes.unwrap_or(0).to_string())?;
    Ok(tx.commit()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn they_are_off_at_first_and_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("chats.db");
        let settings = Settings::open(Store::open(&file).unwrap()).await.unwrap();
        assert_eq!(settings.now(), ShellSettings { offline: false, idle_minutes: None });

        let mut follower = settings.watch();
        let changed = ShellSettings { offline: true, idle_minutes: Some(15) };
        settings.change(changed.clone()).await.unwrap();
        assert!(follower.has_changed().unwrap());
        assert_eq!(*follower.borrow_and_update(), changed);

        let again = Settings::open(Store::open(&file).unwrap()).await.unwrap();
        assert_eq!(again.now(), changed);
    }
}
