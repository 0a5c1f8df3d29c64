//! What the model holds of chats, on the disk.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// Caches of chats that are kept on the disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct SnapshotUse {
    /// Chats that have one.
    pub chats: u32,
    /// What they take.
    #[ts(type = "number")]
    pub bytes: u64,
    /// What they may take; 0 keeps none.
    #[ts(type = "number")]
    pub limit: u64,
}

/// What is being done with a chat's file; a question in that chat waits for its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotWork {
    /// What the model held of the chat is being read.
    Restoring,
    /// What it holds is being written.
    Saving,
}
