use engine::protocol::Document;

use super::*;
use crate::api::Attachment;
use crate::chats::{Asked, ask, chat, delete, purge};

struct Desk {
    folder: tempfile::TempDir,
    store: Store,
    documents: Documents,
}

fn desk() -> Desk {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("chats.db")).unwrap();
    let documents = Documents::new(folder.path().join("documents"), store.clone());
    Desk { folder, store, documents }
}

impl Desk {
    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    fn copies(&self) -> usize {
        std::fs::read_dir(self.folder.path().join("documents")).map_or(0, Iterator::count)
    }

    /// Attaches a file and asks about it; gives the chat's id and the document's.
    async fn ask_about(&self, path: &Path) -> (String, i64) {
        self.documents.attach(path).await.unwrap();
        let file = path.to_string_lossy().into_owned();
        let document = Document { name: "Report".into(), pages: vec!["Text.".into()] };
        let mut attachments = vec![Attachment { document, tokens: 1, file: Some(file) }];
        let files = self.documents.claim(&mut attachments);
        let asked = Asked { text: "What?".into(), attachments, ..Asked::default() };
        let sent = self.store.run(move |db| ask(db, &asked)).await.unwrap();
        self.documents.sent(&files);
        (sent.chat.id, sent.question.documents[0].id)
    }

    async fn delete(&self, id: String) {
        self.store.run(move |db| delete(db, &id)).await.unwrap();
        // For good, once it cannot be put back any more.
        self.store.run(|db| purge(db, -1)).await.unwrap();
        self.documents.sweep().await.unwrap();
    }
}

#[tokio::test]
async fn a_document_can_be_looked_at_when_its_file_has_gone() {
    let desk = desk();
    let path = desk.file("report.pdf", "the bytes of a PDF");
    let (id, document) = desk.ask_about(&path).await;
    std::fs::remove_file(&path).unwrap();
    assert_eq!(desk.documents.read(document).await.unwrap(), b"the bytes of a PDF");
    let opened = desk.store.run(move |db| chat(db, &id)).await.unwrap();
    assert!(opened.messages[0].documents[0].copied);
    assert_eq!(desk.documents.read(document + 1).await.unwrap_err().code(), "no_such_document");
}

#[tokio::test]
async fn the_same_file_in_two_chats_is_copied_once_and_goes_with_the_last() {
    let desk = desk();
    let (first, _) = desk.ask_about(&desk.file("a.pdf", "same")).await;
    let (second, document) = desk.ask_about(&desk.file("b.pdf", "same")).await;
    assert_eq!(desk.copies(), 1);
    desk.delete(first).await;
    assert_eq!(desk.documents.read(document).await.unwrap(), b"same");
    desk.delete(second).await;
    assert_eq!(desk.copies(), 0);
}

#[tokio::test]
async fn what_waits_in_the_composer_is_not_swept_and_a_text_is_not_copied() {
    let desk = desk();
    let path = desk.file("a.pdf", "same");
    let (id, _) = desk.ask_about(&path).await;
    desk.documents.attach(&path).await.unwrap();
    desk.delete(id).await;
    assert_eq!(desk.copies(), 1, "the file is attached a second time");
    desk.documents.attach(&desk.file("notes.txt", "plain")).await.unwrap();
    assert_eq!(desk.copies(), 1);
    let (_, document) = desk.ask_about(&desk.file("notes.txt", "plain")).await;
    assert_eq!(desk.documents.read(document).await.unwrap_err().code(), "no_copy");
}
