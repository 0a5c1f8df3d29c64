//! One decoder for the llama family, told by the metadata what it is.

mod config;
mod formats;
mod linear;
pub(crate) mod mapped;
mod matmul;
mod packed;
mod rope;

use std::path::Path;
use std::sync::Arc;

use candle_core::{Device, Tensor};

pub use config::{ARCHITECTURES, Config};
pub use linear::Linear;
pub use rope::Rope;

use crate::cache::bytes_per_token;
use crate::device;
use crate::error::Result;
use crate::gguf::Gguf;
use crate::prompt::Prompt;
use crate::protocol::{KvType, ModelInfo};
use crate::tokenizer::Tokenizer;

/// What a layer's queries attend to. The decoder hands over each layer's new keys and values and gets the
/// attention's output back; where they are kept, and for how long, is not its business.
pub trait Attend {
    /// `q` is `[heads, n, head_dim]`, `k` and `v` `[kv_heads, n, head_dim]`, all f32, rotated and contiguous;
    /// the result is `[n, heads * head_dim]`.
    ///
    /// # Errors
    /// When the device fails, or the caller asked to stop.
    fn attend(&mut self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor>;
}

/// An RMS norm's weights, `[width]`.
struct Norm {
    weight: Tensor,
    eps: f32,
}

impl Norm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(candle_nn::ops::rms_norm(&x.contiguous()?, &self.weight, self.eps)?)
    }
}

struct Layer {
    attention_norm: Norm,
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
    /// Norms of each head's queries and keys (qwen3).
    qk_norm: Option<(Norm, Norm)>,
    ff_norm: Norm,
    gate: Linear,
    up: Linear,
    down: Linear,
}

impl Layer {
    fn linears(&self) -> [&Linear; 7] {
        [&self.q, &self.k, &self.v, &self.out, &self.gate, &self.up, &self.down]
    }
}

/// An open model: weights on a device, tokenizer and chat template.
pub struct Model {
    /// Its shape.
    pub config: Config,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Its chat template.
    pub prompt: Prompt,
    /// Name from the metadata, or the file's.
    pub name: String,
    /// For example `Q4_1` or `Q4_K_M`.
    pub quantization: String,
    /// Number of weights.
    pub parameters: u64,
    /// Bytes of the weights on the device.
    pub weight_bytes: u64,
    /// Tells this file from every other: SHA-256 of its header, size and samples of its weights.
    pub fingerprint: String,
    device: Device,
    rope: Rope,
    embedding: Arc<candle_core::quantized::QTensor>,
    layers: Vec<Layer>,
    norm: Norm,
    head: Linear,
}

impl Model {
    /// Opens the GGUF file at `path` on `device`; `progress` hears the share read so far, 0 to 1.
    ///
    /// # Errors
    /// One sentence for anything that the file or the device can get wrong.
    pub fn open(path: &Path, device: &Device, progress: &mut dyn FnMut(f32)) -> Result<Self> {
        let mut gguf = Gguf::open(path)?;
        let config = Config::read(&gguf)?;
        let tokenizer = Tokenizer::from_gguf(gguf.metadata())?;
        let prompt = Prompt::from_gguf(gguf.metadata(), &tokenizer)?;
        let rope = Rope::read(&mut gguf, &config)?;

        let (width, kv_width) = (config.width, config.kv_heads * config.head_dim);
        let embedding = Arc::new(gguf.tensor("token_embd.weight", &[config.vocab, width], device)?);
        let mut read = Reader { gguf: &mut gguf, device, eps: config.rms_eps };
        // Grown as they are found: the metadata may tell of more than the file holds.
        let mut layers = Vec::new();
        for i in 0..config.layers {
            progress(i as f32 / config.layers as f32);
            let name = |part: &str| format!("blk.{i}.{part}");
            let q_width = config.heads * config.head_dim;
            let qk_norm = match read.gguf.has(&name("attn_q_norm.weight")) {
                true => Some((
                    read.norm(&name("attn_q_norm"), config.head_dim)?,
                    read.norm(&name("attn_k_norm"), config.head_dim)?,
                )),
                false => None,
            };
            layers.push(Layer {
                attention_norm: read.norm(&name("attn_norm"), width)?,
                q: read.linear(&name("attn_q"), q_width, width)?,
                k: read.linear(&name("attn_k"), kv_width, width)?,
                v: read.linear(&name("attn_v"), kv_width, width)?,
                out: read.linear(&name("attn_output"), width, q_width)?,
                qk_norm,
                ff_norm: read.norm(&name("ffn_norm"), width)?,
                gate: read.linear(&name("ffn_gate"), config.ff_width, width)?,
                up: read.linear(&name("ffn_up"), config.ff_width, width)?,
                down: read.linear(&name("ffn_down"), width, config.ff_width)?,
            });
        }
        let norm = read.norm("output_norm", width)?;
        let tied = !read.gguf.has("output.weight");
        let head = match tied {
            true => Linear::new(embedding.clone(), None)?,
            false => read.linear("output", config.vocab, width)?,
        };
        progress(1.0);

        let weight_bytes = embedding.storage_size_in_bytes()
            + if tied { 0 } else { head.bytes() }
            + layers.iter().flat_map(Layer::linears).map(Linear::bytes).sum::<usize>();
        let file_name = || path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        Ok(Self {
            name: gguf.opt_str("general.name").map_or_else(file_name, str::to_owned),
            quantization: gguf.quantization(),
            parameters: gguf.parameters(),
            weight_bytes: weight_bytes as u64,
            fingerprint: gguf.fingerprint()?,
            device: device.clone(),
            config,
            tokenizer,
            prompt,
            rope,
            embedding,
            layers,
            norm,
            head,
        })
    }

