//! A whole model in some 30 KB, for tests that break it.

/// The parts of a GGUF file, in the order in which they are written.
pub struct Gguf {
    keys: Vec<Vec<u8>>,
    tensors: Vec<(String, Vec<u64>, u32, Vec<u8>)>,
}

const U32: u32 = 4;
const F32: u32 = 6;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const LIST: u32 = 9;

/// Types of tensors.
const DENSE: u32 = 0;
const Q8_0: u32 = 8;

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

impl Gguf {
    pub fn new() -> Self {
        Self { keys: Vec::new(), tensors: Vec::new() }
    }

    fn key(&mut self, name: &str, kind: u32, value: &[u8]) -> &mut Self {
        let mut bytes = Vec::new();
        text(&mut bytes, name);
        bytes.extend(kind.to_le_bytes());
        bytes.extend(value);
        self.keys.push(bytes);
        self
    }

    pub fn u32(&mut self, name: &str, value: u32) -> &mut Self {
        self.key(name, U32, &value.to_le_bytes())
    }

    pub fn f32(&mut self, name: &str, value: f32) -> &mut Self {
        self.key(name, F32, &value.to_le_bytes())
    }

    pub fn flag(&mut self, name: &str, value: bool) -> &mut Self {
        self.key(name, BOOL, &[u8::from(value)])
    }

    pub fn text(&mut self, name: &str, value: &str) -> &mut Self {
        let mut bytes = Vec::new();
        text(&mut bytes, value);
        self.key(name, STRING, &bytes)
    }

    /// A list of `length` values of a kind, as many of which follow as `values` holds.
    pub fn list(&mut self, name: &str, kind: u32, length: u64, values: &[u8]) -> &mut Self {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend(length.to_le_bytes());
        bytes.extend(values);
        self.key(name, LIST, &bytes)
    }

    pub fn texts(&mut self, name: &str, values: &[String]) -> &mut Self {
        let mut bytes = Vec::new();
        values.iter().for_each(|value| text(&mut bytes, value));
        self.list(name, STRING, values.len() as u64, &bytes)
    }

    /// A tensor of small numbers; `shape` names rows first.
    pub fn tensor(&mut self, name: &str, shape: &[u64], packed: bool) -> &mut Self {
        let n = shape.iter().product::<u64>() as usize;
        let number = |i: usize| ((i * 37 + name.len() * 11) % 29) as f32 / 29.0 - 0.5;
        let bytes = match packed {
            true => (0..n / 32)
                .flat_map(|block| {
                    let scale = half::f16::from_f32(0.01).to_le_bytes();
                    let of_block = (0..32).map(move |i| (number(block * 32 + i) * 100.0) as i8 as u8);
                    scale.into_iter().chain(of_block)
                })
                .collect(),
            false => (0..n).flat_map(|i| number(i).to_le_bytes()).collect(),
        };
        let dims = shape.iter().rev().copied().collect();
        self.tensors.push((name.to_owned(), dims, if packed { Q8_0 } else { DENSE }, bytes));
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.keys.len() as u64).to_le_bytes());
        self.keys.iter().for_each(|key| out.extend(key));
        let mut offset = 0u64;
        for (name, dims, kind, bytes) in &self.tensors {
            text(&mut out, name);
            out.extend((dims.len() as u32).to_le_bytes());
            dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(kind.to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset += bytes.len().next_multiple_of(32) as u64;
        }
        for (.., bytes) in &self.tensors {
            out.resize(out.len().next_multiple_of(32), 0);
            out.extend(bytes);
        }
        out
    }
}

