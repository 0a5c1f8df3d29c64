//! Sessions that are written to a file and read back.

// In a test an unwrap is an assertion.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::sync::Arc;

use engine::protocol::{CacheOptions, Document, Event, KvType, Message, PolicyName, Role, Sampling};
use engine::session::{Control, Session};

fn greedy() -> Sampling {
    Sampling { temperature: 0.0, repetition_penalty: 1.0, ..Sampling::default() }
}

fn options(policy: PolicyName, kv: KvType) -> CacheOptions {
    CacheOptions { policy, kv, budget: Some(160), chunk: 128, ..CacheOptions::default() }
}

fn new(options: &CacheOptions) -> Session {
    Session::new("a".into(), common::starter(), options, Arc::new(Control::default())).unwrap()
}

fn restored(path: &Path) -> engine::error::Result<Session> {
    Session::restore("b".into(), common::starter(), path, Arc::new(Control::default()))
}

fn opening() -> Vec<Message> {
    let document = Document { name: "novel.txt".into(), pages: vec![common::novel()[..2_400].into()] };
    vec![Message { role: Role::User, text: "Who is Bingley?".into(), documents: vec![document] }]
}

#[test]
fn a_chat_that_was_put_away_goes_on_with_the_same_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.snapshot");
    for (policy, kv) in [
        (PolicyName::H2o, KvType::F16),
        (PolicyName::Tova, KvType::Q8_0),
        (PolicyName::Expected, KvType::F32),
        (PolicyName::KvZip, KvType::F16),
        (PolicyName::PyramidKv, KvType::F16),
    ] {
        let options = options(policy, kv);
        let mut session = new(&options);
        let mut messages = opening();
        let first = session.send(&messages, &options, &greedy(), 20, &mut |_| {}).unwrap();
        session.save(&path).unwrap();
        messages.push(Message { role: Role::Assistant, text: first.text, documents: Vec::new() });
        messages.push(Message { role: Role::User, text: "And Mrs. Bennet?".into(), documents: Vec::new() });
        let want = session.send(&messages, &options, &greedy(), 70, &mut |_| {}).unwrap();

        let mut again = restored(&path).unwrap();
        let got = again.send(&messages, &options, &greedy(), 70, &mut |_| {}).unwrap();
        assert_eq!(got.text, want.text, "{policy:?}");
        assert_eq!(got.stats.prefilled, want.stats.prefilled, "nothing was read again");
        let (there, here) = (again.context().cache(), session.context().cache());
        assert_eq!(there.positions(), here.positions());
        let (there, here) = (there.state(), here.state());
        assert_eq!((there.kept, there.pinned, there.store_bytes), (here.kept, here.pinned, here.store_bytes));
    }
}

#[test]
fn a_damaged_foreign_or_missing_snapshot_is_refused_and_the_text_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.snapshot");
    let options = options(PolicyName::H2o, KvType::F16);
    let mut session = new(&options);
    session.send(&opening(), &options, &greedy(), 4, &mut |_| {}).unwrap();
    session.save(&path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    assert!(restored(&path).is_ok());

    // What cannot be written to its end is not left half written.
    let blocked = folder.path().join("blocked.snapshot");
    std::fs::create_dir(&blocked).unwrap();
    assert_eq!(session.save(&blocked).unwrap_err().code(), "snapshot");
    assert!(!blocked.with_extension("partial").exists());

    let refused = |what: &str| {
        let error = restored(&path).map(|_| ()).unwrap_err();
        assert_eq!(error.code(), "snapshot", "{what}");
        assert!(error.to_string().contains("read again"), "{what}: {error}");
        error.to_string()
    };
    for cut in [0, 7, 100, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        refused("a cut file");
    }
    // One bit anywhere.
    for at in (9..whole.len()).step_by(whole.len() / 40) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&path, &bytes).unwrap();
        refused("a changed bit");
    }
    let text = String::from_utf8_lossy(&whole[..40_000.min(whole.len())]).into_owned();
    let fingerprint = &common::starter().fingerprint;
    assert!(text.contains(fingerprint.as_str()));
    let foreign: Vec<u8> = {
        let at = whole.windows(64).position(|w| w == fingerprint.as_bytes()).unwrap();
        let mut bytes = whole.clone();
        bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
        bytes
    };
    std::fs::write(&path, foreign).unwrap();
    assert!(refused("a foreign file").contains("another model"));
    std::fs::remove_file(&path).unwrap();
    refused("a missing file");

    // The chat itself is not the worse for it.
    let answer = new(&options).send(&opening(), &options, &greedy(), 4, &mut |_| {}).unwrap();
    assert!(answer.stats.prefilled > 500);
}

#[test]
fn a_restored_chat_tells_what_its_positions_stand_for_and_drops_another_branch() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.snapshot");
    let options = options(PolicyName::H2o, KvType::F16);
    let mut session = new(&options);
    let mut messages = opening();
    let mut spans_then = Vec::new();
    let mut keep_spans = |event| {
        if let Event::Layout { spans, .. } = event {
            spans_then = spans;
        }
    };
    let first = session.send(&messages, &options, &greedy(), 12, &mut keep_spans).unwrap();
    session.save(&path).unwrap();
    let n_seen = session.context().cache().n_seen();
    let show = |messages: &[Message]| {
        let mut told = Vec::new();
        restored(&path).unwrap().show(messages, &mut |event| told.push(event)).unwrap();
        told
    };

    messages.push(Message { role: Role::Assistant, text: first.text, documents: Vec::new() });
    let [Event::Layout { n_tokens, spans, .. }, Event::Cache { state, kept, .. }] = &show(&messages)[..] else {
        panic!("a layout and a state")
    };
    assert_eq!((*n_tokens, state.n_seen), (n_seen, n_seen));
    assert_eq!(spans, &spans_then);
    assert!(!kept.is_empty(), "every position is told");

    messages[0].text = "Who is Mr. Bennet?".into();
    let [Event::Layout { n_tokens, spans, .. }, Event::Cache { state, .. }] = &show(&messages)[..] else {
        panic!("a layout and a state")
    };
    assert!(*n_tokens > 500 && *n_tokens < n_seen, "the document is still there, what was asked about it is not");
    assert_eq!((state.n_seen, spans.last().map(|span| span.end)), (*n_tokens, Some(*n_tokens)));
}
