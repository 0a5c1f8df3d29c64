use engine::protocol::{Document, FinishReason, Role, TurnStats};

use super::list::{TITLE_LEN, title_of};
use super::*;
use crate::api::{Attachment, Chat, DocumentInfo, Sent};

mod faults;
mod hostile;
mod search;
mod transfer;

fn manual() -> Attachment {
    let pages = vec!["First page.".to_owned(), String::new(), "Third page, after one without text.".to_owned()];
    Attachment { document: Document { name: "manual.pdf".to_owned(), pages }, tokens: 42, file: None }
}

/// A store in a real file, and the folder to keep.
fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("chats.db")).unwrap();
    (folder, store)
}

impl Store {
    /// Asks at the end of a chat, or in a new one.
    async fn ask(&self, chat: Option<&str>, text: &str, attachments: &[Attachment]) -> Result<Sent, Problem> {
        let (chat, text, attachments) = (chat.map(str::to_owned), text.to_owned(), attachments.to_vec());
        self.run(move |db| ask(db, &Asked { chat, text, attachments, ..Asked::default() })).await
    }

    async fn edit(&self, chat: &str, edits: i64, text: &str) -> Result<Sent, Problem> {
        let (chat, edits, text) = (Some(chat.to_owned()), Some(edits), text.to_owned());
        self.run(move |db| ask(db, &Asked { chat, edits, text, ..Asked::default() })).await
    }

    async fn answered(&self, answer: i64, text: &'static str, reason: FinishReason) {
        let ending = Ending::Finished(reason, TurnStats::default());
        self.run(move |db| end(db, answer, text, &ending)).await.unwrap();
    }

    async fn chat(&self, id: &str) -> Chat {
        let id = id.to_owned();
        self.run(move |db| chat(db, &id)).await.unwrap()
    }
}

fn texts(chat: &Chat) -> Vec<&str> {
    chat.messages.iter().map(|message| message.text.as_str()).collect()
}

#[tokio::test]
async fn chats_documents_and_settings_survive_closing_the_program() {
    let (folder, store) = store();
    let Sent { chat: summary, question, answer, .. } =
        store.ask(None, "What is on page 3?", &[manual()]).await.unwrap();
    let id = answer.id;
    store.run(move |db| append(db, id, "Some ")).await.unwrap();
    let stats = TurnStats { generated: 2, tok_s: 31.5, ..TurnStats::default() };
    let ending = Ending::Finished(FinishReason::Eos, stats.clone());
    store.run(move |db| end(db, id, "text.", &ending)).await.unwrap();
    store.run(|db| set_setting(db, "last_model", "/models/a.gguf")).await.unwrap();
    drop(store);

    let store = Store::open(&folder.path().join("chats.db")).unwrap();
    let list = store.run(|db| chats(db)).await.unwrap();
    assert_eq!(list.iter().map(|chat| chat.title.as_str()).collect::<Vec<_>>(), ["What is on page 3?"]);
    let opened = store.chat(&summary.id).await;
    let [asked, answered] = &opened.messages[..] else { panic!("{opened:?}") };
    assert_eq!(asked, &question);
    assert_eq!(
        asked.documents,
        [DocumentInfo { id: 1, name: "manual.pdf".into(), copied: false, pages: 3, tokens: 42 }]
    );
    assert_eq!((answered.text.as_str(), answered.finish), ("Some text.", Some(FinishReason::Eos)));
    assert_eq!(answered.stats, Some(stats));
    assert!(!answered.writing && answered.problem.is_none());
    assert_eq!(store.run(|db| setting(db, "last_model")).await.unwrap().as_deref(), Some("/models/a.gguf"));
}

#[tokio::test]
async fn the_model_reads_the_whole_conversation_with_every_page_in_order() {
    let (_folder, store) = store();
    let first = store.ask(None, "One?", &[manual()]).await.unwrap();
    let id = first.answer.id;
    store.run(move |db| end(db, id, "First.", &Ending::Broken("It broke".into()))).await.unwrap();
    let second = store.ask(Some(&first.chat.id), "Two?", &[]).await.unwrap();

    let messages = store.run(move |db| conversation(db, second.answer.id)).await.unwrap();
    let said: Vec<_> = messages.iter().map(|message| (message.role, message.text.as_str())).collect();
    assert_eq!(said, [(Role::User, "One?"), (Role::Assistant, "First."), (Role::User, "Two?")]);
    assert_eq!(messages[0].documents, [manual().document]);
}

