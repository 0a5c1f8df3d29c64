//! Whether a file is, byte for byte, the one of the catalogue.

use std::path::Path;

use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;

use crate::{CancellationToken, Entry, HubError};

/// Reads the whole file and compares its SHA-256 with the catalogue's. `progress` is told the bytes read so far.
///
/// # Errors
/// [`HubError::Checksum`] when they differ, [`HubError::Cancelled`], or when the file cannot be read.
pub async fn verify(
    entry: &Entry,
    path: &Path,
    progress: impl Fn(u64),
    cancel: &CancellationToken,
) -> Result<(), HubError> {
    if sha256(path, progress, cancel).await? == entry.sha256 {
        Ok(())
    } else {
        Err(HubError::Checksum { path: path.to_owned() })
    }
}

async fn sha256(path: &Path, progress: impl Fn(u64), cancel: &CancellationToken) -> Result<String, HubError> {
    let mut file = tokio::fs::File::open(path).await.map_err(HubError::io(path))?;
    file.set_max_buf_size(1 << 20);
    let mut buffer = vec![0; 1 << 20];
    let (mut hasher, mut done) = (Sha256::new(), 0);
    loop {
        if cancel.is_cancelled() {
            return Err(HubError::Cancelled);
        }
        let n = file.read(&mut buffer).await.map_err(HubError::io(path))?;
        if n == 0 {
            break;
        }
        hasher.update(&buffer[..n]);
        done += n as u64;
        progress(done);
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
