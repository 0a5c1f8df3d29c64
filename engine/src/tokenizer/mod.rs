//! Text to tokens and back, from a GGUF file's own metadata.
//!
//! Two families cover the models that the engine runs: byte-level BPE (`tokenizer.ggml.model` = `gpt2`) and
//! SentencePiece (`llama`). The ids are those of llama.cpp, with one deliberate difference: text that was asked
//! for as text never yields a control token, also where llama.cpp's merges could make one.

mod bpe;
mod decode;
mod pre;
mod spm;
mod vocab;

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use candle_core::quantized::gguf_file::Value;

pub use decode::Decoder;

use bpe::Bpe;
use spm::Spm;
use vocab::{Kind, Vocab};

/// Why a tokenizer cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A key is not there.
    #[error("The file has no tokenizer ({0} is missing); choose a GGUF of a language model.")]
    Missing(&'static str),
    /// A key holds something else than it should.
    #[error("The file's tokenizer is damaged ({0}); download the file again.")]
    Malformed(String),
    /// A family that is not built in.
    #[error(
        "The tokenizer \"{0}\" is not supported; choose a model with a byte-level BPE (\"gpt2\") or SentencePiece (\"llama\") tokenizer."
    )]
    Model(String),
    /// A way to split text into words that is not built in.
    #[error("The pre-tokenizer \"{0}\" is not supported; choose a model with one of these: {list}.", list = pre::NAMES.join(", "))]
    Pre(String),
}

/// What becomes of text that spells a control token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// It is the control token: for templates.
    Parse,
    /// It is text: for everything that people and documents say.
    AsText,
}

/// Spellings of this many bytes together get the fast automaton: it takes a kilobyte for each of them.
const FEW: usize = 16 << 10;

/// Text to tokens and back.
pub struct Tokenizer {
    vocab: Vocab,
    model: Model,
    /// Finds every token that has a spelling outside of the model's own merges.
    specials: Option<Specials>,
    /// Those of them that ordinary text may spell.
    user_defined: Option<Specials>,
}

enum Model {
    Bpe(Box<Bpe>),
    Spm(Box<Spm>),
}

struct Specials {
    finder: AhoCorasick,
    ids: Vec<u32>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Builds the tokenizer that a GGUF's metadata describes.
    ///
    /// # Errors
    /// When the metadata is incomplete, or describes a tokenizer that is not supported.
    pub fn from_gguf(meta: &HashMap<String, Value>) -> Result<Self, TokenizerError> {
        let name =
            vocab::string(meta, "tokenizer.ggml.model")?.ok_or(TokenizerError::Missing("tokenizer.ggml.model"))?;
        let (vocab, model) = match name {
            "gpt2" => {
                let pre = pre::PreTokenizer::named(vocab::string(meta, "tokenizer.ggml.pre")?.unwrap_or("default"))?;
                let vocab = Vocab::from_gguf(meta, None, pre.add_bos)?;
                let bpe = Bpe::new(meta, &vocab, pre)?;
                (vocab, Model::Bpe(Box::new(bpe)))
            }
            "llama" => {
                let vocab = Vocab::from_gguf(meta, Some((1, 2)), true)?;
                let spm = Spm::new(meta, &vocab)?;
                (vocab, Model::Spm(Box::new(spm)))
            }
            other => return Err(TokenizerError::Model(other.to_owned())),
        };
        let specials = Specials::new(&vocab, &[Kind::Control, Kind::Unknown, Kind::UserDefined])?;
        let user_defined = Specials::new(&vocab, &[Kind::UserDefined])?;
        Ok(Self { vocab, model, specials, user_defined })
    }

    /// The tokens of a whole text, without a token for its beginning.
    pub fn encode(&self, text: &str, special: Special) -> Vec<u32> {
        self.encode_after(text, special, None)
    }

    /// The tokens of a text that goes on after the token `previous`.
    ///
    /// SentencePiece tokenizers put a space before a text that begins, or that follows a control token; not
    /// before one that goes on.
    pub fn encode_after(&self, text: &str, special: Special, previous: Option<u32>) -> Vec<u32> {
        let specials = match special {
            Special::Parse => &self.specials,
            Special::AsText => &self.user_defined,
        };
        let mut ids = Vec::new();
        let mut begins = previous.is_none_or(|id| self.vocab.kind(id).is_special());
        let mut from = 0;
        if let Some(Specials { finder, ids: found }) = specials {
            for hit in finder.find_iter(text) {
                self.encode_fragment(&text[from..hit.start()], begins, &mut ids);
                ids.push(found[hit.pattern().as_usize()]);
                begins = true;
                from = hit.end();
            }
        }
        self.encode_fragment(&text[from..], begins, &mut ids);
        ids
    }

