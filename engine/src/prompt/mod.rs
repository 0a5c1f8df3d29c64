//! A conversation as the tokens that the model was trained to read it in.
//!
//! The model's chat template never sees what people and documents say. It renders one private-use character
//! for each message; the text around those characters is the template's own and may spell control tokens, and
//! what stands for them is tokenized as plain text. So a document that spells `<|im_end|>` ends no turn.
//!
//! A message with documents reads: `Document "name":`, a blank line, its pages (each under a line `[Page 3]`
//! where there are several), then the message's own text. A page's span holds its label and the blank line
//! after it; the line with the name is of kind `Template`, with the message's index.

mod template;

use std::collections::{HashMap, HashSet};

use candle_core::quantized::gguf_file::Value;

use crate::protocol::{Message, Role, Span, SpanKind};
use crate::tokenizer::{Special, Tokenizer};
use template::{Template, Turn};

/// Why a conversation cannot be put to the model.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// The template is no template.
    #[error("The model's chat template cannot be read ({0}); choose another file of this model.")]
    Template(String),
    /// The template refuses the conversation.
    #[error(
        "The model's chat template does not take this conversation ({0}); start a new chat, or choose another model."
    )]
    Refused(String),
    /// The template leaves a message out.
    #[error("The model's chat template leaves out message {0}; start a new chat, or choose another model.")]
    Omitted(usize),
    /// More messages than there are characters to stand for them.
    #[error("The chat has more than {MAX_MESSAGES} messages; start a new one.")]
    TooLong,
}

/// A conversation in tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Built {
    /// The tokens, up to where the model's answer begins.
    pub ids: Vec<u32>,
    /// What they stand for: neighbouring ranges that cover them all.
    pub spans: Vec<Span>,
}

/// The messages stand in a plane of private-use characters.
const MARKERS: u32 = 0x10_0000;
const MAX_MESSAGES: usize = 0xfffd;

/// White space around each marker. A template that trims its messages takes it away, and so tells that the
/// message is to be trimmed.
const GUARD: char = '\u{2001}';

/// Between messages that the template can only take as one.
const BETWEEN_PARTS: &str = "\n\n";

const END_OF_THINKING: &str = "</think>";

const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{% endfor %}{{ '<|im_start|>assistant\\n' }}";
const PLAIN: &str = "{% for message in messages %}{% if message.role == 'system' %}{{ message.content + '\\n\\n' }}{% else %}{{ message.role.title() + ': ' + message.content + '\\n' }}{% endif %}{% endfor %}{{ 'Assistant:' }}";

/// A model's way to write a conversation.
#[derive(Debug)]
pub struct Prompt {
    template: Template,
    /// Earlier answers lose their thinking.
    drops_thinking: bool,
}

impl Prompt {
    /// The file's own chat template; where it has none, ChatML if the vocabulary knows it, else plain labels.
    ///
    /// # Errors
    /// When the template is malformed.
    pub fn from_gguf(meta: &HashMap<String, Value>, tokenizer: &Tokenizer) -> Result<Self, PromptError> {
        let source = match meta.get("tokenizer.chat_template") {
            Some(Value::String(source)) if !source.trim().is_empty() => source,
            _ if tokenizer.id("<|im_start|>").is_some() => CHATML,
            _ => PLAIN,
        };
        Self::new(source, tokenizer)
    }

    fn new(source: &str, tokenizer: &Tokenizer) -> Result<Self, PromptError> {
        let name = |id: Option<u32>| id.map(|id| tokenizer.token_text(id)).unwrap_or_default();
        let template = Template::new(source, name(tokenizer.bos()), name(tokenizer.eos()))?;
        Ok(Self { template, drops_thinking: source.contains(END_OF_THINKING) })
    }

    /// Puts a conversation, its question last, into tokens.
    ///
    /// `replies` may give the tokens that the model generated for the message of an index: they are taken as
    /// they are, so that the prefix of the cache that stands for them matches.
    ///
    /// # Errors
    /// When the template refuses the conversation, or leaves part of it out.
    pub fn build(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
        replies: &dyn Fn(usize) -> Option<Vec<u32>>,
    ) -> Result<Built, PromptError> {
        if messages.len() > MAX_MESSAGES {
            return Err(PromptError::TooLong);
        }
        let rendered = match self.render(messages, &one_by_one(messages)) {
            Ok(rendered) => rendered,
            Err(refused) => self.render(messages, &folded(messages)).map_err(|_| refused)?,
        };
        let mut builder = Builder { tokenizer, ids: Vec::new(), spans: Vec::new() };
        if let Some(bos) = tokenizer.bos()
            && tokenizer.add_bos()
            && !rendered.starts_with(&tokenizer.token_text(bos))
        {
            builder.push_ids(&[bos], None, SpanKind::Template);
        }
        let mut rest = rendered.as_str();
        while let Some((mut before, index, after)) = next_marker(rest, messages.len()) {
            let starts = before.strip_suffix(GUARD);
            let ends = after.strip_prefix(GUARD);
            before = starts.unwrap_or(before);
            rest = ends.unwrap_or(after);
            let reply = replies(index).filter(|_| !self.thinks(&messages[index]));
            match reply {
                Some(ids) => builder.push_reply(before, &ids, index),
                None => {
                    let text = self.text(&messages[index]);
                    let text = if starts.is_none() { text.trim_start() } else { text };
                    let text = if ends.is_none() { text.trim_end() } else { text };
                    builder.push_message(before, &messages[index], text, index);
                }
            }
        }
        builder.push_template(rest);
        Ok(Built { ids: builder.ids, spans: builder.spans })
    }

