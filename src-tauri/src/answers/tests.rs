use engine::protocol::{CacheOptions, Document, Sampling};
use tokio::time::sleep;

use super::*;
use crate::api::{Attachment, SnapshotWork};
use crate::desk::{Desk, soon};

mod faults;

impl Desk {
    /// Opens the model again, and waits until everyone knows.
    async fn reload(&self) {
        self.heard.lock().unwrap().clear();
        self.worker.ask(Request::Load { path: self.scripted.model() }).await.unwrap();
        let ready = |event: &AppEvent| matches!(event, AppEvent::Status { status: Status::Ready { .. } });
        soon(async || self.heard.lock().unwrap().iter().any(ready)).await;
    }

    /// Waits until the window has heard of an end, and returns the chat as it is then opened.
    async fn ended(&self, chat: &str) -> Chat {
        soon(async || self.heard.lock().unwrap().iter().any(is_end)).await;
        self.heard.lock().unwrap().clear();
        self.answers.open(chat.to_owned()).await.unwrap()
    }
}

/// What the window hears of chats' files, with the state of the cache as `cache`.
fn works(heard: &[AppEvent]) -> Vec<&'static str> {
    let name = |event: &AppEvent| match event {
        AppEvent::Snapshot { work: Some(SnapshotWork::Restoring), .. } => Some("restoring"),
        AppEvent::Snapshot { work: Some(SnapshotWork::Saving), .. } => Some("saving"),
        AppEvent::Snapshot { work: None, .. } => Some("over"),
        AppEvent::Worker { event: Event::Cache { .. } } => Some("cache"),
        _ => None,
    };
    heard.iter().filter_map(name).collect()
}

fn is_end(event: &AppEvent) -> bool {
    matches!(event, AppEvent::Worker { event: Event::Finished { .. } | Event::Failed { .. } })
}

fn question(chat: Option<&str>, text: &str) -> Question {
    Question {
        chat: chat.map(str::to_owned),
        edits: None,
        system: String::new(),
        text: text.to_owned(),
        documents: vec![],
        cache: CacheOptions::default(),
        sampling: Sampling::default(),
        max_tokens: 64,
    }
}

#[tokio::test]
async fn a_question_is_answered_and_kept_and_the_next_one_sends_the_whole_chat() {
    let desk = Desk::new("healthy");
    let document = Document { name: "a.txt".into(), pages: vec!["text".into()] };
    let first =
        Question { documents: vec![Attachment { document, tokens: 1, file: None }], ..question(None, "What is it?") };
    // At once: the model need not be ready for a question to be taken.
    let sent = desk.answers.send(first).await.unwrap();
    assert!(sent.answer.writing && sent.answer.text.is_empty());
    assert_eq!(sent.chat.title, "What is it?");

    let chat = desk.ended(&sent.chat.id).await;
    assert_eq!(chat.messages[1].text, "1 messages, the last: What is it?");
    assert_eq!(chat.messages[1].finish, Some(FinishReason::Eos));
    assert!(chat.messages[1].stats.is_some() && !chat.messages[1].writing);

    desk.answers.send(question(Some(&sent.chat.id), "And then?")).await.unwrap();
    let chat = desk.ended(&sent.chat.id).await;
    assert_eq!(chat.messages[3].text, "3 messages, the last: And then?");
}