    fn encode_fragment(&self, text: &str, begins: bool, ids: &mut Vec<u32>) {
        if text.is_empty() {
            return;
        }
        match &self.model {
            Model::Bpe(bpe) => bpe.encode(text, ids),
            Model::Spm(spm) => spm.encode(text, begins, ids),
        }
    }

    /// The text of tokens. Control tokens have none; bytes that are not UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut decoder = self.decoder();
        let mut text: String = ids.iter().filter_map(|&id| decoder.push(id)).collect();
        text.extend(decoder.flush());
        text
    }

    /// The text of tokens, control tokens by their names: what a chat template wrote.
    pub fn spell(&self, ids: &[u32]) -> String {
        let parts = ids.chunk_by(|&a, &b| !self.is_control(a) && !self.is_control(b));
        parts.map(|part| if self.is_control(part[0]) { self.token_text(part[0]) } else { self.decode(part) }).collect()
    }

    /// Turns tokens into text as they come.
    pub fn decoder(&self) -> Decoder<'_> {
        Decoder::new(self)
    }

    /// One token, for people: control tokens by their name, parts of a character as U+FFFD.
    pub fn token_text(&self, id: u32) -> String {
        let mut bytes = Vec::new();
        if self.vocab.kind(id).is_control() {
            return self.vocab.text(id).to_owned();
        }
        self.bytes(id, &mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The bytes that a token stands for; none for control tokens and for ids outside of the vocabulary.
    fn bytes(&self, id: u32, out: &mut Vec<u8>) {
        let text = self.vocab.text(id);
        match (self.vocab.kind(id), &self.model) {
            (Kind::Control | Kind::Unknown | Kind::Unused, _) => {}
            (Kind::Byte, _) => out.extend(vocab::byte_of(text)),
            (Kind::UserDefined, Model::Bpe(_)) => out.extend(text.as_bytes()),
            (Kind::Normal, Model::Bpe(bpe)) => bpe.decode(text, out),
            (_, Model::Spm(_)) => out.extend(text.replace(spm::SPACE, " ").as_bytes()),
        }
    }

    /// The token that begins a text, where the model has one.
    pub fn bos(&self) -> Option<u32> {
        self.vocab.bos
    }

    /// Whether the model expects [`bos`](Self::bos) before every text.
    pub fn add_bos(&self) -> bool {
        self.vocab.add_bos && self.vocab.bos.is_some()
    }

    /// The token that ends a text, where the model has one.
    pub fn eos(&self) -> Option<u32> {
        self.vocab.eos
    }

    /// Whether a model that chooses this token has ended its answer.
    pub fn eog(&self, id: u32) -> bool {
        self.vocab.eog.contains(&id)
    }

    /// Whether a token is a control token, without text of its own.
    pub fn is_control(&self, id: u32) -> bool {
        self.vocab.kind(id).is_control()
    }

    /// The id of a token by its exact spelling in the vocabulary, such as `<|im_start|>`.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.vocab.id(token)
    }

    /// Number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// Whether a space stands before text that begins.
    fn adds_space(&self) -> bool {
        matches!(&self.model, Model::Spm(spm) if spm.add_space_prefix)
    }
}

impl Specials {
    fn new(vocab: &Vocab, kinds: &[Kind]) -> Result<Option<Self>, TokenizerError> {
        let ids: Vec<u32> = vocab.of_kinds(kinds).filter(|&id| !vocab.text(id).is_empty()).collect();
        if ids.is_empty() {
            return Ok(None);
        }
        let bytes: usize = ids.iter().map(|&id| vocab.text(id).len()).sum();
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind((bytes > FEW).then_some(AhoCorasickKind::ContiguousNFA))
            .build(ids.iter().map(|&id| vocab.text(id)))
            .map_err(|error| TokenizerError::Malformed(error.to_string()))?;
        Ok(Some(Self { finder, ids }))
    }
}
