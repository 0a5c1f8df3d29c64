//! A model's chat template, kept on a short leash: it comes with a file from the internet.

use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value, context};

use super::PromptError;
use crate::protocol::Role;

/// Instructions that a rendering may take: some hundred for a message, so enough for any chat.
const FUEL: u64 = 5_000_000;
/// Messages are one character long when they are rendered.
const MAX_OUTPUT: usize = 8 << 20;
const NAME: &str = "chat_template";

#[derive(Debug)]
pub(super) struct Template {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

/// A message as templates know it.
#[derive(Debug)]
pub(super) struct Turn {
    role: &'static str,
    content: String,
}

impl Turn {
    pub(super) fn new(role: Role, content: String) -> Self {
        let role = match role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        Self { role, content }
    }

    fn value(&self) -> Value {
        context! { role => self.role, content => self.content.as_str() }
    }
}

impl Template {
    pub(super) fn new(source: &str, bos: String, eos: String) -> Result<Self, PromptError> {
        let mut environment = Environment::new();
        // As transformers sets up jinja2, which templates are written for.
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|e| PromptError::Template(say(&e)))?);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_fuel(Some(FUEL));
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        // One date for as long as the model is open: a prompt that changed at midnight would have to be read anew.
        let opened = jiff::ZonedDateTime::now();
        environment.add_function("strftime_now", move |format: String| {
            jiff::fmt::strtime::format(&format, &opened)
                .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
        });
        environment
            .add_template_owned(NAME, without_training_marks(source))
            .map_err(|e| PromptError::Template(say(&e)))?;
        Ok(Self { environment, bos, eos })
    }

    pub(super) fn render(&self, turns: &[Turn]) -> Result<String, PromptError> {
        let values = context! {
            messages => turns.iter().map(Turn::value).collect::<Vec<_>>(),
            tools => (),
            documents => (),
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
            add_generation_prompt => true,
        };
        let mut output = Capped(Vec::new());
        self.environment
            .get_template(NAME)
            .and_then(|template| template.render_captured_to(values, &mut output).map(drop))
            .map_err(|error| PromptError::Refused(say(&error)))?;
        String::from_utf8(output.0).map_err(|error| PromptError::Refused(error.to_string()))
    }
}

/// The part of an error that says something to a person.
fn say(error: &Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), str::to_owned)
}

/// `{% generation %}` marks answers for training; it has no other effect, and is no part of jinja.
fn without_training_marks(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, tag)) = rest.split_once("{%") {
        text.push_str(before);
        text.push_str("{%");
        rest = tag;
        let Some((inside, _)) = tag.split_once("%}") else { break };
        let plain = match inside.trim_matches(['-', '+', ' ', '\n', '\t']) {
            "generation" => inside.replace("generation", "if true"),
            "endgeneration" => inside.replace("endgeneration", "endif"),
            _ => continue,
        };
        text.push_str(&plain);
        rest = &tag[inside.len()..];
    }
    text + rest
}

/// Output of limited length.
struct Capped(Vec<u8>);

impl io::Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT {
            return Err(io::Error::other("the output is too long"));
        }
        self.0.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
