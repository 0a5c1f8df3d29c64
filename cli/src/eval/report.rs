//! What an evaluation found, as JSON, as a table and as a picture.

use std::io::Write;

use engine::model::Model;
use engine::protocol::{KvType, PolicyName, PrefillMode};
use serde::Serialize;

use super::{Args, Case, Measured, Suite};
use crate::failure::Failure;
use crate::plot::{self, Panel, Series};
use crate::progress::bytes;

/// Everything.
#[derive(Serialize)]
pub struct Report {
    suite: Suite,
    model: String,
    quantization: String,
    tokens: u32,
    prefill: PrefillMode,
    kv: KvType,
    seed: u64,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    policy: PolicyName,
    /// Tokens; `null` for the full cache.
    budget: Option<u32>,
    recall: bool,
    guard: bool,
    /// Share of right answers when asked first.
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
    /// Share of right answers when asked after another question.
    #[serde(skip_serializing_if = "Option::is_none")]
    score_second: Option<f64>,
    #[serde(flatten)]
    measured: Measured,
}

impl Report {
    pub fn new(args: &Args, model: &Model, cases: &[Case], measured: Vec<Measured>) -> Self {
        let rows = cases.iter().zip(measured).map(|(case, measured)| Row {
            policy: case.policy,
            budget: case.budget,
            recall: case.recall,
            guard: case.guard,
            score: share(&measured.first),
            score_second: share(&measured.second),
            measured,
        });
        Self {
            suite: args.suite,
            model: model.name.clone(),
            quantization: model.quantization.clone(),
            tokens: args.tokens,
            prefill: args.prefill,
            kv: args.kv,
            seed: args.seed,
            rows: rows.collect(),
        }
    }

    pub fn print(&self, out: &mut impl Write) -> Result<(), Failure> {
        writeln!(out, "{} {}, {} tokens", self.model, self.quantization, self.tokens)?;
        let columns = match self.suite {
            Suite::Kl | Suite::Ppl => ["KL", "Same top", "Perplexity"],
            Suite::Needle => ["First", "Second", ""],
            Suite::Turns => ["Right", "", ""],
        };
        let [a, b, c] = columns;
        writeln!(
            out,
            "{:<10} {:>7} {:>6}  {a:>9} {b:>9} {c:>10}  {:>9} {:>9}",
            "Policy", "Budget", "Recall", "Hot", "Store"
        )?;
        for row in &self.rows {
            let percent = |x: Option<f64>| x.map_or(String::new(), |x| format!("{:.0}%", x * 100.0));
            let number = |x: Option<f64>, digits: usize| x.map_or(String::new(), |x| format!("{x:.digits$}"));
            let [a, b, c] = match self.suite {
                Suite::Kl | Suite::Ppl => {
                    [number(row.measured.kl, 4), percent(row.measured.top1), number(row.measured.ppl, 2)]
                }
                _ => [percent(row.score), percent(row.score_second), String::new()],
            };
            writeln!(
                out,
                "{:<10} {:>7} {:>6}  {a:>9} {b:>9} {c:>10}  {:>9} {:>9}",
                row.policy.as_str(),
                row.budget.map_or("–".to_owned(), |budget| budget.to_string()),
                match (row.budget, row.recall, row.guard) {
                    (None, ..) => "–",
                    (_, true, true) => "on",
                    (_, true, false) => "asked",
                    (_, false, _) => "off",
                },
                bytes(row.measured.hot_bytes),
                bytes(row.measured.store_bytes),
            )?;
        }
        Ok(())
    }

    /// Score over budget, and memory over budget.
    pub fn plot(&self) -> Result<String, String> {
        let score = |row: &Row| match self.suite {
            Suite::Kl => row.measured.kl,
            Suite::Ppl => row.measured.ppl,
            Suite::Needle => row.score.zip(row.score_second).map(|(a, b)| (a + b) / 2.0),
            Suite::Turns => row.score,
        };
        let name = match self.suite {
            Suite::Kl => "KL divergence from the full cache (nats)",
            Suite::Ppl => "perplexity",
            Suite::Needle | Suite::Turns => "right answers (share)",
        };
        let panels = [
            Panel { y: name, series: self.series(&score) },
            Panel { y: "hot cache (MB)", series: self.series(&|row| Some(row.measured.hot_bytes as f64 / 1e6)) },
        ];
        plot::panels(&format!("{}: {} tokens", self.model, self.tokens), "budget (tokens)", &panels)
    }

    /// One line for each policy; the full cache's is level.
    fn series(&self, value: &dyn Fn(&Row) -> Option<f64>) -> Vec<Series> {
        let budgets = || self.rows.iter().filter_map(|row| row.budget);
        let (least, most) = (budgets().min().unwrap_or(0), budgets().max().unwrap_or(self.tokens));
        Series::by_name(self.rows.iter().filter_map(|row| Some((row, value(row)?))).flat_map(|(row, y)| {
            let name = match (row.budget, row.recall) {
                (None, _) => "full".to_owned(),
                (_, true) if row.guard => format!("{} + recall", row.policy.as_str()),
                (_, true) => format!("{} + recall when asked", row.policy.as_str()),
                (_, false) => row.policy.as_str().to_owned(),
            };
            let at = row.budget.map_or(vec![least, most], |budget| vec![budget]);
            at.into_iter().map(move |budget| (name.clone(), (budget.into(), y).into()))
        }))
    }
}

fn share(right: &[bool]) -> Option<f64> {
    (!right.is_empty()).then(|| right.iter().filter(|&&right| right).count() as f64 / right.len() as f64)
}
