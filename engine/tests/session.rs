//! Conversations with a real model: turns, budgets, stop.

// In a test an unwrap is an assertion.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use base64::Engine as _;
use engine::context::Context;
use engine::model::Model;
use engine::protocol::{
    CacheOptions, CacheState, Document, Event, FinishReason, Message, PolicyName, PrefillMode, Role, Sampling, SpanKind,
};
use engine::session::{Answer, Control, Session};
use engine::tokenizer::Special;

fn message(role: Role, text: &str) -> Message {
    Message { role, text: text.into(), documents: Vec::new() }
}

fn about(pages: &[&str], question: &str) -> Message {
    let document = Document { name: "novel.txt".into(), pages: pages.iter().map(|&page| page.into()).collect() };
    Message { role: Role::User, text: question.into(), documents: vec![document] }
}

fn greedy() -> Sampling {
    Sampling { temperature: 0.0, repetition_penalty: 1.0, ..Sampling::default() }
}

fn options(policy: PolicyName, budget: u32) -> CacheOptions {
    CacheOptions { policy, budget: Some(budget), chunk: 128, ..CacheOptions::default() }
}

struct Chat {
    session: Session,
    control: Arc<Control>,
    events: Vec<Event>,
}

impl Chat {
    fn new(model: Arc<Model>, options: &CacheOptions) -> Self {
        let control = Arc::new(Control::default());
        let session = Session::new("test".into(), model, options, control.clone()).unwrap();
        Self { session, control, events: Vec::new() }
    }

    fn send(&mut self, messages: &[Message], options: &CacheOptions, max_tokens: u32) -> Answer {
        let events = &mut self.events;
        self.session.send(messages, options, &greedy(), max_tokens, &mut |event| events.push(event)).unwrap()
    }

    fn states(&self) -> impl Iterator<Item = &CacheState> {
        self.events.iter().filter_map(|event| match event {
            Event::Cache { state, .. } => Some(state),
            _ => None,
        })
    }
}

#[test]
fn h2o_with_room_for_everything_writes_what_full_writes() {
    let question = [about(&[&common::novel()[..1500]], "Who has let Netherfield Park?")];
    let answer = |policy, budget| {
        let options = options(policy, budget);
        Chat::new(common::starter(), &options).send(&question, &options, 48).text
    };
    let full = answer(PolicyName::Full, 64);
    assert!(!full.is_empty());
    assert_eq!(answer(PolicyName::H2o, 2048), full);
}

#[test]
fn lms_2060_a_later_turn_prefills_only_what_is_new() {
    let options = options(PolicyName::H2o, 4096);
    let mut chat = Chat::new(common::starter(), &options);
    let mut messages = vec![about(&[&common::novel()[..1200]], "Who is Mrs. Long?")];
    let first = chat.send(&messages, &options, 24);
    let seen = chat.session.context().cache().n_seen();
    messages.push(message(Role::Assistant, &first.text));
    messages.push(message(Role::User, "And who is Bingley?"));
    let second = chat.send(&messages, &options, 24);
    let ids = chat.session.context().ids().len() as u32;
    assert_eq!(second.stats.prefilled, ids - second.stats.generated - seen, "everything seen was reused");
    assert!(second.stats.prefilled < 24, "a short question is {} tokens", second.stats.prefilled);

    // The same turns in a new session give the same text: reuse changes nothing.
    let mut fresh = Chat::new(common::starter(), &options);
    let from_scratch = fresh.send(&messages, &options, 24);
    assert_eq!(from_scratch.text, second.text);
}

#[test]
fn regenerating_goes_back_and_reads_nothing_again() {
    let options = options(PolicyName::H2o, 4096);
    let mut chat = Chat::new(common::starter(), &options);
    let question = [message(Role::User, "Name three rivers of Europe.")];
    let first = chat.send(&question, &options, 24);
    let again = chat.send(&question, &options, 24);
    assert_eq!((again.text, again.stats.prefilled), (first.text, 1));
}