#[tokio::test]
async fn a_question_is_edited_an_answer_written_anew_and_a_cut_one_continued() {
    let desk = Desk::new("healthy");
    let sent = desk.answers.send(question(None, "What?")).await.unwrap();
    let id = sent.chat.id.clone();
    desk.ended(&id).await;
    desk.answers.send(question(Some(&id), "And?")).await.unwrap();
    desk.ended(&id).await;

    let again = |answer: i64, how: AgainHow| Again {
        chat: id.clone(),
        answer,
        how,
        cache: CacheOptions::default(),
        sampling: Sampling::default(),
        max_tokens: 64,
    };
    desk.answers.again(again(sent.answer.id, AgainHow::Anew)).await.unwrap();
    let chat = desk.ended(&id).await;
    assert_eq!(chat.messages.len(), 2);
    assert_eq!(chat.messages[1].text, "1 messages, the last: What?");
    assert_eq!(chat.messages[1].siblings.len(), 2);

    desk.answers.send(Question { edits: Some(sent.question.id), ..question(Some(&id), "Who?") }).await.unwrap();
    let chat = desk.ended(&id).await;
    let said: Vec<_> = chat.messages.iter().map(|message| message.text.as_str()).collect();
    assert_eq!(said, ["Who?", "1 messages, the last: Who?"]);
    let back = desk.answers.show_branch(id.clone(), sent.answer.id).await.unwrap();
    assert_eq!(back.messages.len(), 4);

    let last = back.messages[3].id;
    assert_eq!(desk.answers.again(again(last, AgainHow::Continue)).await.unwrap_err().code(), "complete");
    let cut = "UPDATE messages SET finish = 'length', text = 'It' WHERE id = ?1";
    desk.store.run(move |db| Ok(db.execute(cut, [last])?)).await.unwrap();
    desk.answers.again(again(last, AgainHow::Continue)).await.unwrap();
    let chat = desk.ended(&id).await;
    assert_eq!(chat.messages[3].text, "It4 messages, the last: It", "the rest stands after what was there");
    assert_eq!(chat.messages[3].finish, Some(FinishReason::Eos));
}

#[tokio::test]
async fn when_the_worker_dies_the_text_so_far_is_kept_and_the_chat_goes_on() {
    let desk = Desk::new("dies-on-send");
    let sent = desk.answers.send(question(None, "Tell me everything")).await.unwrap();
    let chat = desk.ended(&sent.chat.id).await;
    let answer = &chat.messages[1];
    assert_eq!(answer.text, "1 messages, ");
    assert!(answer.finish.is_none() && !answer.writing);
    assert!(answer.problem.as_ref().unwrap().contains("ask again"), "{answer:?}");

    let again = desk.answers.send(question(Some(&sent.chat.id), "Again")).await.unwrap();
    assert_eq!(again.chat.id, sent.chat.id);
    let chat = desk.ended(&sent.chat.id).await;
    assert_eq!(chat.messages[3].text, "3 messages, ", "the restarted worker has the model and the whole chat");
}

#[tokio::test]
async fn streamed_text_is_in_the_file_before_the_answer_ends() {
    let desk = Desk::new("dies-on-send");
    let sent = desk.answers.send(question(None, "Tell me everything")).await.unwrap();
    // As another program would see it if this one were killed now: the worker lingers after its second word.
    let path = desk.scripted.folder.path().join("chats.db");
    soon(async || {
        let id = sent.chat.id.clone();
        let chat = Store::open(&path).unwrap().run(move |db| chats::chat(db, &id)).await.unwrap();
        let answer = &chat.messages[1];
        assert!(answer.finish.is_none() && answer.problem.is_none(), "it ended with {answer:?}");
        answer.text == "1 messages, "
    })
    .await;
}

#[tokio::test]
async fn a_chat_opened_while_it_is_answered_says_which_tokens_it_holds() {
    let desk = Desk::new("dies-on-send");
    let sent = desk.answers.send(question(None, "Tell me everything")).await.unwrap();
    soon(async || {
        let chat = desk.answers.open(sent.chat.id.clone()).await.unwrap();
        let answer = &chat.messages[1];
        assert!(answer.writing, "it ended with {answer:?}");
        let tokens = if answer.text.is_empty() { 0 } else { answer.text.split_inclusive(' ').count() };
        assert_eq!(tokens, answer.generated as usize, "{answer:?}");
        tokens == 2
    })
    .await;
}