#[tokio::test]
async fn a_deleted_chat_takes_its_documents_along_and_is_missed_in_one_sentence() {
    let (_folder, store) = store();
    let summary = store.ask(None, "Secret?", &[manual()]).await.unwrap().chat;
    let id = summary.id.clone();
    store.run(move |db| delete(db, &id)).await.unwrap();
    assert_eq!(store.run(|db| purge(db, 60_000)).await.unwrap(), 0, "it can still be put back");
    assert_eq!(store.run(|db| purge(db, 0)).await.unwrap(), 1);
    let left = |table: &'static str| {
        store.run(move |db| Ok(db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0))?))
    };
    for table in ["chats", "messages", "documents", "pages"] {
        assert_eq!(left(table).await.unwrap(), 0, "{table}");
    }
    let id = summary.id.clone();
    assert_eq!(store.run(move |db| chat(db, &id)).await.unwrap_err().code(), "no_such_chat");
    let id = summary.id.clone();
    assert_eq!(store.run(move |db| rename(db, &id, "New")).await.unwrap_err().code(), "no_such_chat");
    let question = store.ask(Some(&summary.id), "Still there?", &[]).await;
    assert_eq!(question.unwrap_err().code(), "no_such_chat");
}

#[tokio::test]
async fn the_list_shows_the_last_used_chat_first_under_a_title_that_can_be_changed() {
    let (_folder, store) = store();
    let first = store.ask(None, "First", &[]).await.unwrap().chat;
    tokio::time::sleep(Duration::from_millis(3)).await;
    let second = store.ask(None, "Second", &[]).await.unwrap().chat;
    tokio::time::sleep(Duration::from_millis(3)).await;
    store.ask(Some(&first.id), "More", &[]).await.unwrap();
    let id = first.id.clone();
    store.run(move |db| rename(db, &id, "  Renamed ")).await.unwrap();
    let titles = async || {
        let list = store.run(|db| chats(db)).await.unwrap();
        list.into_iter().map(|chat| chat.title).collect::<Vec<_>>()
    };
    assert_eq!(titles().await, ["Renamed", "Second"]);
    store.run(move |db| pin(db, &second.id, true)).await.unwrap();
    assert_eq!(titles().await, ["Second", "Renamed"], "what is pinned stands at the top");
    assert_eq!(store.run(move |db| rename(db, &first.id, " ")).await.unwrap_err().code(), "empty_title");
}

#[test]
fn a_title_is_one_line_cut_between_words() {
    assert_eq!(title_of("  What is\n\nthis? "), "What is this?");
    let long = title_of(&"word ".repeat(40));
    assert!(long.ends_with("word…") && long.chars().count() <= TITLE_LEN + 1, "{long}");
    let unbroken = title_of(&"水".repeat(100));
    assert_eq!(unbroken.chars().count(), TITLE_LEN + 1);
}

#[tokio::test]
async fn two_windows_on_one_data_folder_both_write() {
    let (folder, one) = store();
    let two = Store::open(&folder.path().join("chats.db")).unwrap();
    let write = async |store: &Store| {
        for n in 0..40 {
            store.ask(None, &format!("question {n}"), &[]).await.unwrap();
        }
    };
    tokio::join!(write(&one), write(&two));
    assert_eq!(one.run(|db| chats(db)).await.unwrap().len(), 80);
}

#[test]
fn a_database_of_a_later_version_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chats.db");
    drop(Store::open(&path).unwrap());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 1000).unwrap();
    let problem = Store::open(&path).unwrap_err();
    assert_eq!(problem.code(), "store_version");
    assert!(problem.to_string().contains("newer Cistern"), "{problem}");
}

