//! `cistern ask`

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use engine::error::Error;
use engine::model::Model;
use engine::protocol::{CacheState, Event, Message, Passage, PrefillMode, Role, SpanKind, TurnStats};
use engine::session::{Control, Session};
use serde::Serialize;

use crate::args::{CacheArgs, DocumentArgs, ModelArgs, SamplingArgs};
use crate::failure::Failure;
use crate::progress::{Line, bytes, seconds};
use crate::{documents, memory, open, output};

/// Reads the documents once and answers each question in turn, as one conversation.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    documents: DocumentArgs,
    /// A question; may be given several times
    #[arg(long = "ask", value_name = "QUESTION", required = true)]
    questions: Vec<String>,
    /// Instructions that come before everything
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// A passage that always stays in the cache; may be given several times
    #[arg(long = "pin", value_name = "TEXT")]
    pins: Vec<String>,
    /// Go on from this file where it exists, and leave the cache in it at the end
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    cache: CacheArgs,
}

#[derive(Serialize)]
struct Output {
    doc_tokens: u32,
    prefill_s: f32,
    prefill: PrefillMode,
    answers: Vec<AnswerOutput>,
    kv_bytes: KvBytes,
    rss_peak: Option<u64>,
}

#[derive(Serialize)]
struct AnswerOutput {
    text: String,
    tokens: u32,
    /// Tokens that had to be read before it.
    prefilled: u32,
    ttft_s: f32,
    tok_s: f32,
    /// Mean kept fraction over all positions when the answer ended.
    kept: f32,
    /// Seconds of the prefill that recall took.
    recall_s: f32,
}

#[derive(Serialize)]
struct KvBytes {
    hot_peak: u64,
    hot_now: u64,
    store: u64,
    full_would_be: u64,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    open::set_threads(&args.model);
    let mut attached = Vec::new();
    for path in &args.documents.docs {
        let loaded = documents::load(path, args.documents.password.as_deref())?;
        loaded.notes.iter().for_each(|note| eprintln!("{note}"));
        attached.push(loaded.document);
    }
    let model = open::model(&args.model)?;
    let cache = args.cache.options();
    let control = Arc::new(Control::default());
    let mut session = open_session(args, model, control.clone())?;
    for text in &args.pins {
        control.pin(Passage::Text { text: text.clone() }, true);
    }
    let mut conversation = Vec::new();
    if let Some(text) = &args.system {
        conversation.push(Message { role: Role::System, text: text.clone(), documents: Vec::new() });
    }

    let mut measured = Output {
        doc_tokens: 0,
        prefill_s: 0.0,
        prefill: PrefillMode::Auto,
        answers: Vec::new(),
        kv_bytes: KvBytes { hot_peak: 0, hot_now: 0, store: 0, full_would_be: 0 },
        rss_peak: None,
    };
    for (i, question) in args.questions.iter().enumerate() {
        let documents = std::mem::take(&mut attached);
        conversation.push(Message { role: Role::User, text: question.clone(), documents });
        let mut view = View::new(!args.json);
        if !args.json && args.questions.len() > 1 {
            output::line(format_args!("{}> {question}\n", if i == 0 { "" } else { "\n" }))?;
        }
        let sampling = args.sampling.sampling();
        let answer =
            session.send(&conversation, &cache, &sampling, args.sampling.max_tokens, &mut |event| view.show(event))?;
        let state = session.context().cache().state();
        view.end(&answer.stats, &state)?;
        if i == 0 {
            measured.doc_tokens = view.doc_tokens;
            measured.prefill_s = answer.stats.prefill_s;
            measured.prefill = view.mode;
        }
        measured.answers.push(AnswerOutput {
            text: answer.text.clone(),
            tokens: answer.stats.generated,
            prefilled: answer.stats.prefilled,
            ttft_s: answer.stats.ttft_s,
            tok_s: answer.stats.tok_s,
            kept: state.kept,
            recall_s: answer.stats.recall_s,
        });
        measured.kv_bytes = KvBytes {
            hot_peak: state.hot_peak_bytes,
            hot_now: state.hot_bytes,
            store: state.store_bytes,
            full_would_be: state.full_bytes,
        };
        conversation.push(Message { role: Role::Assistant, text: answer.text, documents: Vec::new() });
    }
    if let Some(path) = &args.snapshot {
        session.save(path)?;
    }
    if args.json {
        measured.rss_peak = memory::rss_peak();
        output::json(&measured)?;
    }
    Ok(())
}

