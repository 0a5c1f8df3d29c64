//! Byte-level BPE: text is split into words, the bytes of a word are merged by rank.

use std::collections::HashMap;

use candle_core::quantized::gguf_file::Value;
use tokenizers::Model as _;
use tokenizers::models::bpe::{BPE, Merges, Vocab as Ids};

use super::TokenizerError;
use super::pre::PreTokenizer;
use super::vocab::{self, Kind, Vocab};

pub(super) struct Bpe {
    pre: PreTokenizer,
    model: BPE,
    /// The character that stands for each byte in the vocabulary; `None` where the vocabulary lacks it.
    chars: [Option<char>; 256],
    bytes: HashMap<char, u8>,
}

impl Bpe {
    pub(super) fn new(meta: &HashMap<String, Value>, vocab: &Vocab, pre: PreTokenizer) -> Result<Self, TokenizerError> {
        const MERGES: &str = "tokenizer.ggml.merges";
        // Control tokens are no part of it: no merge and no whole word may yield one.
        let ids: Ids = vocab
            .of_kinds(&[Kind::Normal, Kind::UserDefined, Kind::Unused, Kind::Byte])
            .map(|id| (vocab.text(id).to_owned(), id))
            .collect();
        let mut merges = Merges::new();
        for merge in vocab::strings(meta, MERGES)?.ok_or(TokenizerError::Missing(MERGES))? {
            // A merge's first half may itself begin with a space.
            let cut = merge.char_indices().skip(1).find(|&(_, c)| c == ' ').map(|(at, _)| at);
            let Some((left, right)) = cut.map(|at| (&merge[..at], &merge[at + 1..])) else {
                return Err(TokenizerError::Malformed(format!("the merge \"{merge}\" has one half")));
            };
            if vocab.id(&format!("{left}{right}")).is_some_and(|id| vocab.kind(id).is_control()) {
                continue;
            }
            if !ids.contains_key(left) || !ids.contains_key(right) || !ids.contains_key(&format!("{left}{right}")) {
                return Err(TokenizerError::Malformed(format!("the merge \"{merge}\" is not in the vocabulary")));
            }
            merges.push((left.to_owned(), right.to_owned()));
        }
        let alphabet = alphabet();
        let chars = alphabet.map(|c| ids.contains_key(c.encode_utf8(&mut [0; 4]) as &str).then_some(c));
        let model = BPE::builder()
            .vocab_and_merges(ids, merges)
            .ignore_merges(pre.ignore_merges)
            .build()
            .map_err(|error| TokenizerError::Malformed(error.to_string()))?;
        let bytes = alphabet.into_iter().zip(0..=255).collect();
        Ok(Self { pre, model, chars, bytes })
    }

    pub(super) fn encode(&self, text: &str, ids: &mut Vec<u32>) {
        let mut word = String::new();
        self.pre.split(text, &mut |piece| {
            for byte in piece.bytes() {
                match self.chars[usize::from(byte)] {
                    Some(c) => word.push(c),
                    // The model has never seen this byte. It is left out, and nothing merges across it.
                    None => self.encode_word(&mut word, ids),
                }
            }
            self.encode_word(&mut word, ids);
        });
    }

    fn encode_word(&self, word: &mut String, ids: &mut Vec<u32>) {
        // Fails only over an unknown token, and this model is built without one.
        ids.extend(self.model.tokenize(word).into_iter().flatten().map(|token| token.id));
        word.clear();
    }

    pub(super) fn decode(&self, token: &str, out: &mut Vec<u8>) {
        for c in token.chars() {
            match self.bytes.get(&c) {
                Some(byte) => out.push(*byte),
                None => out.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    }
}

/// GPT-2's printable stand-ins for the 256 bytes.
fn alphabet() -> [char; 256] {
    let mut next = 256;
    std::array::from_fn(|byte| {
        let code = match byte {
            0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => byte as u32,
            _ => {
                next += 1;
                next - 1
            }
        };
        char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
    })
}
