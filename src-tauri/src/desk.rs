//! The shell without its window, for tests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::answers::Answers;
use crate::api::AppEvent;
use crate::chats::Store;
use crate::compare::Comparisons;
use crate::events::Outbox;
use crate::snapshots::Snapshots;
use crate::worker::Worker;
use crate::worker::tests::Scripted;

/// Real database, real process, and what the window would hear.
pub struct Desk {
    pub scripted: Scripted,
    pub store: Store,
    pub worker: Worker,
    pub answers: Answers,
    pub comparisons: Comparisons,
    pub snapshots: Snapshots,
    pub heard: Arc<Mutex<Vec<AppEvent>>>,
}

impl Desk {
    /// With a worker of these manners.
    pub fn new(manners: &str) -> Self {
        let scripted = Scripted::new(&[manners]);
        let store = Store::open(&scripted.folder.path().join("chats.db")).unwrap();
        let outbox = Outbox::new();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&heard);
        outbox.subscribe(Box::new(move |batch| {
            into.lock().unwrap().extend(batch);
            true
        }));
        let log = scripted.folder.path().join("worker.log");
        let (worker, notices) = Worker::start(scripted.find(), Some(scripted.model()), log);
        let folder = scripted.folder.path().join("snapshots");
        let snapshots = Snapshots::new(folder, store.clone(), outbox.clone(), worker.clone()).unwrap();
        let (comparisons, notices) = Comparisons::start(store.clone(), outbox.clone(), worker.clone(), notices);
        let answers = Answers::start(store.clone(), outbox, worker.clone(), snapshots.clone(), notices);
        Self { scripted, store, worker, answers, comparisons, snapshots, heard }
    }
}

/// Waits until something holds.
pub async fn soon(mut holds: impl AsyncFnMut() -> bool) {
    timeout(Duration::from_secs(20), async {
        while !holds().await {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("within 20 seconds");
}
