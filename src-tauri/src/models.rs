//! Models of the catalogue and of the person's own, and downloads.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hub::{CancellationToken, Catalog, Entry, Hub, HubError, Phase, Progress};

use crate::api::{AppEvent, FetchPhase, FetchState, ModelEntry};
use crate::chats::{self, Store};
use crate::error::Problem;
use crate::events::Outbox;

/// Lists and fetches models.
#[derive(Clone)]
pub struct Models {
    store: Store,
    outbox: Outbox,
    /// Downloads that run, by catalogue id.
    fetching: Arc<Mutex<HashMap<String, CancellationToken>>>,
}

impl Models {
    /// With own files remembered in `store`, and downloads told through `outbox`.
    pub fn new(store: Store, outbox: Outbox) -> Self {
        Self { store, outbox, fetching: Arc::default() }
    }

    /// The catalogue, then files of the person's own.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn list(&self) -> Result<Vec<ModelEntry>, Problem> {
        self.store
            .run(|db| {
                let mut models: Vec<_> = Catalog::builtin().entries().iter().map(known).collect();
                let in_our_folders = hub::own_files().into_iter().map(|file| file.path);
                let elsewhere = chats::own_models(db)?.into_iter().map(PathBuf::from);
                for path in in_our_folders.chain(elsewhere) {
                    let Ok(meta) = path.metadata() else { continue };
                    let id = path.to_string_lossy().into_owned();
                    if meta.is_file() && !models.iter().any(|model| model.path.as_ref() == Some(&id)) {
                        models.push(own(&path, id, meta.len()));
                    }
                }
                Ok(models)
            })
            .await
    }

    /// Starts a download. One that already runs goes on.
    ///
    /// # Errors
    /// When the catalogue does not know the model.
    pub fn fetch(&self, id: &str) -> Result<(), Problem> {
        let entry = Catalog::builtin().get(id).ok_or_else(|| Problem::NoSuchModel(id.to_owned()))?;
        let hub = Hub::new()?;
        let cancel = CancellationToken::new();
        {
            let mut fetching = self.lock();
            if fetching.contains_key(id) {
                return Ok(());
            }
            fetching.insert(id.to_owned(), cancel.clone());
        }
        tokio::spawn(self.clone().download(hub, entry, cancel));
        Ok(())
    }

    /// Stops a download; what has arrived is kept for the next try.
    pub fn cancel(&self, id: &str) {
        if let Some(cancel) = self.lock().get(id) {
            cancel.cancel();
        }
    }

    async fn download(self, hub: Hub, entry: &'static Entry, cancel: CancellationToken) {
        let mut state = FetchState {
            id: entry.id.clone(),
            phase: FetchPhase::Downloading,
            done: 0,
            total: Some(entry.bytes),
            bytes_s: 0,
            message: None,
        };
        let tell = |fetch: FetchState| self.outbox.push(AppEvent::Fetch { fetch });
        tell(state.clone());
        let arrived = Mutex::new(0);
        let progress = |Progress { phase, done, total, bytes_s }| {
            *arrived.lock().unwrap_or_else(PoisonError::into_inner) = done;
            let phase = match phase {
                Phase::Downloading => FetchPhase::Downloading,
                Phase::Checking => FetchPhase::Checking,
            };
            let id = entry.id.clone();
            tell(FetchState { id, phase, done, total: Some(total), bytes_s, message: None });
        };
        let outcome = hub.fetch(entry, progress, &cancel).await;
        state.done = arrived.into_inner().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(_) => state.phase = FetchPhase::Done,
            Err(HubError::Cancelled) => state.phase = FetchPhase::Cancelled,
            Err(error) => {
                state.phase = FetchPhase::Failed;
                state.message = Some(Problem::from(error).to_string());
            }
        }
        self.lock().remove(&entry.id);
        tell(state);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, CancellationToken>> {
        self.fetching.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file of the starter model, where it is on this machine.
pub fn starter() -> Option<PathBuf> {
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

fn known(entry: &Entry) -> ModelEntry {
    ModelEntry {
        id: entry.id.clone(),
        name: entry.name.clone(),
        summary: entry.summary.clone(),
        bytes: entry.bytes,
        context: Some(entry.context),
        licence: Some(entry.licence.clone()),
        fits: Some(entry.fits.clone()),
        path: hub::local_path(entry).map(|path| path.to_string_lossy().into_owned()),
    }
}

fn own(path: &Path, id: String, bytes: u64) -> ModelEntry {
    let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let folder = path.parent().unwrap_or(path).display();
    let summary = format!("A file of your own, in {folder}.");
    ModelEntry { path: Some(id.clone()), id, name, summary, bytes, context: None, licence: None, fits: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_of_ones_own_stays_in_the_list_for_as_long_as_it_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("chats.db")).unwrap();
        let file = folder.path().join("My-Model.gguf");
        std::fs::write(&file, "GGUF").unwrap();
        let path = file.to_string_lossy().into_owned();
        let remembered = path.clone();
        store.run(move |db| chats::remember_model(db, &remembered)).await.unwrap();

        let models = Models::new(store, Outbox::new());
        let list = models.list().await.unwrap();
        assert!(list.len() > Catalog::builtin().entries().len());
        let own = list.iter().find(|model| model.id == path).unwrap();
        assert_eq!((own.name.as_str(), own.bytes, own.path.as_ref()), ("My-Model", 4, Some(&path)));

        std::fs::remove_file(&file).unwrap();
        assert!(models.list().await.unwrap().iter().all(|model| model.id != path));
    }

    #[tokio::test]
    async fn a_model_that_is_not_in_the_catalogue_is_refused_in_one_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("chats.db")).unwrap();
        let problem = Models::new(store, Outbox::new()).fetch("gpt-5").unwrap_err();
        assert_eq!(problem.code(), "no_such_model");
    }

    #[test]
    fn a_file_of_the_catalogue_goes_by_the_catalogues_name() {
        let starter = Catalog::builtin().starter();
        assert_eq!(catalogue_name(&starter.file), Some(starter.name.as_str()));
        assert_eq!(catalogue_name("My-Model.gguf"), None);
    }
}