#[tokio::test]
async fn a_question_that_cannot_be_answered_leaves_nothing_behind() {
    let desk = Desk::new("healthy");
    desk.worker.settled().await;
    assert_eq!(desk.answers.send(question(None, " \n")).await.unwrap_err().code(), "empty_question");
    desk.worker.ask(Request::Unload).await.unwrap();
    assert_eq!(desk.answers.send(question(None, "Anyone?")).await.unwrap_err().code(), "no_model");
    assert!(desk.store.run(|db| chats::chats(db)).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_second_question_waits_for_the_first_and_one_that_waits_for_the_model_can_be_stopped() {
    let desk = Desk::new("dies-on-load");
    let sent = desk.answers.send(question(None, "First")).await.unwrap();
    let second = desk.answers.send(question(Some(&sent.chat.id), "Second")).await;
    assert_eq!(second.unwrap_err().code(), "busy");
    let switched = desk.answers.show_branch(sent.chat.id.clone(), sent.question.id).await;
    assert_eq!(switched.unwrap_err().code(), "busy");
    desk.answers.stop(&sent.chat.id).await;
    let chat = desk.ended(&sent.chat.id).await;
    assert_eq!((chat.messages[1].finish, chat.messages[1].text.as_str()), (Some(FinishReason::Stopped), ""));
}

#[tokio::test]
async fn a_question_for_a_model_that_never_opens_ends_with_the_reason() {
    let desk = Desk::new("dies-on-load");
    let sent = desk.answers.send(question(None, "Anyone?")).await.unwrap();
    let chat = desk.ended(&sent.chat.id).await;
    let problem = chat.messages[1].problem.as_ref().unwrap();
    assert!(problem.contains("choose a model to try again"), "{problem}");
}

#[tokio::test]
async fn a_deleted_chat_is_gone_even_while_it_is_answered() {
    let desk = Desk::new("dies-on-send");
    let sent = desk.answers.send(question(None, "Tell me everything")).await.unwrap();
    desk.answers.delete(sent.chat.id.clone()).await.unwrap();
    assert_eq!(desk.answers.open(sent.chat.id).await.unwrap_err().code(), "no_such_chat");
    assert!(desk.store.run(|db| chats::chats(db)).await.unwrap().is_empty());
}

#[tokio::test]
async fn lms_1484_two_chats_asked_together_are_both_answered() {
    let desk = Desk::new("healthy");
    let (first, second) =
        tokio::join!(desk.answers.send(question(None, "One?")), desk.answers.send(question(None, "Two?")));
    for (sent, text) in [(first, "One?"), (second, "Two?")] {
        let id = sent.unwrap().chat.id;
        soon(async || !desk.answers.open(id.clone()).await.unwrap().messages[1].writing).await;
        let answer = &desk.answers.open(id).await.unwrap().messages[1];
        assert_eq!(answer.text, format!("1 messages, the last: {text}"));
        assert!(answer.problem.is_none());
    }
}

#[tokio::test]
async fn what_the_model_holds_of_a_chat_is_saved_and_comes_back_when_the_chat_is_opened() {
    let desk = Desk::new("healthy");
    let sent = desk.answers.send(question(None, "What?")).await.unwrap();
    let id = sent.chat.id.clone();
    desk.ended(&id).await;
    desk.snapshots.save_all(Instant::now() + Duration::from_secs(20)).await;
    let usage = desk.snapshots.usage().await.unwrap();
    assert_eq!((usage.chats, usage.bytes), (1, id.len() as u64));

    // Another model, or the same one again: the worker holds nothing any more. The chat that is shown comes back.
    desk.reload().await;
    soon(async || !desk.snapshots.has(&id)).await;
    desk.answers.send(question(Some(&id), "And?")).await.unwrap();
    let chat = desk.ended(&id).await;
    assert_eq!(chat.messages[3].text, "restored, 3 messages, the last: And?");

    // Another one only when it is needed.
    let other = desk.answers.send(question(None, "Else?")).await.unwrap();
    desk.ended(&other.chat.id).await;
    desk.reload().await;
    assert!(desk.snapshots.has(&id));
    desk.answers.send(question(Some(&id), "So?")).await.unwrap();
    assert!(desk.ended(&id).await.messages[5].text.starts_with("restored, "));
}

#[tokio::test]
async fn the_window_hears_when_a_chats_file_is_written_and_read() {
    let desk = Desk::new("healthy");
    let sent = desk.answers.send(question(None, "What?")).await.unwrap();
    let id = sent.chat.id.clone();
    desk.ended(&id).await;
    desk.snapshots.save_all(Instant::now() + Duration::from_secs(20)).await;
    let heard = async |wanted: &[&str]| {
        soon(async || works(&desk.heard.lock().unwrap()).len() >= wanted.len()).await;
        assert_eq!(works(&desk.heard.lock().unwrap()), wanted);
    };
    heard(&["saving", "over"]).await;

    desk.reload().await;
    heard(&["restoring", "cache", "over"]).await;

    let file = desk.scripted.folder.path().join("snapshots").join(format!("{id}.snapshot"));
    std::fs::write(&file, "something else").unwrap();
    desk.reload().await;
    heard(&["restoring", "over"]).await;
}

#[tokio::test]
async fn chats_that_are_left_alone_are_saved_and_their_memory_is_given_back() {
    let desk = Desk::new("healthy");
    let mut ids = Vec::new();
    for n in 0..6 {
        let sent = desk.answers.send(question(None, &format!("Question {n}"))).await.unwrap();
        desk.ended(&sent.chat.id).await;
        ids.push(sent.chat.id);
    }
    soon(async || desk.snapshots.usage().await.unwrap().chats == 6).await;
    // Three stay with the worker, the one that is shown among them.
    soon(async || ids.iter().filter(|id| desk.snapshots.has(id)).count() == 3).await;
    assert!(!desk.snapshots.has(&ids[5]));
    let gone = ids.iter().find(|id| desk.snapshots.has(id)).unwrap();
    desk.answers.send(question(Some(gone), "Still there?")).await.unwrap();
    assert_eq!(desk.ended(gone).await.messages[3].text, "restored, 3 messages, the last: Still there?");
}

#[tokio::test]
async fn a_damaged_file_costs_nothing_but_the_reading() {
    let desk = Desk::new("healthy");
    let sent = desk.answers.send(question(None, "What?")).await.unwrap();
    let id = sent.chat.id.clone();
    desk.ended(&id).await;
    desk.snapshots.save_all(Instant::now() + Duration::from_secs(20)).await;
    let file = desk.scripted.folder.path().join("snapshots").join(format!("{id}.snapshot"));
    std::fs::write(&file, "something else").unwrap();
    desk.reload().await;

    desk.answers.send(question(Some(&id), "And?")).await.unwrap();
    let chat = desk.ended(&id).await;
    assert_eq!(chat.messages[3].text, "3 messages, the last: And?");
    assert!(chat.messages[3].problem.is_none());
}

#[tokio::test]
async fn snapshots_keep_to_their_limit_and_go_with_their_chats() {
    let desk = Desk::new("healthy");
    let mut ids = Vec::new();
    for text in ["One", "Two", "Three"] {
        let sent = desk.answers.send(question(None, text)).await.unwrap();
        desk.ended(&sent.chat.id).await;
        desk.snapshots.save_all(Instant::now() + Duration::from_secs(20)).await;
        ids.push(sent.chat.id);
        sleep(Duration::from_millis(20)).await;
    }
    let file = |id: &str| desk.scripted.folder.path().join("snapshots").join(format!("{id}.snapshot"));
    let kept = || ids.iter().map(|id| file(id).is_file()).collect::<Vec<_>>();
    assert_eq!(kept(), [true, true, true]);
    desk.snapshots.set_limit(80).await.unwrap();
    assert_eq!(kept(), [false, true, true], "the one not used for longest goes");

    desk.answers.delete(ids[1].clone()).await.unwrap();
    desk.snapshots.sweep().await.unwrap();
    assert_eq!(kept(), [false, true, true], "the chat can still be put back");
    desk.store.run(|db| chats::purge(db, 0)).await.unwrap();
    desk.snapshots.sweep().await.unwrap();
    assert_eq!(kept(), [false, false, true]);

    desk.snapshots.set_limit(0).await.unwrap();
    desk.answers.send(question(Some(&ids[2]), "More")).await.unwrap();
    desk.ended(&ids[2]).await;
    desk.snapshots.save_all(Instant::now() + Duration::from_secs(20)).await;
    assert_eq!(kept(), [false, false, false], "none are wanted");
}
