//! What the window and the shell say to each other. The TypeScript types in `ui/src/lib/ipc/bindings`
//! are generated from here and from `engine::protocol`.

use engine::protocol::{CacheOptions, Document, Event, FinishReason, ModelInfo, Role, Sampling, TurnStats};
use serde::{Deserialize, Serialize};

/// What the shell tells the window, in batches of at most 20 a second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AppEvent {
    /// From the worker, as it came.
    Worker {
        /// The report.
        event: Event,
    },
    /// The state of the worker process and its model; also sent first on subscribing.
    Status {
        /// The state.
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
}

/// The worker process and its model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
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
    /// The worker died and is being started again.
    Restarting {
        /// One sentence for the person.
        message: String,
    },
}

/// One reading of device memory, in bytes. A part that cannot be read is `null`, never guessed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct Gauge {
    /// What is measured.
    pub kind: GaugeKind,
    /// The device's name.
    pub name: String,
    /// All of its memory.
    #[cfg_attr(feature = "ts", ts(type = "number | null"))]
    pub total: Option<u64>,
    /// In use, by anyone.
    #[cfg_attr(feature = "ts", ts(type = "number | null"))]
    pub used: Option<u64>,
    /// Weights of the open model.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub weights: u64,
    /// Hot KV entries of all sessions.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub kv_hot: u64,
    /// Whatever else the worker holds.
    #[cfg_attr(feature = "ts", ts(type = "number | null"))]
    pub scratch: Option<u64>,
    /// Other programs.
    #[cfg_attr(feature = "ts", ts(type = "number | null"))]
    pub other: Option<u64>,
}

/// See [`Gauge::kind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum GaugeKind {
    /// GPU memory, through NVML.
    Vram,
    /// System memory, where the model computes on the CPU.
    Ram,
}

/// A model that can be opened or downloaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct ModelEntry {
    /// Catalogue id, or the path of a file of the person's own.
    pub id: String,
    /// For people.
    pub name: String,
    /// One sentence: what it is good for.
    pub summary: String,
    /// Size of the file in bytes.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub bytes: u64,
    /// Trained context in tokens; `null` where the file has not been read.
    pub context: Option<u32>,
    /// SPDX id or name; `null` where unknown.
    pub licence: Option<String>,
    /// For example "8 GB".
    pub fits: Option<String>,
    /// Where it is on this machine; `null` until it is downloaded.
    pub path: Option<String>,
}

/// A download.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct FetchState {
    /// Catalogue id.
    pub id: String,
    /// Where it stands.
    pub phase: FetchPhase,
    /// Bytes that arrived.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub done: u64,
    /// Bytes in all; `null` until known.
    #[cfg_attr(feature = "ts", ts(type = "number | null"))]
    pub total: Option<u64>,
    /// Bytes a second, measured.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub bytes_s: u64,
    /// With `failed`: one sentence for the person.
    pub message: Option<String>,
}

/// See [`FetchState::phase`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum FetchPhase {
    /// Bytes are coming in.
    Downloading,
    /// The checksum is being computed.
    Checking,
    /// Ready to open.
    Done,
    /// Stopped by the person.
    Cancelled,
    /// See the message.
    Failed,
}

/// A line of the chat list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct ChatSummary {
    /// Also the name of its session in the worker.
    pub id: String,
    /// From the first question, or as the person named it.
    pub title: String,
    /// Milliseconds since 1970, of its last message.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub updated_ms: i64,
}

/// A whole chat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct Chat {
    /// Its line in the list.
    pub summary: ChatSummary,
    /// Oldest first.
    pub messages: Vec<StoredMessage>,
}

/// A message as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct StoredMessage {
    /// Unique over all chats.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub id: i64,
    /// Who speaks.
    pub role: Role,
    /// Markdown.
    pub text: String,
    /// Documents that came with it; their text stays in the shell.
    pub documents: Vec<DocumentInfo>,
    /// For an answer: why it ended; `null` while it is written or when it was cut off.
    pub finish: Option<FinishReason>,
    /// For an answer: what it took.
    pub stats: Option<TurnStats>,
}

/// A document without its text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct DocumentInfo {
    /// File name.
    pub name: String,
    /// Pages.
    pub pages: u32,
    /// Tokens, as counted when it was attached.
    pub tokens: u32,
}

/// A question, as the composer sends it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct Question {
    /// The chat; `null` makes a new one.
    pub chat: Option<String>,
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

/// A document on its way to the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct Attachment {
    /// Its text.
    pub document: Document,
    /// Its tokens.
    pub tokens: u32,
}

/// Where a sent question went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct Sent {
    /// The chat, also when it was made just now.
    pub chat: ChatSummary,
    /// The question as kept.
    pub question: StoredMessage,
    /// The answer, still empty; the worker's tokens for this session belong to it.
    pub answer: StoredMessage,
}

/// A file that was picked or dropped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct PickedFile {
    /// Where it is.
    pub path: String,
    /// File name.
    pub name: String,
    /// Size in bytes.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub bytes: u64,
}

/// What every failed command returns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct ApiError {
    /// Stable, for the window to act on.
    pub code: String,
    /// One sentence: what happened and what to do.
    pub message: String,
}
