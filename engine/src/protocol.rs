//! What the worker process and its shell say to each other.
//!
//! A frame is a little-endian `u32` length followed by that many bytes of JSON: a [`Command`] on the
//! worker's stdin, a [`Report`] on its stdout. The worker answers every command with exactly one report
//! that carries the command's `id` in `re`, then goes on reporting progress with `re: null`.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Raised whenever a frame changes meaning; shell and worker of different versions refuse each other.
pub const VERSION: u32 = 3;

/// No honest frame is larger: a document of 200,000 tokens is about 1 MB of JSON.
pub const MAX_FRAME: usize = 256 << 20;

/// A conversation, as the shell names it.
pub type SessionId = String;

/// One message from the shell to the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// Chosen by the shell; comes back in [`Report::re`].
    pub id: u64,
    /// What to do.
    #[serde(flatten)]
    pub request: Request,
}

/// What the shell can ask of the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Request {
    /// Answered by [`Event::Hello`].
    Hello,
    /// Opens a GGUF file, in place of the one that is open. Answered by [`Event::ModelLoaded`].
    Load {
        /// The file.
        path: PathBuf,
    },
    /// Drops the model and every session. Answered by [`Event::ModelUnloaded`].
    Unload,
    /// Counts the tokens of each text. Answered by [`Event::Counted`].
    Count {
        /// For instance the pages of a document.
        texts: Vec<String>,
    },
    /// Prefills what is new in `messages` and answers the last one, or goes on with it where it is an answer that
    /// ended early. Answered by [`Event::Accepted`]; ends with [`Event::Finished`] or [`Event::Failed`] for that
    /// session.
    Send {
        /// The conversation; made on first use.
        session: SessionId,
        /// The whole conversation so far, the question last, or what there is of the answer to it.
        messages: Vec<Message>,
        /// How the cache is to behave from here on.
        cache: CacheOptions,
        /// How tokens are chosen.
        sampling: Sampling,
        /// The answer ends here at the latest.
        max_tokens: u32,
    },
    /// Changes a session's budget, also while it generates. Answered by [`Event::Accepted`].
    SetBudget {
        /// The conversation.
        session: SessionId,
        /// Entries per layer and KV head; `None` follows the free memory.
        budget: Option<u32>,
    },
    /// Keeps a passage from eviction, or no longer, also while it generates. Answered by [`Event::Accepted`].
    Pin {
        /// The conversation.
        session: SessionId,
        /// What.
        passage: Passage,
        /// Whether it is to be kept.
        pinned: bool,
    },
    /// Writes a session to a file, once the running turn is done. Answered by [`Event::Accepted`].
    Save {
        /// The conversation.
        session: SessionId,
        /// The file; what it held is replaced once the new one is complete.
        path: PathBuf,
    },
    /// Reads a session from a file that [`Request::Save`] wrote with the same model. Answered by
    /// [`Event::Accepted`], an [`Event::Layout`] and an [`Event::Cache`], or by [`Event::Failed`]; then the next turn
    /// reads its text.
    Restore {
        /// The conversation, in place of what it held.
        session: SessionId,
        /// The file.
        path: PathBuf,
        /// The conversation so far, to tell what the positions stand for; what the file holds beyond it is dropped.
        messages: Vec<Message>,
    },
    /// Ends prefill or generation within one token. Answered by [`Event::Accepted`].
    Stop {
        /// The conversation.
        session: SessionId,
    },
    /// The text of some tokens of a session. Answered by [`Event::Text`], also while it generates.
    TextAt {
        /// The conversation.
        session: SessionId,
        /// First position.
        start: u32,
        /// One past the last position.
        end: u32,
    },
    /// The same text with the length of each token in it. Answered by [`Event::Pieces`], also while it generates.
    Pieces {
        /// The conversation.
        session: SessionId,
        /// First position.
        start: u32,
        /// One past the last position.
        end: u32,
    },
    /// What each layer holds of the conversation. Answered by [`Event::Accepted`]; an [`Event::Layers`] follows once
    /// the cache can be looked at, also while it generates.
    Layers {
        /// The conversation.
        session: SessionId,
        /// Into how many parts of equal length the positions are to be gathered.
        bins: u32,
    },
    /// Forgets a session and gives its memory back. Answered by [`Event::Accepted`].
    Close {
        /// The conversation.
        session: SessionId,
    },
    /// Ends the process once the current token is done.
    Shutdown,
}

