use engine::protocol::FinishReason;

use super::*;
use crate::api::ChatSummary;

pub(super) async fn exported(store: &Store, id: &str) -> String {
    let id = id.to_owned();
    store.run(move |db| to_json(db, &id)).await.unwrap()
}

async fn import(store: &Store, json: String) -> Result<ChatSummary, Problem> {
    store.run(move |db| from_json(db, json.as_bytes())).await
}

/// A chat with an edited question and an answer that was written anew.
pub(super) async fn branched(store: &Store) -> Sent {
    let first = store.ask(None, "What?", &[manual()]).await.unwrap();
    store.answered(first.answer.id, "This.", FinishReason::Length).await;
    let (chat, answer) = (first.chat.id.clone(), first.answer.id);
    let anew = store.run(move |db| answer_anew(db, &chat, answer)).await.unwrap();
    store.answered(anew.answer.id, "That.", FinishReason::Eos).await;
    let edited = store.edit(&first.chat.id, first.question.id, "Who?").await.unwrap();
    store.answered(edited.answer.id, "She.", FinishReason::Eos).await;
    first
}

#[tokio::test]
async fn a_chat_comes_back_from_json_with_branches_and_documents() {
    let (_folder, from) = store();
    let (_other, to) = store();
    let first = branched(&from).await;
    let json = exported(&from, &first.chat.id).await;
    let imported = import(&to, json.clone()).await.unwrap();
    assert_eq!(imported.title, "What?");
    assert_ne!(imported.id, first.chat.id);

    let chat = to.chat(&imported.id).await;
    assert_eq!(texts(&chat), ["Who?", "She."], "the branch that was shown");
    assert_eq!(chat.messages[0].documents, first.question.documents);
    let before = chat.messages[0].siblings[0];
    let id = imported.id.clone();
    let there = to.run(move |db| show_branch(db, &id, before)).await.unwrap();
    assert_eq!(texts(&there), ["What?", "That."]);
    let answer = there.messages[1].id;
    let read = to.run(move |db| conversation(db, answer)).await.unwrap();
    assert_eq!(read[0].documents, [manual().document], "page for page");
    assert_eq!(to.run(|db| search(db, "that.")).await.unwrap().len(), 1, "and it can be found");

    // Written again it is the same, but for the time of its last use.
    let id = imported.id;
    to.run(move |db| show_branch(db, &id, chat.messages[0].id)).await.unwrap();
    let id = to.run(|db| chats(db)).await.unwrap()[0].id.clone();
    let strip = |json: &str| -> serde_json::Value {
        let mut value: serde_json::Value = serde_json::from_str(json).unwrap();
        value["updated_ms"] = 0.into();
        value
    };
    assert_eq!(strip(&exported(&to, &id).await), strip(&json));
}

#[tokio::test]
async fn what_is_no_chat_is_refused_in_one_sentence_and_leaves_nothing() {
    let (_folder, store) = store();
    let first = branched(&store).await;
    let good: serde_json::Value = serde_json::from_str(&exported(&store, &first.chat.id).await).unwrap();
    let broken = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut value = good.clone();
        change(&mut value);
        value.to_string()
    };
    for (what, json) in [
        ("no JSON", "Dear diary".to_owned()),
        ("other JSON", "[1, 2, 3]".to_owned()),
        ("another format", broken(&|chat| chat["format"] = "elsewhere".into())),
        ("a later version", broken(&|chat| chat["version"] = 2.into())),
        ("no messages", broken(&|chat| chat["messages"] = serde_json::json!([]))),
        ("no such role", broken(&|chat| chat["messages"][0]["role"] = "oracle".into())),
        ("an answer to nothing", broken(&|chat| chat["messages"][1]["parent"] = serde_json::Value::Null)),
        ("an answer to an answer", broken(&|chat| chat["messages"][2]["parent"] = 1.into())),
        ("one that follows itself", broken(&|chat| chat["messages"][1]["parent"] = 1.into())),
        ("documents from nowhere", broken(&|chat| chat["messages"][3]["documents_of"] = 9.into())),
        ("the end of no branch", broken(&|chat| chat["shown"] = 99.into())),
        ("a question at the end", broken(&|chat| chat["shown"] = 0.into())),
        ("a title without end", broken(&|chat| chat["title"] = "x".repeat(600).into())),
    ] {
        let problem = import(&store, json).await.unwrap_err();
        assert_eq!(problem.code(), "no_chat", "{what}");
        assert!(problem.to_string().contains("exported as JSON"), "{what}: {problem}");
    }
    assert_eq!(store.run(|db| chats(db)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn markdown_holds_what_is_shown() {
    let (_folder, store) = store();
    let id = branched(&store).await.chat.id;
    let markdown = store.run(move |db| to_markdown(db, &id)).await.unwrap();
    assert_eq!(markdown, "# What?\n\n## You\n\n*manual.pdf (3 pages)*\n\nWho?\n\n## Answer\n\nShe.\n");
}
