//! What the window and the shell say to each other. The TypeScript types in `ui/src/lib/ipc/bindings`
//! are generated from here and from `engine::protocol` (see `bindings.rs`).
//!
//! The window calls `subscribe` once with a `Channel<AppEvent[]>` and then the commands of `commands.rs`,
//! by the names that they have there. Every command that fails rejects with an [`ApiError`].

use engine::protocol::{CacheOptions, Document, Event, FinishReason, ModelInfo, Role, Sampling, TurnStats};
use serde::{Deserialize, Serialize};
use ts_rs::TS;

mod compare;
mod snapshots;

pub use compare::{CompareRequest, CompareStarted, ComparedColumn, Comparison};
pub use snapshots::{SnapshotUse, SnapshotWork};

/// The program itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct AppInfo {
    /// Of this build, for example `0.1.0`.
    pub version: String,
    /// Where chats, settings and the person's models are kept.
    pub data_folder: String,
    /// What the worker process last wrote to its error output.
    pub worker_log: String,
}

/// Settings that the shell itself obeys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct ShellSettings {
    /// Nothing is fetched from the network.
    pub offline: bool,
    /// Minutes without use after which the model is closed; `null` never does.
    pub idle_minutes: Option<u32>,
}

/// What the shell tells the window, in batches of at most 20 a second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AppEvent {
    /// From the worker.
    Worker {
        /// One of `layout`, `prefill`, `token`, `cache`, `finished`, `failed`, `memory`; what the worker says of
        /// its model arrives as `status`. Within a batch, what follows each other in one session is joined: the
        /// text of tokens and the kept patches one after the other, of everything else the newest.
        event: Event,
    },
    /// The state of the worker process and its model.
    Status {
        /// Also sent first on subscribing.
        status: Status,
    },
    /// A new reading of the memory gauge.
    Gauge {
        /// The reading.
        gauge: Gauge,
    },
    /// A download moved on.
    Fetch {
        /// Its state.
        fetch: FetchState,
    },
    /// A chat was made, renamed, changed or deleted: read the list again.
    ChatsChanged,
    /// Files that Cistern was started with, now or by another start while this window is open.
    Opened {
        /// Documents to attach, models to open.
        paths: Vec<String>,
    },
    /// A chat's file is being read or written, or no longer.
    Snapshot {
        /// The chat.
        chat: String,
        /// `null` once it is over, however it went.
        work: Option<SnapshotWork>,
    },
    /// The last column of a comparison has ended, its memory is free, and the result is kept.
    CompareEnded {
        /// Its name.
        id: String,
    },
}

/// The worker process and its model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Status {
    /// The worker process is being started.
    Starting,
    /// No model is open.
    Idle,
    /// A model's file is being read.
    Loading {
        /// File name or catalogue name.
        name: String,
        /// Share read so far, 0 to 1.
        fraction: f32,
    },
    /// A model is open.
    Ready {
        /// The model.
        model: ModelInfo,
    },
    /// A model was closed because it was not used; the next question opens it again.
    Sleeping {
        /// The model.
        model: ModelInfo,
    },
    /// The worker died and is being started again.
    Restarting {
        /// One sentence for the person.
        message: String,
    },
    /// The worker cannot be started, or the model that should have been there cannot be opened.
    /// `load_model` tries again.
    Failed {
        /// Stable, for the window to act on.
        code: String,
        /// One sentence for the person.
        message: String,
    },
}

/// One reading of device memory, in bytes. A part that cannot be read is `null`, never guessed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct Gauge {
    /// What is measured.
    pub kind: GaugeKind,
    /// The device's name.
    pub name: String,
    /// All of its memory.
    #[ts(type = "number | null")]
    pub total: Option<u64>,
    /// In use, by anyone.
    #[ts(type = "number | null")]
    pub used: Option<u64>,
    /// Weights of the open model.
    #[ts(type = "number")]
    pub weights: u64,
    /// Hot KV entries of all sessions.
    #[ts(type = "number")]
    pub kv_hot: u64,
    /// Stores of all sessions, where they lie in the memory that is measured.
    #[ts(type = "number")]
    pub kv_store: u64,
    /// Whatever else the worker holds.
    #[ts(type = "number | null")]
    pub scratch: Option<u64>,
    /// Other programs.
    #[ts(type = "number | null")]
    pub other: Option<u64>,
    /// What a model could take, if the open one were closed. Weights that are mapped from a file are not in use
    /// for the system, so that this is not what is left of `total`.
    #[ts(type = "number | null")]
    pub room: Option<u64>,
}

