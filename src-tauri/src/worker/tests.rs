use std::fs;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::*;

/// The scripted worker under a name that tells its manners, in a folder to keep.
pub(crate) struct Scripted {
    pub folder: tempfile::TempDir,
    programs: Vec<PathBuf>,
}

impl Scripted {
    pub fn new(manners: &[&str]) -> Self {
        let examples = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples");
        let program = examples.join(format!("scripted_worker{}", std::env::consts::EXE_SUFFIX));
        // Linked and not copied: a file that is still open for writing somewhere cannot be started.
        let folder = tempfile::tempdir_in(&examples).unwrap();
        let programs = manners
            .iter()
            .map(|name| {
                let path = folder.path().join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
                fs::hard_link(&program, &path).unwrap();
                path
            })
            .collect();
        Self { folder, programs }
    }

    pub fn find(&self) -> Programs {
        let programs = self.programs.clone();
        Arc::new(move || Ok(programs.clone()))
    }

    /// A file that passes for a model.
    pub fn model(&self) -> PathBuf {
        let path = self.folder.path().join("model.gguf");
        fs::write(&path, "GGUF").unwrap();
        path
    }

    fn start(&self, model: Option<PathBuf>) -> (Worker, mpsc::UnboundedReceiver<Notice>) {
        Worker::start(self.find(), model, self.folder.path().join("worker.log"))
    }
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), what).await.expect("within 20 seconds")
}

/// Every state up to and including the first that `until` accepts.
async fn states(notices: &mut mpsc::UnboundedReceiver<Notice>, until: impl Fn(&Status) -> bool) -> Vec<Status> {
    let mut states = Vec::new();
    soon(async {
        while let Some(notice) = notices.recv().await {
            if let Notice::Status(status) = notice {
                let done = until(&status);
                states.push(status);
                if done {
                    return;
                }
            }
        }
        panic!("the worker is gone after {states:?}");
    })
    .await;
    states
}

fn names(states: &[Status]) -> Vec<&'static str> {
    states
        .iter()
        .map(|status| match status {
            Status::Starting => "starting",
            Status::Idle => "idle",
            Status::Loading { .. } => "loading",
            Status::Ready { .. } => "ready",
            Status::Sleeping { .. } => "sleeping",
            Status::Restarting { .. } => "restarting",
            Status::Failed { .. } => "failed",
        })
        .collect()
}

fn is_ready(status: &Status) -> bool {
    matches!(status, Status::Ready { .. })
}

fn is_failed(status: &Status) -> bool {
    matches!(status, Status::Failed { .. })
}

#[tokio::test]
async fn a_killed_worker_is_back_with_its_model_within_a_second() {
    let scripted = Scripted::new(&["healthy"]);
    let (worker, mut notices) = scripted.start(Some(scripted.model()));
    states(&mut notices, is_ready).await;
    let before = worker.seen().pid.unwrap();

    let killed = Instant::now();
    let kill = std::process::Command::new("kill").args(["-9", &before.to_string()]).status().unwrap();
    assert!(kill.success());
    let after = states(&mut notices, is_ready).await;
    assert!(killed.elapsed() < Duration::from_secs(1), "{:?}", killed.elapsed());
    assert_eq!(names(&after), ["restarting", "loading", "loading", "ready"]);
    let Status::Restarting { message } = &after[0] else { panic!("{after:?}") };
    assert!(message.contains("want of memory"), "{message}");
    assert_ne!(worker.seen().pid.unwrap(), before);
    let counted = soon(worker.ask(Request::Count { texts: vec!["two words".into()] })).await.unwrap();
    assert_eq!(counted, Event::Counted { counts: vec![2] });
}

#[tokio::test]
async fn a_worker_that_dies_again_and_again_is_given_up_until_a_model_is_chosen() {
    let scripted = Scripted::new(&["dies-on-load"]);
    let (worker, mut notices) = scripted.start(Some(scripted.model()));
    let seen = states(&mut notices, is_failed).await;
    assert_eq!(names(&seen), ["loading", "restarting", "loading", "restarting", "loading", "failed"]);
    let Some(Status::Failed { code, message }) = seen.last() else { panic!("{seen:?}") };
    assert_eq!(code, "worker_crash_loop");
    assert!(message.contains("choose a model to try again"), "{message}");
    let refused = soon(worker.ask(Request::Count { texts: vec![] })).await.unwrap_err();
    assert_eq!(refused.code(), "worker_down");

    // The way out: whoever chooses a model gets a new try, here one that ends the same way.
    let retried = soon(worker.ask(Request::Load { path: scripted.model() })).await.unwrap_err();
    assert_eq!(retried.code(), "worker_crash_loop");
}

