//! Memory that runs out, for each purpose and each time that it is asked for: the turn goes on with less.
#![allow(clippy::unwrap_used)]

mod common;
#[allow(dead_code)]
#[path = "hostile/seeds.rs"]
mod seeds;

use std::sync::{Arc, OnceLock};

use candle_core::Device;
use engine::error::Error;
use engine::memory::{self, Site};
use engine::model::Model;
use engine::protocol::{CacheOptions, Event, FinishReason, Message, Role, Sampling};
use engine::session::{Control, Session};

const BUDGET: u32 = 120;

/// A model of two layers and 256 tokens of context.
fn tiny() -> Arc<Model> {
    static TINY: OnceLock<Arc<Model>> = OnceLock::new();
    let open = || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.gguf");
        std::fs::write(&path, seeds::model(false)).unwrap();
        Arc::new(Model::open(&path, &Device::Cpu, &mut |_| {}).unwrap())
    };
    TINY.get_or_init(open).clone()
}

fn options() -> CacheOptions {
    CacheOptions {
        budget: Some(BUDGET),
        chunk: 16,
        evict_every: 8,
        store_limit: Some(1 << 20),
        recall_every: Some(4),
        ..CacheOptions::default()
    }
}

fn session() -> (Session, Arc<Control>) {
    let control = Arc::new(Control::default());
    (Session::new("a".into(), tiny(), &options(), control.clone()).unwrap(), control)
}

fn message(role: Role, text: &str) -> Message {
    Message { role, text: text.into(), documents: Vec::new() }
}

/// A long text, a question about it, and an edit; with each answer, past the model's context.
fn turns() -> Vec<Vec<Message>> {
    let text = "hello a lob, able hall ".repeat(5);
    let first = vec![message(Role::User, &text)];
    let mut second = first.clone();
    second.extend([message(Role::Assistant, "a lob"), message(Role::User, &"hello ".repeat(12))]);
    let mut third = first.clone();
    third.extend([message(Role::Assistant, "a hall"), message(Role::User, &"able lob ".repeat(30))]);
    vec![first, second, third]
}

/// What happened in a conversation.
#[derive(Default)]
struct Told {
    notices: Vec<(String, String)>,
    reasons: Vec<FinishReason>,
}

fn talk(session: &mut Session, control: &Control) -> Result<Told, Error> {
    let mut told = Told::default();
    let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
    for (i, messages) in turns().iter().enumerate() {
        if i == 2 {
            // Up and down again while it stands, as the slider does.
            for budget in [60, BUDGET] {
                control.set_budget(Some(budget));
                session.apply(&mut |event| take(event, &mut told))?;
            }
        }
        session.send(messages, &options(), &sampling, 12, &mut |event| take(event, &mut told))?;
        check(session);
    }
    Ok(told)
}

fn take(event: Event, told: &mut Told) {
    match event {
        Event::Notice { code, message, .. } => told.notices.push((code, message)),
        Event::Finished { reason, .. } => told.reasons.push(reason),
        _ => {}
    }
}

/// The account is what a recount finds, within the budget.
fn check(session: &Session) {
    let cache = session.context().cache();
    let state = cache.state();
    assert_eq!(session.context().ids().len() as u32, state.n_seen);
    let (mut held, mut heads) = (0, 0);
    for positions in cache.positions().iter().flatten() {
        assert!(positions.is_sorted() && positions.last().is_none_or(|&last| last < state.n_seen));
        assert!(positions.len() as u32 <= state.budget + options().evict_every);
        held += positions.len();
        heads += 1;
    }
    let kept = held as f64 / (heads * state.n_seen as usize) as f64;
    assert!((kept - f64::from(state.kept)).abs() < 1e-6, "{kept} {}", state.kept);
}

/// How often a conversation asks for memory for `site`.
fn asked(site: Site) -> u32 {
    let (mut session, control) = session();
    memory::refuse(site, u32::MAX, 0);
    talk(&mut session, &control).unwrap();
    memory::relent().0
}

