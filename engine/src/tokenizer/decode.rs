//! Tokens to text, as they come.

use std::ops::Range;

use super::Tokenizer;

impl Tokenizer {
    /// The tokens among `ids` that first spell `text`; white space may differ in kind and amount.
    pub fn find(&self, ids: &[u32], text: &str) -> Option<Range<u32>> {
        let mut decoder = self.decoder();
        // The characters that are not white space, and the token that completed each.
        let (mut spelled, mut tokens) = (Vec::new(), Vec::new());
        for (token, &id) in ids.iter().enumerate() {
            let text = decoder.push(id).unwrap_or_default();
            for character in text.chars().filter(|c| !c.is_whitespace()) {
                spelled.push(character);
                tokens.push(token as u32);
            }
        }
        let wanted: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
        let at = spelled.windows(wanted.len().max(1)).position(|window| window == wanted)?;
        Some(tokens[at]..tokens[at + wanted.len() - 1] + 1)
    }

    /// The text of `ids`, and how many UTF-16 units of it each token completes.
    pub fn pieces(&self, ids: &[u32]) -> (String, Vec<u16>) {
        let mut decoder = self.decoder();
        let mut text = String::new();
        let mut lengths = Vec::with_capacity(ids.len());
        for (i, &id) in ids.iter().enumerate() {
            let piece = decoder.push(id).unwrap_or_default();
            let rest = if i + 1 == ids.len() { decoder.flush().unwrap_or_default() } else { String::new() };
            let units = piece.encode_utf16().count() + rest.encode_utf16().count();
            lengths.push(u16::try_from(units).unwrap_or(u16::MAX));
            text.push_str(&piece);
            text.push_str(&rest);
        }
        (text, lengths)
    }
}

/// Turns tokens into text as they come: a character comes out once its last byte is in.
#[derive(Debug)]
pub struct Decoder<'a> {
    tokenizer: &'a Tokenizer,
    /// Bytes of a character that is not complete yet.
    bytes: Vec<u8>,
    /// The space that the tokenizer put before the text is not part of it.
    strip_space: bool,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, bytes: Vec::new(), strip_space: tokenizer.adds_space() }
    }

    /// The text that this token completes, if any. Control tokens have none.
    pub fn push(&mut self, id: u32) -> Option<String> {
        let held = self.bytes.len();
        self.tokenizer.bytes(id, &mut self.bytes);
        if self.strip_space && self.bytes.len() > held {
            self.strip_space = false;
            if self.bytes.first() == Some(&b' ') {
                self.bytes.remove(0);
            }
        }
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.bytes) {
                Ok(rest) => {
                    text.push_str(rest);
                    self.bytes.clear();
                    break;
                }
                Err(error) => {
                    let valid = error.valid_up_to();
                    text.push_str(&String::from_utf8_lossy(&self.bytes[..valid]));
                    let Some(bad) = error.error_len() else {
                        self.bytes.drain(..valid);
                        break;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    self.bytes.drain(..valid + bad);
                }
            }
        }
        (!text.is_empty()).then_some(text)
    }

    /// What is left at the end: a character that was never completed, as U+FFFD.
    pub fn flush(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.bytes);
        (!rest.is_empty()).then(|| String::from_utf8_lossy(&rest).into_owned())
    }
}