#[tokio::test]
async fn after_giving_up_another_model_starts_the_worker_again() {
    let scripted = Scripted::new(&["healthy"]);
    let missing = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let (find, is_missing) = (scripted.find(), Arc::clone(&missing));
    let find: Programs = Arc::new(move || match is_missing.load(std::sync::atomic::Ordering::Relaxed) {
        true => Err(Problem::WorkerMissing("cistern".into())),
        false => find(),
    });
    let (worker, mut notices) = Worker::start(find, None, scripted.folder.path().join("worker.log"));
    let seen = states(&mut notices, is_failed).await;
    let [Status::Failed { code, .. }] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(code, "worker_missing");

    missing.store(false, std::sync::atomic::Ordering::Relaxed);
    let loaded = soon(worker.ask(Request::Load { path: scripted.model() })).await.unwrap();
    assert!(matches!(loaded, Event::ModelLoaded { .. }), "{loaded:?}");
    assert!(is_ready(&worker.status()));
}

#[tokio::test]
async fn what_is_not_a_message_ends_the_worker_and_not_the_shell() {
    let scripted = Scripted::new(&["babbles"]);
    let (worker, mut notices) = scripted.start(Some(scripted.model()));
    states(&mut notices, is_ready).await;
    drop(worker.submit(send("a")));
    let seen = states(&mut notices, is_ready).await;
    let Status::Restarting { message } = &seen[0] else { panic!("{seen:?}") };
    assert!(message.contains("could not be understood"), "{message}");
}

#[tokio::test]
async fn a_worker_of_another_version_is_refused_in_one_sentence() {
    let scripted = Scripted::new(&["old-version"]);
    let (_worker, mut notices) = scripted.start(None);
    let seen = states(&mut notices, is_failed).await;
    let [Status::Failed { code, message }] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(code, "worker_version");
    assert!(message.contains("install both from the same release"), "{message}");
}

#[tokio::test]
async fn where_the_first_choice_does_not_even_start_the_second_is_used() {
    let scripted = Scripted::new(&["dies-at-once", "healthy"]);
    let (_worker, mut notices) = scripted.start(Some(scripted.model()));
    let seen = states(&mut notices, is_ready).await;
    assert_eq!(names(&seen), ["loading", "loading", "ready"]);
}

/// What is said by the time that a model is ready, apart from its states.
async fn complaints(notices: &mut mpsc::UnboundedReceiver<Notice>) -> Vec<String> {
    let mut said = Vec::new();
    soon(async {
        loop {
            match notices.recv().await.unwrap() {
                Notice::Event(Event::Failed { session: None, code, message }) if code == "gpu_engine" => {
                    said.push(message)
                }
                Notice::Status(status) if is_ready(&status) => return,
                _ => {}
            }
        }
    })
    .await;
    said
}

#[tokio::test]
async fn where_the_graphics_card_is_gone_the_processor_goes_on_and_one_sentence_says_so() {
    // Its driver's library is missing, or it crashes as soon as it is to compute.
    for manners in ["dies-at-once", "dies-on-load"] {
        let scripted = Scripted::new(&[manners, "healthy"]);
        let (worker, mut notices) = scripted.start(Some(scripted.model()));
        let said = complaints(&mut notices).await;
        let [sentence] = &said[..] else { panic!("{manners}: {said:?}") };
        assert!(sentence.contains("goes on with the processor"), "{sentence}");
        assert_eq!(sentence.matches('.').count(), 1, "{sentence}");
        soon(worker.ask(send("a"))).await.unwrap();
    }
}

