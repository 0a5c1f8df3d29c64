//! A model's chat template, kept on a short leash: it comes with a file from the internet.

use std::io;
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, Value, context};

use super::PromptError;
use crate::leash::Leash;
use crate::protocol::Role;

/// What a rendering may take, in instructions and in pieces of 64 bytes: so much, and more for each message, of which
/// honest templates take some hundred.
const FUEL: u64 = 500_000;
const FUEL_PER_MESSAGE: u64 = 2_000;
/// Fuel does not count every step of the runtime: a list that holds another one twice, and that one the next, is
/// written out without an end. What its thread holds is bounded by this, and how long it is waited for.
const MEMORY: usize = 24 << 20;
const MEMORY_PER_MESSAGE: usize = 4 << 10;
const PATIENCE: u32 = 200;
const MOMENT: Duration = Duration::from_millis(10);
/// Templates may call their own macros to a depth that the runtime limits, but not by the room there is.
const STACK: usize = 32 << 20;
/// Lists may be as deep as a source is long, and are let go level by level. The longest that are known have some 30 KiB.
const MAX_SOURCE: usize = 256 << 10;
/// Messages are one character long when they are rendered.
const MAX_OUTPUT: usize = 1 << 20;
const OUTPUT_PER_MESSAGE: usize = 1 << 10;
const NAME: &str = "chat_template";

#[derive(Debug)]
pub(super) struct Template {
    environment: Environment<'static>,
    bos: String,
    eos: String,
    /// Why it is not tried again: a thread that was left behind is one too many already.
    given_up: OnceLock<&'static str>,
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
        if source.len() > MAX_SOURCE {
            return Err(PromptError::Template(format!("it is longer than {} KiB", MAX_SOURCE >> 10)));
        }
        let mut environment = Environment::new();
        // As transformers sets up jinja2, which templates are written for.
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|e| PromptError::Template(say(&e)))?);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter(PLAIN, plain);
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        // One date for as long as the model is open: a prompt that changed at midnight would have to be read anew.
        let opened = jiff::ZonedDateTime::now();
        environment.add_function("strftime_now", move |format: String| {
            jiff::fmt::strtime::format(&format, &opened)
                .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
        });
        environment.add_template_owned(NAME, adapted(source)).map_err(|e| PromptError::Template(say(&e)))?;
        Ok(Self { environment, bos, eos, given_up: OnceLock::new() })
    }

    pub(super) fn render(&self, turns: &[Turn]) -> Result<String, PromptError> {
        if let Some(why) = self.given_up.get() {
            return Err(PromptError::Refused((*why).to_owned()));
        }
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(FUEL + FUEL_PER_MESSAGE * turns.len() as u64));
        let values = context! {
            messages => turns.iter().map(Turn::value).collect::<Vec<_>>(),
            tools => (),
            documents => (),
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
            add_generation_prompt => true,
        };
        let mut output = Capped { text: Vec::new(), most: MAX_OUTPUT + OUTPUT_PER_MESSAGE * turns.len() };
        let leash = Leash::new(MEMORY + MEMORY_PER_MESSAGE * turns.len());
        let holds = leash.clone();
        let (done, outcome) = mpsc::channel();
        let rendering = thread::Builder::new().stack_size(STACK).spawn(move || {
            let rendered = holds.hold(|| {
                environment
                    .get_template(NAME)
                    .and_then(|template| template.render_captured_to(values, &mut output).map(drop))
                    .map_err(|error| say(&error))
                    .and_then(|()| String::from_utf8(output.text).map_err(|error| error.to_string()))
            });
            let _ = done.send(rendered);
        });
        rendering.map_err(|error| PromptError::Refused(error.to_string()))?;
        // In moments: while the process is held up, they do not pass.
        for _ in 0..PATIENCE {
            match outcome.recv_timeout(MOMENT) {
                Ok(rendered) => return rendered.map_err(PromptError::Refused),
                Err(RecvTimeoutError::Disconnected) => return Err(PromptError::Refused("it broke off".into())),
                Err(RecvTimeoutError::Timeout) if leash.has_ended() => return self.give_up("it takes too much memory"),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        leash.end();
        self.give_up("it takes too long")
    }

    fn give_up(&self, why: &'static str) -> Result<String, PromptError> {
        Err(PromptError::Refused((*self.given_up.get_or_init(|| why)).to_owned()))
    }
}

/// The part of an error that says something to a person.
fn say(error: &Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), str::to_owned)
}

/// The source as we run it. `{% generation %}` marks answers for training; it has no other effect, and is no part of
/// jinja. What is put into a namespace goes through [`plain`].
fn adapted(source: &str) -> String {
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
            _ => match guarded(inside) {
                Some(guarded) => guarded,
                None => continue,
            },
        };
        text.push_str(&plain);
        rest = &tag[inside.len()..];
    }
    text + rest
}

/// A tag that sets an attribute, with its value led through [`plain`].
fn guarded(tag: &str) -> Option<String> {
    let words = tag.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '-' | '+'));
    let end = tag.trim_end_matches(['-', '+']).len();
    let at = tag.find(['=', '|']).filter(|&at| at < end)?;
    let target = &tag[..at];
    if !words.starts_with("set") || !target.contains('.') {
        return None;
    }
    let (value, close) = (&tag[at + 1..end], &tag[end..]);
    Some(match tag.as_bytes()[at] {
        b'=' => format!("{target}= ({value}) | {PLAIN} {close}"),
        _ => format!("{} | {PLAIN} {close}", &tag[..end]),
    })
}

const PLAIN: &str = "plain_value";

/// How deep a value is looked into.
const DEEP: usize = 6;

/// A value that holds no namespace. One that held itself could be written out without end, which no fuel bounds.
fn plain(value: Value) -> Result<Value, Error> {
    match holds_namespace(&value, DEEP) {
        false => Ok(value),
        true => Err(Error::new(ErrorKind::InvalidOperation, "a namespace cannot hold another one")),
    }
}

fn holds_namespace(value: &Value, deep: usize) -> bool {
    let Some(object) = value.as_object() else { return false };
    if object.type_name().ends_with("::Namespace") || deep == 0 {
        return true;
    }
    let within = |value: &Value| holds_namespace(value, deep - 1);
    match value.kind() {
        ValueKind::Map => value
            .try_iter()
            .is_ok_and(|mut keys| keys.any(|key| within(&key) || value.get_item(&key).is_ok_and(|of| within(&of)))),
        ValueKind::Seq | ValueKind::Iterable => value.try_iter().is_ok_and(|mut items| items.any(|item| within(&item))),
        // A macro holds what it closes over.
        _ => true,
    }
}

/// Output of limited length.
struct Capped {
    text: Vec<u8>,
    most: usize,
}

impl io::Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len() + bytes.len() > self.most {
            return Err(io::Error::other("the output is too long"));
        }
        self.text.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
