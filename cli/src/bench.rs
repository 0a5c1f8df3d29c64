//! `cistern bench`

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use engine::context::Context;
use engine::error::Error;
use engine::model::Model;
use engine::protocol::{CacheOptions, KvType, PolicyName, PrefillMode};
use engine::tokenizer::Special;
use serde::Serialize;

use crate::args::{self, Budget, ModelArgs};
use crate::failure::Failure;
use crate::progress::{Line, bytes};
use crate::{memory, open, output, plot};

/// What is read: real text, repeated to the length asked for.
const TEXT: &str = include_str!("../../docs/guide/guide.typ");

/// Reads a text of each length and writes some tokens after it, for each policy and budget. Every combination
/// is run several times in turn, so that a busy moment does not hit one of them alone.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Tokens that are read before the writing is measured
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "0,512,2048")]
    context: Vec<u32>,
    /// Tokens that are written
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    r#gen: u32,
    /// Policies
    #[arg(
        long,
        value_name = "P,…",
        value_delimiter = ',',
        default_value = "full,h2o",
        value_parser = args::named::<PolicyName>(&args::POLICIES)
    )]
    policy: Vec<PolicyName>,
    /// Budgets in tokens
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1024", value_parser = args::budget)]
    budget: Vec<Budget>,
    /// Tokens that are read at once
    #[arg(long, value_name = "N", default_value_t = CacheOptions::default().chunk)]
    chunk: u32,
    /// How keys and values are held
    #[arg(long, default_value = "f16", value_parser = args::named::<KvType>(&args::KV_TYPES))]
    kv: KvType,
    /// How a long prompt is read; `auto` may take either
    #[arg(long, default_value = "auto", value_parser = args::named::<PrefillMode>(&["auto", "exact", "streaming"]))]
    prefill: PrefillMode,
    /// Runs of each combination
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    reps: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Draw the speed of writing over the context into an SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

#[derive(Serialize)]
struct Output {
    model: String,
    quantization: String,
    device: String,
    r#gen: u32,
    rows: Vec<Row>,
}

/// The runs of one combination.
#[derive(Serialize)]
pub struct Row {
    /// Name of the policy.
    pub policy: PolicyName,
    /// Tokens, or `null` for automatic; `full` has none.
    pub budget: Option<u32>,
    /// Tokens that were read.
    pub context: u32,
    prefill_tok_s: Option<Spread>,
    /// Tokens a second while writing.
    pub decode_tok_s: Spread,
    hot_bytes: Spread,
    hot_peak: Spread,
    rss_peak: Option<Spread>,
}