#[test]
fn a_turn_goes_on_with_less_wherever_memory_runs_out() {
    for site in Site::ALL.into_iter().filter(|site| !matches!(site, Site::Fork | Site::Snapshot)) {
        let asked = asked(site);
        assert!(asked > 0, "{site:?} is never asked for");
        for granted in 0..asked {
            // Now and then, it is still short when there is less to be had.
            for refused in if granted % 5 == 0 { 1..=3 } else { 1..=1 } {
                let at = format!("{site:?}, {granted} of {asked}, {refused} refused");
                let (mut session, control) = session();
                memory::refuse(site, granted, refused);
                let told = talk(&mut session, &control).unwrap_or_else(|error| panic!("{at}: {error}"));
                let (_, fell) = memory::relent();
                assert_eq!(told.reasons.len(), 3, "{at}");
                assert!(fell > 0, "{at}: nothing ran out");

                // Set again, the budget is had again, and what the store holds comes back.
                control.set_budget(Some(BUDGET));
                session.apply(&mut |_| {}).unwrap();
                let cache = session.context().cache();
                let state = cache.state();
                assert_eq!(state.budget, BUDGET, "{at}");
                // A smaller store has forgotten for good.
                let forgotten = cache.forgotten().iter().map(|(start, end)| end - start).sum::<u32>();
                let most = BUDGET.min(state.n_seen - forgotten) - options().evict_every;
                assert!(cache.least_entries() as u32 >= most || site == Site::Store, "{at}");
                check(&session);
            }
        }
        println!("{site:?}: {asked} times");
    }
}

#[test]
fn what_was_given_up_is_said_once_in_a_sentence() {
    let codes = |site: Site, granted: u32| -> Vec<String> {
        let (mut session, control) = session();
        memory::refuse(site, granted, 1);
        let told = talk(&mut session, &control).unwrap();
        memory::relent();
        for (_, message) in &told.notices {
            assert!(message.ends_with('.') && message.len() < 200, "{message}");
        }
        told.notices.into_iter().map(|(code, _)| code).collect()
    };
    assert_eq!(codes(Site::Hidden, 0), ["memory_stream"], "read at once, then piece by piece");
    assert_eq!(codes(Site::Store, 120), ["memory_store"]);
    assert_eq!(codes(Site::Pass, 1), ["memory_chunk"], "so much at a time");
    assert_eq!(codes(Site::Pass, asked(Site::Pass) - 1), ["memory_budget"], "while an answer is written");
}

#[test]
fn where_nothing_is_left_to_give_the_turn_fails_in_a_sentence_and_the_next_one_goes_on() {
    let (mut session, control) = session();
    memory::refuse(Site::Pass, 20, u32::MAX);
    let error = talk(&mut session, &control).err().expect("there is no memory");
    memory::relent();
    assert_eq!(error.code(), "out_of_memory");
    assert!(error.to_string().ends_with("close other programs that use it."), "{error}");
    assert_eq!(talk(&mut session, &control).unwrap().reasons.len(), 3);
}

#[test]
fn a_copy_or_a_file_that_cannot_be_had_leaves_the_chat_as_it_is() {
    let (mut session, control) = session();
    talk(&mut session, &control).unwrap();
    let before = session.context().cache().state();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.snapshot");

    memory::refuse(Site::Fork, 1, 1);
    assert_eq!(session.fork("b".into(), Arc::default()).err().unwrap().code(), "out_of_memory");
    memory::refuse(Site::Snapshot, 0, 1);
    assert_eq!(session.save(&path).err().unwrap().code(), "out_of_memory");
    assert!(!path.exists());
    session.save(&path).unwrap();
    for site in [Site::Snapshot, Site::Recall] {
        memory::refuse(site, 0, 1);
        let restored = Session::restore("a".into(), tiny(), &path, Arc::default());
        assert_eq!(restored.err().unwrap().code(), "out_of_memory");
    }
    memory::relent();
    assert_eq!(session.context().cache().state(), before);
    assert!(Session::restore("a".into(), tiny(), &path, Arc::default()).is_ok());
}