/// See [`Gauge::kind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum GaugeKind {
    /// GPU memory, through NVML.
    Vram,
    /// System memory, where the model computes on the CPU.
    Ram,
}

/// A model that can be opened or downloaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct ModelEntry {
    /// Catalogue id, or the path of a file of the person's own.
    pub id: String,
    /// For people.
    pub name: String,
    /// One sentence: what it is good for.
    pub summary: String,
    /// Size of the file in bytes.
    #[ts(type = "number")]
    pub bytes: u64,
    /// Trained context in tokens; `null` where the file has not been read.
    pub context: Option<u32>,
    /// SPDX id or name; `null` where unknown.
    pub licence: Option<String>,
    /// Where it is on this machine; `null` until it is downloaded.
    pub path: Option<String>,
    /// Bytes that a download brought before it was paused or broke off; `null` where there are none.
    #[ts(type = "number | null")]
    pub arrived: Option<u64>,
    /// What it takes of the memory that the gauge shows; `null` where that is unknown.
    pub memory: Option<ModelMemory>,
    /// How it can be taken off the list; `null` where it is not Cistern's to remove.
    pub removal: Option<Removal>,
}

/// Memory that an open model takes, in bytes: `fixed`, and `per_token` for each token of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct ModelMemory {
    /// Weights and scratch.
    #[ts(type = "number")]
    pub fixed: u64,
    /// Entries.
    #[ts(type = "number")]
    pub per_token: u64,
}

/// See [`ModelEntry::removal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Removal {
    /// Its file is deleted.
    Delete,
    /// It leaves the list; its file stays where the person put it.
    Forget,
}

/// A download.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct FetchState {
    /// Catalogue id.
    pub id: String,
    /// Where it stands.
    pub phase: FetchPhase,
    /// Bytes that arrived.
    #[ts(type = "number")]
    pub done: u64,
    /// Bytes in all; `null` until known.
    #[ts(type = "number | null")]
    pub total: Option<u64>,
    /// Bytes a second, measured.
    #[ts(type = "number")]
    pub bytes_s: u64,
    /// With `failed`: why.
    pub error: Option<ApiError>,
}

/// See [`FetchState::phase`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum FetchPhase {
    /// Bytes are coming in.
    Downloading,
    /// The checksum is being computed.
    Checking,
    /// Ready to open.
    Done,
    /// Stopped by the person; what arrived is kept and gone on from.
    Paused,
    /// Given up by the person; nothing is left.
    Cancelled,
    /// See the message; what arrived is kept and gone on from.
    Failed,
}

/// A line of the chat list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct ChatSummary {
    /// Also the name of its session in the worker.
    pub id: String,
    /// From the first question, or as the person named it.
    pub title: String,
    /// Milliseconds since 1970, of its last message.
    #[ts(type = "number")]
    pub updated_ms: i64,
    /// Stands before all that are not.
    pub pinned: bool,
}

/// A chat that has every word that was looked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct Found {
    /// The chat.
    pub chat: ChatSummary,
    /// Its title, with the words marked.
    pub title: Vec<SnippetPart>,
    /// Messages that have every word, the newest first.
    pub messages: Vec<FoundMessage>,
    /// Messages of this kind that are not named.
    pub more: u32,
}

/// See [`Found::messages`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct FoundMessage {
    /// The message.
    #[ts(type = "number")]
    pub id: i64,
    /// Who speaks.
    pub role: Role,
    /// Where the words stand in its text, or in the names of its documents.
    pub snippet: Vec<SnippetPart>,
}

/// A piece of a text in which something was looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct SnippetPart {
    /// The piece.
    pub text: String,
    /// Whether it is a word that was looked for.
    pub hit: bool,
}

/// A form of a chat outside of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum ExportFormat {
    /// The branch that is shown, to read.
    Markdown,
    /// All there is of the chat, to be imported again.
    Json,
}

