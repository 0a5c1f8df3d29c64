//! Turns in a small budget: editing, branching, pinning.

// In a test an unwrap is an assertion.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use engine::protocol::{CacheOptions, Document, Event, Message, Passage, Role, Sampling};
use engine::session::{Control, Session};

fn greedy() -> Sampling {
    Sampling { temperature: 0.0, repetition_penalty: 1.0, ..Sampling::default() }
}

fn options(budget: u32) -> CacheOptions {
    CacheOptions { budget: Some(budget), chunk: 128, ..CacheOptions::default() }
}

fn user(text: &str) -> Message {
    Message { role: Role::User, text: text.into(), documents: Vec::new() }
}

fn assistant(text: &str) -> Message {
    Message { role: Role::Assistant, text: text.into(), documents: Vec::new() }
}

fn opening(question: &str) -> Message {
    let document = Document { name: "novel.txt".into(), pages: vec![common::novel()[..2_400].into()] };
    Message { documents: vec![document], ..user(question) }
}

fn session(budget: u32) -> (Session, Arc<Control>) {
    let control = Arc::new(Control::default());
    (Session::new("a".into(), common::starter(), &options(budget), control.clone()).unwrap(), control)
}

#[test]
fn editing_or_branching_at_any_message_reads_only_what_is_new() {
    let options = options(160);
    let (mut session, _) = session(160);
    let mut send = |messages: &[Message]| session.send(messages, &options, &greedy(), 24, &mut |_| {}).unwrap();
    let mut messages = vec![opening("Who is Bingley?")];
    let first = send(&messages);
    assert!(first.stats.prefilled > 500);
    messages.extend([assistant(&first.text), user("And Mrs. Bennet?")]);
    let second = send(&messages);
    messages.extend([assistant(&second.text), user("What do they want?")]);
    send(&messages);

    // The last question in other words.
    messages[4] = user("What does he want?");
    let edited = send(&messages);
    assert!(edited.stats.prefilled < 16, "{} tokens", edited.stats.prefilled);
    // Another branch from the middle, and from the very first question: the document is not read again.
    let branched = send(&[messages[0].clone(), messages[1].clone(), user("How many daughters are there?")]);
    assert!(branched.stats.prefilled < 32, "{} tokens", branched.stats.prefilled);
    let again = send(&[opening("Where is Netherfield Park?")]);
    assert!(again.stats.prefilled < 24, "{} tokens", again.stats.prefilled);
    // And the first answer anew, token for token what it was where nothing but the question asks.
    assert!(!send(&[opening("Who is Bingley?")]).text.is_empty());
}

#[test]
fn jan_5913_editing_branching_and_writing_anew_keep_to_the_same_budget() {
    let options = options(160);
    let (mut session, _) = session(160);
    let (most_while_writing, most_while_reading) = (160 + options.evict_every, 160 + options.evict_every + 128);
    let mut send = |messages: &[Message]| {
        let mut writing = false;
        let answer = session.send(messages, &options, &greedy(), 80, &mut |event| match event {
            Event::Token { .. } => writing = true,
            Event::Cache { state, .. } => {
                let most = if writing { most_while_writing } else { most_while_reading };
                assert_eq!(state.budget, 160);
                assert!(state.hot_entries <= most, "{} entries are held", state.hot_entries);
            }
            _ => {}
        });
        let cache = session.context().cache();
        assert!(cache.n_seen() > 500);
        assert!(cache.hot_entries() <= most_while_writing, "{} entries stay", cache.hot_entries());
        answer.unwrap()
    };
    let mut messages = vec![opening("Who is Bingley?")];
    let first = send(&messages);
    messages.extend([assistant(&first.text), user("And Mrs. Bennet?")]);
    send(&messages);
    // The same answer anew, three times over.
    for _ in 0..3 {
        send(&messages);
    }
    messages[2] = user("And what do they want of him?");
    send(&messages);
    send(&[opening("Where is Netherfield Park?")]);
    send(&messages);
}

