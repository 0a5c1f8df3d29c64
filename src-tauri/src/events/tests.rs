use std::time::Instant;

use engine::protocol::{CacheState, FinishReason, KeptPatch, TurnStats};

use super::*;

fn token(session: &str, text: &str, generated: u32) -> AppEvent {
    let event = Event::Token { session: session.into(), text: text.into(), generated, tok_s: generated as f32 };
    AppEvent::Worker { event }
}

fn cache(session: &str, hot_entries: u32, start: u32) -> AppEvent {
    let state = CacheState { hot_entries, ..CacheState::default() };
    let kept = vec![KeptPatch { start, values: "AA==".into() }];
    AppEvent::Worker {
        event: Event::Cache { session: session.into(), state, kept, forgotten: Vec::new(), pinned: Vec::new() },
    }
}

fn finished(session: &str) -> AppEvent {
    let event = Event::Finished { session: session.into(), reason: FinishReason::Eos, stats: TurnStats::default() };
    AppEvent::Worker { event }
}

fn joined(events: impl IntoIterator<Item = AppEvent>) -> Vec<AppEvent> {
    let mut pending = Vec::new();
    for event in events {
        join(&mut pending, event);
    }
    pending
}

#[test]
fn the_text_of_one_answer_is_joined_in_order_across_other_events() {
    let batch = joined([
        token("a", "Wa", 1),
        cache("a", 10, 0),
        token("b", "x", 1),
        AppEvent::ChatsChanged,
        token("a", "ter", 2),
        token("b", "y", 2),
    ]);
    assert_eq!(batch, [token("a", "Water", 2), cache("a", 10, 0), token("b", "xy", 2), AppEvent::ChatsChanged]);
}

#[test]
fn text_after_an_ending_stays_after_it() {
    let batch = joined([token("a", "one", 1), finished("a"), token("a", "two", 1), token("a", "!", 2)]);
    assert_eq!(batch, [token("a", "one", 1), finished("a"), token("a", "two!", 2)]);
}

#[tokio::test]
async fn files_that_cistern_was_started_with_wait_for_the_window() {
    let outbox = Outbox::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let opened = |paths: &[&str]| AppEvent::Opened { paths: paths.iter().map(|&path| path.to_owned()).collect() };
    outbox.push(opened(&["/tmp/a.pdf"]));
    outbox.push(opened(&["/tmp/b.gguf"]));
    let into = Arc::clone(&heard);
    outbox.subscribe(Box::new(move |batch| {
        into.lock().unwrap().extend(batch);
        true
    }));
    assert_eq!(*heard.lock().unwrap(), [opened(&["/tmp/a.pdf", "/tmp/b.gguf"])]);
    outbox.push(opened(&["/tmp/c.pdf"]));
    outbox.flush();
    assert_eq!(heard.lock().unwrap().last(), Some(&opened(&["/tmp/c.pdf"])));
}

#[test]
fn of_counters_the_newest_remains_and_of_kept_fractions_every_patch() {
    let batch = joined([cache("a", 10, 0), cache("a", 7, 5), cache("a", 9, 0)]);
    let [AppEvent::Worker { event: Event::Cache { state, kept, .. } }] = &batch[..] else { panic!("{batch:?}") };
    assert_eq!(state.hot_entries, 9);
    assert_eq!(kept.iter().map(|patch| patch.start).collect::<Vec<_>>(), [0, 5, 0]);
}

#[tokio::test]
async fn a_thousand_tokens_a_second_arrive_whole_in_at_most_twenty_batches_a_second() {
    let outbox = Outbox::new();
    let batches = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&batches);
    outbox.subscribe(Box::new(move |batch| {
        into.lock().unwrap().push(batch);
        true
    }));
    let began = Instant::now();
    let mut expected = String::new();
    for n in 0..600 {
        let text = format!("{n} ");
        expected.push_str(&text);
        outbox.push(token("a", &text, n));
        sleep(Duration::from_millis(1)).await;
    }
    sleep(PACE * 3).await;
    let allowed = began.elapsed().as_millis() / PACE.as_millis() + 1;
    let batches = batches.lock().unwrap();
    assert!(batches.len() as u128 <= allowed, "{} batches, {allowed} allowed", batches.len());
    assert!(batches.len() >= 5, "streaming, not one lump at the end: {}", batches.len());
    let text: String = batches
        .iter()
        .flatten()
        .map(|event| match event {
            AppEvent::Worker { event: Event::Token { text, .. } } => text.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(text, expected);
}

#[tokio::test]
async fn whoever_subscribes_hears_the_state_of_things_first() {
    let outbox = Outbox::new();
    outbox.push(AppEvent::Status { status: Status::Starting });
    outbox.push(token("a", "lost on nobody", 1));
    outbox.push(AppEvent::Status { status: Status::Idle });
    let heard = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&heard);
    outbox.subscribe(Box::new(move |batch| {
        into.lock().unwrap().extend(batch);
        true
    }));
    assert_eq!(*heard.lock().unwrap(), [AppEvent::Status { status: Status::Idle }]);
}