/// One message from the worker to the shell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The command this answers, or `null` for progress.
    pub re: Option<u64>,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What the worker reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The worker is up.
    Hello {
        /// [`VERSION`] of the worker.
        version: u32,
        /// The device that models will be opened on.
        device: Device,
    },
    /// The model's file is being read.
    ModelLoading {
        /// Share read so far, 0 to 1.
        fraction: f32,
    },
    /// The model is ready.
    ModelLoaded {
        /// What it is.
        model: ModelInfo,
    },
    /// The model's memory has been given back.
    ModelUnloaded,
    /// The answer to [`Request::Count`].
    Counted {
        /// Tokens of each text, in order.
        counts: Vec<u32>,
    },
    /// The command was taken.
    Accepted,
    /// The answer to [`Request::TextAt`].
    Text {
        /// The text of the tokens asked for.
        text: String,
    },
    /// The answer to [`Request::Pieces`].
    Pieces {
        /// The text of the tokens asked for.
        text: String,
        /// UTF-16 units that each token adds to it; a token that ends inside a character adds none.
        lengths: Vec<u16>,
    },
    /// What each layer holds of the conversation.
    Layers {
        /// The conversation.
        session: SessionId,
        /// Positions that the bins divide: bin `b` begins at `⌈b × n_seen ÷ bins⌉`.
        n_seen: u32,
        /// Layers of the model.
        layers: u32,
        /// Bins of each layer.
        bins: u32,
        /// Base64 of one byte for each bin of each layer, layer by layer: 0 holds nothing of it, 255 all in every
        /// KV head.
        shares: String,
    },
    /// What the positions of a session stand for; sent before prefill and again when an answer ends.
    Layout {
        /// The conversation.
        session: SessionId,
        /// Tokens of the whole conversation.
        n_tokens: u32,
        /// Tokens whose entries were already there, so that they need no prefill.
        reused: u32,
        /// Neighbouring ranges that cover `0..n_tokens`.
        spans: Vec<Span>,
    },
    /// New tokens are being read.
    Prefill {
        /// The conversation.
        session: SessionId,
        /// New tokens read.
        done: u32,
        /// New tokens in all.
        total: u32,
        /// Measured speed, tokens a second.
        tok_s: f32,
        /// Seconds left at that speed; `null` until it is known.
        remaining_s: Option<f32>,
        /// How they are read; never `auto`.
        mode: PrefillMode,
    },
    /// More of the answer.
    Token {
        /// The conversation.
        session: SessionId,
        /// Text to append.
        text: String,
        /// Tokens of the answer so far.
        generated: u32,
        /// Measured speed, tokens a second.
        tok_s: f32,
    },
    /// The state of a session's cache; only what changed since the last one.
    Cache {
        /// The conversation.
        session: SessionId,
        /// Counters.
        state: CacheState,
        /// Kept fractions that changed, oldest position first.
        kept: Vec<KeptPatch>,
        /// All positions of which not even the store holds anything: `[start, end)`, ascending.
        forgotten: Vec<(u32, u32)>,
        /// All pinned positions: `[start, end)`, ascending.
        pinned: Vec<(u32, u32)>,
    },
    /// Something that was asked for could not be done, or was done with less or more memory; a running turn goes on.
    Notice {
        /// The conversation.
        session: SessionId,
        /// Stable, for the window to act on.
        code: String,
        /// One sentence: what happened and what to do.
        message: String,
    },
    /// What came back from the store: for the question before the answer begins, and again where the answer missed
    /// much of what was not there.
    Recalled {
        /// The conversation.
        session: SessionId,
        /// Where it stands, most first.
        passages: Vec<Recalled>,
    },
    /// The answer is complete.
    Finished {
        /// The conversation.
        session: SessionId,
        /// Why it ended.
        reason: FinishReason,
        /// What it took.
        stats: TurnStats,
    },
    /// Memory of the worker; about once a second while it works, and after each load or unload.
    Memory {
        /// The figures.
        memory: WorkerMemory,
    },
    /// A command or a running turn failed.
    Failed {
        /// The conversation, where there is one.
        session: Option<SessionId>,
        /// Stable, for the window to act on.
        code: String,
        /// One sentence: what happened and what to do.
        message: String,
    },
}

