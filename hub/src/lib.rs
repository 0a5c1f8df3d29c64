//! The catalogue of known models, where their files lie on this machine, and their download from the Hugging Face Hub.

mod catalog;
mod checksum;
mod download;
mod error;
mod folders;

pub use catalog::{Catalog, Entry, Shape};
pub use checksum::verify;
pub use download::{Hub, Phase, Progress};
pub use error::HubError;
pub use folders::{LocalFile, arrived, download_folder, is_removable, local_path, own_files, remove};
pub use tokio_util::sync::CancellationToken;
