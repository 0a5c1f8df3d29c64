//! Models of the catalogue and of the person's own, and downloads.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use engine::footprint::{Footprint, Shape};
use hub::{CancellationToken, Catalog, Entry, Hub, HubError, Phase, Progress};

use crate::api::{AppEvent, FetchPhase, FetchState, ModelEntry, ModelMemory, Removal};
use crate::chats::{self, Store};
use crate::error::Problem;
use crate::events::Outbox;
use crate::settings::Settings;

/// Lists and fetches models.
#[derive(Clone)]
pub struct Models {
    store: Store,
    outbox: Outbox,
    settings: Settings,
    /// Downloads that run, by catalogue id.
    fetching: Arc<Mutex<HashMap<String, Download>>>,
    /// What the headers of files of the person's own said.
    shapes: Arc<Mutex<HashMap<PathBuf, Header>>>,
}

/// When a file was written, and what its header said; `None` where it is no model.
type Header = (Option<SystemTime>, Option<Shape>);

/// A download that runs.
#[derive(Default)]
struct Download {
    cancel: CancellationToken,
    /// Whether what has arrived is thrown away once it has stopped.
    give_up: bool,
}

impl Models {
    /// With own files remembered in `store`, and downloads told through `outbox`.
    pub fn new(store: Store, outbox: Outbox, settings: Settings) -> Self {
        Self { store, outbox, settings, fetching: Arc::default(), shapes: Arc::default() }
    }

