//! The parts of the shell, put together.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use engine::protocol::Request;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::answers::Answers;
use crate::api::{AppEvent, ShellSettings, Status};
use crate::chats::{self, Store};
use crate::compare::Comparisons;
use crate::documents::Documents;
use crate::error::Problem;
use crate::events::Outbox;
use crate::gauge::Meter;
use crate::idle::rest_when_idle;
use crate::model_file::ModelFile;
use crate::models::{self, Models};
use crate::settings::Settings;
use crate::snapshots::Snapshots;
use crate::worker::{Worker, program};

/// A deleted chat can be put back for so long, also after a restart.
const UNDO_WITHIN: Duration = Duration::from_secs(60);

/// The setting that names the model to open on start.
const LAST_MODEL: &str = "last_model";

/// The longest that closing the window waits for caches to be written.
const SAVE_WITHIN: Duration = Duration::from_secs(8);
/// A model that goes waits longer: the window is still there.
const SAVE_WITHIN_SWITCH: Duration = Duration::from_secs(60);

const MINUTE: Duration = Duration::from_secs(60);

/// Everything that commands need.
pub struct Shell {
    /// Folders.
    pub places: Places,
    /// Chats and settings.
    pub store: Store,
    /// To the window.
    pub outbox: Outbox,
    /// The engine.
    pub worker: Worker,
    /// Questions and answers.
    pub answers: Answers,
    /// Caches on the disk.
    pub snapshots: Snapshots,
    /// The same question under several caches.
    pub comparisons: Comparisons,
    /// Catalogue, own files and downloads.
    pub models: Models,
    /// Copies of attached files.
    pub documents: Documents,
    /// What the person set.
    pub settings: Settings,
}

/// Where things are on this machine.
#[derive(Debug, Clone)]
pub struct Places {
    /// Chats, settings, models.
    pub data: PathBuf,
    /// Log files.
    pub logs: PathBuf,
    /// Where our own executable is, and the worker beside it.
    pub programs: PathBuf,
}

impl Places {
    /// What the worker writes to its error output.
    pub fn worker_log(&self) -> PathBuf {
        self.logs.join("worker.log")
    }
}

impl Shell {
    /// Opens the database, starts the worker with the last used model or the starter model, and the gauge.
    /// Must be called inside the async runtime.
    ///
    /// # Errors
    /// When folders or database cannot be used. A missing worker is not among them: the chats are there without it.
    pub async fn start(places: Places) -> Result<Self, Problem> {
        for folder in [&places.data, &places.logs] {
            std::fs::create_dir_all(folder).map_err(|error| Problem::Folder { path: folder.clone(), error })?;
        }
        let store = Store::open(&places.data.join("chats.db"))?;
        let outbox = Outbox::new();
        let documents = Documents::new(places.data.join("documents"), store.clone());
        let settings = Settings::open(store.clone()).await?;
        let models = Models::new(store.clone(), outbox.clone(), settings.clone());
        let last = store.run(|db| chats::setting(db, LAST_MODEL)).await?.map(PathBuf::from);
        let model = last.filter(|path| path.is_file()).or_else(models::starter_path);
        let folder = places.programs.clone();
        let find = Arc::new(move || program::candidates(&folder));
        let (worker, notices) = Worker::start(find, model, places.worker_log());
        outbox.push(AppEvent::Status { status: Status::Starting });
        let snapshots = Snapshots::new(places.data.join("snapshots"), store.clone(), outbox.clone(), worker.clone())?;
        let (comparisons, notices) = Comparisons::start(store.clone(), outbox.clone(), worker.clone(), notices);
        let answers = Answers::start(store.clone(), outbox.clone(), worker.clone(), snapshots.clone(), notices);
        tokio::spawn(purge(store.clone(), snapshots.clone(), documents.clone()));
        tokio::spawn(measure(worker.clone(), answers.clone(), outbox.clone()));
        tokio::spawn(rest_when_idle(worker.clone(), answers.clone(), snapshots.clone(), settings.watch(), MINUTE));
        Ok(Self { places, store, outbox, worker, answers, snapshots, comparisons, models, documents, settings })
    }