/// Tokens of bytes, letters and turns, as SentencePiece models have them.
fn pieces(gguf: &mut Gguf) -> u64 {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    let words = ["▁", "a", "b", "e", "l", "o", "▁a", "lo", "hel", "<|im_start|>", "<|im_end|>"];
    tokens.extend(words.map(str::to_owned));
    let kinds: Vec<u8> = (0..tokens.len() as u32)
        .map(|id| match id {
            0 => 2,
            1 | 2 => 3,
            3..=258 => 6,
            _ => 1u32,
        })
        .flat_map(u32::to_le_bytes)
        .collect();
    let scores: Vec<u8> = (0..tokens.len()).flat_map(|id| (-(id as f32)).to_le_bytes()).collect();
    let n = tokens.len() as u64;
    gguf.text("tokenizer.ggml.model", "llama")
        .texts("tokenizer.ggml.tokens", &tokens)
        .list("tokenizer.ggml.scores", F32, n, &scores)
        .list("tokenizer.ggml.token_type", U32, n, &kinds)
        .u32("tokenizer.ggml.bos_token_id", 1)
        .u32("tokenizer.ggml.eos_token_id", 2)
        .flag("tokenizer.ggml.add_bos_token", true);
    n
}

/// Tokens of bytes and two merges, as GPT-2's.
fn merges(gguf: &mut Gguf) -> u64 {
    let plain = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let others: Vec<u8> = (0..=255).filter(|&byte| !plain(byte)).collect();
    let spelled = |byte: u8| match others.iter().position(|&other| other == byte) {
        Some(i) => char::from_u32(256 + i as u32).unwrap_or('?'),
        None => char::from(byte),
    };
    let mut tokens: Vec<String> = (0..=255).map(|byte| spelled(byte).to_string()).collect();
    tokens.extend(["he", "ll", "hell", "<|im_start|>", "<|im_end|>"].map(str::to_owned));
    let n = tokens.len() as u64;
    gguf.text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "smollm")
        .texts("tokenizer.ggml.tokens", &tokens)
        .texts("tokenizer.ggml.merges", &["h e", "l l", "he ll"].map(str::to_owned))
        .u32("tokenizer.ggml.eos_token_id", n as u32 - 1);
    n
}

pub const TEMPLATE: &str = "{% set ns = namespace(n=0) %}{% for message in messages %}{% set ns.n = ns.n + 1 %}\
    {{ '<|im_start|>' + message.role + '\\n' + message.content | trim + '<|im_end|>\\n' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// A model of two layers that opens and answers; SentencePiece or byte pairs.
pub fn model(byte_pairs: bool) -> Vec<u8> {
    build(byte_pairs, |_| {})
}

/// The same with something added to its metadata.
pub fn build(byte_pairs: bool, add: impl FnOnce(&mut Gguf)) -> Vec<u8> {
    let mut gguf = Gguf::new();
    gguf.text("general.architecture", "llama")
        .text("general.name", "Tiny")
        .u32("llama.block_count", 2)
        .u32("llama.embedding_length", 32)
        .u32("llama.feed_forward_length", 32)
        .u32("llama.attention.head_count", 4)
        .u32("llama.attention.head_count_kv", 2)
        .u32("llama.context_length", 256)
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .f32("llama.rope.freq_base", 10_000.0);
    let vocab = if byte_pairs { merges(&mut gguf) } else { pieces(&mut gguf) };
    gguf.text("tokenizer.chat_template", TEMPLATE);
    add(&mut gguf);
    gguf.tensor("token_embd.weight", &[vocab, 32], true).tensor("output_norm.weight", &[32], false);
    for layer in 0..2 {
        let mut linear = |part: &str, rows: u64| {
            gguf.tensor(&format!("blk.{layer}.{part}.weight"), &[rows, 32], true);
        };
        linear("attn_q", 32);
        linear("attn_k", 16);
        linear("attn_v", 16);
        linear("attn_output", 32);
        linear("ffn_gate", 32);
        linear("ffn_up", 32);
        linear("ffn_down", 32);
        for norm in ["attn_norm", "ffn_norm"] {
            gguf.tensor(&format!("blk.{layer}.{norm}.weight"), &[32], false);
        }
    }
    gguf.bytes()
}
