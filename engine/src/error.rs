//! What can go wrong between a file and its tokens.

use std::path::PathBuf;

use crate::memory::Site;
use crate::prompt::PromptError;
use crate::tokenizer::TokenizerError;

/// The result of this crate's operations.
pub type Result<T> = std::result::Result<T, Error>;

/// Every message is one sentence that says what happened and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be opened or read.
    #[error("{} could not be read ({source}); check that the file is there and that you may read it.", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not a GGUF, or a damaged one.
    #[error("{} is not a complete GGUF file ({reason}); download it again.", path.display())]
    NotGguf {
        /// The file.
        path: PathBuf,
        /// What does not hold.
        reason: String,
    },
    /// An architecture that the decoder does not know.
    #[error(
        "The architecture \"{0}\" is not supported; choose a model of one of these: {list}.",
        list = crate::model::ARCHITECTURES.join(", ")
    )]
    Architecture(String),
    /// A feature of the model that the decoder does not have.
    #[error("This model cannot be opened: {0}; choose another model of the llama, qwen2 or qwen3 family.")]
    Unsupported(String),
    /// A quantization that the decoder does not know.
    #[error(
        "The quantization of {tensor} (GGML type {dtype}) is not supported; choose a file in F32, F16, BF16, Q4_0 to Q8_0 or Q2_K to Q6_K."
    )]
    Quantization {
        /// The tensor.
        tensor: String,
        /// GGML's name or number of its type.
        dtype: String,
    },
    /// The tokenizer cannot be built.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The chat template cannot be rendered.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// An option that cannot work.
    #[error("{0}")]
    Options(String),
    /// There is too little memory, on the device or beside it.
    #[error("There is too little memory ({text}); lower the budget, or close other programs that use it.")]
    OutOfMemory {
        /// What the device said, or how much is missing.
        text: String,
        /// What it was for, where we asked before we took it.
        site: Option<Site>,
    },
    /// A computation failed on the device.
    #[error("The computation failed ({0}); load the model again.")]
    Compute(candle_core::Error),
    /// Everything is kept, and the trained context is full.
    #[error(
        "The chat fills the {0} tokens that the model was trained for, and the policy \"full\" keeps them all; choose h2o or window to go on."
    )]
    ContextFull(u32),
    /// A position outside of what the session holds.
    #[error("Positions {start} to {end} are outside of this chat, which holds {n_seen} tokens.")]
    Range {
        /// First position asked for.
        start: u32,
        /// One past the last.
        end: u32,
        /// Tokens of the chat.
        n_seen: u32,
    },
    /// A snapshot that cannot be used.
    #[error("The saved state {} cannot be used ({reason}); the chat's text is read again instead.", path.display())]
    Snapshot {
        /// The file.
        path: PathBuf,
        /// What does not hold.
        reason: String,
    },
    /// The person stopped it.
    #[error("Stopped.")]
    Stopped,
    /// Nothing to answer.
    #[error("There is nothing to answer; write a question first.")]
    Empty,
}

impl Error {
    /// A stable name for programs to act on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Read { .. } => "model_read",
            Self::NotGguf { .. } => "not_gguf",
            Self::Architecture(_) => "architecture",
            Self::Unsupported(_) => "unsupported_model",
            Self::Quantization { .. } => "quantization",
            Self::Tokenizer(_) => "tokenizer",
            Self::Prompt(_) => "prompt",
            Self::Options(_) => "options",
            Self::OutOfMemory { .. } => "out_of_memory",
            Self::Compute(_) => "compute",
            Self::ContextFull(_) => "context_full",
            Self::Range { .. } => "range",
            Self::Snapshot { .. } => "snapshot",
            Self::Stopped => "stopped",
            Self::Empty => "empty",
        }
    }
}

impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        // CUDA and Metal report this as text only.
        let text = error.to_string();
        if text.contains("OUT_OF_MEMORY") || text.contains("out of memory") {
            Self::OutOfMemory { text: text.lines().next().unwrap_or_default().to_owned(), site: None }
        } else {
            Self::Compute(error)
        }
    }
}
