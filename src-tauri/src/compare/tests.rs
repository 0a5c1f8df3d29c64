use engine::protocol::{Document, Role};

use super::*;
use crate::api::{Attachment, Question};
use crate::chats;
use crate::desk::{Desk, soon};

impl Desk {
    async fn soon(&self, mut holds: impl FnMut(&[AppEvent]) -> bool) {
        soon(async || holds(&self.heard.lock().unwrap())).await;
    }

    async fn over(&self) {
        self.soon(|heard| heard.iter().any(|event| matches!(event, AppEvent::CompareEnded { .. }))).await;
    }

    /// Asks in a chat of its own, and waits for the answer.
    async fn chat(&self, text: &str) -> String {
        let question = Question {
            chat: None,
            edits: None,
            text: text.to_owned(),
            system: String::new(),
            documents: Vec::new(),
            cache: CacheOptions::default(),
            sampling: Sampling::default(),
            max_tokens: 100,
        };
        let id = self.answers.send(question).await.unwrap().chat.id;
        let own = id.clone();
        self.soon(move |heard| heard.iter().any(|event| finished(event) == Some(own.as_str()))).await;
        id
    }

    async fn kept(&self, chat: &str) -> Option<Comparison> {
        let chat = chat.to_owned();
        self.store.run(move |db| kept::comparison(db, &chat)).await.unwrap()
    }
}

fn finished(event: &AppEvent) -> Option<&str> {
    match event {
        AppEvent::Worker { event: Event::Finished { session, .. } } => Some(session),
        _ => None,
    }
}

fn full() -> CacheOptions {
    CacheOptions { policy: PolicyName::Full, ..CacheOptions::default() }
}

fn budget(tokens: u32) -> CacheOptions {
    CacheOptions { budget: Some(tokens), ..CacheOptions::default() }
}

fn request(chat: Option<&str>, columns: &[CacheOptions]) -> CompareRequest {
    CompareRequest {
        chat: chat.map(str::to_owned),
        system: String::new(),
        again: false,
        text: "Which one?".to_owned(),
        documents: Vec::new(),
        columns: columns.to_vec(),
        repetition_penalty: 1.0,
        max_tokens: 100,
    }
}

#[tokio::test]
async fn columns_are_answered_in_turn_with_the_chat_before_them_and_the_result_is_kept() {
    let desk = Desk::new("healthy");
    let chat = desk.chat("First").await;
    let started = desk.comparisons.begin(request(Some(&chat), &[full(), budget(64)])).await.unwrap();
    desk.over().await;
    let ends: Vec<String> = desk.heard.lock().unwrap().iter().filter_map(finished).map(str::to_owned).collect();
    assert_eq!(ends[1..], started.sessions, "one after the other");
    let result = desk.kept(&chat).await.unwrap();
    assert_eq!((result.question.as_str(), result.model.as_str()), ("Which one?", "Scripted"));
    for (column, options) in result.columns.iter().zip([full(), budget(64)]) {
        assert_eq!(column.text, "3 messages, the last: Which one?");
        assert_eq!((&column.options, column.finish), (&options, Some(FinishReason::Eos)));
        assert!(column.stats.is_some() && column.cache.is_some() && column.problem.is_none());
    }
    // The chat is as it was.
    assert_eq!(desk.answers.open(chat.clone()).await.unwrap().messages.len(), 2);
    desk.answers.delete(chat.clone()).await.unwrap();
    desk.store.run(|db| chats::purge(db, 0)).await.unwrap();
    assert_eq!(desk.kept(&chat).await, None, "it goes with its chat");
}

#[tokio::test]
async fn the_last_question_can_be_asked_again_as_it_was() {
    let desk = Desk::new("healthy");
    let chat = desk.chat("First").await;
    let text = "First".to_owned();
    desk.comparisons
        .begin(CompareRequest { again: true, text, ..request(Some(&chat), &[full(), budget(64)]) })
        .await
        .unwrap();
    desk.over().await;
    assert_eq!(desk.kept(&chat).await.unwrap().columns[1].text, "1 messages, the last: First");
}

