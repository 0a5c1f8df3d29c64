//! Settings, and the person's own model files.

use rusqlite::{Connection, OptionalExtension, params};

use super::now_ms;
use crate::error::Problem;

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

/// Forgets a model file of the person's own, and says whether it was known.
pub fn forget_model(db: &Connection, path: &str) -> Result<bool, Problem> {
    Ok(db.execute("DELETE FROM own_models WHERE path = ?1", [path])? > 0)
}

/// Model files of the person's own, the last opened first.
pub fn own_models(db: &Connection) -> Result<Vec<String>, Problem> {
    let mut query = db.prepare_cached("SELECT path FROM own_models ORDER BY opened_ms DESC")?;
    Ok(query.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
}