#[tokio::test]
async fn a_card_that_fails_while_a_model_is_opened_is_tried_again_and_then_done_without() {
    let scripted = Scripted::new(&["loses-its-card-on-load", "healthy"]);
    let (worker, mut notices) = scripted.start(None);
    let opening = worker.submit(Request::Load { path: scripted.model() });
    let said = complaints(&mut notices).await;
    let [sentence] = &said[..] else { panic!("{said:?}") };
    assert!(
        sentence.contains("the card failed (The computation failed: DriverError(CUDA_ERROR_UNKNOWN))"),
        "{sentence}"
    );
    assert!(sentence.contains("goes on with the processor"), "{sentence}");
    assert!(soon(answer(opening)).await.is_err());
    // Nobody has to choose it again.
    assert!(worker.holds(&scripted.model()));
    soon(worker.ask(send("a"))).await.unwrap();
}

#[tokio::test]
async fn a_card_that_fails_in_an_answer_costs_the_answer_and_not_the_chat() {
    let scripted = Scripted::new(&["loses-its-card", "healthy"]);
    let (worker, mut notices) = scripted.start(Some(scripted.model()));
    states(&mut notices, is_ready).await;
    for _ in 0..3 {
        soon(worker.ask(send("a"))).await.unwrap();
        let lost = soon(async {
            loop {
                if let Notice::Lost { sessions, how } = notices.recv().await.unwrap() {
                    return (sessions, how);
                }
            }
        });
        let (sessions, how) = lost.await;
        assert_eq!(sessions, ["a"]);
        assert!(how.starts_with("the card failed"), "{how}");
        states(&mut notices, is_ready).await;
    }
    assert_eq!(worker.seen().device.map(|device| device.kind).as_deref(), Some("cpu"));
    soon(worker.ask(send("a"))).await.unwrap();
}

#[tokio::test]
async fn a_graphics_card_whose_program_cannot_be_started_is_done_without() {
    let scripted = Scripted::new(&["healthy"]);
    let no_program = scripted.folder.path().join("cistern-cuda");
    fs::write(&no_program, "not a program").unwrap();
    let find = scripted.find();
    let find: Programs = Arc::new(move || find().map(|healthy| [vec![no_program.clone()], healthy].concat()));
    let log = scripted.folder.path().join("worker.log");
    let (_worker, mut notices) = Worker::start(find, Some(scripted.model()), log);
    assert_eq!(complaints(&mut notices).await.len(), 1);
}

#[tokio::test]
async fn a_model_that_cannot_be_opened_says_why_to_whoever_asked() {
    let scripted = Scripted::new(&["healthy"]);
    let gone = scripted.folder.path().join("gone.gguf");
    let (worker, mut notices) = scripted.start(Some(gone.clone()));
    // Nobody asked for the one that is opened on start: the status has to tell.
    let seen = states(&mut notices, is_failed).await;
    assert!(matches!(seen.last(), Some(Status::Failed { code, .. }) if code == "no_file"), "{seen:?}");
    let problem = soon(worker.ask(Request::Load { path: gone })).await.unwrap_err();
    assert_eq!((problem.code(), problem.to_string().as_str()), ("no_file", "There is no such file"));
    assert_eq!(worker.status(), Status::Idle);
}

#[tokio::test]
async fn a_model_that_cannot_be_opened_leaves_the_one_that_was_open() {
    let scripted = Scripted::new(&["healthy"]);
    let (worker, mut notices) = scripted.start(Some(scripted.model()));
    states(&mut notices, is_ready).await;
    let gone = scripted.folder.path().join("gone.gguf");
    soon(worker.ask(Request::Load { path: gone })).await.unwrap_err();
    let seen = states(&mut notices, is_ready).await;
    assert!(matches!(seen.last(), Some(Status::Ready { model }) if model.path == scripted.model()), "{seen:?}");
}

