//! Chats as files: Markdown to read, JSON to take along.

use std::fmt::Write;

use engine::protocol::{Document, FinishReason, Role, TurnStats};
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use super::list::{self, title_of};
use super::names::{finish_from, finish_name, role_from, role_name};
use super::{branches, documents, find, now_ms, search};
use crate::api::{Attachment, ChatSummary};
use crate::error::Problem;

const FORMAT: &str = "cistern-chat";
const VERSION: u32 = 1;
const MOST_MESSAGES: usize = 100_000;
const LONGEST_TITLE: usize = 500;

/// A chat with all of its branches. Messages name each other by their place in the list.
#[derive(Debug, Serialize, Deserialize)]
struct Exported {
    format: String,
    version: u32,
    title: String,
    created_ms: i64,
    updated_ms: i64,
    /// The end of the branch that is shown.
    shown: usize,
    messages: Vec<ExportedMessage>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ExportedMessage {
    /// The message that it follows; each stands after its own.
    parent: Option<usize>,
    role: Role,
    text: String,
    created_ms: i64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    documents: Vec<ExportedDocument>,
    /// The question whose documents an edited one goes on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    documents_of: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finish: Option<FinishReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stats: Option<TurnStats>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ExportedDocument {
    name: String,
    tokens: u32,
    pages: Vec<String>,
}

/// The branch that is shown, for reading.
pub fn to_markdown(db: &Connection, chat: &str) -> Result<String, Problem> {
    let chat = branches::chat(db, chat)?;
    let mut out = format!("# {}\n", chat.summary.title);
    for message in chat.messages {
        let speaker = match message.role {
            Role::System => "System",
            Role::User => "You",
            Role::Assistant => "Answer",
        };
        // Writing to a string cannot fail.
        let _ = write!(out, "\n## {speaker}\n");
        for document in message.documents {
            let pages = if document.pages == 1 { "page" } else { "pages" };
            let _ = write!(out, "\n*{} ({} {pages})*\n", document.name, document.pages);
        }
        if !message.text.trim().is_empty() {
            let _ = write!(out, "\n{}\n", message.text.trim());
        }
    }
    Ok(out)
}

/// Everything there is of a chat, for [`from_json`].
pub fn to_json(db: &Connection, chat: &str) -> Result<String, Problem> {
    let title = find(db, chat)?.title;
    let (created_ms, updated_ms) =
        db.query_row("SELECT created_ms, updated_ms FROM chats WHERE id = ?1", [chat], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    let mut query = db.prepare_cached(
        "SELECT id, parent_id, role, text, created_ms, documents_of, finish, problem, stats
         FROM messages WHERE chat_id = ?1 ORDER BY id",
    )?;
    let mut rows = query.query([chat])?;
    let mut ids: Vec<i64> = Vec::new();
    let mut messages = Vec::new();
    while let Some(row) = rows.next()? {
        let id: i64 = row.get(0)?;
        let place = |of: Option<i64>| of.and_then(|of| ids.binary_search(&of).ok());
        let documents_of: Option<i64> = row.get(5)?;
        let documents = match documents_of {
            Some(_) => Vec::new(),
            None => exported_documents(db, id)?,
        };
        messages.push(ExportedMessage {
            parent: place(row.get(1)?),
            role: role_from(&row.get::<_, String>(2)?),
            text: row.get(3)?,
            created_ms: row.get(4)?,
            documents,
            documents_of: place(documents_of),
            finish: row.get::<_, Option<String>>(6)?.and_then(|name| finish_from(&name)),
            problem: row.get(7)?,
            stats: row.get::<_, Option<String>>(8)?.and_then(|json| serde_json::from_str(&json).ok()),
        });
        ids.push(id);
    }
    let leaf = branches::leaf(db, chat)?.and_then(|leaf| ids.binary_search(&leaf).ok());
    let shown = leaf.unwrap_or(messages.len().saturating_sub(1));
    let format = FORMAT.to_owned();
    let exported = Exported { format, version: VERSION, title, created_ms, updated_ms, shown, messages };
    serde_json::to_string_pretty(&exported).map_err(|error| Problem::NoChat(error.to_string()))
}

fn exported_documents(db: &Connection, message: i64) -> Result<Vec<ExportedDocument>, Problem> {
    let tokens = documents::infos(db, message)?.into_iter().map(|info| info.tokens);
    let texts = documents::texts(db, message)?;
    Ok(texts
        .into_iter()
        .zip(tokens)
        .map(|(Document { name, pages }, tokens)| ExportedDocument { name, tokens, pages })
        .collect())
}

/// Makes a chat of what [`to_json`] wrote.
pub fn from_json(db: &mut Connection, json: &[u8]) -> Result<ChatSummary, Problem> {
    let chat: Exported = serde_json::from_slice(json).map_err(|error| Problem::NoChat(error.to_string()))?;
    check(&chat).map_err(Problem::NoChat)?;
    let tx = db.transaction()?;
    let id = uuid::Uuid::now_v7().to_string();
    let title = match chat.title.trim() {
        "" => title_of(chat.messages.first().map_or("", |first| &first.text)),
        title => title.to_owned(),
    };
    // It was used now, and so stands where the person looks for it.
    tx.execute(
        "INSERT INTO chats (id, title, created_ms, updated_ms) VALUES (?1, ?2, ?3, ?4)",
        params![id, title, chat.created_ms, now_ms()],
    )?;
    list::used(&tx, &id)?;
    let mut ids: Vec<i64> = Vec::new();
    for message in chat.messages {
        tx.execute(
            "INSERT INTO messages
             (chat_id, parent_id, role, text, created_ms, documents_of, finish, problem, stats)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                id,
                message.parent.map(|place| ids[place]),
                role_name(message.role),
                message.text,
                message.created_ms,
                message.documents_of.map(|place| ids[place]),
                message.finish.map(finish_name),
                message.problem,
                message.stats.and_then(|stats| serde_json::to_string(&stats).ok()),
            ],
        )?;
        let row = tx.last_insert_rowid();
        ids.push(row);
        for ExportedDocument { name, tokens, pages } in message.documents {
            documents::insert(&tx, row, &Attachment { document: Document { name, pages }, tokens, file: None })?;
        }
        search::index(&tx, row)?;
    }
    branches::set_leaf(&tx, &id, ids[chat.shown])?;
    let summary = find(&tx, &id)?;
    tx.commit()?;
    Ok(summary)
}

/// Whether it can be a chat of ours; otherwise why not, in words that fit into a sentence.
fn check(chat: &Exported) -> Result<(), String> {
    if chat.format != FORMAT {
        return Err(format!("its format is `{}`", chat.format.chars().take(40).collect::<String>()));
    }
    if chat.version != VERSION {
        return Err(format!("it is of version {}, and this Cistern reads version {VERSION}", chat.version));
    }
    if chat.messages.is_empty() || chat.messages.len() > MOST_MESSAGES {
        return Err(format!("it has {} messages", chat.messages.len()));
    }
    if chat.title.chars().count() > LONGEST_TITLE {
        return Err(format!("its title is longer than {LONGEST_TITLE} characters"));
    }
    for (i, message) in chat.messages.iter().enumerate() {
        let n = i + 1;
        let before = match message.parent {
            Some(place) if place < i => Some(&chat.messages[place]),
            Some(_) => return Err(format!("message {n} follows one that stands after it")),
            None => None,
        };
        let fits = match message.role {
            Role::System => before.is_none(),
            Role::User => before.is_none_or(|before| before.role != Role::User),
            Role::Assistant => before.is_some_and(|before| before.role == Role::User),
        };
        if !fits {
            return Err(format!("message {n} stands where nothing of its role can"));
        }
        if message.documents_of.is_some_and(|place| place >= i || !message.documents.is_empty()) {
            return Err(format!("the documents of message {n} cannot be told"));
        }
    }
    match chat.messages.get(chat.shown) {
        Some(last) if last.role == Role::Assistant => Ok(()),
        _ => Err("it does not end with an answer".to_owned()),
    }
}
