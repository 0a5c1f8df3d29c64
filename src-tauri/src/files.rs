//! Files that the person picked or dropped.

use std::path::Path;

use tokio::fs;

use crate::api::PickedFile;
use crate::error::Problem;

/// What the window may read. Model files are opened by the worker, never by the window.
const DOCUMENTS: [&str; 4] = ["pdf", "txt", "md", "markdown"];

/// The window holds the whole file in memory.
const LARGEST: u64 = 512 << 20;

/// What the file dialog offers, each kind with its extensions.
pub const KINDS: [(&str, &[&str]); 3] = [
    ("Documents and models", &["pdf", "txt", "md", "markdown", "gguf"]),
    ("Documents", &DOCUMENTS),
    ("Models", &["gguf"]),
];

/// Name and size of a file.
///
/// # Errors
/// When it is not there, or not a file.
pub async fn stat(path: &Path) -> Result<PickedFile, Problem> {
    let failed = |error| Problem::File { path: path.to_owned(), error };
    let meta = fs::metadata(path).await.map_err(failed)?;
    if !meta.is_file() {
        return Err(failed(std::io::Error::other("it is not a file")));
    }
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok(PickedFile { path: path.to_string_lossy().into_owned(), name, bytes: meta.len() })
}

/// The bytes of a document.
///
/// # Errors
/// When it is no document, is too large or cannot be read.
pub async fn read(path: &Path) -> Result<Vec<u8>, Problem> {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    if !DOCUMENTS.iter().any(|kind| kind.eq_ignore_ascii_case(extension)) {
        return Err(Problem::FileKind(path.to_owned()));
    }
    if stat(path).await?.bytes > LARGEST {
        return Err(Problem::FileSize(path.to_owned()));
    }
    fs::read(path).await.map_err(|error| Problem::File { path: path.to_owned(), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_window_reads_documents_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.pdf", "b.TXT", "c.md", "d.markdown"] {
            let path = folder.path().join(name);
            std::fs::write(&path, name).unwrap();
            assert_eq!(read(&path).await.unwrap(), name.as_bytes());
        }
        for name in ["id_rsa", "chats.db", "model.gguf", "pdf", ".txt", "page.html"] {
            let path = folder.path().join(name);
            std::fs::write(&path, name).unwrap();
            assert_eq!(read(&path).await.unwrap_err().code(), "file_kind", "{name}");
        }
    }

    #[tokio::test]
    async fn a_folder_or_a_missing_file_is_a_sentence_and_not_a_crash() {
        let folder = tempfile::tempdir().unwrap();
        let named_like_one = folder.path().join("folder.pdf");
        std::fs::create_dir(&named_like_one).unwrap();
        let error = read(&named_like_one).await.unwrap_err();
        assert_eq!(error.code(), "file");
        assert!(error.to_string().contains("it is not a file"));
        assert_eq!(stat(&folder.path().join("gone.pdf")).await.unwrap_err().code(), "file");
    }
}
