//! Chats, their documents and the settings, in one SQLite file.
//!
//! Two windows may share a data folder: the file is in WAL mode and writers wait for each other.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::protocol::{Document, FinishReason, Message, Role, TurnStats};
use rusqlite::{Connection, OptionalExtension, Row, params};
use rusqlite_migration::{M, Migrations};

use crate::api::{Attachment, Chat, ChatSummary, DocumentInfo, StoredMessage};
use crate::error::Problem;

#[cfg(test)]
mod tests;

/// Each step is final once released: later changes are appended.
const STEPS: &[M<'static>] = &[M::up(include_str!("chats/01_first.sql"))];
const MIGRATIONS: Migrations<'static> = Migrations::from_slice(STEPS);

/// Characters of a title that is taken from a question.
const TITLE_LEN: usize = 60;

/// How an answer ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// As it should.
    Finished(FinishReason, TurnStats),
    /// It failed or was cut off, for the reason given in one sentence.
    Broken(String),
}

/// The database. Clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    connection: Arc<Mutex<Connection>>,
}

impl Store {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// When it cannot be opened, or was written by a later version.
    pub fn open(path: &Path) -> Result<Self, Problem> {
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_secs(5))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        MIGRATIONS.to_latest(&mut connection)?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)) })
    }

    /// Runs `work` on the database, away from the threads that serve the window.
    ///
    /// # Errors
    /// Those of `work`.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let connection = Arc::clone(&self.connection);
        tokio::task::spawn_blocking(move || work(&mut connection.lock().unwrap_or_else(PoisonError::into_inner)))
            .await
            .map_err(|_| Problem::Closing)?
    }
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// A value of the settings table.
pub fn setting(db: &Connection, key: &str) -> Result<Option<String>, Problem> {
    Ok(db.query_row("SELECT value FROM settings WHERE key = ?1", [key], |row| row.get(0)).optional()?)
}

/// Sets a value of the settings table.
pub fn set_setting(db: &Connection, key: &str, value: &str) -> Result<(), Problem> {
    db.execute("INSERT INTO settings (key, value) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = ?2", [key, value])?;
    Ok(())
}

/// Remembers a model file of the person's own.
pub fn remember_model(db: &Connection, path: &str) -> Result<(), Problem> {
    db.execute(
        "INSERT INTO own_models (path, opened_ms) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET opened_ms = ?2",
        params![path, now_ms()],
    )?;
    Ok(())
}

