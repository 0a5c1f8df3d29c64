//! `cistern tokenize`

use std::path::PathBuf;

use engine::gguf::Gguf;
use engine::tokenizer::{Special, Tokenizer};
use serde_json::json;

use crate::failure::Failure;
use crate::{open, output};

/// Prints `{"ids":[…]}`. The text is taken as it is: no template, no token for its beginning; the spelling of a
/// control token is that token.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("input").required(true))]
pub struct Args {
    /// A GGUF file, or the id of a model that `cistern models list` names [default: the starter model]
    #[arg(long, value_name = "FILE|ID")]
    model: Option<String>,
    /// The text
    #[arg(long, group = "input", allow_hyphen_values = true)]
    text: Option<String>,
    /// A UTF-8 text file
    #[arg(long, group = "input")]
    file: Option<PathBuf>,
    // The output is JSON anyway; programs that ask for it everywhere are served.
    #[arg(long, hide = true)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    let text = match (&args.text, &args.file) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) => {
            std::fs::read_to_string(path).map_err(|source| Failure::Read { path: path.clone(), source })?
        }
        (None, None) => String::new(),
    };
    // The weights stay where they are: reading the tokenizer takes a moment, opening a model may take a minute.
    let gguf = Gguf::open(&open::path(args.model.as_deref())?)?;
    let tokenizer = Tokenizer::from_gguf(gguf.metadata()).map_err(engine::error::Error::from)?;
    output::json(&json!({ "ids": tokenizer.encode(&text, Special::Parse) }))
}