#[tokio::test]
async fn a_model_that_rests_is_opened_again_by_whoever_needs_it() {
    let scripted = Scripted::new(&["healthy"]);
    let (worker, mut notices) = scripted.start(Some(scripted.model()));
    states(&mut notices, is_ready).await;
    worker.rest();
    let seen = states(&mut notices, |status| matches!(status, Status::Sleeping { .. })).await;
    assert_eq!(names(&seen), ["sleeping"]);
    assert!(worker.holds(&scripted.model()));

    assert!(is_ready(&soon(worker.settled()).await));
    // A question wakes it, too, should it come at the very moment that it goes to rest.
    worker.rest();
    soon(worker.ask(send("a"))).await.unwrap();
    assert!(is_ready(&soon(worker.settled()).await));

    soon(async {
        while !matches!(worker.status(), Status::Sleeping { .. }) {
            worker.rest();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    soon(worker.ask(Request::Unload)).await.unwrap();
    assert_eq!(worker.status(), Status::Idle, "whoever ejects a model that rests wants it gone");
}

#[tokio::test]
async fn a_model_that_rests_still_does_when_its_worker_was_killed() {
    let scripted = Scripted::new(&["healthy"]);
    let (worker, mut notices) = scripted.start(Some(scripted.model()));
    states(&mut notices, is_ready).await;
    worker.rest();
    states(&mut notices, |status| matches!(status, Status::Sleeping { .. })).await;
    let pid = worker.seen().pid.unwrap().to_string();
    assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    let seen = states(&mut notices, |status| matches!(status, Status::Sleeping { .. })).await;
    assert_eq!(names(&seen), ["restarting", "sleeping"]);
    assert!(is_ready(&soon(worker.settled()).await));
}

#[tokio::test]
async fn jan_8247_more_text_than_a_frame_holds_is_refused_and_ends_no_worker() {
    let scripted = Scripted::new(&["healthy"]);
    let (worker, mut notices) = scripted.start(Some(scripted.model()));
    states(&mut notices, is_ready).await;
    let pid = worker.seen().pid;
    let huge = "x".repeat(2 << 20);
    let refused = soon(worker.ask(Request::Count { texts: vec![huge.clone()] })).await.unwrap_err();
    assert_eq!(refused.code(), "too_much_text");
    let Request::Send { session, mut messages, cache, sampling, max_tokens } = send("a") else { panic!() };
    messages[0].text = huge;
    let question = Request::Send { session, messages, cache, sampling, max_tokens };
    let refused = soon(worker.ask(question)).await.unwrap_err();
    assert!(refused.to_string().contains("attach a part of it"), "{refused}");
    // The same worker goes on, and is not held to be answering.
    soon(worker.ask(send("a"))).await.unwrap();
    assert_eq!(worker.seen().pid, pid);
    soon(async {
        while !matches!(worker.status(), Status::Sleeping { .. }) {
            worker.rest();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Sends a signal to a worker.
#[cfg(unix)]
pub(crate) fn signal(worker: &Worker, name: &str) {
    let pid = worker.seen().pid.unwrap().to_string();
    assert!(std::process::Command::new("kill").args([name, &pid]).status().unwrap().success());
}

#[cfg(unix)]
#[tokio::test]
async fn a_worker_that_the_models_file_ended_says_that_it_was_the_file() {
    let scripted = Scripted::new(&["loses-its-file"]);
    let (worker, mut notices) = scripted.start(Some(scripted.model()));
    states(&mut notices, is_ready).await;
    drop(worker.submit(send("a")));
    let seen = states(&mut notices, is_ready).await;
    let Status::Restarting { message } = &seen[0] else { panic!("{seen:?}") };
    assert!(message.contains("model.gguf was cut short or changed while it was open"), "{message}");
}

#[tokio::test]
async fn the_worker_ends_with_the_shell() {
    let scripted = Scripted::new(&["healthy"]);
    let (worker, mut notices) = scripted.start(Some(scripted.model()));
    states(&mut notices, is_ready).await;
    let pid = worker.seen().pid.unwrap();
    soon(worker.quit()).await;
    let alive = std::process::Command::new("kill").args(["-0", &pid.to_string()]).output().unwrap();
    assert!(!alive.status.success(), "process {pid} is still there");
}

pub(crate) fn send(session: &str) -> Request {
    Request::Send {
        session: session.to_owned(),
        messages: vec![engine::protocol::Message {
            role: engine::protocol::Role::User,
            text: "Hello".to_owned(),
            documents: vec![],
        }],
        cache: engine::protocol::CacheOptions::default(),
        sampling: engine::protocol::Sampling::default(),
        max_tokens: 16,
    }
}