/// What several runs measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Least.
    pub min: f64,
    /// In the middle.
    pub median: f64,
    /// Most.
    pub max: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<_> = values.collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = match values.len() {
            0 => return None,
            n if n % 2 == 1 => values[middle],
            _ => (values[middle - 1] + values[middle]) / 2.0,
        };
        Some(Self { min: values[0], median, max: values[values.len() - 1] })
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    open::set_threads(&args.model);
    let model = open::model(&args.model)?;
    let cases = cases(args);
    let mut runs: Vec<Vec<Run>> = cases.iter().map(|_| Vec::new()).collect();
    let line = Line::new();
    for rep in 0..args.reps {
        for (i, (options, context)) in cases.iter().enumerate() {
            line.set(&format!("Run {} of {} …", rep as usize * cases.len() + i + 1, args.reps as usize * cases.len()));
            runs[i].push(measure(&model, options, *context, args.r#gen)?);
        }
    }
    line.clear();

    let rows: Vec<_> = cases.iter().zip(&runs).filter_map(|(case, runs)| row(case, runs)).collect();
    if let Some(path) = &args.plot {
        plot::decode_speed(&rows, &model.name)
            .map_err(std::io::Error::other)
            .and_then(|svg| std::fs::write(path, svg))
            .map_err(|source| Failure::Write { path: path.clone(), source })?;
    }
    let measured = Output {
        model: model.name.clone(),
        quantization: model.quantization.clone(),
        device: engine::device::describe(model.device()).name,
        r#gen: args.r#gen,
        rows,
    };
    match args.json {
        true => output::json(&measured),
        false => print(&mut std::io::stdout().lock(), &measured),
    }
}

fn cases(args: &Args) -> Vec<(CacheOptions, u32)> {
    let mut cases = Vec::new();
    for &context in &args.context {
        for &policy in &args.policy {
            // The baseline keeps everything whatever the budget: once is enough.
            let budgets: &[Budget] = if policy == PolicyName::Full { &[Budget(None)] } else { &args.budget };
            for budget in budgets {
                let options = CacheOptions {
                    policy,
                    budget: budget.0,
                    chunk: args.chunk,
                    kv: args.kv,
                    prefill: args.prefill,
                    ..CacheOptions::default()
                };
                cases.push((options, context));
            }
        }
    }
    cases
}

struct Run {
    prefill_tok_s: Option<f64>,
    decode_tok_s: f64,
    hot_bytes: u64,
    hot_peak: u64,
    rss_peak: Option<u64>,
}

fn measure(model: &Arc<Model>, options: &CacheOptions, n: u32, generate: u32) -> Result<Run, Failure> {
    let tokenizer = &model.tokenizer;
    let text = tokenizer.encode(TEXT, Special::AsText);
    // At context 0 something has to come first all the same: one token.
    let ids: Vec<u32> = tokenizer.bos().into_iter().chain(text.into_iter().cycle()).take(n.max(1) as usize).collect();
    memory::reset_rss_peak();
    let mut context = Context::new(model.clone(), options)?;
    let started = Instant::now();
    let mut logits = context.prefill(&ids)?;
    let prefill_s = started.elapsed().as_secs_f64();

    let started = Instant::now();
    for _ in 0..generate {
        let next = logits.argmax(0).and_then(|id| id.to_scalar()).map_err(Error::from)?;
        logits = context.step(next)?;
    }
    // The last result may still be on its way on a GPU.
    logits.argmax(0).and_then(|id| id.to_scalar::<u32>()).map_err(Error::from)?;
    let decode_s = started.elapsed().as_secs_f64();
    Ok(Run {
        prefill_tok_s: (n > 0).then(|| f64::from(n) / prefill_s),
        decode_tok_s: f64::from(generate) / decode_s,
        hot_bytes: context.cache().bytes(),
        hot_peak: context.cache().state().hot_peak_bytes,
        rss_peak: memory::rss_peak(),
    })
}

fn row((options, context): &(CacheOptions, u32), runs: &[Run]) -> Option<Row> {
    Some(Row {
        policy: options.policy,
        budget: options.budget,
        context: *context,
        prefill_tok_s: Spread::of(runs.iter().filter_map(|run| run.prefill_tok_s)),
        decode_tok_s: Spread::of(runs.iter().map(|run| run.decode_tok_s))?,
        hot_bytes: Spread::of(runs.iter().map(|run| run.hot_bytes as f64))?,
        hot_peak: Spread::of(runs.iter().map(|run| run.hot_peak as f64))?,
        rss_peak: Spread::of(runs.iter().filter_map(|run| run.rss_peak.map(|bytes| bytes as f64))),
    })
}

fn print(out: &mut impl Write, output: &Output) -> Result<(), Failure> {
    writeln!(out, "{} {} on {}, median (min–max)", output.model, output.quantization, output.device)?;
    writeln!(
        out,
        "{:>8}  {:<10} {:>7}  {:>22}  {:>20}  {:>9}  {:>9}",
        "Context", "Policy", "Budget", "Prefill tok/s", "Decode tok/s", "KV", "RSS peak"
    )?;
    for row in &output.rows {
        let budget = match (row.policy, row.budget) {
            (PolicyName::Full, _) => "–".to_owned(),
            (_, None) => "auto".to_owned(),
            (_, Some(budget)) => budget.to_string(),
        };
        writeln!(
            out,
            "{:>8}  {:<10} {budget:>7}  {:>22}  {:>20}  {:>9}  {:>9}",
            row.context,
            row.policy.as_str(),
            spread(row.prefill_tok_s),
            spread(Some(row.decode_tok_s)),
            bytes(row.hot_bytes.median as u64),
            row.rss_peak.map_or("unknown".to_owned(), |rss| bytes(rss.median as u64)),
        )?;
    }
    Ok(())
}

fn spread(spread: Option<Spread>) -> String {
    spread.map_or("–".to_owned(), |Spread { min, median, max }| format!("{median:.1} ({min:.1}–{max:.1})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_least_middle_and_most() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0].into_iter()), Some(Spread { min: 1.0, median: 2.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0].into_iter()), Some(Spread { min: 1.0, median: 2.5, max: 4.0 }));
        assert_eq!(Spread::of(std::iter::empty()), None);
    }
}
