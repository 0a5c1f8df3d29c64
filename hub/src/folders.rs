//! Where models lie on this machine.

use std::env;
use std::path::{Path, PathBuf};

use directories::ProjectDirs;

use crate::download::part;
use crate::{Catalog, Entry, HubError};

/// A model file of the person's own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalFile {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

/// The folder that downloads go to: `CISTERN_MODELS`, or the user's data folder.
#[must_use]
pub fn download_folder() -> PathBuf {
    if let Some(folder) = env::var_os("CISTERN_MODELS").filter(|folder| !folder.is_empty()) {
        return folder.into();
    }
    match ProjectDirs::from("", "", "cistern") {
        Some(dirs) => dirs.data_dir().join("models"),
        // A process without a home, such as a service: it keeps its models where it runs.
        None => PathBuf::from("models"),
    }
}

/// Where the model's file is, if it is whole.
///
/// Looks into `CISTERN_MODELS`, the user's data folder, the checkout that this program was built in, and the
/// cache that other programs of the Hugging Face Hub share.
#[must_use]
pub fn local_path(entry: &Entry) -> Option<PathBuf> {
    local_path_in(entry, &folders(), &hf_hub::resolve_cache_dir())
}

/// Bytes of the model's file that a download brought before it was paused or broke off.
#[must_use]
pub fn arrived(entry: &Entry) -> Option<u64> {
    let part = part(&download_folder(), entry).metadata().ok()?;
    Some(part.len().min(entry.bytes)).filter(|&bytes| part.is_file() && bytes > 0)
}

/// Whether [`remove`] would remove this file.
#[must_use]
pub fn is_removable(path: &Path) -> bool {
    is_removable_in(path, &own_folders())
}

/// Removes a model's file from this machine.
///
/// # Errors
/// [`HubError::NotOurs`] for a file outside of the folders that downloads go to, or when the file system refuses.
pub fn remove(path: &Path) -> Result<(), HubError> {
    if !is_removable(path) {
        return Err(HubError::NotOurs(path.to_owned()));
    }
    std::fs::remove_file(path).map_err(HubError::io(path))
}

/// Model files in Cistern's folders that are not of the catalogue.
#[must_use]
pub fn own_files() -> Vec<LocalFile> {
    own_files_in(&folders())
}

/// Those that belong to Cistern alone.
fn own_folders() -> Vec<PathBuf> {
    let mut folders = vec![download_folder()];
    folders.extend(ProjectDirs::from("", "", "cistern").map(|dirs| dirs.data_dir().join("models")));
    folders
}

fn is_removable_in(path: &Path, folders: &[PathBuf]) -> bool {
    let is_model = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    is_model && path.is_file() && folders.iter().any(|folder| path.parent() == Some(folder.as_path()))
}

fn folders() -> Vec<PathBuf> {
    let mut folders = own_folders();
    folders.extend(env::current_exe().ok().as_deref().and_then(checkout_models));
    folders.dedup();
    folders
}

/// `models/` of the checkout, for a program that lies in its `target/<profile>/`.
fn checkout_models(program: &Path) -> Option<PathBuf> {
    let models = program.ancestors().nth(3)?.join("models");
    models.join("catalog.toml").is_file().then_some(models)
}

fn local_path_in(entry: &Entry, folders: &[PathBuf], hub_cache: &Path) -> Option<PathBuf> {
    // The size tells a whole file from one that a killed program left behind; `verify` reads every byte.
    let whole = |path: &PathBuf| path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() == entry.bytes);
    if let Some(path) = folders.iter().map(|folder| folder.join(&entry.file)).find(whole) {
        return Some(path);
    }
    let snapshots = hub_cache.join(format!("models--{}", entry.repo.replace('/', "--"))).join("snapshots");
    snapshots.read_dir().ok()?.flatten().map(|revision| revision.path().join(&entry.file)).find(whole)
}

