//! `cistern eval`: what a policy costs in quality, beside the full cache.

mod foretell;
mod needle;
mod report;
mod turns;

use std::path::PathBuf;
use std::sync::Arc;

use engine::cache::policy::{Observes, Plan};
use engine::model::Model;
use engine::protocol::{CacheOptions, KvType, PolicyName, PrefillMode, Sampling};
use engine::session::{Answer, Session};
use serde::Serialize;

use crate::args::{self, ModelArgs};
use crate::failure::Failure;
use crate::progress::Line;
use crate::{open, output};

/// Real prose: the opening of a novel.
const PROSE: &str = include_str!("../../../engine/tests/texts/pride-and-prejudice-opening.txt");

/// Compares what policies and budgets answer with what the full cache answers. Greedy, and the same every time.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// `kl` and `ppl`: how well the text is foretold; `needle`: facts hidden in a document; `turns`: facts of a
    /// long chat
    #[arg(long, value_enum)]
    suite: Suite,
    /// Policies; `full` is always there
    #[arg(
        long,
        value_name = "P,…",
        value_delimiter = ',',
        default_value = "h2o,window,random",
        value_parser = args::named::<PolicyName>(&args::POLICIES)
    )]
    policy: Vec<PolicyName>,
    /// Budgets, in tokens or as a share of the text such as 10%
    #[arg(long, value_name = "N|X%,…", value_delimiter = ',', default_value = "10%,25%,50%", value_parser = budget)]
    budget: Vec<Size>,
    /// Tokens of the document or chat
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(512..))]
    tokens: u32,
    /// Tokens that are foretold, for `kl` and `ppl`
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    r#gen: u32,
    /// A text to read in place of the built-in novel
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Whether questions bring entries back; both are run where both are given
    #[arg(long, value_name = "on,off", value_delimiter = ',', default_value = "on", value_parser = args::on_off())]
    recall: Vec<bool>,
    /// Whether answers are watched while they are written; both are run where both are given
    #[arg(long, value_name = "on,off", value_delimiter = ',', default_value = "on", value_parser = args::on_off())]
    guard: Vec<bool>,
    /// Share of the budget that a question may bring back
    #[arg(long, value_name = "X", default_value_t = CacheOptions::default().recall_share)]
    recall_share: f32,
    /// Last tokens that always stay [default: the policy's share of the budget]
    #[arg(long, value_name = "N")]
    recent: Option<u32>,
    /// How the document is read
    #[arg(long, default_value = "exact", value_parser = args::named::<PrefillMode>(&["exact", "streaming"]))]
    prefill: PrefillMode,
    /// How keys and values are held; the full cache they are compared with is f32, but for f16 itself
    #[arg(long, default_value = "f16", value_parser = args::named::<KvType>(&args::KV_TYPES))]
    kv: KvType,
    /// Changes the hidden facts
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Draw score and memory over the budget into an SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Suite {
    /// KL divergence from the full cache.
    Kl,
    /// Perplexity.
    Ppl,
    /// Facts in a document.
    Needle,
    /// Facts of a chat.
    Turns,
}

/// A budget before the text's length is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Size {
    /// Tokens.
    Tokens(u32),
    /// Share of the text.
    Share(f64),
}

impl Size {
    fn of(self, tokens: u32) -> u32 {
        match self {
            Self::Tokens(n) => n,
            Self::Share(share) => (share * f64::from(tokens)).round() as u32,
        }
    }
}

fn budget(text: &str) -> Result<Size, String> {
    let wrong = || "a budget is a number of tokens, or a share such as 10%".to_owned();
    match text.strip_suffix('%') {
        Some(share) => match share.parse::<f64>() {
            Ok(share) if share > 0.0 && share <= 100.0 => Ok(Size::Share(share / 100.0)),
            _ => Err(wrong()),
        },
        None => match text.parse() {
            Ok(n) if n > 0 => Ok(Size::Tokens(n)),
            _ => Err(wrong()),
        },
    }
}

/// One policy at one budget; the full cache has no budget.
#[derive(Debug, Clone, PartialEq)]
struct Case {
    policy: PolicyName,
    budget: Option<u32>,
    recall: bool,
    guard: bool,
}

/// What a suite measured of one case.
#[derive(Debug, Clone, Default, Serialize)]
struct Measured {
    /// Answered right when asked first, by depth (`needle`), or at all (`turns`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    first: Vec<bool>,
    /// Answered right when another question came before, by depth.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    second: Vec<bool>,
    /// Every answer with what would have been right, in the order in which it was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    answers: Vec<(String, String)>,
    /// Mean KL divergence from the full cache, in nats.
    #[serde(skip_serializing_if = "Option::is_none")]
    kl: Option<f64>,
    /// Share of positions whose likeliest token is the full cache's.
    #[serde(skip_serializing_if = "Option::is_none")]
    top1: Option<f64>,
    /// Perplexity.
    #[serde(skip_serializing_if = "Option::is_none")]
    ppl: Option<f64>,
    /// Bytes of the hot cache.
    hot_bytes: u64,
    /// Bytes of the store.
    store_bytes: u64,
    /// Share of the questions' prefill time that recall took.
    #[serde(skip_serializing_if = "Option::is_none")]
    recall_share_of_prefill: Option<f64>,
    #[serde(skip)]
    prefill_s: f64,
    #[serde(skip)]
    recall_s: f64,
}