    /// The catalogue, then files of the person's own; what they take of main memory, or of a GPU's.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn list(&self, on_gpu: bool) -> Result<Vec<ModelEntry>, Problem> {
        let elsewhere = self.store.run(|db| chats::own_models(db)).await?;
        let this = self.clone();
        // Reads files, which may lie on a slow disk.
        tokio::task::spawn_blocking(move || this.found(elsewhere, on_gpu)).await.map_err(|_| Problem::Closing)
    }

    fn found(&self, elsewhere: Vec<String>, on_gpu: bool) -> Vec<ModelEntry> {
        let mut models: Vec<_> = Catalog::builtin().entries().iter().map(|entry| known(entry, on_gpu)).collect();
        let in_our_folders = hub::own_files().into_iter().map(|file| file.path);
        for path in in_our_folders.chain(elsewhere.into_iter().map(PathBuf::from)) {
            let Ok(meta) = path.metadata() else { continue };
            let id = path.to_string_lossy().into_owned();
            if meta.is_file() && !models.iter().any(|model| model.path.as_ref() == Some(&id)) {
                let shape = self.shape(&path, meta.modified().ok());
                models.push(own(&path, id, meta.len(), shape, on_gpu));
            }
        }
        models
    }

    /// What a file's header says of its size in memory, read once.
    fn shape(&self, path: &Path, written: Option<SystemTime>) -> Option<Shape> {
        let mut shapes = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        match shapes.get(path) {
            Some((when, shape)) if *when == written => *shape,
            _ => {
                let shape = Shape::read(path).ok();
                shapes.insert(path.to_owned(), (written, shape));
                shape
            }
        }
    }

    /// Starts a download. One that already runs goes on.
    ///
    /// # Errors
    /// When the catalogue does not know the model, or the person forbade the network.
    pub fn fetch(&self, id: &str) -> Result<(), Problem> {
        let entry = listed(id)?;
        if self.settings.now().offline {
            return Err(Problem::Offline);
        }
        let hub = Hub::new()?;
        let cancel = CancellationToken::new();
        {
            let mut fetching = self.lock();
            if fetching.contains_key(id) {
                return Ok(());
            }
            fetching.insert(id.to_owned(), Download { cancel: cancel.clone(), give_up: false });
        }
        tokio::spawn(self.clone().download(hub, entry, cancel));
        Ok(())
    }

    /// Stops a download; what has arrived is kept for the next try.
    pub fn pause(&self, id: &str) {
        if let Some(download) = self.lock().get(id) {
            download.cancel.cancel();
        }
    }

    /// Stops every download; what has arrived is kept.
    pub fn pause_all(&self) {
        for download in self.lock().values() {
            download.cancel.cancel();
        }
    }

    /// Gives a download up, whether it runs or not: nothing of it is kept.
    ///
    /// # Errors
    /// When the catalogue does not know the model, or the file system refuses.
    pub fn cancel(&self, id: &str) -> Result<(), Problem> {
        let entry = listed(id)?;
        if let Some(download) = self.lock().get_mut(id) {
            download.give_up = true;
            download.cancel.cancel();
            return Ok(());
        }
        Hub::new()?.discard(entry)?;
        self.tell(FetchState { phase: FetchPhase::Cancelled, ..fresh(entry) });
        Ok(())
    }

    /// Deletes a model's file, or forgets where it is where that is the person's own place.
    ///
    /// # Errors
    /// When it cannot be deleted, or is not Cistern's to delete.
    pub async fn remove(&self, path: PathBuf) -> Result<(), Problem> {
        let remembered = path.to_string_lossy().into_owned();
        let deletes = hub::is_removable(&path);
        if deletes {
            hub::remove(&path)?;
        }
        let forgotten = self.store.run(move |db| chats::forget_model(db, &remembered)).await?;
        match deletes || forgotten {
            true => Ok(()),
            false => Err(HubError::NotOurs(path).into()),
        }
    }

    async fn download(self, hub: Hub, entry: &'static Entry, cancel: CancellationToken) {
        let mut state = FetchState { done: hub::arrived(entry).unwrap_or(0), ..fresh(entry) };
        self.tell(state.clone());
        let progress = |Progress { phase, done, total, bytes_s }| {
            let phase = match phase {
                Phase::Downloading => FetchPhase::Downloading,
                Phase::Checking => FetchPhase::Checking,
            };
            let id = entry.id.clone();
            self.tell(FetchState { id, phase, done, total: Some(total), bytes_s, error: None });
        };
        let outcome = hub.fetch(entry, progress, &cancel).await;
        let given_up = self.lock().remove(&entry.id).is_some_and(|download| download.give_up);
        let outcome = match outcome {
            Err(HubError::Cancelled) if given_up => hub.discard(entry).map(|()| FetchPhase::Cancelled),
            Err(HubError::Cancelled) => Ok(FetchPhase::Paused),
            outcome => outcome.map(|_| FetchPhase::Done),
        };
        state.done = hub::arrived(entry).unwrap_or(0);
        match outcome {
            Ok(phase) => state.phase = phase,
            Err(error) => {
                state.phase = FetchPhase::Failed;
                state.error = Some(Problem::from(error).into());
            }
        }
        self.tell(state);
    }

    fn tell(&self, fetch: FetchState) {
        self.outbox.push(AppEvent::Fetch { fetch });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Download>> {
        self.fetching.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file of the starter model, where it is on this machine.
pub fn starter_path() -> Option<PathBuf> {
    hub::local_path(Catalog::builtin().starter())
}

/// Whether a file is the local copy of a model that the catalogue knows.
pub fn in_catalogue(path: &Path) -> bool {
    Catalog::builtin().entries().iter().any(|entry| hub::local_path(entry).as_deref() == Some(path))
}

/// The catalogue's name for a file name: that in a file's metadata is often a training run's.
pub fn catalogue_name(file: &str) -> Option<&'static str> {
    Catalog::builtin().entries().iter().find(|entry| entry.file == file).map(|entry| entry.name.as_str())
}

fn listed(id: &str) -> Result<&'static Entry, Problem> {
    Catalog::builtin().get(id).ok_or_else(|| Problem::NoSuchModel(id.to_owned()))
}

fn fresh(entry: &Entry) -> FetchState {
    FetchState {
        id: entry.id.clone(),
        phase: FetchPhase::Downloading,
        done: 0,
        total: Some(entry.bytes),
        bytes_s: 0,
        error: None,
    }
}

fn memory(shape: &Shape, on_gpu: bool) -> ModelMemory {
    let Footprint { fixed, per_token } = if on_gpu { shape.on_gpu() } else { shape.on_cpu() };
    ModelMemory { fixed, per_token }
}

fn shape_of(entry: &Entry) -> Shape {
    let hub::Shape { layers, width, ff_width, kv_heads, head_dim, vocab, looked_up } = entry.shape;
    let (context, weights) = (entry.context, entry.bytes);
    Shape { layers, width, ff_width, kv_heads, head_dim, vocab, context, weights, looked_up }
}

