//! What can go wrong with a model's file, each in one sentence.

use std::io;
use std::path::{Path, PathBuf};

use hf_hub::HFError;

/// Why a model could not be fetched or is not what it should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// No connection.
    #[error("The model hub {endpoint} cannot be reached ({reason}); check the network connection and try again.")]
    Offline {
        /// Its address.
        endpoint: String,
        /// The transport's own words.
        reason: String,
    },
    /// The connection broke again and again.
    #[error("The download broke off after {} of {}; try again, it goes on from there.", size(.done), size(.total))]
    Interrupted {
        /// Bytes on disk.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
    /// The hub does not have it.
    #[error("The hub has no file {file} in {repo}; it was moved or removed, choose another model.")]
    NotFound {
        /// Repository.
        repo: String,
        /// File.
        file: String,
    },
    /// The hub wants a login or the acceptance of a licence.
    #[error("The hub does not give out {repo} without a login; accept its licence on the hub's page and set HF_TOKEN.")]
    Access {
        /// Repository.
        repo: String,
    },
    /// Too many requests.
    #[error("The hub asks to slow down; wait some minutes and try again.")]
    RateLimited,
    /// Any other answer of the hub.
    #[error("The hub answered with an error ({0}); try again later.")]
    Hub(String),
    /// Not enough room.
    #[error("There is too little room for the model in {}: {} are free and {} are still needed; make room and go on, or set CISTERN_MODELS to a folder on another disk.", folder.display(), size(.free), size(.needed))]
    DiskFull {
        /// Where the model should go.
        folder: PathBuf,
        /// Bytes free there.
        free: u64,
        /// Bytes still needed.
        needed: u64,
    },
    /// The bytes differ from those of the catalogue.
    #[error("{} is damaged or was changed (its SHA-256 is not the catalogue's); delete it and fetch it again.", path.display())]
    Checksum {
        /// The file.
        path: PathBuf,
    },
    /// The bytes that arrived differ from those of the catalogue.
    #[error("{file} arrived damaged (its SHA-256 is not the catalogue's) and was thrown away; fetch it again.")]
    Damaged {
        /// File.
        file: String,
    },
    /// The hub offers another file than the catalogue names.
    #[error(
        "The hub now holds another version of {file} than this Cistern knows; update Cistern or choose another model."
    )]
    Changed {
        /// File.
        file: String,
    },
    /// Another process downloads the same file.
    #[error("Another Cistern is downloading {file} already; wait until it is done.")]
    Busy {
        /// File.
        file: String,
    },
    /// A file that Cistern did not put there.
    #[error("{} is not among the models that Cistern downloaded, so it is left alone; remove it in the file manager.", .0.display())]
    NotOurs(PathBuf),
    /// Stopped by the person.
    #[error("The download was stopped; started again, it goes on from where it was.")]
    Cancelled,
    /// The file system refused.
    #[error("{} cannot be read or written ({source}); check that you may.", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl HubError {
    /// Stable name of the kind of error, for programs to act on.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Offline { .. } => "hub_offline",
            Self::Interrupted { .. } => "download_interrupted",
            Self::NotFound { .. } => "model_not_found",
            Self::Access { .. } => "model_access",
            Self::RateLimited => "hub_rate_limited",
            Self::Hub(_) => "hub_error",
            Self::DiskFull { .. } => "disk_full",
            Self::Checksum { .. } | Self::Damaged { .. } => "checksum",
            Self::Changed { .. } => "model_changed",
            Self::Busy { .. } => "download_busy",
            Self::NotOurs(_) => "model_not_ours",
            Self::Cancelled => "cancelled",
            Self::Io { .. } => "model_io",
        }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    /// Whether the file system has no room left.
    pub(crate) fn is_full(error: &io::Error) -> bool {
        matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    pub(crate) fn from_hub(error: HFError, endpoint: &str, repo: &str, file: &str) -> Self {
        match error {
            HFError::EntryNotFound { .. } | HFError::RepoNotFound { .. } | HFError::RevisionNotFound { .. } => {
                Self::NotFound { repo: repo.to_owned(), file: file.to_owned() }
            }
            HFError::AuthRequired { .. } | HFError::Forbidden { .. } => Self::Access { repo: repo.to_owned() },
            HFError::RateLimited { .. } => Self::RateLimited,
            HFError::Request { source, .. } => {
                Self::Offline { endpoint: endpoint.to_owned(), reason: innermost(&source).to_string() }
            }
            HFError::Http { context } => Self::Hub(format!("HTTP {}", context.status)),
            other => Self::Hub(other.to_string()),
        }
    }

    /// Whether trying again at once may help.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Offline { .. } | Self::Interrupted { .. } | Self::Hub(_))
    }
}

/// `98.4 MB`
fn size(bytes: &u64) -> String {
    match bytes {
        0..1_000_000_000 => format!("{:.1} MB", *bytes as f64 / 1e6),
        _ => format!("{:.1} GB", *bytes as f64 / 1e9),
    }
}

/// The cause that says most: the outer layers only repeat the address.
fn innermost<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error
}
