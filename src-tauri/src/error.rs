//! What can go wrong in the shell, each as one sentence with a stable code.

use std::path::PathBuf;

use crate::api::ApiError;

/// A failure that the person is told of.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// See [`rusqlite::Error`].
    #[error(
        "The chats could not be read or saved ({0}); check that the disk is not full and the data folder can be written to."
    )]
    Store(#[from] rusqlite::Error),
    /// The file was written by a later version, or is damaged.
    #[error("The chats could not be opened ({0}); if a newer Cistern has used this data folder, use that one.")]
    Migration(#[from] rusqlite_migration::Error),
    /// A folder of ours.
    #[error("The folder {} could not be made ({error}); check that it can be written to.", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Another window that does not come forward.
    #[error("Cistern is open already on {} and does not answer; use that window, or end it first.", .0.display())]
    AlreadyOpen(PathBuf),
    /// A chat that was deleted meanwhile, for instance by another window on the same data folder.
    #[error("This chat is no longer there; choose another one.")]
    NoSuchChat,
    /// A message that is not in the chat it was looked for in.
    #[error("This message is no longer there; open the chat again.")]
    NoSuchMessage,
    /// An answer that nothing is missing from, or that the chat has gone on from.
    #[error("This answer cannot be continued; ask again, or have it written anew.")]
    Complete,
    /// A second question while the first is being answered.
    #[error("This chat is still being answered; wait for the end or stop it first.")]
    Busy,
    /// Nothing to send.
    #[error("There is no question to send; write one first.")]
    EmptyQuestion,
    /// Too few or too many columns.
    #[error("A comparison has two or three columns; add one or take one away.")]
    CompareColumns,
    /// A second comparison while the first is being answered.
    #[error("A comparison is still being answered; wait for the end or stop it first.")]
    CompareBusy,
    /// A column of a comparison that keeps everything of more than the model can read.
    #[error(
        "Keeping all {tokens} tokens passes the {context} that this model was trained for; compare policies that leave something out."
    )]
    CompareContext {
        /// Of the conversation.
        tokens: u32,
        /// Trained context.
        context: u32,
    },
    /// A column of a comparison that there is no memory for.
    #[error(
        "This column would hold {} of the {} that are free; compare smaller budgets, or close other programs.",
        mib(*needs),
        mib(*free)
    )]
    CompareMemory {
        /// Bytes of its entries.
        needs: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// Nothing to call a chat.
    #[error("A chat needs a title; write at least one character.")]
    EmptyTitle,
    /// No model is open.
    #[error("No model is open; choose one first.")]
    NoModel,
    /// More than one frame of the protocol holds.
    #[error("This is more text than the engine takes at once (256 MiB); attach a part of it, or begin a new chat.")]
    TooMuchText,
    /// The worker died under a command.
    #[error("The engine stopped before it could do this; it is being started again, try once more in a moment.")]
    WorkerLost,
    /// The worker cannot be brought up.
    #[error("The engine is not running; choose a model to start it again.")]
    WorkerDown,
    /// The sidecar is not beside our own executable.
    #[error("The engine `{}` is missing; install Cistern again, or build it with `cargo build -p cistern-cli`.", .0.display())]
    WorkerMissing(PathBuf),
    /// The sidecar is there but does not start.
    #[error("The engine `{}` could not be started ({error}); install Cistern again.", path.display())]
    WorkerStart {
        /// The program.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Window and engine are of different versions.
    #[error(
        "The engine speaks version {theirs} of the protocol and the window version {ours}; install both from the same release."
    )]
    WorkerVersion {
        /// Of this program.
        ours: u32,
        /// Of the worker.
        theirs: u32,
    },
    /// What the worker answered to a command.
    #[error("{message}")]
    Worker {
        /// Its code.
        code: String,
        /// Its sentence.
        message: String,
    },
    /// An answer of the wrong kind.
    #[error("The engine gave an answer that does not fit the question; report this with the engine's log.")]
    WorkerAnswer,
    /// A file that the window asked for.
    #[error("{} could not be read ({error}).", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A kind of file that the window has no business with.
    #[error("{} is not a document that Cistern reads; choose a PDF, a text or a Markdown file.", .0.display())]
    FileKind(PathBuf),
    /// Larger than a document can sensibly be.
    #[error("{} is larger than 512 MiB; split it and attach the part that matters.", .0.display())]
    FileSize(PathBuf),
    /// A file that could not be written.
    #[error("{} could not be written ({error}); choose another place.", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A file that is no exported chat.
    #[error("This file is not a chat that Cistern can import ({0}); choose one that was exported as JSON.")]
    NoChat(String),
    /// A document of a chat that was deleted meanwhile.
    #[error("This document is no longer there; choose another one.")]
    NoSuchDocument,
    /// A text, or a document from before copies were kept.
    #[error("There is no copy of this document's file; its text is in the chat all the same.")]
    NoCopy,
    /// Anything but a web address.
    #[error("Only links to web pages can be opened (http or https).")]
    LinkKind,
    /// The system could not open the browser.
    #[error("The browser could not be opened ({0}).")]
    Browser(String),
    /// The system has no file manager, or it would not start.
    #[error("The file manager could not be opened ({error}); the folder is {}.", path.display())]
    FileManager {
        /// What was to be shown.
        path: PathBuf,
        /// Why.
        error: String,
    },
    /// The window named a model that this version does not know.
    #[error("There is no model {0} in the catalogue; choose another one.")]
    NoSuchModel(String),
    /// The person forbade it.
    #[error("Network use is switched off in the settings, so nothing is downloaded; allow it there first.")]
    Offline,
    /// From a download.
    #[error("{0}.")]
    Hub(#[from] hub::HubError),
    /// A background task was torn down, which only happens while the program ends.
    #[error("Cistern is closing.")]
    Closing,
}