#[tokio::test]
async fn an_edited_question_and_an_answer_written_anew_stand_beside_the_first_and_can_be_switched_to() {
    let (_folder, store) = store();
    let first = store.ask(None, "What?", &[manual()]).await.unwrap();
    let id = first.chat.id.clone();
    store.answered(first.answer.id, "This.", FinishReason::Eos).await;
    let second = store.ask(Some(&id), "Why?", &[]).await.unwrap();
    store.answered(second.answer.id, "Because.", FinishReason::Eos).await;

    let (chat, answer) = (id.clone(), first.answer.id);
    let anew = store.run(move |db| answer_anew(db, &chat, answer)).await.unwrap();
    assert_eq!(anew.question.id, first.question.id);
    assert_eq!(anew.answer.siblings, [first.answer.id, anew.answer.id]);
    store.answered(anew.answer.id, "That.", FinishReason::Eos).await;
    assert_eq!(texts(&store.chat(&id).await), ["What?", "That."]);

    let edited = store.edit(&id, first.question.id, "Who?").await.unwrap();
    assert_eq!((edited.question.parent, edited.question.siblings.len()), (None, 2));
    assert_eq!(edited.question.documents, first.question.documents, "its documents go along");
    let read = store.run(move |db| conversation(db, edited.answer.id)).await.unwrap();
    assert_eq!(read.len(), 1, "the model reads one branch, without the empty answer");
    assert_eq!((read[0].text.as_str(), &read[0].documents[..]), ("Who?", &[manual().document][..]));
    // Once more, from the edited one: the documents are still those of the first.
    let twice = store.edit(&id, edited.question.id, "Whose?").await.unwrap();
    assert_eq!(twice.question.documents, first.question.documents);

    let show = async |message: i64| {
        let chat = id.clone();
        store.run(move |db| show_branch(db, &chat, message)).await
    };
    assert_eq!(texts(&show(first.question.id).await.unwrap()), ["What?", "That."], "the newest of that branch");
    assert_eq!(texts(&show(first.answer.id).await.unwrap()), ["What?", "This.", "Why?", "Because."]);
    assert_eq!(texts(&store.chat(&id).await), ["What?", "This.", "Why?", "Because."], "and so it opens again");
    let other = store.ask(None, "Elsewhere", &[]).await.unwrap();
    assert_eq!(show(other.answer.id).await.unwrap_err().code(), "no_such_message");
    assert_eq!(store.edit(&id, first.answer.id, "x").await.unwrap_err().code(), "no_such_message");
}

#[tokio::test]
async fn only_the_last_answer_can_go_on_and_only_where_something_is_missing() {
    let (_folder, store) = store();
    let sent = store.ask(None, "Tell me", &[]).await.unwrap();
    let (id, answer) = (sent.chat.id.clone(), sent.answer.id);
    let take_up = async |answer: i64| {
        let chat = id.clone();
        store.run(move |db| take_up(db, &chat, answer)).await
    };
    assert_eq!(take_up(answer).await.unwrap_err().code(), "complete", "nothing is there to go on from");
    store.answered(answer, "Once upon", FinishReason::Length).await;
    let again = take_up(answer).await.unwrap();
    assert!(again.answer.writing && again.answer.finish.is_none());
    let read = store.run(move |db| conversation(db, answer)).await.unwrap();
    assert_eq!(read.last().map(|message| message.text.as_str()), Some("Once upon"));
    store.answered(answer, " a time.", FinishReason::Eos).await;
    assert_eq!(texts(&store.chat(&sent.chat.id).await), ["Tell me", "Once upon a time."]);
    assert_eq!(take_up(answer).await.unwrap_err().code(), "complete");

    let second = store.ask(Some(&sent.chat.id), "More", &[]).await.unwrap();
    store.answered(second.answer.id, "And so", FinishReason::Stopped).await;
    store.ask(Some(&sent.chat.id), "Yes?", &[]).await.unwrap();
    assert_eq!(take_up(second.answer.id).await.unwrap_err().code(), "complete", "the chat went on from there");
}