/// Model files of the person's own, the last opened first.
pub fn own_models(db: &Connection) -> Result<Vec<String>, Problem> {
    let mut query = db.prepare_cached("SELECT path FROM own_models ORDER BY opened_ms DESC")?;
    Ok(query.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
}

/// The chat list, the last used first.
pub fn chats(db: &Connection) -> Result<Vec<ChatSummary>, Problem> {
    let mut query = db.prepare_cached("SELECT id, title, updated_ms FROM chats ORDER BY updated_ms DESC, id DESC")?;
    Ok(query.query_map([], summary)?.collect::<Result<_, _>>()?)
}

fn summary(row: &Row<'_>) -> rusqlite::Result<ChatSummary> {
    Ok(ChatSummary { id: row.get(0)?, title: row.get(1)?, updated_ms: row.get(2)? })
}

fn find_summary(db: &Connection, chat: &str) -> Result<ChatSummary, Problem> {
    db.query_row("SELECT id, title, updated_ms FROM chats WHERE id = ?1", [chat], summary)
        .optional()?
        .ok_or(Problem::NoSuchChat)
}

/// A whole chat, without the text of its documents.
pub fn chat(db: &Connection, chat: &str) -> Result<Chat, Problem> {
    let summary = find_summary(db, chat)?;
    let mut query = db
        .prepare_cached("SELECT id, role, text, finish, problem, stats FROM messages WHERE chat_id = ?1 ORDER BY id")?;
    let mut messages = query.query_map([chat], message)?.collect::<Result<Vec<_>, _>>()?;
    let mut query = db.prepare_cached(
        "SELECT d.name, (SELECT count(*) FROM pages WHERE document_id = d.id), d.tokens
         FROM documents d WHERE d.message_id = ?1 ORDER BY d.id",
    )?;
    for message in &mut messages {
        message.documents = query
            .query_map([message.id], |row| {
                Ok(DocumentInfo { name: row.get(0)?, pages: row.get(1)?, tokens: row.get(2)? })
            })?
            .collect::<Result<_, _>>()?;
    }
    Ok(Chat { summary, messages })
}

fn message(row: &Row<'_>) -> rusqlite::Result<StoredMessage> {
    let finish: Option<String> = row.get(3)?;
    let stats: Option<String> = row.get(5)?;
    Ok(StoredMessage {
        id: row.get(0)?,
        role: role_from(&row.get::<_, String>(1)?),
        text: row.get(2)?,
        documents: Vec::new(),
        writing: false,
        generated: 0,
        finish: finish.and_then(|name| finish_from(&name)),
        problem: row.get(4)?,
        stats: stats.and_then(|json| serde_json::from_str(&json).ok()),
    })
}

/// What the model reads of a chat: every message before `answer`, with the text of the documents.
/// One message here for each of [`Chat::messages`], so that an index means the same on both sides.
pub fn messages_before(db: &Connection, chat: &str, answer: i64) -> Result<Vec<Message>, Problem> {
    let mut query =
        db.prepare_cached("SELECT id, role, text FROM messages WHERE chat_id = ?1 AND id < ?2 ORDER BY id")?;
    let rows = query
        .query_map(params![chat, answer], |row| {
            Ok((row.get::<_, i64>(0)?, role_from(&row.get::<_, String>(1)?), row.get(2)?))
        })?
        .collect::<Result<Vec<_>, _>>()?;
    rows.into_iter().map(|(id, role, text)| Ok(Message { role, text, documents: documents(db, id)? })).collect()
}

fn documents(db: &Connection, message: i64) -> Result<Vec<Document>, Problem> {
    let mut documents = db.prepare_cached("SELECT id, name FROM documents WHERE message_id = ?1 ORDER BY id")?;
    let mut pages = db.prepare_cached("SELECT text FROM pages WHERE document_id = ?1 ORDER BY number")?;
    let rows = documents
        .query_map([message], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))?
        .collect::<Result<Vec<_>, _>>()?;
    rows.into_iter()
        .map(|(id, name)| {
            let pages = pages.query_map([id], |row| row.get(0))?.collect::<Result<_, _>>()?;
            Ok(Document { name, pages })
        })
        .collect()
}

/// Stores a question and an empty answer to it, in a new chat where `chat` is `None`.
pub fn ask(
    db: &mut Connection,
    chat: Option<String>,
    text: &str,
    attachments: &[Attachment],
) -> Result<(ChatSummary, StoredMessage, StoredMessage), Problem> {
    let now = now_ms();
    let tx = db.transaction()?;
    let id = match chat {
        Some(id) => {
            find_summary(&tx, &id)?;
            tx.execute("UPDATE chats SET updated_ms = ?2 WHERE id = ?1", params![id, now])?;
            id
        }
        None => {
            let id = uuid::Uuid::now_v7().to_string();
            tx.execute(
                "INSERT INTO chats (id, title, created_ms, updated_ms) VALUES (?1, ?2, ?3, ?3)",
                params![id, title_of(text), now],
            )?;
            id
        }
    };
    let question = insert_message(&tx, &id, Role::User, text, now)?;
    let mut infos = Vec::new();
    for Attachment { document, tokens } in attachments {
        tx.execute(
            "INSERT INTO documents (message_id, name, tokens) VALUES (?1, ?2, ?3)",
            params![question.id, document.name, tokens],
        )?;
        let row = tx.last_insert_rowid();
        let mut insert = tx.prepare_cached("INSERT INTO pages (document_id, number, text) VALUES (?1, ?2, ?3)")?;
        for (number, page) in (1_u32..).zip(&document.pages) {
            insert.execute(params![row, number, page])?;
        }
        let pages = u32::try_from(document.pages.len()).unwrap_or(u32::MAX);
        infos.push(DocumentInfo { name: document.name.clone(), pages, tokens: *tokens });
    }
    let answer = insert_message(&tx, &id, Role::Assistant, "", now)?;
    let summary = find_summary(&tx, &id)?;
    tx.commit()?;
    Ok((summary, StoredMessage { documents: infos, ..question }, StoredMessage { writing: true, ..answer }))
}

