//! Why a command failed, in one sentence.

use std::io;
use std::path::PathBuf;

use crate::documents::DocumentError;

/// What ends a command.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Engine(#[from] engine::error::Error),
    #[error(transparent)]
    Hub(#[from] hub::HubError),
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The command line asks for something that is not there.
    #[error("{0}")]
    Usage(String),
    #[error("{} cannot be read ({source}); check the path.", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} cannot be written ({source}); choose another path.", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("The output cannot be written ({0}).")]
    Output(#[from] io::Error),
    #[error("The system refuses what this command needs ({0}).")]
    System(String),
    /// Some of several checks failed; each has been reported.
    #[error("{0}")]
    Checks(String),
}

impl Failure {
    /// 2 for wrong use, 1 for a failed run.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Engine(engine::error::Error::Options(_)) => 2,
            _ => 1,
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Output(error.into())
    }
}