#[tokio::test]
async fn a_database_of_the_first_version_keeps_every_chat() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chats.db");
    let mut old = Connection::open(&path).unwrap();
    Migrations::from_slice(&STEPS[..1]).to_latest(&mut old).unwrap();
    old.execute_batch(
        "INSERT INTO chats VALUES ('a', 'First', 1, 9), ('b', 'Second', 2, 8), ('c', 'Empty', 3, 7);
         INSERT INTO messages (id, chat_id, role, text, finish, created_ms) VALUES
             (1, 'a', 'user', 'One?', NULL, 1), (2, 'a', 'assistant', 'One.', 'eos', 1),
             (3, 'b', 'user', 'Two?', NULL, 2), (4, 'b', 'assistant', 'Cut', NULL, 2),
             (5, 'a', 'user', 'Three?', NULL, 3), (6, 'a', 'assistant', 'Three.', 'length', 3);
         INSERT INTO documents VALUES (1, 1, 'manual.pdf', 42);
         INSERT INTO pages VALUES (1, 1, 'First page.'), (1, 2, 'Second page.');",
    )
    .unwrap();
    drop(old);

    let store = Store::open(&path).unwrap();
    let a = store.chat("a").await;
    assert_eq!(texts(&a), ["One?", "One.", "Three?", "Three."]);
    assert_eq!(
        a.messages[0].documents,
        [DocumentInfo { id: 1, name: "manual.pdf".into(), copied: false, pages: 2, tokens: 42 }]
    );
    assert!(a.messages.iter().all(|message| message.siblings == [message.id]));
    assert_eq!(texts(&store.chat("b").await), ["Two?", "Cut"]);
    assert_eq!(texts(&store.chat("c").await), [""; 0]);
    store.ask(Some("b"), "Go on", &[]).await.unwrap();
    assert_eq!(texts(&store.chat("b").await), ["Two?", "Cut", "Go on", ""]);
    for id in ["a", "b", "c"] {
        store.run(move |db| delete(db, id)).await.unwrap();
    }
    assert_eq!(store.run(|db| purge(db, 0)).await.unwrap(), 3);
    assert!(store.run(|db| chats(db)).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_chat_of_thousands_of_messages_opens_and_is_deleted() {
    let (_folder, store) = store();
    let first = store.ask(None, "0", &[]).await.unwrap();
    let (id, last) = (first.chat.id, first.answer.id);
    let chat = id.clone();
    let add = move |db: &mut Connection| {
        let tx = db.transaction()?;
        for n in last + 1..last + 3000 {
            tx.execute(
                "INSERT INTO messages (id, chat_id, parent_id, role, text, created_ms)
                 VALUES (?1, ?2, ?1 - 1, iif(?1 % 2, 'user', 'assistant'), 'x', 0)",
                rusqlite::params![n, chat],
            )?;
        }
        tx.execute("UPDATE chats SET leaf_id = (SELECT max(id) FROM messages)", [])?;
        tx.commit()?;
        Ok(())
    };
    store.run(add).await.unwrap();
    assert_eq!(store.chat(&id).await.messages.len(), 3001);
    store.run(move |db| delete(db, &id)).await.unwrap();
    assert_eq!(store.run(|db| purge(db, 0)).await.unwrap(), 1);
    assert!(store.run(|db| chats(db)).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_new_chat_begins_with_the_system_prompt_and_keeps_it() {
    let (_folder, store) = store();
    let asked = Asked { system: " Answer in one word. ".into(), text: "Hello?".into(), ..Asked::default() };
    let first = store.run(move |db| ask(db, &asked)).await.unwrap();
    assert_eq!(first.system.unwrap().text, "Answer in one word.");
    let later = Asked {
        chat: Some(first.chat.id.clone()),
        system: "Answer at length.".into(),
        text: "And then?".into(),
        ..Asked::default()
    };
    assert_eq!(store.run(move |db| ask(db, &later)).await.unwrap().system, None);
    assert_eq!(texts(&store.chat(&first.chat.id).await), ["Answer in one word.", "Hello?", "", "And then?", ""]);
    store.edit(&first.chat.id, first.question.id, "Hi?").await.unwrap();
    assert_eq!(texts(&store.chat(&first.chat.id).await), ["Answer in one word.", "Hi?", ""]);
}
