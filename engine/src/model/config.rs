//! The shape of a decoder, as the metadata tells it.

use crate::attention::ops;
use crate::error::{Error, Result};
use crate::gguf::Gguf;

/// `general.architecture` values that the decoder runs: one family with small differences.
pub const ARCHITECTURES: [&str; 3] = ["llama", "qwen2", "qwen3"];

/// Sizes and constants of a decoder of the llama family.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `general.architecture`.
    pub architecture: String,
    /// Decoder layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Width of the feed-forward layer.
    pub ff_width: usize,
    /// Query heads.
    pub heads: usize,
    /// KV heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Trained context in tokens.
    pub context: u32,
    /// Epsilon of every RMS norm.
    pub rms_eps: f32,
    /// Tokens of the vocabulary.
    pub vocab: usize,
}

impl Config {
    /// Bytes that `n` tokens take on their way through a layer that holds `len` entries of each KV head.
    pub fn pass_bytes(&self, n: usize, len: usize) -> u64 {
        let rows = 4 * self.width + 3 * self.ff_width + 2 * (self.heads + 2 * self.kv_heads) * self.head_dim;
        let scores = (self.heads * n * len * size_of::<f32>()).min(ops::BLOCK_BYTES);
        (n * rows * size_of::<f32>() + 2 * scores) as u64
    }

    /// Reads the metadata.
    ///
    /// # Errors
    /// [`Error::Architecture`] or [`Error::Unsupported`] where the decoder cannot run this model,
    /// [`Error::NotGguf`] where the metadata lacks something or makes no sense.
    pub fn read(gguf: &Gguf) -> Result<Self> {
        let not_gguf = |reason: &str| Error::NotGguf { path: gguf.path().to_owned(), reason: reason.into() };
        let architecture =
            gguf.opt_str("general.architecture").ok_or_else(|| not_gguf("it names no architecture"))?.to_owned();
        if !ARCHITECTURES.contains(&architecture.as_str()) {
            return Err(Error::Architecture(architecture));
        }
        let key = |name: &str| format!("{architecture}.{name}");
        if gguf.opt_u32(&key("expert_count")).is_some_and(|n| n > 0) {
            return Err(Error::Unsupported("it is a mixture of experts".into()));
        }
        let size = |name: &str| -> Result<usize> {
            match gguf.u32(&key(name))? {
                0 => Err(not_gguf(&format!("{} is 0", key(name)))),
                n => Ok(n as usize),
            }
        };
        let width = size("embedding_length")?;
        let heads = size("attention.head_count")?;
        let kv_heads = gguf.opt_u32(&key("attention.head_count_kv")).map_or(heads, |n| n as usize);
        let head_dim = gguf.opt_u32(&key("attention.key_length")).map_or(width / heads, |n| n as usize);
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) || head_dim == 0 || !head_dim.is_multiple_of(2) {
            return Err(not_gguf(&format!("{heads} heads of width {head_dim} cannot share {kv_heads} KV heads")));
        }
        // What follows takes memory by these sizes: the weights, which lie within the file, must bear them out.
        if gguf.shape("blk.0.attn_q.weight") != Some(&[heads * head_dim, width][..]) {
            return Err(not_gguf("its weights are not of the size that its metadata tells"));
        }
        if gguf.opt_u32(&key("attention.value_length")).is_some_and(|n| n as usize != head_dim) {
            return Err(Error::Unsupported("its keys and values differ in width".into()));
        }
        if gguf.opt_u32(&key("rope.dimension_count")).is_some_and(|n| n as usize != head_dim) {
            return Err(Error::Unsupported("it rotates only a part of each head".into()));
        }
        let vocab = match gguf.metadata().get("tokenizer.ggml.tokens").map(|tokens| tokens.to_vec()) {
            Some(Ok(tokens)) => tokens.len(),
            _ => return Err(not_gguf("it holds no vocabulary")),
        };
        Ok(Self {
            layers: size("block_count")?,
            width,
            ff_width: size("feed_forward_length")?,
            heads,
            kv_heads,
            head_dim,
            context: size("context_length")? as u32,
            rms_eps: gguf.opt_f32(&key("attention.layer_norm_rms_epsilon")).unwrap_or(1e-5),
            vocab,
            architecture,
        })
    }

    /// Query heads that share one KV head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }
}
