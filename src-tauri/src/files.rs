//! Files that the person picked or dropped.

use std::path::Path;

use tokio::fs;

use crate::api::PickedFile;
use crate::error::Problem;

/// What the window may read. Model files are opened by the worker, never by the window.
const DOCUMENTS: [&str; 4] = ["pdf", "txt", "md", "markdown"];

/// The window holds the whole file in memory.
const LARGEST: u64 = 512 << 20;

/// Longest file name that is made of a title, in characters.
const NAME_LEN: usize = 80;

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

/// Whether a file is a PDF, by its name.
pub fn is_pdf(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("pdf"))
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

/// The bytes of an exported chat.
///
/// # Errors
/// When it is too large or cannot be read.
pub async fn read_chat(path: &Path) -> Result<Vec<u8>, Problem> {
    if stat(path).await?.bytes > LARGEST {
        return Err(Problem::NoChat("it is larger than 512 MiB".to_owned()));
    }
    fs::read(path).await.map_err(|error| Problem::File { path: path.to_owned(), error })
}

/// Writes a file; what it held before is replaced once the new one is complete.
///
/// # Errors
/// When it cannot be written.
pub async fn write(path: &Path, bytes: &[u8]) -> Result<(), Problem> {
    replace(path, bytes).await.map_err(|error| Problem::Write { path: path.to_owned(), error })
}

/// As [`write`], with the error as it is.
pub async fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    // Under a name that no file of the person's can have.
    let partial = path.with_file_name(format!(".{}.partial", uuid::Uuid::now_v7()));
    let written = match fs::write(&partial, bytes).await {
        Ok(()) => fs::rename(&partial, path).await,
        Err(error) => Err(error),
    };
    if written.is_err() {
        let _ = fs::remove_file(&partial).await;
    }
    written
}

/// A title as a file may be named on any system.
pub fn name_from(title: &str) -> String {
    let allowed = |c: char| !c.is_control() && !matches!(c, '/' | '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|');
    let name: String = title.chars().filter(|&c| allowed(c)).take(NAME_LEN).collect();
    match name.trim_matches(|c: char| c.is_whitespace() || c == '.') {
        "" => "chat".to_owned(),
        name => name.to_owned(),
    }
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

    #[test]
    fn a_title_makes_a_file_name_on_any_system() {
        assert_eq!(name_from("What is 1/2 of \"A: B\"?"), "What is 12 of A B");
        assert_eq!(name_from(" ..\n?"), "chat");
        assert_eq!(name_from(&"水".repeat(300)).chars().count(), NAME_LEN);
    }

    #[tokio::test]
    async fn what_is_written_replaces_a_file_or_leaves_it_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chat.md");
        write(&path, b"one").await.unwrap();
        write(&path, b"two").await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
        let nowhere = folder.path().join("gone/chat.md");
        assert_eq!(write(&nowhere, b"").await.unwrap_err().code(), "write");
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
