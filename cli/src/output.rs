//! Lines on stdout. `println!` would panic where the reader of a pipe has gone.

use std::fmt::Display;
use std::io::{Write, stdout};

use serde::Serialize;

use crate::failure::Failure;

/// Prints one line.
pub fn line(text: impl Display) -> Result<(), Failure> {
    Ok(writeln!(stdout(), "{text}")?)
}

/// Prints one JSON object.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    let mut out = stdout().lock();
    serde_json::to_writer(&mut out, value)?;
    Ok(writeln!(out)?)
}
