//! `cistern chat`

use std::path::Path;
use std::sync::Arc;

use engine::protocol::{CacheOptions, Document, Event, Message, Role};
use engine::session::{Control, Session};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use crate::args::{self, CacheArgs, DocumentArgs, ModelArgs, SamplingArgs};
use crate::ask::View;
use crate::failure::Failure;
use crate::{documents, open};

const HELP: &str = "\
/doc FILE        read a document with the next question
/budget N|auto   change the budget
/new             begin again
/quit            leave (or Ctrl-D)
Ctrl-C stops an answer.";

/// A conversation in the terminal. Type /help for what can be done in it.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    documents: DocumentArgs,
    /// Instructions that come before everything
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    cache: CacheArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    open::set_threads(&args.model);
    let mut attached = Vec::new();
    for path in &args.documents.docs {
        attached.push(attach(path, args.documents.password.as_deref())?);
    }
    let model = open::model(&args.model)?;
    let control = Arc::new(Control::default());
    let for_signal = control.clone();
    ctrlc::set_handler(move || for_signal.stop()).map_err(|error| Failure::System(error.to_string()))?;

    let mut options = args.cache.options();
    let new = |options: &CacheOptions| Session::new("chat".into(), model.clone(), options, control.clone());
    let mut session = new(&options)?;
    let mut conversation = opening(args);
    let mut editor = DefaultEditor::new().map_err(|error| Failure::System(error.to_string()))?;
    eprintln!("{} · /help", model.name);
    loop {
        let line = match editor.readline("> ") {
            Ok(line) => line,
            Err(ReadlineError::Eof) => return Ok(()),
            // A habit, and no reason to lose the conversation.
            Err(ReadlineError::Interrupted) => continue,
            Err(error) => return Err(Failure::System(error.to_string())),
        };
        let line = line.trim();
        if !line.is_empty() {
            let _ = editor.add_history_entry(line);
        }
        match line.split_once(' ').map_or((line, ""), |(word, rest)| (word, rest.trim())) {
            ("", _) => {}
            ("/quit", _) => return Ok(()),
            ("/help", _) => eprintln!("{HELP}"),
            ("/new", _) => {
                session = new(&options)?;
                conversation = opening(args);
                attached.clear();
            }
            ("/doc", path) => match attach(Path::new(path), args.documents.password.as_deref()) {
                Ok(document) => attached.push(document),
                Err(error) => eprintln!("{error}"),
            },
            ("/budget", budget) => match args::budget(budget) {
                Ok(budget) => {
                    options.budget = budget.0;
                    control.set_budget(budget.0);
                    let mut notices = |event| {
                        if let Event::Notice { message, .. } = event {
                            eprintln!("{message}");
                        }
                    };
                    if let Err(error) = session.apply(&mut notices) {
                        eprintln!("{error}");
                    }
                }
                Err(error) => eprintln!("Not changed: {error}."),
            },
            (word, _) if word.starts_with('/') && !word[1..].contains('/') => {
                eprintln!("There is no {word}; see /help.")
            }
            _ => {
                conversation.push(Message {
                    role: Role::User,
                    text: line.to_owned(),
                    documents: std::mem::take(&mut attached),
                });
                let mut view = View::new(true);
                control.rearm();
                let sampling = args.sampling.sampling();
                let max_tokens = args.sampling.max_tokens;
                match session.send(&conversation, &options, &sampling, max_tokens, &mut |event| view.show(event)) {
                    Ok(answer) => {
                        view.end(&answer.stats, &session.context().cache().state())?;
                        conversation.push(Message { role: Role::Assistant, text: answer.text, documents: Vec::new() });
                    }
                    Err(error) => {
                        eprintln!("{error}");
                        // The next question finds the conversation as it was, with the documents at hand.
                        attached = conversation.pop().map(|message| message.documents).unwrap_or_default();
                    }
                }
            }
        }
    }
}

fn opening(args: &Args) -> Vec<Message> {
    let system = args.system.iter();
    system.map(|text| Message { role: Role::System, text: text.clone(), documents: Vec::new() }).collect()
}

fn attach(path: &Path, password: Option<&str>) -> Result<Document, Failure> {
    let loaded = documents::load(path, password)?;
    loaded.notes.iter().for_each(|note| eprintln!("{note}"));
    let pages = loaded.document.pages.len();
    eprintln!("{}: {pages} page{}", loaded.document.name, if pages == 1 { "" } else { "s" });
    Ok(loaded.document)
}