#[test]
fn hot_bytes_stay_within_budget_and_one_chunk_whatever_the_length() {
    let model = common::starter();
    let per_token = model.info(std::path::Path::new("")).kv_bytes_per_token as u64;
    let options = CacheOptions { prefill: PrefillMode::Streaming, ..options(PolicyName::H2o, 256) };
    for characters in [4_000, 12_000] {
        let mut chat = Chat::new(model.clone(), &options);
        chat.send(&[about(&[&common::novel()[..characters]], "Who speaks?")], &options, 80);
        let last = chat.states().last().unwrap().clone();
        assert!(u64::from(last.n_seen) > characters as u64 / 6);
        assert!(last.hot_peak_bytes <= (256 + 128) * per_token, "peak of {characters} characters");
        assert!(last.hot_bytes <= (256 + 64) * per_token, "after {characters} characters");
        assert!(last.hot_entries <= 256 + 64);
        assert_eq!(last.full_bytes, u64::from(last.n_seen) * per_token);
    }
}

#[test]
fn ollama_17427_one_token_over_the_budget_evicts_no_more_than_evict_every() {
    const BUDGET: usize = 128;
    let streaming = CacheOptions { prefill: PrefillMode::Streaming, ..options(PolicyName::H2o, BUDGET as u32) };
    let ids = common::starter().tokenizer.encode(common::novel(), Special::AsText);
    let held = |context: &Context| -> Vec<usize> {
        context.cache().positions().iter().flatten().map(|positions| positions.len()).collect()
    };
    // A prompt that is one too long loses one.
    let mut context = Context::new(common::starter(), &streaming).unwrap();
    context.prefill(&ids[..BUDGET + 1]).unwrap();
    assert!(held(&context).iter().all(|&entries| entries == BUDGET));

    // An answer that grows past the budget loses what is over it, now and then.
    let every = streaming.evict_every as usize;
    let mut before = held(&context);
    let mut evictions = 0;
    for &id in &ids[BUDGET + 1..BUDGET + 1 + 3 * every] {
        context.step(id).unwrap();
        let now = held(&context);
        for (before, now) in before.iter().zip(&now) {
            assert!((BUDGET..BUDGET + every).contains(now), "{now} entries are held");
            assert!(before + 1 - now <= every, "{} went at once", before + 1 - now);
        }
        evictions += usize::from(now[0] < before[0]);
        before = now;
    }
    assert_eq!(evictions, 3);
}

#[test]
fn moving_the_budget_down_while_it_writes_evicts_at_once_and_frees_the_bytes() {
    let model = common::starter();
    let options = options(PolicyName::H2o, 1024);
    let control = Arc::new(Control::default());
    let mut session = Session::new("test".into(), model, &options, control.clone()).unwrap();
    let mut states = Vec::new();
    let mut generated = 0;
    let question = [about(&[&common::novel()[..3500]], "What does Mr. Bennet say?")];
    session
        .send(&question, &options, &greedy(), 60, &mut |event| match event {
            Event::Token { generated: n, .. } => {
                generated = n;
                if n == 20 {
                    control.set_budget(Some(128));
                }
            }
            Event::Cache { state, .. } => states.push((generated, state)),
            _ => {}
        })
        .unwrap();
    let before = &states.iter().rev().find(|(n, _)| *n < 20).unwrap().1;
    let after = &states.iter().find(|(n, state)| *n >= 20 && state.budget == 128).unwrap().1;
    assert!(before.hot_entries > 700);
    assert!(after.hot_entries <= 128 + 64);
    assert!(after.hot_bytes < before.hot_bytes / 3, "{} is not far below {}", after.hot_bytes, before.hot_bytes);
    assert!(after.kept < before.kept / 3.0);
}

