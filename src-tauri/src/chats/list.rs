//! The list of chats.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::api::ChatSummary;
use crate::error::Problem;

/// Characters of a title that is taken from a question.
pub(super) const TITLE_LEN: usize = 60;

/// The chat list, the last used first.
pub fn chats(db: &Connection) -> Result<Vec<ChatSummary>, Problem> {
    let mut query = db.prepare_cached("SELECT id, title, updated_ms FROM chats ORDER BY updated_ms DESC, id DESC")?;
    Ok(query.query_map([], summary)?.collect::<Result<_, _>>()?)
}

fn summary(row: &Row<'_>) -> rusqlite::Result<ChatSummary> {
    Ok(ChatSummary { id: row.get(0)?, title: row.get(1)?, updated_ms: row.get(2)? })
}

/// A chat's line in the list.
pub fn find(db: &Connection, chat: &str) -> Result<ChatSummary, Problem> {
    db.query_row("SELECT id, title, updated_ms FROM chats WHERE id = ?1", [chat], summary)
        .optional()?
        .ok_or(Problem::NoSuchChat)
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
pub(super) fn title_of(question: &str) -> String {
    let line = question.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some((cut, _)) = line.char_indices().nth(TITLE_LEN) else { return line };
    let head = &line[..cut];
    let head = head.rsplit_once(' ').map_or(head, |(words, _)| words);
    format!("{head}…")
}
