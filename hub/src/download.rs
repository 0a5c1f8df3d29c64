//! The download of a model: resumable, checked, and complete or not there at all.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use hf_hub::repository::RepoTreeEntry;
use hf_hub::{HFClient, HFRepository, RepoTypeModel, split_id};
use tokio::io::AsyncWriteExt;

use crate::{CancellationToken, Entry, HubError, download_folder, verify};

/// Left free on the disk, so that a download never fills it to the brim.
const SPARE: u64 = 64 << 20;
/// A connection that brings nothing for this long is taken for dead.
const STALL: Duration = Duration::from_secs(30);
/// Times that a broken connection is tried again without a byte in between.
const RETRIES: u32 = 5;
/// Progress is told at most this often.
const TICK: Duration = Duration::from_millis(100);

/// How far a download is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// Bytes of the file that are there, or were checked.
    pub done: u64,
    /// Bytes of the whole file.
    pub total: u64,
    /// Measured speed, bytes a second; 0 until it is known.
    pub bytes_s: u64,
}

/// See [`Progress`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Bytes are coming in.
    Downloading,
    /// The checksum is being computed.
    Checking,
}

/// The Hugging Face Hub (or `HF_ENDPOINT`), and the folder that models go to.
#[derive(Debug, Clone)]
pub struct Hub {
    client: HFClient,
    folder: PathBuf,
    patience: Duration,
    disk: Disk,
}

/// Says how many bytes are free in a folder, where that can be known.
#[derive(Clone)]
struct Disk(Arc<FreeSpace>);

type FreeSpace = dyn Fn(&Path) -> Option<u64> + Send + Sync;

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disk")
    }
}

impl Hub {
    /// The hub of the environment, into [`download_folder`].
    ///
    /// # Errors
    /// When `HF_ENDPOINT` is no address.
    pub fn new() -> Result<Self, HubError> {
        let client = HFClient::builder().user_agent(concat!("cistern/", env!("CARGO_PKG_VERSION"))).build();
        Ok(Self {
            client: client.map_err(|error| HubError::Hub(error.to_string()))?,
            folder: download_folder(),
            patience: Duration::from_secs(1),
            disk: Disk(Arc::new(free_space)),
        })
    }

    /// Another server of the hub's protocol, into another folder; gives up sooner on a broken connection.
    ///
    /// # Errors
    /// When `endpoint` is no address.
    pub fn at(endpoint: &str, folder: &Path) -> Result<Self, HubError> {
        let client = HFClient::builder().endpoint(endpoint).retry_max_attempts(1).build();
        Ok(Self {
            client: client.map_err(|error| HubError::Hub(error.to_string()))?,
            folder: folder.to_owned(),
            patience: Duration::from_millis(10),
            disk: Disk(Arc::new(free_space)),
        })
    }

    /// Asks `free` in place of the file system for the room that is left in a folder.
    #[must_use]
    pub fn with_disk(self, free: impl Fn(&Path) -> Option<u64> + Send + Sync + 'static) -> Self {
        Self { disk: Disk(Arc::new(free)), ..self }
    }

    /// Throws away what an earlier try left of the model's file.
    ///
    /// # Errors
    /// [`HubError::Busy`] while a download of it runs, or when the file system refuses.
    pub fn discard(&self, entry: &Entry) -> Result<(), HubError> {
        let part = part(&self.folder, entry);
        if !part.exists() {
            return Ok(());
        }
        let _lock = Lock::take(&self.folder, entry)?;
        std::fs::remove_file(&part).map_err(HubError::io(&part))
    }

    /// Fetches the model's file and returns its path. What an earlier try left is kept and gone on from.
    ///
    /// # Errors
    /// See [`HubError`]; nothing is ever left under the model's own name that is not the whole, checked file.
    pub async fn fetch(
        &self,
        entry: &Entry,
        progress: impl Fn(Progress),
        cancel: &CancellationToken,
    ) -> Result<PathBuf, HubError> {
        let target = self.folder.join(&entry.file);
        std::fs::create_dir_all(&self.folder).map_err(HubError::io(&self.folder))?;

        let _lock = Lock::take(&self.folder, entry)?;
        let part = part(&self.folder, entry);
        std::fs::File::options().create(true).append(true).open(&part).map_err(HubError::io(&part))?;

        let filled = tokio::select! {
            filled = self.fill(entry, &part, &progress) => filled,
            () = cancel.cancelled() => Err(HubError::Cancelled),
        };
        if let Err(error) = filled {
            if part.metadata().is_ok_and(|meta| meta.len() == 0) {
                let _ = std::fs::remove_file(&part);
            }
            return Err(error);
        }

        let checking = |done| progress(Progress { phase: Phase::Checking, done, total: entry.bytes, bytes_s: 0 });
        match verify(entry, &part, checking, cancel).await {
            Ok(()) => std::fs::rename(&part, &target).map_err(HubError::io(&target))?,
            Err(HubError::Checksum { .. }) => {
                // Going on from wrong bytes could never end well.
                std::fs::remove_file(&part).map_err(HubError::io(&part))?;
                return Err(HubError::Damaged { file: entry.file.clone() });
            }
            Err(error) => return Err(error),
        }
        Ok(target)
    }

