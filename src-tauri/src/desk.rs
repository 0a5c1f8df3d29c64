//! The shell without its window, for tests.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::answers::Answers;
use crate::api::AppEvent;
use crate::chats::Store;
use crate::compare::Comparisons;
use crate::events::Outbox;
use crate::snapshots::Snapshots;
use crate::worker::tests::Scripted;
use crate::worker::{Programs, Worker};

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
        let (find, model) = (scripted.find(), scripted.model());
        Self::with(scripted, find, model)
    }

    /// With the engine itself and the starter model.
    pub fn real() -> Self {
        let engine = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("cistern");
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/SmolLM2-135M-Instruct.Q4_1.gguf");
        for file in [&engine, &model] {
            assert!(file.is_file(), "{} is missing: build the workspace and fetch the starter model", file.display());
        }
        Self::with(Scripted::new(&[]), Arc::new(move || Ok(vec![engine.clone()])), model)
    }

    fn with(scripted: Scripted, find: Programs, model: PathBuf) -> Self {
        let store = Store::open(&scripted.folder.path().join("chats.db")).unwrap();
        let outbox = Outbox::new();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&heard);
        outbox.subscribe(Box::new(move |batch| {
            into.lock().unwrap().extend(batch);
            true
        }));
        let log = scripted.folder.path().join("worker.log");
        let (worker, notices) = Worker::start(find, Some(model), log);
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
