//! The tree of a chat's messages, and the branch of it that is shown.

use std::collections::HashMap;

use engine::protocol::{Message, Role};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::documents;
use super::names::{finish_from, role_from};
use crate::api::{Chat, StoredMessage};
use crate::error::Problem;

/// Messages from the first one to `?1`. A message's id is higher than that of the one before it.
const PATH: &str = "WITH RECURSIVE path (id, before) AS (
        SELECT id, parent_id FROM messages WHERE id = ?1
        UNION ALL SELECT m.id, m.parent_id FROM messages m JOIN path ON m.id = path.before
    )";

/// The branch of a chat that is shown, without the text of its documents.
pub fn chat(db: &Connection, chat: &str) -> Result<Chat, Problem> {
    let summary = super::find(db, chat)?;
    let mut query = db.prepare_cached(&format!(
        "{PATH} SELECT m.id, m.parent_id, m.role, m.text, m.finish, m.problem, m.stats
         FROM path JOIN messages m USING (id) ORDER BY m.id"
    ))?;
    let mut messages = query.query_map([leaf(db, chat)?], message)?.collect::<Result<Vec<_>, _>>()?;
    let siblings = siblings(db, chat)?;
    for message in &mut messages {
        message.siblings.clone_from(siblings.get(&message.parent).unwrap_or(&Vec::new()));
        message.documents = documents::infos(db, message.id)?;
    }
    Ok(Chat { summary, messages })
}

fn message(row: &Row<'_>) -> rusqlite::Result<StoredMessage> {
    let finish: Option<String> = row.get(4)?;
    let stats: Option<String> = row.get(6)?;
    Ok(StoredMessage {
        id: row.get(0)?,
        parent: row.get(1)?,
        siblings: Vec::new(),
        role: role_from(&row.get::<_, String>(2)?),
        text: row.get(3)?,
        documents: Vec::new(),
        writing: false,
        generated: 0,
        finish: finish.and_then(|name| finish_from(&name)),
        problem: row.get(5)?,
        stats: stats.and_then(|json| serde_json::from_str(&json).ok()),
    })
}

/// The end of the branch that is shown; `None` in a chat without messages.
pub fn leaf(db: &Connection, chat: &str) -> Result<Option<i64>, Problem> {
    db.query_row("SELECT leaf_id FROM chats WHERE id = ?1", [chat], |row| row.get(0))
        .optional()?
        .ok_or(Problem::NoSuchChat)
}

/// Shows the branch that ends at `leaf`.
pub fn set_leaf(db: &Connection, chat: &str, leaf: i64) -> Result<(), Problem> {
    db.execute("UPDATE chats SET leaf_id = ?2 WHERE id = ?1", params![chat, leaf])?;
    Ok(())
}

/// Shows the branch that a message stands in, up to its newest message.
pub fn show_branch(db: &Connection, chat: &str, message: i64) -> Result<Chat, Problem> {
    parent_of(db, chat, message)?;
    let newest = db.query_row(
        "WITH RECURSIVE below (id) AS (
             SELECT ?1 UNION ALL SELECT m.id FROM messages m JOIN below ON m.parent_id = below.id
         ) SELECT max(id) FROM below",
        [message],
        |row| row.get(0),
    )?;
    set_leaf(db, chat, newest)?;
    self::chat(db, chat)
}

/// What a message of this chat follows.
pub fn parent_of(db: &Connection, chat: &str, message: i64) -> Result<Option<i64>, Problem> {
    db.query_row("SELECT parent_id FROM messages WHERE id = ?2 AND chat_id = ?1", params![chat, message], |row| {
        row.get(0)
    })
    .optional()?
    .ok_or(Problem::NoSuchMessage)
}

/// What the model reads: every message up to `answer`, with the text of the documents; the answer itself where it
/// has been begun. One message here for each of [`Chat::messages`], so that an index means the same on both sides.
pub fn conversation(db: &Connection, answer: i64) -> Result<Vec<Message>, Problem> {
    let mut query = db.prepare_cached(&format!(
        "{PATH} SELECT m.id, m.role, m.text FROM path JOIN messages m USING (id)
         WHERE m.id <> ?1 OR m.text <> '' ORDER BY m.id"
    ))?;
    let rows = query
        .query_map([answer], |row| Ok((row.get::<_, i64>(0)?, role_from(&row.get::<_, String>(1)?), row.get(2)?)))?
        .collect::<Result<Vec<(_, Role, _)>, _>>()?;
    rows.into_iter().map(|(id, role, text)| Ok(Message { role, text, documents: documents::texts(db, id)? })).collect()
}

/// Messages by the one that they follow.
fn siblings(db: &Connection, chat: &str) -> Result<HashMap<Option<i64>, Vec<i64>>, Problem> {
    let mut query = db.prepare_cached("SELECT parent_id, id FROM messages WHERE chat_id = ?1 ORDER BY id")?;
    let rows = query.query_map([chat], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut siblings: HashMap<_, Vec<_>> = HashMap::new();
    for row in rows {
        let (parent, id) = row?;
        siblings.entry(parent).or_default().push(id);
    }
    Ok(siblings)
}