    /// Brings the part file to its full length, across broken connections.
    async fn fill(&self, entry: &Entry, part: &Path, progress: &impl Fn(Progress)) -> Result<(), HubError> {
        let (owner, name) = split_id(&entry.repo);
        let repo = self.client.model(owner, name);
        let have = || part.metadata().map(|meta| meta.len()).map_err(HubError::io(part));
        if have()? > entry.bytes {
            truncate(part)?;
        }
        self.check_offer(&repo, entry).await?;
        self.check_space(entry.bytes - have()?)?;

        let mut meter = Meter::new(entry.bytes, have()?);
        let mut failures = 0;
        loop {
            let before = have()?;
            progress(meter.reading(before));
            if before == entry.bytes {
                return Ok(());
            }
            let Err(error) = self.append(&repo, entry, part, before, &mut meter, progress).await else { continue };
            failures = if have()? > before { 1 } else { failures + 1 };
            if !error.is_transient() || failures > RETRIES {
                return Err(error);
            }
            tokio::time::sleep(self.patience * 2u32.pow(failures - 1)).await;
        }
    }

    /// Whether the hub still has the file that the catalogue means.
    async fn check_offer(&self, repo: &HFRepository<RepoTypeModel>, entry: &Entry) -> Result<(), HubError> {
        let infos = repo
            .get_paths_info()
            .paths(vec![entry.file.clone()])
            .send()
            .await
            .map_err(|error| self.error(error, entry))?;
        let offer = infos.into_iter().find_map(|info| match info {
            RepoTreeEntry::File { path, size, lfs, .. } if path == entry.file => Some((size, lfs)),
            _ => None,
        });
        let Some((size, lfs)) = offer else {
            return Err(HubError::NotFound { repo: entry.repo.clone(), file: entry.file.clone() });
        };
        let sha256 = lfs.and_then(|lfs| lfs.sha256);
        if size != entry.bytes || sha256.is_some_and(|sha256| sha256 != entry.sha256) {
            return Err(HubError::Changed { file: entry.file.clone() });
        }
        Ok(())
    }

    fn check_space(&self, missing: u64) -> Result<(), HubError> {
        // A file system that cannot say is not a reason to refuse: writing will tell.
        let free = (self.disk.0)(&self.folder).unwrap_or(u64::MAX);
        let needed = missing + SPARE;
        if free < needed {
            return Err(HubError::DiskFull { folder: self.folder.clone(), free, needed });
        }
        Ok(())
    }

    /// Why the part file could not be written, while `missing` bytes were still to come.
    fn not_written(&self, part: &Path, missing: u64) -> impl FnOnce(std::io::Error) -> HubError {
        move |source| match HubError::is_full(&source) {
            true => HubError::DiskFull {
                folder: self.folder.clone(),
                free: (self.disk.0)(&self.folder).unwrap_or(0),
                needed: missing + SPARE,
            },
            false => HubError::io(part)(source),
        }
    }