#[tokio::test]
async fn a_new_chat_is_compared_with_its_documents_and_leaves_no_chat_behind() {
    let desk = Desk::new("healthy");
    let document = Document { name: "guide.pdf".to_owned(), pages: vec!["One".to_owned()] };
    let attached = CompareRequest {
        system: " Answer in one word. ".to_owned(),
        documents: vec![Attachment { document: document.clone(), tokens: 1, file: None }],
        ..request(None, &[full(), budget(64), budget(128)])
    };
    let asked = attached.clone();
    let messages = desk.store.run(move |db| kept::conversation(db, &asked)).await.unwrap();
    let question = Message { role: Role::User, text: "Which one?".to_owned(), documents: vec![document] };
    let system = Message { role: Role::System, text: "Answer in one word.".to_owned(), documents: vec![] };
    assert_eq!(messages, [system, question], "as the chat would begin");
    assert_eq!(desk.comparisons.begin(attached).await.unwrap().sessions.len(), 3);
    desk.over().await;
    assert!(desk.store.run(|db| chats::chats(db)).await.unwrap().is_empty());
}

#[tokio::test]
async fn stopping_ends_the_column_at_work_and_leaves_out_the_rest() {
    let desk = Desk::new("waits-for-stop");
    desk.comparisons.begin(request(None, &[budget(64), full(), full()])).await.unwrap();
    let is_token = |event: &AppEvent| matches!(event, AppEvent::Worker { event: Event::Token { .. } });
    desk.soon(|heard| heard.iter().any(is_token)).await;
    assert_eq!(
        desk.comparisons.begin(request(None, &[full(), full()])).await.unwrap_err().code(),
        "compare_busy",
        "one at a time"
    );
    desk.comparisons.stop();
    desk.over().await;
    let heard = desk.heard.lock().unwrap();
    assert_eq!(heard.iter().filter(|event| is_token(event)).count(), 1);
    let stopped = |event: &&AppEvent| {
        matches!(event, AppEvent::Worker { event: Event::Finished { reason: FinishReason::Stopped, .. } })
    };
    assert_eq!(heard.iter().filter(stopped).count(), 3);
}

#[tokio::test]
async fn a_column_that_memory_cannot_hold_says_so_and_the_others_are_answered() {
    let desk = Desk::new("huge-cache");
    desk.comparisons.begin(request(None, &[full(), budget(1)])).await.unwrap();
    desk.over().await;
    let heard = desk.heard.lock().unwrap();
    let problems: Vec<_> = heard
        .iter()
        .filter_map(|event| match event {
            AppEvent::Worker { event: Event::Failed { code, message, .. } } => Some((code.as_str(), message.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(problems.len(), 1, "{heard:?}");
    assert_eq!(problems[0].0, "compare_memory");
    assert!(problems[0].1.starts_with("This column would hold "), "{}", problems[0].1);
    assert_eq!(heard.iter().filter_map(finished).count(), 1);
}

#[tokio::test]
async fn an_engine_that_dies_costs_a_column_and_no_more() {
    let desk = Desk::new("dies-on-send");
    let started = desk.comparisons.begin(request(None, &[full(), budget(64)])).await.unwrap();
    desk.over().await;
    let heard = desk.heard.lock().unwrap();
    let failed: Vec<_> = heard
        .iter()
        .filter_map(|event| match event {
            AppEvent::Worker { event: Event::Failed { session, message, .. } } => Some((session.clone(), message)),
            _ => None,
        })
        .collect();
    // This worker dies of every question; each column had its own.
    let sessions: Vec<_> = failed.iter().map(|(session, _)| session.clone().unwrap()).collect();
    assert_eq!(sessions, started.sessions);
    assert!(failed.iter().all(|(_, message)| message.starts_with("The engine stopped")), "{failed:?}");
}

#[tokio::test]
async fn what_cannot_be_compared_is_refused() {
    let desk = Desk::new("healthy");
    desk.worker.settled().await;
    let code = async |request| desk.comparisons.begin(request).await.unwrap_err().code().to_owned();
    assert_eq!(code(request(None, &[full()])).await, "compare_columns");
    assert_eq!(
        code(CompareRequest { text: " ".to_owned(), ..request(None, &[full(), full()]) }).await,
        "empty_question"
    );
    assert_eq!(code(request(Some("gone"), &[full(), full()])).await, "no_such_chat");
    desk.worker.ask(Request::Unload).await.unwrap();
    assert_eq!(code(request(None, &[full(), full()])).await, "no_model");
}

#[test]
fn what_a_column_holds_is_bounded_by_its_budget_unless_it_keeps_everything() {
    assert_eq!(held(5000, &budget(64)), 64);
    assert_eq!(held(50, &budget(64)), 50);
    assert_eq!(held(5000, &CacheOptions { policy: PolicyName::Full, ..budget(64) }), 5000);
    assert_eq!(held(5000, &CacheOptions::default()), 5000);
}