    /// Opens a model and remembers it.
    ///
    /// # Errors
    /// Why the worker could not open it.
    pub async fn load_model(&self, path: PathBuf) -> Result<(), Problem> {
        self.put_away().await;
        self.worker.ask(Request::Load { path: path.clone() }).await?;
        let own = !models::in_catalogue(&path);
        self.store
            .run(move |db| {
                let path = path.to_string_lossy();
                if own {
                    chats::remember_model(db, &path)?;
                }
                chats::set_setting(db, LAST_MODEL, &path)
            })
            .await
    }

    /// Gives the model's memory back.
    ///
    /// # Errors
    /// Why the worker could not close it.
    pub async fn eject_model(&self) -> Result<(), Problem> {
        self.put_away().await;
        self.worker.ask(Request::Unload).await.map(drop)
    }

    /// Ends every answer and keeps what the model holds of each chat.
    async fn put_away(&self) {
        self.comparisons.stop();
        self.answers.stop_all().await;
        let until = Instant::now() + SAVE_WITHIN_SWITCH;
        self.answers.all_ended(until).await;
        self.snapshots.save_all(until).await;
    }

    /// Takes a model off this machine, or off the list where its file is the person's; an open one is closed first.
    ///
    /// # Errors
    /// When it cannot be closed or deleted, or is not Cistern's to delete.
    pub async fn remove_model(&self, path: PathBuf) -> Result<(), Problem> {
        // Its memory and its place on the disk would only be given back when it is closed.
        if self.worker.holds(&path) {
            self.eject_model().await?;
        }
        self.models.remove(path).await
    }

    /// Changes the settings that the shell obeys.
    ///
    /// # Errors
    /// When they cannot be stored.
    pub async fn change_settings(&self, to: ShellSettings) -> Result<(), Problem> {
        let offline = to.offline;
        self.settings.change(to).await?;
        if offline {
            self.models.pause_all();
        }
        Ok(())
    }

    /// Stores what is not stored yet and ends the worker.
    pub async fn close(&self) {
        self.answers.save_all().await;
        self.answers.stop_all().await;
        let until = Instant::now() + SAVE_WITHIN;
        self.answers.all_ended(until).await;
        self.answers.save_all().await;
        self.snapshots.save_all(until).await;
        self.worker.quit().await;
    }
}

/// Deletes for good what was deleted a while ago.
async fn purge(store: Store, snapshots: Snapshots, documents: Documents) {
    let mut again = interval(UNDO_WITHIN);
    let after_ms = i64::try_from(UNDO_WITHIN.as_millis()).unwrap_or(i64::MAX);
    loop {
        again.tick().await;
        // A disk that is full now may not be the next time.
        let _ = store.run(move |db| chats::purge(db, after_ms)).await;
        let _ = snapshots.sweep().await;
        let _ = documents.sweep().await;
    }
}

/// A reading each second, for as long as the program runs.
async fn measure(worker: Worker, answers: Answers, outbox: Outbox) {
    let mut meter = Meter::new();
    let mut file = ModelFile::default();
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = None;
    loop {
        second.tick().await;
        let (seen, memory, status) = (worker.seen(), answers.memory(), worker.status());
        // A driver may take its time to answer, and the meter comes back with the reading.
        let reading = tokio::task::spawn_blocking(move || {
            let gauge = meter.read(&seen, &memory);
            let news = file.look(&status);
            (meter, file, gauge, news)
        });
        let Ok((returned, watched, gauge, news)) = reading.await else { return };
        (meter, file) = (returned, watched);
        if let Some(event) = news {
            outbox.push(AppEvent::Worker { event });
        }
        if last.as_ref() != Some(&gauge) {
            outbox.push(AppEvent::Gauge { gauge: gauge.clone() });
            last = Some(gauge);
        }
    }
}

/// The folder of our own executable.
pub fn own_folder() -> PathBuf {
    std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned)).unwrap_or_default()
}
