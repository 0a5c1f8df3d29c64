//! `cistern trace`

use std::io::Write;
use std::path::{Path, PathBuf};

use engine::context::Context;
use engine::error::Error;
use engine::protocol::{CacheOptions, PrefillMode};
use engine::tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};

use crate::args::{CacheArgs, ModelArgs};
use crate::failure::Failure;
use crate::progress::Line;
use crate::{open, output};

/// Feeds token ids as they are, without a template, in chunks, and prints the logits after the last one and
/// the positions that each layer and KV head still holds. The same ids and options give the same output:
/// `--budget auto` means everything here.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Token ids: a JSON array, the output of `cistern tokenize`, or numbers with space between
    #[arg(long, value_name = "FILE")]
    ids: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cache: CacheArgs,
}

#[derive(Serialize)]
struct Trace<'a> {
    n_seen: u32,
    logits: Vec<f32>,
    layers: Vec<Vec<&'a [u32]>>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    open::set_threads(&args.model);
    let ids = read_ids(&args.ids)?;
    let model = open::model(&args.model)?;
    if let Some(id) = ids.iter().find(|&&id| id as usize >= model.tokenizer.vocab_size()) {
        return Err(Failure::Usage(format!("Token {id} is not in this model's vocabulary; check --ids.")));
    }

    let options = args.cache.options();
    let budget = Some(options.budget.unwrap_or(model.config.context.max(ids.len() as u32)));
    // Every token counts the same here: none of them is a question.
    let options = CacheOptions { budget, prefill: PrefillMode::Streaming, ..options };
    let mut context = Context::new(model.clone(), &options)?;
    let line = Line::new();
    line.set(&format!("Reading {} tokens …", ids.len()));
    let logits = context.prefill(&ids)?;
    line.clear();

    let cache = context.cache();
    let trace =
        Trace { n_seen: cache.n_seen(), logits: logits.to_vec1().map_err(Error::from)?, layers: cache.positions() };
    match args.json {
        true => output::json(&trace),
        false => print(&mut std::io::stdout().lock(), &trace, &model.tokenizer),
    }
}

/// The likeliest next tokens, and how much each layer kept.
fn print(out: &mut impl Write, trace: &Trace, tokenizer: &Tokenizer) -> Result<(), Failure> {
    writeln!(out, "{} tokens read. Likeliest next:", trace.n_seen)?;
    let mut ranked: Vec<_> = trace.logits.iter().enumerate().collect();
    ranked.sort_by(|a, b| b.1.total_cmp(a.1));
    for (id, logit) in ranked.into_iter().take(5) {
        writeln!(out, "  {id:>7}  {logit:8.3}  {:?}", tokenizer.token_text(id as u32))?;
    }
    for (i, heads) in trace.layers.iter().enumerate() {
        let kept: Vec<_> = heads.iter().map(|positions| positions.len().to_string()).collect();
        writeln!(out, "Layer {i:>2} keeps, for each KV head: {}", kept.join(" "))?;
    }
    Ok(())
}

fn read_ids(path: &Path) -> Result<Vec<u32>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|source| Failure::Read { path: path.to_owned(), source })?;
    let ids = parse_ids(&text).ok_or_else(|| {
        Failure::Usage(format!(
            "{} holds no token ids; write a JSON array, or numbers with space between.",
            path.display()
        ))
    })?;
    if ids.is_empty() {
        return Err(Failure::Usage(format!("{} is empty; give at least one token id.", path.display())));
    }
    Ok(ids)
}

fn parse_ids(text: &str) -> Option<Vec<u32>> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Ids {
        Array(Vec<u32>),
        Tokenized { ids: Vec<u32> },
    }
    match serde_json::from_str(text) {
        Ok(Ids::Array(ids) | Ids::Tokenized { ids }) => Some(ids),
        Err(_) => text.split_whitespace().map(|word| word.trim_end_matches(',').parse().ok()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_as_json_or_as_plain_numbers() {
        for text in ["[1, 2, 3]", r#"{"ids":[1,2,3]}"#, "1 2\n3\n", "1, 2, 3"] {
            assert_eq!(parse_ids(text), Some(vec![1, 2, 3]), "{text}");
        }
        assert_eq!(parse_ids("one two"), None);
        assert_eq!(parse_ids("[-1]"), None);
    }
}