fn known(entry: &Entry, on_gpu: bool) -> ModelEntry {
    let path = hub::local_path(entry);
    ModelEntry {
        id: entry.id.clone(),
        name: entry.name.clone(),
        summary: entry.summary.clone(),
        bytes: entry.bytes,
        context: Some(entry.context),
        licence: Some(entry.licence.clone()),
        memory: Some(memory(&shape_of(entry), on_gpu)),
        arrived: if path.is_none() { hub::arrived(entry) } else { None },
        removal: path.as_deref().filter(|path| hub::is_removable(path)).map(|_| Removal::Delete),
        path: path.map(|path| path.to_string_lossy().into_owned()),
    }
}

fn own(path: &Path, id: String, bytes: u64, shape: Option<Shape>, on_gpu: bool) -> ModelEntry {
    let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let folder = path.parent().unwrap_or(path).display();
    let summary = format!("A file of your own, in {folder}.");
    let removal = Some(if hub::is_removable(path) { Removal::Delete } else { Removal::Forget });
    ModelEntry {
        path: Some(id.clone()),
        id,
        name,
        summary,
        bytes,
        context: shape.map(|shape| shape.context),
        licence: None,
        memory: shape.map(|shape| memory(&shape, on_gpu)),
        arrived: None,
        removal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ShellSettings;

    async fn models(folder: &Path) -> Models {
        let store = Store::open(&folder.join("chats.db")).unwrap();
        let settings = Settings::open(store.clone()).await.unwrap();
        Models::new(store, Outbox::new(), settings)
    }

    #[tokio::test]
    async fn a_file_of_ones_own_stays_in_the_list_for_as_long_as_it_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let models = models(folder.path()).await;
        let file = folder.path().join("My-Model.gguf");
        std::fs::write(&file, "GGUF").unwrap();
        let path = file.to_string_lossy().into_owned();
        let remembered = path.clone();
        models.store.run(move |db| chats::remember_model(db, &remembered)).await.unwrap();

        let list = models.list(false).await.unwrap();
        assert!(list.len() > Catalog::builtin().entries().len());
        let own = list.iter().find(|model| model.id == path).unwrap();
        assert_eq!((own.name.as_str(), own.bytes, own.path.as_ref()), ("My-Model", 4, Some(&path)));
        assert_eq!(own.removal, Some(Removal::Forget));

        std::fs::remove_file(&file).unwrap();
        assert!(models.list(false).await.unwrap().iter().all(|model| model.id != path));
    }

    #[tokio::test]
    async fn a_file_of_ones_own_is_forgotten_and_not_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let models = models(folder.path()).await;
        let file = folder.path().join("My-Model.gguf");
        std::fs::write(&file, "GGUF").unwrap();
        let path = file.to_string_lossy().into_owned();
        models.store.run(move |db| chats::remember_model(db, &path)).await.unwrap();
        models.remove(file.clone()).await.unwrap();
        assert!(file.exists());
        assert!(models.list(false).await.unwrap().iter().all(|model| model.name != "My-Model"));
        assert_eq!(models.remove(file).await.unwrap_err().code(), "model_not_ours");
    }

    #[tokio::test]
    async fn where_the_network_is_forbidden_nothing_is_downloaded() {
        let folder = tempfile::tempdir().unwrap();
        let models = models(folder.path()).await;
        models.settings.change(ShellSettings { offline: true, idle_minutes: None }).await.unwrap();
        let problem = models.fetch("qwen3-8b").unwrap_err();
        assert_eq!(problem.code(), "network_off");
        assert!(models.lock().is_empty());
    }

    #[tokio::test]
    async fn a_model_that_is_not_in_the_catalogue_is_refused_in_one_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let problem = models(folder.path()).await.fetch("gpt-5").unwrap_err();
        assert_eq!(problem.code(), "no_such_model");
    }

    #[test]
    fn the_catalogues_figures_are_those_of_the_file() {
        let starter = Catalog::builtin().starter();
        let Some(path) = starter_path() else { return };
        let (told, read) = (shape_of(starter), Shape::read(&path).unwrap());
        assert_eq!(Shape { weights: 0, ..told }, Shape { weights: 0, ..read });
        // A file is little more than its weights: the header comes on top.
        assert!(read.weights < told.weights && told.weights - read.weights < told.weights / 20, "{told:?} {read:?}");
    }

    #[test]
    fn a_file_of_the_catalogue_goes_by_the_catalogues_name() {
        let starter = Catalog::builtin().starter();
        assert_eq!(catalogue_name(&starter.file), Some(starter.name.as_str()));
        assert_eq!(catalogue_name("My-Model.gguf"), None);
    }
}
