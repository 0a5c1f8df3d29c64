//! The vocabulary of a GGUF file: spellings, kinds, and which tokens begin or end what.

use std::collections::{HashMap, HashSet};

use candle_core::quantized::gguf_file::Value;

use super::TokenizerError;

/// `tokenizer.ggml.token_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl Kind {
    fn new(number: i64) -> Self {
        match number {
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => Self::Normal,
        }
    }

    /// Whether text must not spell it.
    pub(super) fn is_control(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }

    /// Whether it is found by its spelling, before the text around it is split.
    pub(super) fn is_special(self) -> bool {
        self.is_control() || self == Self::UserDefined
    }
}

/// Tokens by which models end an answer, whatever the metadata names as its end. From llama.cpp.
const END_OF_GENERATION: [&str; 21] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
];

/// Control tokens whose spelling does not give them away.
const TURNS: [&str; 5] = ["<start_of_turn>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"];

pub(super) struct Vocab {
    tokens: Vec<String>,
    kinds: Vec<Kind>,
    ids: HashMap<String, u32>,
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    pub(super) add_bos: bool,
    pub(super) eog: HashSet<u32>,
}

impl Vocab {
    /// `defaults` are the ids of bos and eos where the metadata names none.
    pub(super) fn from_gguf(
        meta: &HashMap<String, Value>,
        defaults: Option<(u32, u32)>,
        add_bos: bool,
    ) -> Result<Self, TokenizerError> {
        let tokens = strings(meta, "tokenizer.ggml.tokens")?.ok_or(TokenizerError::Missing("tokenizer.ggml.tokens"))?;
        let mut kinds = match array(meta, "tokenizer.ggml.token_type")? {
            Some(kinds) => kinds.iter().map(|v| integer(v).map_or(Kind::Normal, Kind::new)).collect(),
            None => Vec::new(),
        };
        kinds.resize(tokens.len(), Kind::Normal);
        for (token, kind) in tokens.iter().zip(&mut kinds) {
            if matches!(*kind, Kind::Normal | Kind::UserDefined) && looks_like_control(token) {
                *kind = Kind::Control;
            }
        }
        let ids: HashMap<String, u32> = tokens.iter().cloned().zip(0..).collect();

        let known = |id: u32| ((id as usize) < tokens.len()).then_some(id);
        let id = |key: &str| meta.get(key).and_then(integer).and_then(|id| u32::try_from(id).ok()).and_then(known);
        let bos = id("tokenizer.ggml.bos_token_id").or(defaults.and_then(|(bos, _)| known(bos)));
        let eos = id("tokenizer.ggml.eos_token_id").or(defaults.and_then(|(_, eos)| known(eos)));
        let mut eog: HashSet<u32> = ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"]
            .into_iter()
            .filter_map(id)
            .chain(eos)
            .chain(END_OF_GENERATION.iter().filter_map(|token| ids.get(*token).copied()))
            .collect();
        // Harmony's models write `<|end|>` between the parts of one answer.
        if ["<|return|>", "<|call|>"].iter().all(|token| ids.contains_key(*token))
            && let Some(end) = ids.get("<|end|>")
        {
            eog.remove(end);
        }
        let add_bos = match meta.get("tokenizer.ggml.add_bos_token") {
            Some(Value::Bool(add)) => *add,
            _ => add_bos,
        };
        Ok(Self { tokens, kinds, ids, bos, eos, add_bos, eog })
    }

    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(super) fn text(&self, id: u32) -> &str {
        self.tokens.get(id as usize).map_or("", String::as_str)
    }

    pub(super) fn kind(&self, id: u32) -> Kind {
        self.kinds.get(id as usize).copied().unwrap_or(Kind::Unused)
    }

    pub(super) fn id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    pub(super) fn of_kinds<'a>(&'a self, kinds: &'a [Kind]) -> impl Iterator<Item = u32> + 'a {
        (0..).zip(&self.kinds).filter(|(_, kind)| kinds.contains(kind)).map(|(id, _)| id)
    }
}

/// Some files mark control tokens as ordinary ones. Taken at their word, a document could end a turn by
/// spelling `<|im_end|>`, and a template could not.
fn looks_like_control(token: &str) -> bool {
    let inside = |open: &str, close: &str| {
        token.strip_prefix(open).and_then(|t| t.strip_suffix(close)).is_some_and(|name| {
            !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '▁' | ':'))
        })
    };
    inside("<|", "|>") || inside("<｜", "｜>") || TURNS.contains(&token) || END_OF_GENERATION.contains(&token)
}

/// The byte of a token such as `<0x0A>`.
pub(super) fn byte_of(token: &str) -> Option<u8> {
    u8::from_str_radix(token.strip_prefix("<0x")?.strip_suffix('>')?, 16).ok()
}

pub(super) fn string<'a>(meta: &'a HashMap<String, Value>, key: &str) -> Result<Option<&'a str>, TokenizerError> {
    match meta.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(TokenizerError::Malformed(format!("{key} is not a text"))),
    }
}

pub(super) fn array<'a>(meta: &'a HashMap<String, Value>, key: &str) -> Result<Option<&'a [Value]>, TokenizerError> {
    match meta.get(key) {
        None => Ok(None),
        Some(Value::Array(values)) => Ok(Some(values)),
        Some(_) => Err(TokenizerError::Malformed(format!("{key} is not a list"))),
    }
}

pub(super) fn strings(meta: &HashMap<String, Value>, key: &str) -> Result<Option<Vec<String>>, TokenizerError> {
    let Some(values) = array(meta, key)? else { return Ok(None) };
    let texts = values.iter().map(|value| match value {
        Value::String(text) => Ok(text.clone()),
        _ => Err(TokenizerError::Malformed(format!("{key} holds something else than text"))),
    });
    texts.collect::<Result<_, _>>().map(Some)
}

fn integer(value: &Value) -> Option<i64> {
    match *value {
        Value::U8(v) => Some(v.into()),
        Value::I8(v) => Some(v.into()),
        Value::U16(v) => Some(v.into()),
        Value::I16(v) => Some(v.into()),
        Value::U32(v) => Some(v.into()),
        Value::I32(v) => Some(v.into()),
        Value::U64(v) => v.try_into().ok(),
        Value::I64(v) => Some(v),
        _ => None,
    }
}
