//! One question answered under several caches.

use engine::protocol::{CacheOptions, CacheState, FinishReason, TurnStats};
use serde::{Deserialize, Serialize};
use ts_rs::TS;

use super::{ApiError, Attachment};

/// What is to be compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct CompareRequest {
    /// The chat whose history stands before the question; `null` begins without one.
    pub chat: Option<String>,
    /// System prompt of a new chat, as its first question would take it; a chat has its own.
    pub system: String,
    /// Whether the chat's last question is asked again, with what stood before it; `text` is then only shown.
    pub again: bool,
    /// What is asked.
    pub text: String,
    /// New documents, which stand before the question.
    pub documents: Vec<Attachment>,
    /// How the cache behaves in each column, two or three.
    pub columns: Vec<CacheOptions>,
    /// As in the chat; everything else about the choice of tokens is greedy.
    pub repetition_penalty: f32,
    /// Each answer ends here at the latest.
    pub max_tokens: u32,
}

/// A comparison that has begun. Its columns are answered one after the other; each is a session of the worker,
/// whose events arrive as any other's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct CompareStarted {
    /// Its name.
    pub id: String,
    /// The sessions of the columns, in their order.
    pub sessions: Vec<String>,
}

/// A comparison as it came out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct Comparison {
    /// What was asked.
    pub question: String,
    /// The model that answered.
    pub model: String,
    /// When it was asked, in milliseconds since 1970.
    #[ts(type = "number")]
    pub asked_ms: i64,
    /// In the order they were asked for.
    pub columns: Vec<ComparedColumn>,
}

/// One answer of a [`Comparison`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct ComparedColumn {
    /// How its cache behaved.
    pub options: CacheOptions,
    /// The answer.
    pub text: String,
    /// Why it ended; `null` where it failed.
    pub finish: Option<FinishReason>,
    /// What it took; `null` where it did not end by itself.
    pub stats: Option<TurnStats>,
    /// The cache at its end, measured; `null` where nothing was read.
    pub cache: Option<CacheState>,
    /// Why it failed, where it did.
    pub problem: Option<ApiError>,
}