/// Where a model computes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct Device {
    /// `cpu`, `cuda` or `metal`.
    pub kind: String,
    /// For people, for example "CPU, 8 threads".
    pub name: String,
}

/// An open model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct ModelInfo {
    /// From the metadata, or the file's name.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// `general.architecture`.
    pub architecture: String,
    /// For example `Q4_1`.
    pub quantization: String,
    /// Number of weights.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub parameters: u64,
    /// Bytes of the weights on the device.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub weight_bytes: u64,
    /// Trained context in tokens.
    pub context: u32,
    /// Layers.
    pub layers: u32,
    /// KV heads per layer.
    pub kv_heads: u32,
    /// Bytes of one budget token: K and V of every layer and KV head.
    pub kv_bytes_per_token: u32,
    /// The device it computes on.
    pub device: Device,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What was said.
    pub text: String,
    /// Documents that stand before the text.
    #[serde(default)]
    pub documents: Vec<Document>,
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions for the model.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// The text of an attached document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct Document {
    /// Shown to the person and to the model.
    pub name: String,
    /// Page by page; one for a text without pages.
    pub pages: Vec<String>,
}

/// What a range of positions stands for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct Span {
    /// First position.
    pub start: u32,
    /// One past the last position.
    pub end: u32,
    /// Index into the messages of the conversation; `null` for what the template adds around them.
    pub message: Option<u32>,
    /// What it is.
    pub kind: SpanKind,
}

/// See [`Span`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SpanKind {
    /// Control tokens and wording of the chat template.
    Template,
    /// The text of a message.
    Text {
        /// Whose.
        role: Role,
    },
    /// One page of a document.
    Page {
        /// Index into the message's documents.
        document: u32,
        /// Page, counted from 1.
        page: u32,
    },
}

/// Some tokens of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Passage {
    /// By their positions.
    Range {
        /// First position.
        start: u32,
        /// One past the last position.
        end: u32,
    },
    /// The first place where they spell this.
    Text {
        /// As it reads in the conversation.
        text: String,
    },
}

/// How a session's cache behaves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(default)]
pub struct CacheOptions {
    /// What decides which entries stay.
    pub policy: PolicyName,
    /// Entries per layer and KV head after eviction; `null` follows the free memory.
    pub budget: Option<u32>,
    /// First positions that are never evicted.
    pub sinks: u32,
    /// Last positions that are never evicted; `null` goes by `recent_share`.
    pub recent: Option<u32>,
    /// The same as a share of the budget, 0 to 1; `null` takes the policy's own.
    pub recent_share: Option<f32>,
    /// Tokens that pass through the layers at once during prefill.
    pub chunk: u32,
    /// Entries that decode appends before it evicts them at once.
    pub evict_every: u32,
    /// How entries are held, in the hot cache and in the store.
    pub kv: KvType,
    /// How a prompt passes through the layers.
    pub prefill: PrefillMode,
    /// Whether each question brings entries back from the store.
    pub recall: bool,
    /// Share of the budget that a question may fill from the store, 0 to 1; what is pinned, first or recent
    /// comes before it.
    pub recall_share: f32,
    /// Recalls anew after this many generated tokens; `null` never does.
    pub recall_every: Option<u32>,
    /// Whether an answer is watched while it is written, and recalls anew where it needs what is only in the store.
    #[serde(default = "yes")]
    pub guard: bool,
    /// Bytes of host memory for the store of all entries; 0 keeps none, `null` takes half of the free memory.
    #[cfg_attr(feature = "ts", ts(type = "number | null"))]
    pub store_limit: Option<u64>,
}

fn yes() -> bool {
    true
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            policy: PolicyName::H2o,
            budget: None,
            sinks: 4,
            recent: None,
            recent_share: None,
            chunk: 512,
            evict_every: 64,
            kv: KvType::F16,
            prefill: PrefillMode::Auto,
            recall: true,
            recall_share: 0.5,
            recall_every: None,
            guard: true,
            store_limit: None,
        }
    }
}

impl CacheOptions {
    /// Last positions that are never evicted at this budget, where the options say.
    pub fn recent_at(&self, budget: u32) -> Option<u32> {
        self.recent.or_else(|| self.recent_share.map(|share| (f64::from(share) * f64::from(budget)) as u32))
    }
}