#[test]
fn the_heatmap_adds_up_to_what_the_cache_holds() {
    let model = common::starter();
    let options = options(PolicyName::H2o, 128);
    let mut chat = Chat::new(model.clone(), &options);
    chat.send(&[about(&[&common::novel()[..3000]], "Who is it about?")], &options, 40);
    let mut map: Vec<u8> = Vec::new();
    for event in &chat.events {
        if let Event::Cache { kept, .. } = event {
            for patch in kept {
                let values = base64::engine::general_purpose::STANDARD.decode(&patch.values).unwrap();
                let start = patch.start as usize;
                map.resize(map.len().max(start + values.len()), 0);
                map[start..start + values.len()].copy_from_slice(&values);
            }
        }
    }
    let cache = chat.session.context().cache();
    assert_eq!(map.len(), cache.n_seen() as usize);
    let mut counts = vec![0u32; map.len()];
    cache.positions().into_iter().flatten().flatten().for_each(|&p| counts[p as usize] += 1);
    let whole = (model.config.layers * model.config.kv_heads) as u32;
    for (position, (&shown, &count)) in map.iter().zip(&counts).enumerate() {
        let right = match count {
            0 => shown == 0,
            n if n == whole => shown == 255,
            n => (i64::from(shown) - i64::from(n * 255 / whole)).abs() <= 1,
        };
        assert!(right, "position {position} is shown as {shown} with {count} of {whole}");
    }
    assert!(counts.contains(&0), "something was evicted everywhere");
}

#[test]
fn spans_cover_the_context_and_name_pages_and_turns() {
    let options = options(PolicyName::H2o, 4096);
    let mut chat = Chat::new(common::starter(), &options);
    let novel = common::novel();
    chat.send(&[about(&[&novel[..400], &novel[400..800]], "Who is rich?")], &options, 8);
    let Some(Event::Layout { spans, n_tokens, .. }) =
        chat.events.iter().rev().find(|event| matches!(event, Event::Layout { .. }))
    else {
        panic!("no layout was sent");
    };
    assert_eq!(spans.first().unwrap().start, 0);
    assert_eq!(spans.last().unwrap().end, *n_tokens);
    assert!(spans.windows(2).all(|pair| pair[0].end == pair[1].start));
    let pages: Vec<u32> = spans
        .iter()
        .filter_map(|span| match span.kind {
            SpanKind::Page { page, .. } => Some(page),
            _ => None,
        })
        .collect();
    assert_eq!(pages, [1, 2]);
    assert_eq!(spans.last().unwrap().kind, SpanKind::Text { role: Role::Assistant });
    let page = spans.iter().find(|span| matches!(span.kind, SpanKind::Page { page: 2, .. })).unwrap();
    let ids = chat.control.ids(page.start..page.end).unwrap();
    let model = common::starter();
    assert_eq!(model.tokenizer.decode(&ids).trim(), format!("[Page 2]\n{}", novel[400..800].trim()));
}

#[test]
fn open_webui_3556_every_page_is_read_to_its_last_word_however_small_the_budget() {
    let options = options(PolicyName::H2o, 128);
    let mut chat = Chat::new(common::starter(), &options);
    let words: Vec<&str> = common::novel().split_whitespace().take(1_500).collect();
    let pages: Vec<String> = words.chunks(50).map(|words| words.join(" ")).collect();
    let pages: Vec<&str> = pages.iter().map(String::as_str).collect();
    let answer = chat.send(&[about(&pages, "What happens in all?")], &options, 4);
    let Some(Event::Layout { spans, .. }) = chat.events.iter().find(|event| matches!(event, Event::Layout { .. }))
    else {
        panic!("no layout was sent");
    };
    let model = common::starter();
    let read: Vec<String> = spans
        .iter()
        .filter(|span| matches!(span.kind, SpanKind::Page { .. }))
        .map(|span| model.tokenizer.decode(&chat.control.ids(span.start..span.end).unwrap()))
        .collect();
    assert_eq!(read.len(), 30);
    for (i, (read, page)) in read.iter().zip(&pages).enumerate() {
        assert_eq!(read.trim(), format!("[Page {}]\n{page}", i + 1));
    }
    let prompt = chat.session.context().cache().n_seen() - answer.stats.generated;
    assert!(answer.stats.prefilled.abs_diff(prompt) <= 1, "{} of {prompt} tokens were read", answer.stats.prefilled);
}