    /// The template's text with a marker for each message that says something.
    fn render(&self, messages: &[Message], turns: &[(Role, Vec<usize>)]) -> Result<String, PromptError> {
        let silent = |index: usize| messages[index].documents.is_empty() && self.text(&messages[index]).is_empty();
        let turns: Vec<Turn> = turns
            .iter()
            .map(|(role, parts)| {
                let parts = parts.iter().filter(|&&index| !silent(index)).map(|&index| marked(index));
                Turn::new(*role, parts.collect::<Vec<_>>().join(BETWEEN_PARTS))
            })
            .collect();
        let rendered = self.template.render(&turns)?;
        let said: HashSet<char> = rendered.chars().filter(|&c| u32::from(c) >= MARKERS).collect();
        match (0..messages.len()).find(|&index| !silent(index) && !said.contains(&marker(index))) {
            Some(omitted) => Err(PromptError::Omitted(omitted + 1)),
            None => Ok(rendered),
        }
    }

    fn thinks(&self, message: &Message) -> bool {
        self.drops_thinking && message.role == Role::Assistant && message.text.contains(END_OF_THINKING)
    }

    /// What the model is to read of a message's text. Templates that drop the thinking of earlier answers look
    /// for it in the text itself, which they do not get here.
    fn text<'m>(&self, message: &'m Message) -> &'m str {
        match message.text.rsplit_once(END_OF_THINKING) {
            Some((_, answer)) if self.thinks(message) => answer.trim_start_matches('\n'),
            _ => &message.text,
        }
    }
}

fn one_by_one(messages: &[Message]) -> Vec<(Role, Vec<usize>)> {
    messages.iter().enumerate().map(|(index, message)| (message.role, vec![index])).collect()
}

/// For templates that know no system messages, or want the roles to take turns: what the system says goes
/// before the question that follows it, and neighbours of one role become one message.
fn folded(messages: &[Message]) -> Vec<(Role, Vec<usize>)> {
    let mut turns: Vec<(Role, Vec<usize>)> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let role = if message.role == Role::System { Role::User } else { message.role };
        match turns.last_mut() {
            Some((last, parts)) if *last == role => parts.push(index),
            _ => turns.push((role, vec![index])),
        }
    }
    turns
}

fn marker(index: usize) -> char {
    u32::try_from(index).ok().and_then(|index| char::from_u32(MARKERS + index)).unwrap_or(GUARD)
}

fn marked(index: usize) -> String {
    String::from_iter([GUARD, marker(index), GUARD])
}

/// The text before the first marker, its message, and the text after it.
fn next_marker(text: &str, n_messages: usize) -> Option<(&str, usize, &str)> {
    text.char_indices().find_map(|(at, c)| {
        let index = u32::from(c).checked_sub(MARKERS)? as usize;
        (index < n_messages).then(|| (&text[..at], index, &text[at + c.len_utf8()..]))
    })
}

struct Builder<'t> {
    tokenizer: &'t Tokenizer,
    ids: Vec<u32>,
    spans: Vec<Span>,
}

impl Builder<'_> {
    fn push_template(&mut self, text: &str) {
        self.push(text, Special::Parse, None, SpanKind::Template);
    }

    fn push_message(&mut self, before: &str, message: &Message, text: &str, index: usize) {
        let mut pieces = pieces(message, text);
        // Tokenizers write a word and the space before it as one token.
        let mut before = before;
        if let Some((first, _)) = pieces.first_mut()
            && let Some(shorter) = before.strip_suffix(' ')
            && !first.starts_with(char::is_whitespace)
        {
            first.insert(0, ' ');
            before = shorter;
        }
        self.push_template(before);
        for (text, kind) in pieces {
            self.push(&text, Special::AsText, Some(index), kind);
        }
    }

    fn push_reply(&mut self, before: &str, ids: &[u32], index: usize) {
        // The model wrote that space itself.
        let wrote_space = ids.first().is_some_and(|&id| self.tokenizer.token_text(id).starts_with(' '));
        let before = if wrote_space { before.strip_suffix(' ').unwrap_or(before) } else { before };
        self.push_template(before);
        self.push_ids(ids, Some(index), SpanKind::Text { role: Role::Assistant });
    }

    fn push(&mut self, text: &str, special: Special, message: Option<usize>, kind: SpanKind) {
        let ids = self.tokenizer.encode_after(text, special, self.ids.last().copied());
        self.push_ids(&ids, message, kind);
    }

    fn push_ids(&mut self, ids: &[u32], message: Option<usize>, kind: SpanKind) {
        if ids.is_empty() {
            return;
        }
        let start = self.ids.len() as u32;
        self.ids.extend(ids);
        let end = self.ids.len() as u32;
        let message = message.map(|index| index as u32);
        match self.spans.last_mut() {
            Some(last) if last.message == message && last.kind == kind => last.end = end,
            _ => self.spans.push(Span { start, end, message, kind }),
        }
    }
}

/// What a message says, in the order in which the model reads it; `text` is its own text.
fn pieces(message: &Message, text: &str) -> Vec<(String, SpanKind)> {
    let mut pieces = Vec::new();
    for (d, document) in message.documents.iter().enumerate() {
        pieces.push((format!("Document \"{}\":\n\n", document.name), SpanKind::Template));
        for (p, page) in document.pages.iter().enumerate() {
            let page = page.trim_end();
            if page.is_empty() {
                continue;
            }
            let kind = SpanKind::Page { document: d as u32, page: p as u32 + 1 };
            let text = match document.pages.len() {
                1 => format!("{page}\n\n"),
                _ => format!("[Page {}]\n{page}\n\n", p + 1),
            };
            pieces.push((text, kind));
        }
    }
    if !text.is_empty() {
        pieces.push((text.to_owned(), SpanKind::Text { role: message.role }));
    }
    pieces
}