/// What a cache is set up for. The one place where the defaults of each task stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Talk: what got attention so far stays.
    #[default]
    Conversation,
    /// Many questions about long texts: what any question may need stays.
    Document,
    /// Code: much of what was written last stays, since the next line builds on it.
    Code,
}

impl Preset {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Conversation, Self::Document, Self::Code];

    /// As the command line spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Conversation => "conversation",
            Self::Document => "document",
            Self::Code => "code",
        }
    }

    /// The options that it stands for.
    pub fn options(self) -> CacheOptions {
        let common = CacheOptions::default();
        match self {
            Self::Conversation => common,
            Self::Document => CacheOptions { policy: PolicyName::Expected, ..common },
            Self::Code => CacheOptions { recent_share: Some(0.75), recall_share: 0.25, ..common },
        }
    }
}

/// The policies, by the names of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// Keeps everything: the baseline.
    Full,
    /// Sinks and the most recent (StreamingLLM, arXiv 2309.17453).
    Window,
    /// Heavy hitters by mean attention, with sinks and recent (arXiv 2306.14048 without its length bias).
    #[default]
    H2o,
    /// Heavy hitters by raw accumulated attention, as published in arXiv 2306.14048.
    H2oPaper,
    /// What the last query attends to (arXiv 2401.06104).
    Tova,
    /// What the last 32 tokens of the prompt attend to (arXiv 2404.14469); then like [`PolicyName::H2o`].
    #[serde(rename = "snapkv")]
    SnapKv,
    /// [`PolicyName::SnapKv`] with more room in the lower layers (arXiv 2406.02069).
    #[serde(rename = "pyramidkv")]
    PyramidKv,
    /// What queries like those so far can be expected to attend to (arXiv 2510.00636).
    Expected,
    /// What the model attends to when it repeats the text (arXiv 2505.23416).
    #[serde(rename = "kvzip")]
    KvZip,
    /// Chance: the control that the others are compared with.
    Random,
}

impl PolicyName {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Full,
        Self::Window,
        Self::H2o,
        Self::H2oPaper,
        Self::Tova,
        Self::SnapKv,
        Self::PyramidKv,
        Self::Expected,
        Self::KvZip,
        Self::Random,
    ];

    /// As the command line spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Window => "window",
            Self::H2o => "h2o",
            Self::H2oPaper => "h2o-paper",
            Self::Tova => "tova",
            Self::SnapKv => "snapkv",
            Self::PyramidKv => "pyramidkv",
            Self::Expected => "expected",
            Self::KvZip => "kvzip",
            Self::Random => "random",
        }
    }
}

/// How a prompt passes through the layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum PrefillMode {
    /// Exact where one layer's entries and the hidden states fit the free memory, otherwise streaming.
    #[default]
    Auto,
    /// Layer by layer: as if everything had been kept and then compressed once.
    Exact,
    /// Chunk by chunk, with eviction after each: bounded memory for any length, an approximation.
    Streaming,
}

/// How entries are held in the hot cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum KvType {
    /// Two bytes a number.
    #[default]
    F16,
    /// Four bytes a number.
    F32,
    /// 8 bits a number and a scale for every 32, as GGML's Q8_0.
    Q8_0,
}

/// How tokens are chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(default)]
pub struct Sampling {
    /// 0 always takes the likeliest token.
    pub temperature: f32,
    /// Only the likeliest tokens that together reach this probability; 1 is off.
    pub top_p: f32,
    /// Only this many of the likeliest tokens; 0 is off.
    pub top_k: u32,
    /// Only tokens at least this share as likely as the likeliest; 0 is off.
    pub min_p: f32,
    /// Divides the logits of tokens among the last 64; 1 is off.
    pub repetition_penalty: f32,
    /// The same seed gives the same answer.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.7, top_p: 0.95, top_k: 40, min_p: 0.05, repetition_penalty: 1.0, seed: 0 }
    }
}

