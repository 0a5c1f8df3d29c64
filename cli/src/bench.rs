//! `cistern bench`

mod bandwidth;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use engine::cache::bytes_per_token;
use engine::context::Context;
use engine::error::Error;
use engine::model::Model;
use engine::protocol::{CacheOptions, KvType, PolicyName, PrefillMode};
use engine::tokenizer::Special;
use serde::Serialize;

use crate::args::{self, Budget, ModelArgs};
use crate::failure::Failure;
use crate::plot::{self, Panel, Point, Series};
use crate::progress::{Line, bytes};
use crate::{memory, open, output};

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
    /// Whether the host's memory holds every entry, for recall
    #[arg(long, value_name = "on|off", default_value = "on", action = clap::ArgAction::Set, value_parser = args::on_off())]
    recall: bool,
    /// How a long prompt is read; `auto` may take either
    #[arg(long, default_value = "auto", value_parser = args::named::<PrefillMode>(&["auto", "exact", "streaming"]))]
    prefill: PrefillMode,
    /// Runs of each combination
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    reps: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Draw speed and memory over the context into an SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

#[derive(Serialize)]
struct Output {
    model: String,
    quantization: String,
    device: String,
    threads: usize,
    /// Seconds from the program's start to an open model.
    open_s: f64,
    /// Seconds from the program's start to its first token, after a prompt of one token.
    first_token_s: f64,
    /// Weights that every token reads.
    weight_bytes: u64,
    /// Bytes a second that all threads together read from memory.
    read_bandwidth: Spread,
    r#gen: u32,
    rows: Vec<Row>,
}

/// The runs of one combination.
#[derive(Serialize)]
struct Row {
    policy: PolicyName,
    /// Tokens, or `null` for automatic; `full` has none.
    budget: Option<u32>,
    /// Tokens that were read.
    context: u32,
    prefill_tok_s: Option<Spread>,
    /// Tokens a second while writing.
    decode_tok_s: Spread,
    /// Bytes that writing a token reads, weights and hot entries, in a second: as a share of what memory can do.
    roofline: Spread,
    hot_bytes: Spread,
    hot_peak: Spread,
    /// Bytes by which the process grew, once the tokens were written.
    allocated: Option<Spread>,
    rss_peak: Option<Spread>,
}

