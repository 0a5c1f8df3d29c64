//! SentencePiece's BPE as llama.cpp does it: neighbours merge into the token of the highest score.

use std::collections::{BinaryHeap, HashMap};

use candle_core::quantized::gguf_file::Value;

use super::TokenizerError;
use super::vocab::{self, Kind, Vocab};

/// Stands for a space in the vocabulary.
pub(super) const SPACE: char = '▁';

pub(super) struct Spm {
    pub(super) add_space_prefix: bool,
    /// Id and score of the tokens that merges can make.
    tokens: HashMap<String, (u32, f32)>,
    bytes: [Option<u32>; 256],
    unknown: Option<u32>,
    /// No token holds a space after something else, so that text can be cut there.
    words: bool,
}

impl Spm {
    pub(super) fn new(meta: &HashMap<String, Value>, vocab: &Vocab) -> Result<Self, TokenizerError> {
        const SCORES: &str = "tokenizer.ggml.scores";
        let scores = vocab::array(meta, SCORES)?.ok_or(TokenizerError::Missing(SCORES))?;
        let score = |id: u32| match scores.get(id as usize) {
            Some(Value::F32(score)) => *score,
            Some(Value::I32(score)) => *score as f32,
            _ => 0.0,
        };
        // Neither control tokens nor the spelling of a byte: text that looks like them stays text.
        let tokens: HashMap<_, _> = vocab
            .of_kinds(&[Kind::Normal, Kind::UserDefined])
            .map(|id| (vocab.text(id).to_owned(), (id, score(id))))
            .collect();
        let mut bytes = [None; 256];
        for id in vocab.of_kinds(&[Kind::Byte]) {
            if let Some(byte) = vocab::byte_of(vocab.text(id)) {
                bytes[usize::from(byte)] = Some(id);
            }
        }
        let words = tokens.keys().all(|token| !token.trim_start_matches(SPACE).contains(SPACE));
        let add_space_prefix = !matches!(meta.get("tokenizer.ggml.add_space_prefix"), Some(Value::Bool(false)));
        let unknown = vocab.of_kinds(&[Kind::Unknown]).next();
        Ok(Self { add_space_prefix, tokens, bytes, unknown, words })
    }

    /// `begins`: nothing but a special token stands before.
    pub(super) fn encode(&self, text: &str, begins: bool, ids: &mut Vec<u32>) {
        let mut escaped = String::with_capacity(text.len() + text.len() / 4);
        if begins && self.add_space_prefix {
            escaped.push(SPACE);
        }
        escaped.extend(text.chars().map(|c| if c == ' ' { SPACE } else { c }));
        if !self.words {
            return self.encode_word(&escaped, ids);
        }
        let mut from = 0;
        let mut before = SPACE;
        for (at, c) in escaped.char_indices() {
            if c == SPACE && before != SPACE {
                self.encode_word(&escaped[from..at], ids);
                from = at;
            }
            before = c;
        }
        self.encode_word(&escaped[from..], ids);
    }

    fn encode_word(&self, text: &str, ids: &mut Vec<u32>) {
        let mut symbols: Vec<Symbol> = text
            .char_indices()
            .enumerate()
            .map(|(i, (start, c))| Symbol {
                start,
                end: start + c.len_utf8(),
                prev: i.checked_sub(1),
                next: Some(i + 1),
            })
            .collect();
        if let Some(last) = symbols.last_mut() {
            last.next = None;
        }
        let mut queue = BinaryHeap::new();
        for left in 1..symbols.len() {
            queue.extend(self.bigram(text, &symbols, Some(left - 1), Some(left)));
        }
        while let Some(Bigram { left, right, len, .. }) = queue.pop() {
            // One of the two has been merged with another since.
            let size = |i: usize| symbols[i].end - symbols[i].start;
            if size(left) == 0 || size(right) == 0 || size(left) + size(right) != len {
                continue;
            }
            symbols[left].end = symbols[right].end;
            symbols[right].start = symbols[right].end;
            let next = symbols[right].next;
            symbols[left].next = next;
            if let Some(next) = next {
                symbols[next].prev = Some(left);
            }
            queue.extend(self.bigram(text, &symbols, symbols[left].prev, Some(left)));
            queue.extend(self.bigram(text, &symbols, Some(left), next));
        }
        let mut at = (!symbols.is_empty()).then_some(0);
        while let Some(i) = at {
            let symbol = &text[symbols[i].start..symbols[i].end];
            match self.tokens.get(symbol) {
                Some((id, _)) => ids.push(*id),
                None if symbol.bytes().all(|byte| self.bytes[usize::from(byte)].is_some()) => {
                    ids.extend(symbol.bytes().filter_map(|byte| self.bytes[usize::from(byte)]));
                }
                None => ids.extend(self.unknown),
            }
            at = symbols[i].next;
        }
    }

    fn bigram(&self, text: &str, symbols: &[Symbol], left: Option<usize>, right: Option<usize>) -> Option<Bigram> {
        let (left, right) = (left?, right?);
        let (start, end) = (symbols[left].start, symbols[right].end);
        let (_, score) = self.tokens.get(&text[start..end])?;
        Some(Bigram { score: *score, left, right, len: end - start })
    }
}

/// A stretch of the text; empty once it has been merged into its left neighbour.
struct Symbol {
    start: usize,
    end: usize,
    prev: Option<usize>,
    next: Option<usize>,
}

/// Two neighbours that make a token.
struct Bigram {
    score: f32,
    left: usize,
    right: usize,
    len: usize,
}

impl Ord for Bigram {
    /// The highest score is the greatest; of equal ones, the leftmost.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.left.cmp(&self.left))
    }
}

impl PartialOrd for Bigram {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Bigram {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Bigram {}
