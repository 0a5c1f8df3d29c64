//! Which copies of attached files the chats use.

use rusqlite::{Connection, OptionalExtension, params};

use super::{documents, now_ms};
use crate::error::Problem;

/// The hash of the file that a document came from; `None` where no copy was kept.
pub fn file_of(db: &Connection, document: i64) -> Result<Option<String>, Problem> {
    db.query_row("SELECT file FROM documents WHERE id = ?1", [document], |row| row.get(0))
        .optional()?
        .ok_or(Problem::NoSuchDocument)
}

/// The text of a document, page by page.
pub fn pages_of(db: &Connection, document: i64) -> Result<Vec<String>, Problem> {
    file_of(db, document)?;
    documents::pages(db, document)
}

/// Says that a copy is there which no chat may use yet.
pub fn note_file(db: &Connection, hash: &str) -> Result<(), Problem> {
    db.execute(
        "INSERT INTO loose_files (hash, since_ms) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET since_ms = ?2",
        params![hash, now_ms()],
    )?;
    Ok(())
}

/// Copies that no chat uses: those that one has used, and those that were attached so long ago and never sent.
pub fn loose_files(db: &Connection, unsent_ms: i64) -> Result<Vec<String>, Problem> {
    let now = now_ms();
    db.execute("DELETE FROM loose_files WHERE hash IN (SELECT file FROM documents)", [])?;
    db.execute("UPDATE loose_files SET since_ms = ?1 WHERE since_ms > ?1", [now])?;
    let mut query = db.prepare_cached("SELECT hash FROM loose_files WHERE since_ms < ?1")?;
    Ok(query.query_map([now - unsent_ms], |row| row.get(0))?.collect::<Result<_, _>>()?)
}

/// A copy was removed.
pub fn forget_file(db: &Connection, hash: &str) -> Result<(), Problem> {
    db.execute("DELETE FROM loose_files WHERE hash = ?1", [hash])?;
    Ok(())
}
