use engine::protocol::{Document, FinishReason, Role, TurnStats};

use super::*;

fn manual() -> Attachment {
    let pages = vec!["First page.".to_owned(), String::new(), "Third page, after one without text.".to_owned()];
    Attachment { document: Document { name: "manual.pdf".to_owned(), pages }, tokens: 42 }
}

/// A store in a real file, and the folder to keep.
fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("chats.db")).unwrap();
    (folder, store)
}

#[tokio::test]
async fn chats_documents_and_settings_survive_closing_the_program() {
    let (folder, store) = store();
    let (summary, question, answer) = store.run(|db| ask(db, None, "What is on page 3?", &[manual()])).await.unwrap();
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
    let chat_id = summary.id.clone();
    let opened = store.run(move |db| chat(db, &chat_id)).await.unwrap();
    let [asked, answered] = &opened.messages[..] else { panic!("{opened:?}") };
    assert_eq!(asked, &question);
    assert_eq!(asked.documents, [DocumentInfo { name: "manual.pdf".into(), pages: 3, tokens: 42 }]);
    assert_eq!((answered.text.as_str(), answered.finish), ("Some text.", Some(FinishReason::Eos)));
    assert_eq!(answered.stats, Some(stats));
    assert!(!answered.writing && answered.problem.is_none());
    assert_eq!(store.run(|db| setting(db, "last_model")).await.unwrap().as_deref(), Some("/models/a.gguf"));
}

#[tokio::test]
async fn the_model_reads_the_whole_conversation_with_every_page_in_order() {
    let (_folder, store) = store();
    let (summary, _, first) = store.run(|db| ask(db, None, "One?", &[manual()])).await.unwrap();
    let (id, chat) = (first.id, summary.id.clone());
    store.run(move |db| end(db, id, "First.", &Ending::Broken("It broke".into()))).await.unwrap();
    let (_, _, second) = store.run(move |db| ask(db, Some(chat), "Two?", &[])).await.unwrap();

    let (id, chat) = (second.id, summary.id.clone());
    let messages = store.run(move |db| messages_before(db, &chat, id)).await.unwrap();
    let said: Vec<_> = messages.iter().map(|message| (message.role, message.text.as_str())).collect();
    assert_eq!(said, [(Role::User, "One?"), (Role::Assistant, "First."), (Role::User, "Two?")]);
    assert_eq!(messages[0].documents, [manual().document]);
}

#[tokio::test]
async fn a_deleted_chat_takes_its_documents_along_and_is_missed_in_one_sentence() {
    let (_folder, store) = store();
    let (summary, ..) = store.run(|db| ask(db, None, "Secret?", &[manual()])).await.unwrap();
    let id = summary.id.clone();
    store.run(move |db| delete(db, &id)).await.unwrap();
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
    let id = summary.id;
    let question = store.run(move |db| ask(db, Some(id), "Still there?", &[])).await;
    assert_eq!(question.unwrap_err().code(), "no_such_chat");
}

#[tokio::test]
async fn the_list_shows_the_last_used_chat_first_under_a_title_that_can_be_changed() {
    let (_folder, store) = store();
    let (first, ..) = store.run(|db| ask(db, None, "First", &[])).await.unwrap();
    tokio::time::sleep(Duration::from_millis(3)).await;
    store.run(|db| ask(db, None, "Second", &[])).await.unwrap();
    tokio::time::sleep(Duration::from_millis(3)).await;
    let id = first.id.clone();
    store.run(move |db| ask(db, Some(id), "More", &[])).await.unwrap();
    let id = first.id.clone();
    store.run(move |db| rename(db, &id, "  Renamed ")).await.unwrap();
    let list = store.run(|db| chats(db)).await.unwrap();
    assert_eq!(list.iter().map(|chat| chat.title.as_str()).collect::<Vec<_>>(), ["Renamed", "Second"]);
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
            store.run(move |db| ask(db, None, &format!("question {n}"), &[])).await.unwrap();
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
