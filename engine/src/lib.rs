//! GGUF file to tokens, with a KV cache that stays inside a fixed budget.
//!
//! Knows nothing of Tauri, windows, SQL or the network.

pub mod protocol;
