//! The list of chats.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::now_ms;
use crate::api::ChatSummary;
use crate::error::Problem;

/// Characters of a title that is taken from a question.
pub(super) const TITLE_LEN: usize = 60;

const SUMMARY: &str = "SELECT id, title, updated_ms, pinned FROM chats WHERE deleted_ms IS NULL";

/// The chat list, pinned ones first and then the last used.
pub fn chats(db: &Connection) -> Result<Vec<ChatSummary>, Problem> {
    let mut query = db.prepare_cached(&format!("{SUMMARY} ORDER BY pinned DESC, updated_ms DESC, id DESC"))?;
    Ok(query.query_map([], summary)?.collect::<Result<_, _>>()?)
}

fn summary(row: &Row<'_>) -> rusqlite::Result<ChatSummary> {
    Ok(ChatSummary { id: row.get(0)?, title: row.get(1)?, updated_ms: row.get(2)?, pinned: row.get(3)? })
}

/// A chat's line in the list.
pub fn find(db: &Connection, chat: &str) -> Result<ChatSummary, Problem> {
    db.query_row(&format!("{SUMMARY} AND id = ?1"), [chat], summary).optional()?.ok_or(Problem::NoSuchChat)
}

/// Gives a chat another title.
pub fn rename(db: &Connection, chat: &str, title: &str) -> Result<(), Problem> {
    let title = title.trim();
    if title.is_empty() {
        return Err(Problem::EmptyTitle);
    }
    changed(db.execute("UPDATE chats SET title = ?2 WHERE id = ?1 AND deleted_ms IS NULL", params![chat, title])?)
}

/// Holds a chat at the top of the list, or no longer.
pub fn pin(db: &Connection, chat: &str, pinned: bool) -> Result<(), Problem> {
    changed(db.execute("UPDATE chats SET pinned = ?2 WHERE id = ?1 AND deleted_ms IS NULL", params![chat, pinned])?)
}

/// Takes a chat out of the list. [`purge`] deletes it for good.
pub fn delete(db: &Connection, chat: &str) -> Result<(), Problem> {
    let now = now_ms();
    changed(db.execute("UPDATE chats SET deleted_ms = ?2 WHERE id = ?1 AND deleted_ms IS NULL", params![chat, now])?)
}

/// Puts a deleted chat back.
pub fn restore(db: &Connection, chat: &str) -> Result<(), Problem> {
    changed(db.execute("UPDATE chats SET deleted_ms = NULL WHERE id = ?1", [chat])?)
}

/// The chat was used now. Those that seem to have been used later were used before the clock was set back.
pub(super) fn used(db: &Connection, chat: &str) -> Result<(), Problem> {
    let now = now_ms();
    db.prepare_cached(
        "UPDATE chats SET updated_ms = ?1 - place FROM (
             SELECT id AS later, row_number() OVER (ORDER BY updated_ms DESC, id DESC) AS place
             FROM chats WHERE updated_ms > ?1
         ) WHERE id = later",
    )?
    .execute([now])?;
    db.prepare_cached("UPDATE chats SET updated_ms = ?2 WHERE id = ?1")?.execute(params![chat, now])?;
    Ok(())
}

/// Deletes chats with everything in them that were taken out of the list so many milliseconds ago.
pub fn purge(db: &Connection, after_ms: i64) -> Result<usize, Problem> {
    let now = now_ms();
    // A clock that was set back must not keep for years what was deleted.
    db.execute("UPDATE chats SET deleted_ms = ?1 WHERE deleted_ms > ?1", [now])?;
    Ok(db.execute("DELETE FROM chats WHERE deleted_ms <= ?1", [now.saturating_sub(after_ms)])?)
}

/// Every chat there is, also those that wait to be deleted for good.
pub fn all_ids(db: &Connection) -> Result<Vec<String>, Problem> {
    let mut query = db.prepare_cached("SELECT id FROM chats")?;
    Ok(query.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
}

fn changed(rows: usize) -> Result<(), Problem> {
    if rows == 0 { Err(Problem::NoSuchChat) } else { Ok(()) }
}

/// The start of the question, cut between words.
pub(super) fn title_of(question: &str) -> String {
    let line = question.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some((cut, _)) = line.char_indices().nth(TITLE_LEN) else { return line };
    let head = &line[..cut];
    let head = head.rsplit_once(' ').map_or(head, |(words, _)| words);
    format!("{head}…")
}