#[test]
fn stop_ends_prefill_and_generation_at_once_and_the_chat_goes_on() {
    let model = common::starter();
    let options = options(PolicyName::H2o, 512);
    let control = Arc::new(Control::default());
    let mut session = Session::new("test".into(), model, &options, control.clone()).unwrap();
    let question = vec![about(&[&common::novel()[..6000]], "Who speaks?")];

    // During prefill.
    let stopped = session
        .send(&question, &options, &greedy(), 50, &mut |event| {
            if matches!(event, Event::Prefill { done, .. } if done >= 200) {
                control.stop();
            }
        })
        .unwrap();
    assert_eq!(stopped.reason, FinishReason::Stopped);
    assert_eq!(stopped.stats.generated, 0);
    assert!(session.context().cache().n_seen() < 600);
    control.rearm();

    // During generation: the token in the making is the last.
    let stopped = session
        .send(&question, &options, &greedy(), 50, &mut |event| {
            if matches!(event, Event::Token { generated: 5.., .. }) {
                control.stop();
            }
        })
        .unwrap();
    assert_eq!(stopped.reason, FinishReason::Stopped);
    assert!((5..=6).contains(&stopped.stats.generated), "{} tokens", stopped.stats.generated);
    control.rearm();

    let mut messages = question;
    messages.push(message(Role::Assistant, &stopped.text));
    messages.push(message(Role::User, "Go on."));
    let answer = session.send(&messages, &options, &greedy(), 8, &mut |_| {}).unwrap();
    assert!(answer.stats.prefilled < 32, "{} tokens were read again", answer.stats.prefilled);
    assert!(!answer.text.is_empty());
}

#[test]
fn two_sessions_on_one_model_never_see_each_other() {
    let options = options(PolicyName::H2o, 512);
    let alone = {
        let mut chat = Chat::new(common::starter(), &options);
        chat.send(&[message(Role::User, "What is the capital of Italy?")], &options, 16).text
    };
    let mut other = Chat::new(common::starter(), &options);
    other.send(&[message(Role::User, "Write about the sea.")], &options, 16);
    let mut chat = Chat::new(common::starter(), &options);
    assert_eq!(chat.send(&[message(Role::User, "What is the capital of Italy?")], &options, 16).text, alone);
}

#[test]
fn what_cannot_work_is_refused_in_a_sentence() {
    let model = common::starter();
    let options = options(PolicyName::H2o, 64);
    let mut chat = Chat::new(model.clone(), &options);
    let mut refused = |messages: &[Message], options: &CacheOptions, sampling: &Sampling| {
        let error = chat.session.send(messages, options, sampling, 4, &mut |_| {}).unwrap_err();
        assert!(error.to_string().ends_with('.'), "{error}");
        error.code()
    };
    let question = [message(Role::User, "Hello")];
    assert_eq!(refused(&[], &options, &greedy()), "empty");
    assert_eq!(refused(&question, &CacheOptions { budget: Some(8), ..options.clone() }, &greedy()), "options");
    assert_eq!(refused(&question, &options, &Sampling { temperature: f32::NAN, ..greedy() }), "options");
    // A system prompt is pinned, so it must leave room.
    let long = [message(Role::System, &common::novel()[..2000]), message(Role::User, "Hello")];
    assert_eq!(refused(&long, &options, &greedy()), "options");
    assert!(!chat.send(&question, &options, 4).text.is_empty(), "and the chat goes on");
}
