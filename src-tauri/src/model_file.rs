//! Notices when the file of the open model changes on the disk: it is mapped, so that it is read while it is used.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use engine::protocol::Event;

use crate::api::Status;

/// What tells a file from another in its place.
#[derive(Debug, Clone, PartialEq)]
struct Stamp {
    bytes: u64,
    written: Option<SystemTime>,
    inode: u64,
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let meta = path.metadata().ok()?;
        Some(Self { bytes: meta.len(), written: meta.modified().ok(), inode: inode(&meta) })
    }
}

#[cfg(unix)]
fn inode(meta: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(meta)
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> u64 {
    0
}

/// The file of the open model, as it was when it was last looked at. `None` where it was gone.
#[derive(Default)]
pub struct ModelFile(Option<(PathBuf, Option<Stamp>)>);

impl ModelFile {
    /// What the person has to know of the file since the last look.
    pub fn look(&mut self, status: &Status) -> Option<Event> {
        let Status::Ready { model } = status else {
            self.0 = None;
            return None;
        };
        let now = Stamp::of(&model.path);
        let seen = self.0.replace((model.path.clone(), now.clone())).filter(|(path, _)| *path == model.path);
        let path = &model.path;
        let message = match (seen.map(|(_, before)| before), now) {
            // Also one that was gone before it could be looked at.
            (None | Some(Some(_)), None) => format!(
                "The file {} of the open model was deleted; it can be used until it is ejected.",
                path.display()
            ),
            (Some(before), Some(now)) if before.as_ref() != Some(&now) => format!(
                "The file {} of the open model was changed or replaced; open the model again to use what is there now.",
                path.display()
            ),
            _ => return None,
        };
        Some(Event::Failed { session: None, code: "model_file".to_owned(), message })
    }
}

#[cfg(test)]
mod tests {
    use engine::protocol::{Device, ModelInfo};

    use super::*;

    fn ready(path: &Path) -> Status {
        let device = Device { kind: "cpu".to_owned(), name: "CPU".to_owned() };
        Status::Ready {
            model: ModelInfo {
                name: "A model".to_owned(),
                path: path.to_owned(),
                architecture: "llama".to_owned(),
                quantization: "Q4_1".to_owned(),
                parameters: 1,
                weight_bytes: 1,
                context: 2048,
                layers: 1,
                kv_heads: 1,
                kv_bytes_per_token: 4,
                device,
            },
        }
    }

    #[test]
    fn each_change_of_the_file_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        std::fs::write(&path, "GGUF").unwrap();
        let status = ready(&path);
        let mut file = ModelFile::default();
        let mut says = |status: &Status| match file.look(status) {
            Some(Event::Failed { message, .. }) => message,
            _ => String::new(),
        };
        assert_eq!(says(&status), "");
        assert_eq!(says(&status), "");
        std::fs::write(&path, "GG").unwrap();
        assert!(says(&status).contains("was changed or replaced"));
        assert_eq!(says(&status), "");
        std::fs::remove_file(&path).unwrap();
        assert!(says(&status).contains("was deleted"));
        assert_eq!(says(&status), "");
        assert_eq!(says(&Status::Idle), "");
        assert!(says(&status).contains("was deleted"), "gone before the first look");
        // One that was opened again is what it is.
        std::fs::write(&path, "GGUF").unwrap();
        assert_eq!(says(&Status::Idle), "");
        assert_eq!(says(&status), "");
    }
}
