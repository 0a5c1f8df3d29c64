//! Documents that came with a question.

use engine::protocol::Document;
use rusqlite::{Connection, params};

use crate::api::{Attachment, DocumentInfo};
use crate::error::Problem;

/// An edited question has the documents of the one that it replaces.
const OF_MESSAGE: &str = "message_id = (SELECT coalesce(documents_of, id) FROM messages WHERE id = ?1)";

/// Stores a document with its question.
pub fn insert(db: &Connection, message: i64, attachment: &Attachment) -> Result<(), Problem> {
    let Attachment { document, tokens, file } = attachment;
    db.execute(
        "INSERT INTO documents (message_id, name, tokens, file) VALUES (?1, ?2, ?3, ?4)",
        params![message, document.name, tokens, file],
    )?;
    let id = db.last_insert_rowid();
    let mut insert = db.prepare_cached("INSERT INTO pages (document_id, number, text) VALUES (?1, ?2, ?3)")?;
    for (number, page) in (1_u32..).zip(&document.pages) {
        insert.execute(params![id, number, page])?;
    }
    Ok(())
}

/// The documents of a message, without their text.
pub fn infos(db: &Connection, message: i64) -> Result<Vec<DocumentInfo>, Problem> {
    let mut query = db.prepare_cached(&format!(
        "SELECT d.id, d.name, (SELECT count(*) FROM pages WHERE document_id = d.id), d.tokens, d.file IS NOT NULL
         FROM documents d WHERE d.{OF_MESSAGE} ORDER BY d.id"
    ))?;
    let infos = query.query_map([message], |row| {
        Ok(DocumentInfo {
            id: row.get(0)?,
            name: row.get(1)?,
            pages: row.get(2)?,
            tokens: row.get(3)?,
            copied: row.get(4)?,
        })
    })?;
    Ok(infos.collect::<Result<_, _>>()?)
}

/// The documents of a message, page by page.
pub fn texts(db: &Connection, message: i64) -> Result<Vec<Document>, Problem> {
    let mut documents = db.prepare_cached(&format!("SELECT id, name FROM documents WHERE {OF_MESSAGE} ORDER BY id"))?;
    let rows = documents
        .query_map([message], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))?
        .collect::<Result<Vec<_>, _>>()?;
    rows.into_iter().map(|(id, name)| Ok(Document { name, pages: pages(db, id)? })).collect()
}

/// The text of each page of a document.
pub fn pages(db: &Connection, document: i64) -> Result<Vec<String>, Problem> {
    let mut pages = db.prepare_cached("SELECT text FROM pages WHERE document_id = ?1 ORDER BY number")?;
    Ok(pages.query_map([document], |row| row.get(0))?.collect::<Result<_, _>>()?)
}
