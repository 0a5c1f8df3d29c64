//! GGUF file to tokens, with a KV cache that stays inside a fixed budget.
//!
//! Knows nothing of Tauri, windows, SQL or the network.

pub mod attention;
pub mod cache;
pub mod context;
pub mod cpu;
pub mod device;
pub mod error;
pub mod footprint;
pub mod gguf;
pub mod guard;
pub mod leash;
mod math;
pub mod memory;
pub mod model;
pub mod prompt;
pub mod protocol;
pub mod relief;
pub mod sampler;
pub mod session;
mod simd;
pub mod tokenizer;
