//! What the machine does to a chat: a disk that takes nothing more, a process that is suspended.

use super::*;

impl Desk {
    async fn pragma(&self, name: &'static str, value: i64) {
        self.store.run(move |db| Ok(db.pragma_update(None, name, value)?)).await.unwrap();
    }

    async fn writes(&self, text: &str) {
        let said =
            |event: &AppEvent| matches!(event, AppEvent::Worker { event: Event::Token { text: t, .. } } if t == text);
        soon(async || self.heard.lock().unwrap().iter().any(said)).await;
    }

    fn complaints(&self) -> Vec<String> {
        let heard = self.heard.lock().unwrap();
        let complaint = |event: &AppEvent| match event {
            AppEvent::Worker { event: Event::Failed { session: None, code, message } } => {
                Some(format!("{code}: {message}"))
            }
            _ => None,
        };
        heard.iter().filter_map(complaint).collect()
    }
}

#[tokio::test]
async fn an_answer_that_the_disk_does_not_take_is_kept_and_stored_as_soon_as_it_does() {
    let desk = Desk::new("waits-for-stop");
    let sent = desk.answers.send(question(None, "Tell me a story")).await.unwrap();
    let id = sent.chat.id.clone();
    desk.pragma("query_only", 1).await;
    desk.writes("Once ").await;
    soon(async || !desk.complaints().is_empty()).await;
    let chat = desk.answers.open(id.clone()).await.unwrap();
    assert_eq!(chat.messages[1].text, "Once ", "what is on the screen is there when the chat is opened anew");
    assert!(chat.messages[1].writing);

    desk.answers.stop(&id).await;
    soon(async || desk.answers.is_idle().await).await;
    let chat = desk.answers.open(id.clone()).await.unwrap();
    assert_eq!((chat.messages[1].text.as_str(), chat.messages[1].finish), ("Once ", Some(FinishReason::Stopped)));
    assert_eq!(desk.answers.send(question(Some(&id), "More")).await.unwrap_err().code(), "store");
    let complaints = desk.complaints();
    let [complaint] = &complaints[..] else { panic!("{complaints:?}") };
    assert!(complaint.starts_with("store: ") && complaint.contains("the disk is not full"), "{complaint}");

    desk.pragma("query_only", 0).await;
    let path = desk.scripted.folder.path().join("chats.db");
    soon(async || {
        let id = id.clone();
        let chat = Store::open(&path).unwrap().run(move |db| chats::chat(db, &id)).await.unwrap();
        chat.messages[1].text == "Once " && chat.messages[1].finish == Some(FinishReason::Stopped)
    })
    .await;
    desk.answers.send(question(Some(&id), "More")).await.unwrap();
}

#[tokio::test]
async fn a_question_that_no_longer_fits_on_the_disk_is_refused_whole_and_the_chat_stays_as_it_was() {
    let desk = Desk::new("healthy");
    let sent = desk.answers.send(question(None, "What?")).await.unwrap();
    let id = sent.chat.id.clone();
    let before = desk.ended(&id).await;
    let pages: i64 =
        desk.store.run(|db| Ok(db.pragma_query_value(None, "page_count", |row| row.get(0))?)).await.unwrap();
    desk.pragma("max_page_count", pages).await;
    let document = Document { name: "long.txt".into(), pages: vec!["many words ".repeat(9_000)] };
    let documents = vec![Attachment { document, tokens: 1, file: None }];
    for chat in [Some(id.as_str()), None] {
        let long = Question { documents: documents.clone(), ..question(chat, "And this?") };
        let problem = desk.answers.send(long).await.unwrap_err();
        assert_eq!(problem.code(), "store");
        assert!(problem.to_string().contains("full"), "{problem}");
    }
    assert_eq!(desk.answers.open(id.clone()).await.unwrap(), before);
    assert_eq!(desk.store.run(|db| chats::chats(db)).await.unwrap().len(), 1);
    assert!(desk.answers.is_idle().await);

    desk.pragma("max_page_count", 1 << 20).await;
    desk.answers.send(Question { documents, ..question(Some(&id), "And this?") }).await.unwrap();
    assert_eq!(desk.ended(&id).await.messages[3].text, "3 messages, the last: And this?");
}

#[cfg(unix)]
#[tokio::test]
async fn a_worker_that_is_suspended_and_resumed_goes_on_where_it_was() {
    use crate::worker::tests::signal;

    let desk = Desk::new("waits-for-stop");
    let sent = desk.answers.send(question(None, "Tell me a story")).await.unwrap();
    let id = sent.chat.id.clone();
    desk.writes("Once ").await;
    let before = desk.worker.seen();
    signal(&desk.worker, "-STOP");
    desk.answers.stop(&id).await;
    let other = desk.answers.send(question(None, "And you?")).await.unwrap();
    sleep(Duration::from_millis(2_500)).await;
    assert!(matches!(desk.worker.status(), Status::Ready { .. }), "{:?}", desk.worker.status());
    let chat = desk.answers.open(id.clone()).await.unwrap();
    assert!(chat.messages[1].writing && chat.messages[1].text == "Once ", "{:?}", chat.messages[1]);

    signal(&desk.worker, "-CONT");
    soon(async || {
        let chat = desk.answers.open(id.clone()).await.unwrap();
        chat.messages[1].finish == Some(FinishReason::Stopped)
    })
    .await;
    assert_eq!(desk.worker.seen(), before);
    soon(async || desk.answers.open(other.chat.id.clone()).await.unwrap().messages[1].text == "Once ").await;
    assert!(desk.complaints().is_empty());
}