fn insert_message(db: &Connection, chat: &str, role: Role, text: &str, now: i64) -> Result<StoredMessage, Problem> {
    db.execute(
        "INSERT INTO messages (chat_id, role, text, created_ms) VALUES (?1, ?2, ?3, ?4)",
        params![chat, role_name(role), text, now],
    )?;
    Ok(StoredMessage {
        id: db.last_insert_rowid(),
        role,
        text: text.to_owned(),
        documents: Vec::new(),
        writing: false,
        generated: 0,
        finish: None,
        problem: None,
        stats: None,
    })
}

/// Appends to an answer.
pub fn append(db: &Connection, answer: i64, text: &str) -> Result<(), Problem> {
    db.prepare_cached("UPDATE messages SET text = text || ?2 WHERE id = ?1")?.execute(params![answer, text])?;
    Ok(())
}

/// Appends the rest of an answer and stores how it ended.
pub fn end(db: &mut Connection, answer: i64, rest: &str, ending: &Ending) -> Result<(), Problem> {
    let tx = db.transaction()?;
    append(&tx, answer, rest)?;
    match ending {
        Ending::Finished(reason, stats) => tx.execute(
            "UPDATE messages SET finish = ?2, stats = ?3 WHERE id = ?1",
            params![answer, finish_name(*reason), serde_json::to_string(stats).ok()],
        )?,
        Ending::Broken(problem) => {
            tx.execute("UPDATE messages SET problem = ?2 WHERE id = ?1", params![answer, problem])?
        }
    };
    tx.execute(
        "UPDATE chats SET updated_ms = ?2 WHERE id = (SELECT chat_id FROM messages WHERE id = ?1)",
        params![answer, now_ms()],
    )?;
    tx.commit()?;
    Ok(())
}

/// Gives a chat another title.
pub fn rename(db: &Connection, chat: &str, title: &str) -> Result<(), Problem> {
    let title = title.trim();
    if title.is_empty() {
        return Err(Problem::EmptyTitle);
    }
    match db.execute("UPDATE chats SET title = ?2 WHERE id = ?1", params![chat, title])? {
        0 => Err(Problem::NoSuchChat),
        _ => Ok(()),
    }
}

/// Deletes a chat with everything in it.
pub fn delete(db: &Connection, chat: &str) -> Result<(), Problem> {
    db.execute("DELETE FROM chats WHERE id = ?1", [chat])?;
    Ok(())
}

/// The start of the question, cut between words.
fn title_of(question: &str) -> String {
    let line = question.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some((cut, _)) = line.char_indices().nth(TITLE_LEN) else { return line };
    let head = &line[..cut];
    let head = head.rsplit_once(' ').map_or(head, |(words, _)| words);
    format!("{head}…")
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
    }
}

fn role_from(name: &str) -> Role {
    match name {
        "system" => Role::System,
        "assistant" => Role::Assistant,
        _ => Role::User,
    }
}

fn finish_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Eos => "eos",
        FinishReason::Length => "length",
        FinishReason::Stopped => "stopped",
    }
}

fn finish_from(name: &str) -> Option<FinishReason> {
    Some(match name {
        "eos" => FinishReason::Eos,
        "length" => FinishReason::Length,
        "stopped" => FinishReason::Stopped,
        _ => return None,
    })
}