impl Measured {
    /// Notes an answer, and says whether it holds what is right.
    fn answered(&mut self, right: &str, answer: &Answer) -> bool {
        self.answers.push((right.to_owned(), answer.text.clone()));
        self.prefill_s += f64::from(answer.stats.prefill_s);
        self.recall_s += f64::from(answer.stats.recall_s);
        answer.text.contains(right)
    }

    /// Notes the memory of a session that has answered.
    fn remember(&mut self, session: &Session) {
        let state = session.context().cache().state();
        self.hot_bytes = self.hot_bytes.max(state.hot_bytes);
        self.store_bytes = state.store_bytes;
    }

    /// Once every question has been asked.
    fn finish(mut self, case: &Case) -> Self {
        self.recall_share_of_prefill = case.recall.then_some(self.recall_s / self.prefill_s);
        self
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    open::set_threads(&args.model);
    let text = match &args.text {
        Some(path) => std::fs::read_to_string(path).map_err(|source| Failure::Read { path: path.clone(), source })?,
        None => PROSE.to_owned(),
    };
    let model = open::model(&args.model)?;
    let cases = cases(args);
    // Paragraphs are told by empty lines, whatever ends a line.
    let text = text.replace("\r\n", "\n");
    let bench = Bench { args, model, text, line: Line::new() };
    let measured = match args.suite {
        Suite::Kl | Suite::Ppl => foretell::run(&bench, &cases)?,
        Suite::Needle => needle::run(&bench, &cases)?,
        Suite::Turns => turns::run(&bench, &cases)?,
    };
    bench.line.clear();
    let report = report::Report::new(args, &bench.model, &cases, measured);
    if let Some(path) = &args.plot {
        report
            .plot()
            .map_err(std::io::Error::other)
            .and_then(|svg| std::fs::write(path, svg))
            .map_err(|source| Failure::Write { path: path.clone(), source })?;
    }
    match args.json {
        true => output::json(&report),
        false => report.print(&mut std::io::stdout().lock()),
    }
}

/// The full cache first, then every other combination.
fn cases(args: &Args) -> Vec<Case> {
    let mut cases = vec![Case { policy: PolicyName::Full, budget: None, recall: false, guard: false }];
    for &policy in args.policy.iter().filter(|&&policy| policy != PolicyName::Full) {
        for &recall in &args.recall {
            // Without recall there is nothing that an answer could bring back.
            let guards = if recall { args.guard.as_slice() } else { &[false] };
            for &guard in guards {
                for budget in &args.budget {
                    cases.push(Case { policy, budget: Some(budget.of(args.tokens)), recall, guard });
                }
            }
        }
    }
    cases
}

/// What the suites share.
struct Bench<'a> {
    args: &'a Args,
    model: Arc<Model>,
    text: String,
    line: Line,
}

impl Bench<'_> {
    fn options(&self, case: &Case) -> CacheOptions {
        CacheOptions {
            policy: case.policy,
            budget: Some(case.budget.unwrap_or(self.room())),
            kv: self.args.kv,
            prefill: self.args.prefill,
            recall: case.recall,
            guard: case.guard,
            recall_share: self.args.recall_share,
            recent: self.args.recent,
            store_limit: Some(u64::MAX),
            ..CacheOptions::default()
        }
    }

    /// A budget that the text and everything asked about it fits in.
    fn room(&self) -> u32 {
        self.args.tokens * 2 + 4_096
    }

    /// Reads with everything kept and all that `policy` looks at looked at, to be cut back afterwards: the same as
    /// an exact prefill at any budget, read once for all of them.
    fn reading(&self, policy: PolicyName) -> CacheOptions {
        let policy = match Plan::by_name(policy).prompt.observes() {
            // What one policy's last queries are, serves every policy that looks at fewer.
            Observes::Nothing | Observes::Queries(_) => PolicyName::SnapKv,
            Observes::Statistics | Observes::Repetition => policy,
        };
        CacheOptions { recall: false, ..self.options(&Case { policy, budget: None, recall: false, guard: false }) }
    }

    /// Says on the progress line what is going on with the `i`th of the cases.
    fn say(&self, i: usize, cases: &[Case], what: std::fmt::Arguments) {
        self.line.set(&format!("{} of {}: {}{what} …", i + 1, cases.len(), cases[i].policy.as_str()));
    }

    fn greedy(&self) -> Sampling {
        Sampling { temperature: 0.0, repetition_penalty: 1.0, ..Sampling::default() }
    }
}

/// What was read for `policy`, read by `make` where it was not before.
fn read_once<T>(
    read: &mut Vec<(PolicyName, T)>,
    policy: PolicyName,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Result<&mut T, Failure> {
    let at = match read.iter().position(|(known, _)| *known == policy) {
        Some(at) => at,
        None => {
            read.push((policy, make()?));
            read.len() - 1
        }
    };
    Ok(&mut read[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_tokens_or_shares() {
        assert_eq!(budget("256"), Ok(Size::Tokens(256)));
        assert_eq!(budget("2.5%").unwrap().of(8_000), 200);
        for wrong in ["0", "-1", "0%", "101%", "x"] {
            assert!(budget(wrong).is_err(), "{wrong}");
        }
    }
}