/// What several runs measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Spread {
    min: f64,
    median: f64,
    max: f64,
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

    fn per(self, unit: f64) -> Self {
        Self { min: self.min / unit, median: self.median / unit, max: self.max / unit }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    let started = Instant::now();
    open::set_threads(&args.model);
    let model = open::model(&args.model)?;
    let open_s = started.elapsed().as_secs_f64();
    let cases = cases(args);
    // Also brings the weights into memory.
    measure(&model, &cases[0].0, 1, 1)?;
    let first_token_s = started.elapsed().as_secs_f64();

    let mut bandwidths = Vec::new();
    let mut runs: Vec<Vec<Run>> = cases.iter().map(|_| Vec::new()).collect();
    let line = Line::new();
    for rep in 0..args.reps {
        bandwidths.push(bandwidth::read());
        for (i, (options, context)) in cases.iter().enumerate() {
            line.set(&format!("Run {} of {} …", rep as usize * cases.len() + i + 1, args.reps as usize * cases.len()));
            runs[i].push(measure(&model, options, *context, args.r#gen)?);
        }
    }
    line.clear();

    let Some(read_bandwidth) = Spread::of(bandwidths.into_iter()) else { return Ok(()) };
    let measured = Output {
        model: model.name.clone(),
        quantization: model.quantization.clone(),
        device: engine::device::describe(model.device()).name,
        threads: engine::device::threads(),
        open_s,
        first_token_s,
        weight_bytes: model.step_bytes(),
        read_bandwidth,
        r#gen: args.r#gen,
        rows: cases.iter().zip(&runs).filter_map(|(case, runs)| row(case, runs, read_bandwidth.median)).collect(),
    };
    if let Some(path) = &args.plot {
        draw(&measured)
            .map_err(std::io::Error::other)
            .and_then(|svg| std::fs::write(path, svg))
            .map_err(|source| Failure::Write { path: path.clone(), source })?;
    }
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
                    recall: args.recall,
                    store_limit: (!args.recall).then_some(0),
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
    /// Bytes that writing a token read, on average.
    step_bytes: f64,
    hot_bytes: u64,
    hot_peak: u64,
    allocated: Option<u64>,
    rss_peak: Option<u64>,
}

fn measure(model: &Arc<Model>, options: &CacheOptions, n: u32, generate: u32) -> Result<Run, Failure> {
    let tokenizer = &model.tokenizer;
    let text = tokenizer.encode(TEXT, Special::AsText);
    // At context 0 something has to come first all the same: one token.
    let ids: Vec<u32> = tokenizer.bos().into_iter().chain(text.into_iter().cycle()).take(n.max(1) as usize).collect();
    engine::memory::give_back();
    memory::reset_rss_peak();
    let allocated = memory::rss_allocated();
    let mut context = Context::new(model.clone(), options)?;
    let started = Instant::now();
    let mut logits = context.prefill(&ids)?;
    let prefill_s = started.elapsed().as_secs_f64();

    let entry_bytes = bytes_per_token(&model.config, options.kv);
    let mut entries = 0;
    let started = Instant::now();
    for _ in 0..generate {
        let next = logits.argmax(0).and_then(|id| id.to_scalar()).map_err(Error::from)?;
        logits = context.step(next)?;
        entries += u64::from(context.cache().hot_entries());
    }
    // The last result may still be on its way on a GPU.
    logits.argmax(0).and_then(|id| id.to_scalar::<u32>()).map_err(Error::from)?;
    let decode_s = started.elapsed().as_secs_f64();
    engine::memory::give_back();
    let grown = |before: u64| Some(memory::rss_allocated()?.saturating_sub(before));
    Ok(Run {
        prefill_tok_s: (n > 0).then(|| f64::from(n) / prefill_s),
        decode_tok_s: f64::from(generate) / decode_s,
        step_bytes: model.step_bytes() as f64 + (entries * entry_bytes) as f64 / f64::from(generate),
        hot_bytes: context.cache().bytes(),
        hot_peak: context.cache().state().hot_peak_bytes,
        allocated: allocated.and_then(grown),
        rss_peak: memory::rss_peak(),
    })
}

fn row((options, context): &(CacheOptions, u32), runs: &[Run], bandwidth: f64) -> Option<Row> {
    let bytes = |of: fn(&Run) -> Option<u64>| Spread::of(runs.iter().filter_map(|run| Some(of(run)? as f64)));
    Some(Row {
        policy: options.policy,
        budget: options.budget,
        context: *context,
        prefill_tok_s: Spread::of(runs.iter().filter_map(|run| run.prefill_tok_s)),
        decode_tok_s: Spread::of(runs.iter().map(|run| run.decode_tok_s))?,
        roofline: Spread::of(runs.iter().map(|run| run.step_bytes * run.decode_tok_s / bandwidth))?,
        hot_bytes: bytes(|run| Some(run.hot_bytes))?,
        hot_peak: bytes(|run| Some(run.hot_peak))?,
        allocated: bytes(|run| run.allocated),
        rss_peak: bytes(|run| run.rss_peak),
    })
}

/// Speed and memory over the context, one line for each policy and budget.
fn draw(output: &Output) -> Result<String, String> {
    let series = |of: fn(&Row) -> Option<Spread>| {
        Series::by_name(output.rows.iter().filter_map(|row| {
            let Spread { min, median, max } = of(row)?;
            let name = match (row.policy, row.budget) {
                (PolicyName::Full, _) => "full".to_owned(),
                (policy, None) => format!("{}, budget auto", policy.as_str()),
                (policy, Some(budget)) => format!("{}, budget {budget}", policy.as_str()),
            };
            Some((name, Point { x: row.context.into(), y: median, min, max }))
        }))
    };
    let panels = [
        Panel { y: "writing (tok/s)", series: series(|row| Some(row.decode_tok_s)) },
        Panel { y: "reading (tok/s)", series: series(|row| row.prefill_tok_s) },
        Panel { y: "hot cache (MB)", series: series(|row| Some(row.hot_bytes.per(1e6))) },
    ];
    let title = format!("{} {} on {}", output.model, output.quantization, output.device);
    plot::panels(&title, "tokens of context", &panels)
}

fn print(out: &mut impl Write, output: &Output) -> Result<(), Failure> {
    writeln!(out, "{} {} on {}, median (min–max)", output.model, output.quantization, output.device)?;
    writeln!(
        out,
        "Open after {:.2} s, first token after {:.2} s. A token reads {} of weights; memory reads {} a second.",
        output.open_s,
        output.first_token_s,
        bytes(output.weight_bytes),
        bytes(output.read_bandwidth.median as u64),
    )?;
    writeln!(
        out,
        "{:>8}  {:<10} {:>7}  {:>22}  {:>20}  {:>8}  {:>9}  {:>9}",
        "Context", "Policy", "Budget", "Prefill tok/s", "Decode tok/s", "Roofline", "KV", "RSS peak"
    )?;
    for row in &output.rows {
        let budget = match (row.policy, row.budget) {
            (PolicyName::Full, _) => "–".to_owned(),
            (_, None) => "auto".to_owned(),
            (_, Some(budget)) => budget.to_string(),
        };
        writeln!(
            out,
            "{:>8}  {:<10} {budget:>7}  {:>22}  {:>20}  {:>7.0}%  {:>9}  {:>9}",
            row.context,
            row.policy.as_str(),
            spread(row.prefill_tok_s),
            spread(Some(row.decode_tok_s)),
            row.roofline.median * 100.0,
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