/// A whole chat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct Chat {
    /// Its line in the list.
    pub summary: ChatSummary,
    /// Those of the branch that is shown, oldest first.
    pub messages: Vec<StoredMessage>,
}

/// A message as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct StoredMessage {
    /// Unique over all chats.
    #[ts(type = "number")]
    pub id: i64,
    /// The message that it follows.
    #[ts(type = "number | null")]
    pub parent: Option<i64>,
    /// All messages that follow the same one, itself among them, in the order in which they were made.
    #[ts(type = "number[]")]
    pub siblings: Vec<i64>,
    /// Who speaks.
    pub role: Role,
    /// Markdown.
    pub text: String,
    /// Documents that came with it; their text stays in the shell.
    pub documents: Vec<DocumentInfo>,
    /// For an answer: whether it is being written, or waits to be.
    pub writing: bool,
    /// For an answer that is being written: `Event::Token`s up to this count of generated tokens are in `text`.
    pub generated: u32,
    /// For an answer: why it ended; `null` while it is written and when it was cut off.
    pub finish: Option<FinishReason>,
    /// For an answer that failed or was cut off: one sentence that says so.
    pub problem: Option<String>,
    /// For an answer: what it took.
    pub stats: Option<TurnStats>,
}

/// A document without its text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct DocumentInfo {
    /// Unique over all chats.
    #[ts(type = "number")]
    pub id: i64,
    /// File name.
    pub name: String,
    /// Whether there is a copy of its file, whose pages can be drawn.
    pub copied: bool,
    /// Pages.
    pub pages: u32,
    /// Tokens, as counted when it was attached.
    pub tokens: u32,
}

/// A question, as the composer sends it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct Question {
    /// The chat; `null` makes a new one.
    pub chat: Option<String>,
    /// The question that this one stands in for, in a branch beside it and with its documents; `null` asks at the
    /// end of the branch that is shown.
    #[ts(type = "number | null")]
    pub edits: Option<i64>,
    /// Goes before the first question of a new chat, unless it is blank. A chat keeps what it began with.
    pub system: String,
    /// What is asked.
    pub text: String,
    /// New documents, with the tokens of each as the chip showed them.
    pub documents: Vec<Attachment>,
    /// How the cache is to behave.
    pub cache: CacheOptions,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// The answer ends here at the latest.
    pub max_tokens: u32,
}

/// A wish for more than the answer that is there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct Again {
    /// The chat.
    pub chat: String,
    /// The answer.
    #[ts(type = "number")]
    pub answer: i64,
    /// What is to be done.
    pub how: AgainHow,
    /// How the cache is to behave.
    pub cache: CacheOptions,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// What is written now ends after so many tokens at the latest.
    pub max_tokens: u32,
}

/// See [`Again::how`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum AgainHow {
    /// Another answer to the same question, in a branch beside this one.
    Anew,
    /// The rest of an answer that ended early.
    Continue,
}

/// A document on its way to the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct Attachment {
    /// Its text.
    pub document: Document,
    /// Its tokens.
    pub tokens: u32,
    /// The file it was read from, as `read_file` was asked for it; `null` for what was pasted.
    pub file: Option<String>,
}

/// Where a sent question went: the branch that is shown ends with these two messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct Sent {
    /// The chat, also when it was made just now.
    pub chat: ChatSummary,
    /// What goes before the question where it is the first of a chat with a system prompt.
    pub system: Option<StoredMessage>,
    /// The question as kept.
    pub question: StoredMessage,
    /// The answer, empty or begun; the worker's tokens for this session belong to it.
    pub answer: StoredMessage,
}

/// The text of some tokens, and where each of them stands in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct Pieces {
    /// Of all of them.
    pub text: String,
    /// UTF-16 units that each token adds to it; a token that ends inside a character adds none.
    pub lengths: Vec<u16>,
}

/// A file that was picked or dropped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct PickedFile {
    /// Where it is.
    pub path: String,
    /// File name.
    pub name: String,
    /// Size in bytes.
    #[ts(type = "number")]
    pub bytes: u64,
}

/// What every failed command returns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct ApiError {
    /// Stable, for the window to act on.
    pub code: String,
    /// One sentence: what happened and what to do.
    pub message: String,
}