/// Counters of a session's cache. Bytes are those of the buffers themselves.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct CacheState {
    /// Tokens of the conversation that have been through the model.
    pub n_seen: u32,
    /// The budget in force, in tokens (resolved, where it follows the free memory).
    pub budget: u32,
    /// Whether it follows the free memory.
    pub auto: bool,
    /// Entries per layer and KV head now.
    pub hot_entries: u32,
    /// Bytes of the hot cache's entries now.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub hot_bytes: u64,
    /// Most bytes that the hot cache ever allocated in this session.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub hot_peak_bytes: u64,
    /// Bytes that a cache of everything would need.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub full_bytes: u64,
    /// Mean kept fraction over all positions, 0 to 1.
    pub kept: f32,
    /// Whether the chat is longer than the trained context, so that kept entries had to be moved together.
    pub past_context: bool,
    /// Bytes of the store in host memory now.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub store_bytes: u64,
    /// Bytes that it may take; 0 where there is none.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub store_limit: u64,
    /// Tokens that are pinned.
    pub pinned: u32,
}

/// A passage that a question brought back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct Recalled {
    /// First position.
    pub start: u32,
    /// One past the last position.
    pub end: u32,
    /// Entries of it that came back, over all layers and KV heads.
    pub entries: u32,
}

/// Kept fractions of neighbouring positions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct KeptPatch {
    /// First position.
    pub start: u32,
    /// Base64 of one byte a position: 0 is evicted everywhere, 255 kept in every layer and KV head.
    pub values: String,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model ended it.
    Eos,
    /// `max_tokens` was reached.
    Length,
    /// The person stopped it.
    Stopped,
}

/// What a turn took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct TurnStats {
    /// New tokens that were prefilled.
    pub prefilled: u32,
    /// Seconds of prefill.
    pub prefill_s: f32,
    /// Seconds of it that recall took.
    pub recall_s: f32,
    /// Times that entries came back while the answer was written, because it missed them.
    #[serde(default)]
    pub looked_again: u32,
    /// Seconds from the command to the first token.
    pub ttft_s: f32,
    /// Tokens of the answer.
    pub generated: u32,
    /// Tokens a second while generating.
    pub tok_s: f32,
}

/// Memory of the worker, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
pub struct WorkerMemory {
    /// Weights on the device.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub weights: u64,
    /// Hot caches of all sessions.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub kv_hot: u64,
    /// Stores of all sessions, in host memory.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub kv_store: u64,
    /// Resident memory of the process; `null` where it cannot be read.
    #[cfg_attr(feature = "ts", ts(type = "number | null"))]
    pub rss: Option<u64>,
}

/// Writes one frame and flushes it.
///
/// # Errors
/// When the other side is gone.
pub fn write_frame<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let len = u32::try_from(body.len()).map_err(|_| io::Error::other("a frame of 4 GiB or more"))?;
    to.write_all(&len.to_le_bytes())?;
    to.write_all(&body)?;
    to.flush()
}

/// Reads one frame; `None` when the other side closed the pipe between two frames.
///
/// # Errors
/// When the pipe breaks inside a frame, or what comes is not a frame.
pub fn read_frame<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut len = [0; 4];
    match from.read(&mut len)? {
        0 => return Ok(None),
        n => from.read_exact(&mut len[n..])?,
    }
    let len = u32::from_le_bytes(len) as usize;
    if len > MAX_FRAME {
        return Err(io::Error::other(format!("a frame of {len} bytes is larger than any that Cistern writes")));
    }
    // Grown as bytes arrive, so that a wrong length does not take the memory it names.
    let mut body = Vec::new();
    from.take(len as u64).read_to_end(&mut body)?;
    if body.len() < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(serde_json::from_slice(&body)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_the_pipe_and_a_cut_one_is_an_error() {
        let command = Command { id: 7, request: Request::Count { texts: vec!["é".into()] } };
        let mut pipe = Vec::new();
        write_frame(&mut pipe, &command).unwrap();
        write_frame(&mut pipe, &Report { re: Some(7), event: Event::Counted { counts: vec![1] } }).unwrap();
        let mut from = pipe.as_slice();
        assert_eq!(read_frame(&mut from).unwrap(), Some(command));
        assert_eq!(read_frame::<Report>(&mut from).unwrap().unwrap().re, Some(7));
        assert_eq!(read_frame::<Report>(&mut from).unwrap(), None);
        assert!(read_frame::<Report>(&mut &pipe[..9]).is_err());
    }
}