    /// What the window shows of it.
    pub fn info(&self, path: &Path) -> ModelInfo {
        ModelInfo {
            name: self.name.clone(),
            path: path.to_owned(),
            architecture: self.config.architecture.clone(),
            quantization: self.quantization.clone(),
            parameters: self.parameters,
            weight_bytes: self.weight_bytes,
            context: self.config.context,
            layers: self.config.layers as u32,
            kv_heads: self.config.kv_heads as u32,
            kv_bytes_per_token: bytes_per_token(&self.config, KvType::default()) as u32,
            device: device::describe(&self.device),
        }
    }

    /// Bytes of the weights that every token reads.
    pub fn step_bytes(&self) -> u64 {
        (self.layers.iter().flat_map(Layer::linears).chain([&self.head]).map(Linear::bytes).sum::<usize>()) as u64
    }

    /// Where it computes.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The angles that keys are stored with.
    pub fn rope(&self) -> &Rope {
        &self.rope
    }

    /// Passes `ids`, rotated for positions from `start`, through all layers and returns the hidden states, `[n, width]`.
    ///
    /// # Errors
    /// When the device fails, or `cache` says to stop.
    pub fn forward(&self, ids: &[u32], start: u32, cache: &mut dyn Attend) -> Result<Tensor> {
        let mut x = self.embed(ids)?;
        let angles = self.rope.tables(start, ids.len(), &self.device)?;
        for i in 0..self.layers.len() {
            x = self.layer(i, &x, &angles, cache)?;
        }
        Ok(x)
    }

    /// The embeddings of `ids`, `[n, width]`.
    ///
    /// # Errors
    /// When the device fails.
    pub fn embed(&self, ids: &[u32]) -> Result<Tensor> {
        Ok(self.embedding.embedding(&Tensor::new(ids, &self.device)?)?)
    }

    /// One layer: `x` is `[n, width]`, and so is the result.
    ///
    /// # Errors
    /// When the device fails, or `cache` says to stop.
    pub fn layer(&self, i: usize, x: &Tensor, angles: &(Tensor, Tensor), cache: &mut dyn Attend) -> Result<Tensor> {
        let layer = &self.layers[i];
        let h = layer.attention_norm.forward(x)?;
        let [q, k, v] = Linear::together([&layer.q, &layer.k, &layer.v], &h)?;
        let (mut q, mut k, v) = (self.heads(&q)?, self.heads(&k)?, self.heads(&v)?);
        if let Some((q_norm, k_norm)) = &layer.qk_norm {
            (q, k) = (q_norm.forward(&q)?, k_norm.forward(&k)?);
        }
        let q = self.rope.rotate(&q, angles)?;
        let k = self.rope.rotate(&k, angles)?;
        let attended = cache.attend(i, &q, &k, &v)?;
        let x = layer.out.forward_onto(&attended, x)?;

        let h = layer.ff_norm.forward(&x)?;
        layer.down.forward_onto(&Linear::gated(&layer.gate, &layer.up, &h)?, &x)
    }

    /// The logits of the last of the hidden states, `[vocab]`, f32.
    ///
    /// # Errors
    /// When the device fails.
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let last = hidden.narrow(0, hidden.dim(0)? - 1, 1)?;
        Ok(self.head.forward(&self.norm.forward(&last)?)?.squeeze(0)?)
    }

    /// `[n, heads * head_dim]` to `[heads, n, head_dim]`.
    fn heads(&self, x: &Tensor) -> Result<Tensor> {
        let (n, width) = x.dims2()?;
        let heads = width / self.config.head_dim;
        Ok(x.reshape((n, heads, self.config.head_dim))?.transpose(0, 1)?.contiguous()?)
    }
}

/// Reads the parts of a layer.
struct Reader<'a> {
    gguf: &'a mut Gguf,
    device: &'a Device,
    eps: f32,
}

impl Reader<'_> {
    fn norm(&mut self, name: &str, width: usize) -> Result<Norm> {
        let weight = self.gguf.tensor(&format!("{name}.weight"), &[width], self.device)?;
        Ok(Norm { weight: weight.dequantize(self.device)?, eps: self.eps })
    }

    fn linear(&mut self, name: &str, n_out: usize, n_in: usize) -> Result<Linear> {
        let weight = self.gguf.tensor(&format!("{name}.weight"), &[n_out, n_in], self.device)?;
        let bias = format!("{name}.bias");
        let bias = match self.gguf.has(&bias) {
            true => Some(self.gguf.tensor(&bias, &[n_out], self.device)?.dequantize(self.device)?),
            false => None,
        };
        Linear::new(Arc::new(weight), bias)
    }
}