    /// Appends what is missing from `start` on, until the file is whole or the connection breaks.
    async fn append(
        &self,
        repo: &HFRepository<RepoTypeModel>,
        entry: &Entry,
        part: &Path,
        start: u64,
        meter: &mut Meter,
        progress: &impl Fn(Progress),
    ) -> Result<(), HubError> {
        let interrupted = |done| HubError::Interrupted { done, total: entry.bytes };
        // The whole file is asked for without a range, which every server and mirror understands.
        let range = (start > 0).then_some(start..entry.bytes);
        let request = repo.download_file_stream().filename(entry.file.clone()).maybe_range(range).send();
        let (length, mut stream) = tokio::time::timeout(STALL, request)
            .await
            .map_err(|_| interrupted(start))?
            .map_err(|error| self.error(error, entry))?;

        let mut done = start;
        if start > 0 && length == Some(entry.bytes) {
            // The server does not know ranges and begins again.
            truncate(part)?;
            done = 0;
        }
        let mut file = tokio::fs::File::options().append(true).open(part).await.map_err(HubError::io(part))?;
        let result = loop {
            match tokio::time::timeout(STALL, stream.next()).await {
                Ok(Some(Ok(bytes))) => {
                    let bytes = &bytes[..bytes.len().min((entry.bytes - done) as usize)];
                    file.write_all(bytes).await.map_err(self.not_written(part, entry.bytes - done))?;
                    done += bytes.len() as u64;
                    if let Some(reading) = meter.tick(done) {
                        progress(reading);
                        // Others write to the disk, too.
                        if done < entry.bytes
                            && let Err(full) = self.check_space(entry.bytes - done)
                        {
                            break Err(full);
                        }
                    }
                    if done == entry.bytes {
                        break Ok(());
                    }
                }
                Ok(None) if done == entry.bytes => break Ok(()),
                Ok(None | Some(Err(_))) | Err(_) => break Err(interrupted(done)),
            }
        };
        file.flush().await.map_err(self.not_written(part, entry.bytes - done))?;
        file.sync_data().await.map_err(HubError::io(part))?;
        result
    }

    fn error(&self, error: hf_hub::HFError, entry: &Entry) -> HubError {
        HubError::from_hub(error, self.client.endpoint(), &entry.repo, &entry.file)
    }
}

fn free_space(folder: &Path) -> Option<u64> {
    fs4::available_space(folder).ok()
}

/// Where a download collects what arrives.
pub(crate) fn part(folder: &Path, entry: &Entry) -> PathBuf {
    folder.join(format!("{}.part", entry.file))
}

fn truncate(part: &Path) -> Result<(), HubError> {
    std::fs::File::create(part).map(drop).map_err(HubError::io(part))
}

/// Keeps a second Cistern away from the part file.
struct Lock {
    path: PathBuf,
    _file: std::fs::File,
}

impl Lock {
    fn take(folder: &Path, entry: &Entry) -> Result<Self, HubError> {
        let path = folder.join(format!("{}.lock", entry.file));
        let file = std::fs::File::create(&path).map_err(HubError::io(&path))?;
        file.try_lock().map_err(|_| HubError::Busy { file: entry.file.clone() })?;
        Ok(Self { path, _file: file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Measures the speed over the last seconds.
struct Meter {
    total: u64,
    told: Instant,
    told_done: u64,
    bytes_s: f64,
}

impl Meter {
    fn new(total: u64, done: u64) -> Self {
        Self { total, told: Instant::now(), told_done: done, bytes_s: 0.0 }
    }

    fn tick(&mut self, done: u64) -> Option<Progress> {
        let elapsed = self.told.elapsed();
        if elapsed < TICK && done < self.total {
            return None;
        }
        let now = done.saturating_sub(self.told_done) as f64 / elapsed.as_secs_f64().max(1e-3);
        // About three seconds of memory: steady to read, quick to follow.
        let weight = if self.bytes_s == 0.0 { 1.0 } else { (elapsed.as_secs_f64() / 3.0).min(1.0) };
        self.bytes_s += weight * (now - self.bytes_s);
        (self.told, self.told_done) = (Instant::now(), done);
        Some(self.reading(done))
    }

    fn reading(&self, done: u64) -> Progress {
        Progress { phase: Phase::Downloading, done, total: self.total, bytes_s: self.bytes_s as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_the_disk_cannot_hold_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let hub = Hub::at("http://127.0.0.1:9", folder.path()).unwrap();
        let free = fs4::available_space(folder.path()).unwrap();
        assert_eq!(hub.check_space(free).unwrap_err().code(), "disk_full");
        assert!(hub.check_space(1).is_ok() || free < SPARE);
    }

    #[test]
    fn the_speed_follows_the_bytes() {
        let mut meter = Meter::new(1000, 100);
        assert_eq!(meter.reading(100).bytes_s, 0);
        assert_eq!(meter.tick(200), None, "too soon to tell");
        meter.told -= Duration::from_secs(1);
        let reading = meter.tick(400).unwrap();
        assert!((250..=300).contains(&reading.bytes_s), "{reading:?}");
    }
}