impl Problem {
    /// Stable, for the window to act on.
    pub fn code(&self) -> &str {
        match self {
            Self::Store(_) => "store",
            Self::Migration(_) => "store_version",
            Self::Folder { .. } => "folder",
            Self::AlreadyOpen(_) => "already_open",
            Self::NoSuchChat => "no_such_chat",
            Self::NoSuchMessage => "no_such_message",
            Self::Complete => "complete",
            Self::Busy => "busy",
            Self::EmptyQuestion => "empty_question",
            Self::CompareColumns => "compare_columns",
            Self::CompareBusy => "compare_busy",
            Self::CompareContext { .. } => "compare_context",
            Self::CompareMemory { .. } => "compare_memory",
            Self::EmptyTitle => "empty_title",
            Self::NoModel => "no_model",
            Self::TooMuchText => "too_much_text",
            Self::WorkerLost => "worker_lost",
            Self::WorkerDown => "worker_down",
            Self::WorkerMissing(_) => "worker_missing",
            Self::WorkerStart { .. } => "worker_start",
            Self::WorkerVersion { .. } => "worker_version",
            Self::Worker { code, .. } => code,
            Self::WorkerAnswer => "worker_answer",
            Self::File { .. } => "file",
            Self::FileKind(_) => "file_kind",
            Self::FileSize(_) => "file_size",
            Self::Write { .. } => "write",
            Self::NoChat(_) => "no_chat",
            Self::NoSuchDocument => "no_such_document",
            Self::NoCopy => "no_copy",
            Self::LinkKind => "link_kind",
            Self::Browser(_) => "browser",
            Self::FileManager { .. } => "file_manager",
            Self::Offline => "network_off",
            Self::Hub(error) => error.code(),
            Self::NoSuchModel(_) => "no_such_model",
            Self::Closing => "closing",
        }
    }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        Self { code: problem.code().to_owned(), message: problem.to_string() }
    }
}
