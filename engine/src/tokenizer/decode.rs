//! Tokens to text, as they come.

use super::Tokenizer;

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