/// The session of the snapshot where there is one that can be used, otherwise a new one.
fn open_session(args: &Args, model: Arc<Model>, control: Arc<Control>) -> Result<Session, Failure> {
    if let Some(path) = args.snapshot.as_ref().filter(|path| path.exists()) {
        match Session::restore("ask".into(), model.clone(), path, control.clone()) {
            Ok(session) => return Ok(session),
            Err(error @ Error::Snapshot { .. }) => eprintln!("{error}"),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Session::new("ask".into(), model, &args.cache.options(), control)?)
}

/// A turn on the terminal: the answer on stdout as it comes, progress and figures on stderr.
pub struct View {
    speaks: bool,
    line: Line,
    /// Tokens of the documents' pages.
    pub doc_tokens: u32,
    /// How the prompt was read.
    pub mode: PrefillMode,
    failed: Option<io::Error>,
}

impl View {
    /// `speaks`: whether the answer goes to stdout.
    pub fn new(speaks: bool) -> Self {
        Self { speaks, line: Line::new(), doc_tokens: 0, mode: PrefillMode::Auto, failed: None }
    }

    /// Shows what happened.
    pub fn show(&mut self, event: Event) {
        match event {
            Event::Layout { spans, .. } => {
                let pages = spans.iter().filter(|span| matches!(span.kind, SpanKind::Page { .. }));
                self.doc_tokens = pages.map(|span| span.end - span.start).sum();
            }
            Event::Prefill { done, total, tok_s, remaining_s, mode, .. } => {
                let left = remaining_s.map(|s| format!(", {} left", seconds(s))).unwrap_or_default();
                let how = if mode == PrefillMode::Exact { "Reading exactly" } else { "Reading" };
                self.line.set(&format!("{how} … {done} of {total} tokens, {tok_s:.0} tok/s{left}"));
                self.mode = mode;
            }
            Event::Notice { message, .. } => {
                self.line.clear();
                eprintln!("{message}");
            }
            Event::Token { text, .. } if self.speaks => {
                self.line.clear();
                let mut out = io::stdout().lock();
                let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
                self.failed = self.failed.take().or(written.err());
            }
            _ => {}
        }
    }

    /// Ends the answer's line and shows the figures of the turn.
    pub fn end(&mut self, stats: &TurnStats, state: &CacheState) -> Result<(), Failure> {
        self.line.clear();
        if let Some(error) = self.failed.take() {
            return Err(error.into());
        }
        if self.speaks {
            output::line("")?;
            eprintln!("{}", figures(stats, state));
        }
        Ok(())
    }
}

fn figures(stats: &TurnStats, state: &CacheState) -> String {
    let past = if state.past_context { " · past the context it was trained for, answers get worse" } else { "" };
    format!(
        "[{} tokens read in {:.1} s · {} written at {:.1} tok/s · cache {} of {} tokens ({:.0}%), {} instead of {}{past}]",
        stats.prefilled,
        stats.prefill_s,
        stats.generated,
        stats.tok_s,
        state.hot_entries,
        state.n_seen,
        state.kept * 100.0,
        bytes(state.hot_bytes),
        bytes(state.full_bytes),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_a_turn_fit_a_line() {
        let stats = TurnStats {
            prefilled: 1200,
            prefill_s: 12.34,
            ttft_s: 12.5,
            generated: 40,
            tok_s: 9.87,
            ..TurnStats::default()
        };
        let state = CacheState {
            n_seen: 1240,
            budget: 512,
            hot_entries: 512,
            hot_bytes: 11_796_480,
            full_bytes: 28_569_600,
            kept: 0.41,
            ..CacheState::default()
        };
        assert_eq!(
            figures(&stats, &state),
            "[1200 tokens read in 12.3 s · 40 written at 9.9 tok/s · cache 512 of 1240 tokens (41%), 11.8 MB instead of 28.6 MB]"
        );
    }
}
