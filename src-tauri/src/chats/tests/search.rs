use engine::protocol::FinishReason;

use super::*;
use crate::api::{Found, SnippetPart};

async fn search_for(store: &Store, words: &str) -> Vec<Found> {
    let words = words.to_owned();
    store.run(move |db| search(db, &words)).await.unwrap()
}

/// A line with its hits in brackets.
fn marked(parts: &[SnippetPart]) -> String {
    parts.iter().map(|part| if part.hit { format!("[{}]", part.text) } else { part.text.clone() }).collect()
}

fn titles(found: &[Found]) -> Vec<&str> {
    found.iter().map(|found| found.chat.title.as_str()).collect()
}

#[tokio::test]
async fn words_are_found_in_titles_messages_and_names_of_documents() {
    let (_folder, store) = store();
    let budget = store.ask(None, "How does the Budget work?", &[manual()]).await.unwrap();
    store.answered(budget.answer.id, "The slider sets how many entries stay in ÉTÉ.", FinishReason::Eos).await;
    let other = store.ask(None, "Something else", &[]).await.unwrap();
    store.answered(other.answer.id, "A budget is mentioned here too; 内存预算是固定的。", FinishReason::Eos).await;

    let found = search_for(&store, "budget").await;
    assert_eq!(titles(&found), ["How does the Budget work?", "Something else"], "titles first");
    assert_eq!(marked(&found[0].title), "How does the [Budget] work?");
    assert_eq!(marked(&found[1].messages[0].snippet), "A [budget] is mentioned here too; 内存预算是固定的。");
    assert_eq!(found[1].messages[0].id, other.answer.id);

    for (words, title) in [
        ("SLIDER entri", "How does the Budget work?"),
        ("été", "How does the Budget work?"),
        ("manual.pdf", "How does the Budget work?"),
        ("预算", "Something else"),
        ("内存 固定", "Something else"),
        ("too a", "Something else"),
    ] {
        assert_eq!(titles(&search_for(&store, words).await), [title], "{words}");
    }
    for nothing in ["", "  ", "budget unknownword", "\"", "%", "_", "*", "zzz OR budget", "NEAR(", "slider\"", "\\"] {
        assert!(search_for(&store, nothing).await.is_empty(), "{nothing}");
    }
}

#[tokio::test]
async fn a_long_answer_shows_the_line_around_the_word() {
    let (_folder, store) = store();
    let sent = store.ask(None, "Tell me", &[]).await.unwrap();
    let text: &'static str =
        Box::leak(format!("{}the lighthouse {}", "water ".repeat(400), "stone ".repeat(400)).into());
    store.answered(sent.answer.id, text, FinishReason::Eos).await;
    let found = search_for(&store, "lighthouse").await;
    let line = marked(&found[0].messages[0].snippet);
    assert!(line.starts_with('…') && line.ends_with('…') && line.contains("the [lighthouse] stone"), "{line}");
    assert!(line.chars().count() < 140, "{line}");
}

#[tokio::test]
async fn what_is_deleted_is_not_found_and_what_was_cut_off_is_after_a_restart() {
    let (folder, store) = store();
    let sent = store.ask(None, "Tell me", &[]).await.unwrap();
    let answer = sent.answer.id;
    store.run(move |db| append(db, answer, "half of a lighthouse")).await.unwrap();
    assert!(search_for(&store, "lighthouse").await.is_empty(), "it is still being written");
    drop(store);
    let store = Store::open(&folder.path().join("chats.db")).unwrap();
    assert_eq!(search_for(&store, "lighthouse").await.len(), 1);

    let id = sent.chat.id.clone();
    store.run(move |db| delete(db, &id)).await.unwrap();
    assert!(search_for(&store, "lighthouse").await.is_empty());
    let id = sent.chat.id.clone();
    store.run(move |db| restore(db, &id)).await.unwrap();
    assert_eq!(search_for(&store, "lighthouse").await.len(), 1);
    let id = sent.chat.id;
    store.run(move |db| delete(db, &id)).await.unwrap();
    store.run(|db| purge(db, 0)).await.unwrap();
    let left = "SELECT count(*) FROM message_search";
    assert_eq!(store.run(move |db| Ok(db.query_row(left, [], |row| row.get::<_, i64>(0))?)).await.unwrap(), 0);
}
