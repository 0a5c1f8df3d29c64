//! The engine behind a pipe, as the shell uses it, with the starter model.
#![allow(clippy::unwrap_used)]

use std::io::BufReader;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command as Process, Stdio};

use engine::protocol::{
    CacheOptions, Command, Document, Event, Message, Report, Request, Role, Sampling, read_frame, write_frame,
};

struct Worker {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    last_id: u64,
}

impl Worker {
    fn with_starter() -> Self {
        let mut process = Process::new(env!("CARGO_BIN_EXE_cistern"))
            .arg("worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut worker = Self { process, to, from, last_id: 0 };
        let models = std::env::var_os("CISTERN_TEST_MODELS")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../models"), Into::into);
        let load = worker.ask(Request::Load { path: models.join("SmolLM2-135M-Instruct.Q4_1.gguf") });
        worker.until(|report| report.re == Some(load));
        worker
    }

    fn ask(&mut self, request: Request) -> u64 {
        self.last_id += 1;
        write_frame(&mut self.to, &Command { id: self.last_id, request }).unwrap();
        self.last_id
    }

    /// Everything that it says, up to what is waited for.
    fn until(&mut self, mut is: impl FnMut(&Report) -> bool) -> Vec<Report> {
        let mut said = Vec::new();
        while let Some(report) = read_frame::<Report>(&mut self.from).unwrap() {
            let done = is(&report);
            said.push(report);
            if done {
                return said;
            }
        }
        panic!("the worker ended after {said:?}");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn send(session: &str, characters: usize) -> Request {
    let novel = include_str!("../../engine/tests/texts/pride-and-prejudice-opening.txt");
    let document = Document { name: "novel.txt".into(), pages: vec![novel[..characters].into()] };
    let question = Message { role: Role::User, text: "Who is Bingley?".into(), documents: vec![document] };
    Request::Send {
        session: session.into(),
        messages: vec![question],
        cache: CacheOptions { budget: Some(160), ..CacheOptions::default() },
        sampling: Sampling { temperature: 0.0, ..Sampling::default() },
        max_tokens: 12,
    }
}

fn ended(report: &Report) -> Option<(&str, u32)> {
    match &report.event {
        Event::Finished { session, stats, .. } => Some((session, stats.generated)),
        _ => None,
    }
}

#[test]
fn lms_1484_two_long_chats_asked_together_are_both_answered() {
    let mut worker = Worker::with_starter();
    worker.ask(send("a", 4_000));
    worker.ask(send("b", 3_000));
    let mut answered = Vec::new();
    let said = worker.until(|report| {
        answered.extend(ended(report).map(|(session, tokens)| (session.to_owned(), tokens)));
        answered.len() == 2
    });
    assert_eq!(answered, [("a".to_owned(), 12), ("b".to_owned(), 12)]);
    assert!(!said.iter().any(|report| matches!(report.event, Event::Failed { .. })), "{said:?}");
}

#[test]
fn a_question_in_another_chat_does_not_wait_for_a_file_that_is_being_written() {
    let mut worker = Worker::with_starter();
    worker.ask(send("a", 4_000));
    worker.until(|report| ended(report).is_some());

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.snapshot");
    // To copy and digest some 50 MB takes far longer than to begin with a short question.
    let save = worker.ask(Request::Save { session: "a".into(), path: path.clone() });
    worker.ask(send("b", 100));
    let began = |report: &Report| matches!(&report.event, Event::Layout { session, .. } if session == "b");
    let said = worker.until(|report| report.re == Some(save));
    assert!(said.iter().any(began), "{said:?}");
    assert_eq!(said.last().map(|report| &report.event), Some(&Event::Accepted));
    assert!(path.is_file());
    if !said.iter().any(|report| ended(report).is_some()) {
        worker.until(|report| ended(report).is_some());
    }

    // A question in the same chat waits for its file, and the chat goes on where it was.
    worker.ask(Request::Save { session: "a".into(), path });
    worker.ask(send("a", 4_000));
    let said = worker.until(|report| ended(report).is_some());
    let Some(Event::Finished { session, stats, .. }) = said.last().map(|report| &report.event) else { panic!() };
    assert_eq!((session.as_str(), stats.prefilled), ("a", 1), "nothing was read again");
}