fn own_files_in(folders: &[PathBuf]) -> Vec<LocalFile> {
    let known = |path: &Path, bytes| {
        Catalog::builtin()
            .entries()
            .iter()
            .any(|entry| path.file_name().is_some_and(|name| name == entry.file.as_str()) && entry.bytes == bytes)
    };
    let mut files: Vec<_> = folders
        .iter()
        .filter_map(|folder| folder.read_dir().ok())
        .flat_map(|entries| entries.flatten())
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf")))
        .filter_map(|path| {
            let meta = path.metadata().ok().filter(|meta| meta.is_file())?;
            Some(LocalFile { path, bytes: meta.len() })
        })
        .filter(|file| !known(&file.path, file.bytes))
        .collect();
    files.sort();
    files.dedup();
    files
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn entry() -> Entry {
        Entry { bytes: 4, file: "tiny.gguf".into(), repo: "some/repo".into(), ..Catalog::builtin().starter().clone() }
    }

    #[test]
    fn a_whole_file_is_found_in_the_first_folder_that_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let folders = [dir.path().join("a"), dir.path().join("b")];
        for folder in &folders {
            fs::create_dir(folder).unwrap();
        }
        let cache = dir.path().join("hub");
        assert_eq!(local_path_in(&entry(), &folders, &cache), None);

        let snapshot = cache.join("models--some--repo/snapshots/0123");
        fs::create_dir_all(&snapshot).unwrap();
        fs::write(snapshot.join("tiny.gguf"), "GGUF").unwrap();
        assert_eq!(local_path_in(&entry(), &folders, &cache), Some(snapshot.join("tiny.gguf")));

        fs::write(folders[1].join("tiny.gguf"), "GGUF").unwrap();
        assert_eq!(local_path_in(&entry(), &folders, &cache), Some(folders[1].join("tiny.gguf")));

        fs::write(folders[0].join("tiny.gguf"), "GG").unwrap();
        assert_eq!(local_path_in(&entry(), &folders, &cache), Some(folders[1].join("tiny.gguf")), "half a file");
    }

    #[test]
    fn only_models_in_cisterns_own_folders_can_be_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folders = [dir.path().join("models")];
        let elsewhere = dir.path().join("other");
        for folder in [&folders[0], &elsewhere] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("tiny.gguf"), "GGUF").unwrap();
        }
        fs::write(folders[0].join("notes.txt"), "no").unwrap();
        assert!(is_removable_in(&folders[0].join("tiny.gguf"), &folders));
        assert!(!is_removable_in(&folders[0].join("gone.gguf"), &folders));
        assert!(!is_removable_in(&folders[0].join("notes.txt"), &folders));
        assert!(!is_removable_in(&folders[0].join("../other/tiny.gguf"), &folders));
        assert!(!is_removable_in(&elsewhere.join("tiny.gguf"), &folders));
        assert_eq!(remove(&elsewhere.join("tiny.gguf")).unwrap_err().code(), "model_not_ours");
    }

    #[test]
    fn files_of_ones_own_are_listed_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("mine.GGUF"), "GGUF").unwrap();
        fs::write(dir.path().join("notes.txt"), "no").unwrap();
        fs::create_dir(dir.path().join("folder.gguf")).unwrap();
        let folder = dir.path().to_owned();
        let files = own_files_in(&[folder.clone(), folder.clone(), folder.join("missing")]);
        assert_eq!(files, [LocalFile { path: folder.join("mine.GGUF"), bytes: 4 }]);
    }

    #[test]
    fn a_program_in_a_checkout_finds_its_models() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("target/debug/cistern");
        assert_eq!(checkout_models(&program), None);
        fs::create_dir(dir.path().join("models")).unwrap();
        fs::write(dir.path().join("models/catalog.toml"), "").unwrap();
        assert_eq!(checkout_models(&program), Some(dir.path().join("models")));
        assert_eq!(checkout_models(Path::new("/cistern")), None);
    }
}