#[test]
fn an_answer_that_ended_early_goes_on_as_if_it_had_not() {
    let options = options(160);
    let question = opening("Who is Bingley?");
    let send = |session: &mut Session, messages: &[Message], max_tokens: u32| {
        session.send(messages, &options, &greedy(), max_tokens, &mut |_| {}).unwrap()
    };
    let (mut straight, _) = session(160);
    let whole = send(&mut straight, std::slice::from_ref(&question), 40);

    let (mut stopping, _) = session(160);
    let begun = send(&mut stopping, std::slice::from_ref(&question), 25);
    assert!(whole.text.starts_with(&begun.text) && begun.text.len() < whole.text.len());
    let rest = send(&mut stopping, &[question.clone(), assistant(&begun.text)], 15);
    assert_eq!(rest.text, whole.text);
    assert_eq!((rest.stats.prefilled, rest.stats.generated), (1, 40), "nothing was read again");
    // What comes after knows the answer as one.
    let next = [question.clone(), assistant(&rest.text), user("And Mrs. Bennet?")];
    assert!(send(&mut stopping, &next, 4).stats.prefilled < 24);

    // Where the cache is gone the text is read again, and the answer still goes on.
    let (mut fresh, _) = session(160);
    let again = send(&mut fresh, &[question, assistant(&begun.text)], 8);
    assert!(again.text.starts_with(&begun.text) && again.text.len() > begun.text.len());
    assert!(again.stats.prefilled > 500);
}

#[test]
fn a_document_can_be_read_before_the_question_is_known() {
    let options = options(160);
    let (mut session, _) = session(160);
    session.read_ahead(&[opening("")], &options, &mut |_| {}).unwrap();
    let answer = session.send(&[opening("Who is Bingley?")], &options, &greedy(), 8, &mut |_| {}).unwrap();
    assert!(answer.stats.prefilled < 24, "{} tokens were left to read", answer.stats.prefilled);
}

#[test]
fn a_pinned_passage_stays_whatever_comes_and_can_be_let_go() {
    let (mut session, control) = session(160);
    let options = options(160);
    let passage = "My dear Mr. Bennet";
    control.pin(Passage::Text { text: passage.into() }, true);
    session.send(&[opening("Who speaks?")], &options, &greedy(), 120, &mut |_| {}).unwrap();
    let ids = session.context().ids().to_vec();
    let range = common::starter().tokenizer.find(&ids, passage).unwrap();
    let held = |session: &Session| {
        let positions = session.context().cache().positions();
        range.clone().all(|p| positions.iter().flatten().all(|of_head| of_head.binary_search(&p).is_ok()))
    };
    assert!(held(&session));
    assert!(session.context().cache().pinned().iter().any(|&(start, end)| start <= range.start && range.end <= end));

    control.pin(Passage::Range { start: range.start, end: range.end }, false);
    session.apply(&mut |_| {}).unwrap();
    session
        .send(&[opening("Who speaks?"), assistant("x"), user("Go on.")], &options, &greedy(), 120, &mut |_| {})
        .unwrap();
    assert!(!held(&session), "what is let go may leave");
}

#[test]
fn pins_that_leave_no_room_are_refused_with_a_sentence() {
    let (mut session, control) = session(160);
    let options = options(160);
    session.send(&[opening("Who speaks?")], &options, &greedy(), 4, &mut |_| {}).unwrap();
    let mut said = Vec::new();
    let mut listen = |event| {
        if let Event::Notice { message, .. } = event {
            said.push(message);
        }
    };
    control.pin(Passage::Range { start: 100, end: 400 }, true);
    session.apply(&mut listen).unwrap();
    control.pin(Passage::Text { text: "This stands nowhere.".into() }, true);
    session.apply(&mut listen).unwrap();
    control.set_budget(Some(40));
    session.apply(&mut listen).unwrap();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("no room in a budget of 160"), "{}", said[0]);
    assert!(said[1].contains("not in the chat"), "{}", said[1]);
    // The template's own pins make way for a small budget by themselves.
    assert_eq!(session.context().cache().budget(), 40);
}

#[test]
fn a_long_chat_does_not_fill_its_budget_with_template() {
    let (mut session, _) = session(128);
    let options = options(128);
    let mut messages = Vec::new();
    for i in 0..20 {
        messages.extend([user(&format!("Number {i}.")), assistant("Yes.")]);
    }
    messages.push(user("How many?"));
    session.send(&messages, &options, &greedy(), 4, &mut |_| {}).unwrap();
    let state = session.context().cache().state();
    assert!(state.pinned <= 128 / 4 + 40, "{} tokens are pinned", state.pinned);
}
