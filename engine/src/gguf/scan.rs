//! A walk over a GGUF header before anything of it is taken in. It finds what would make a reader trip, or take
//! memory out of all proportion to the file, and takes none itself but for the names.

use std::collections::HashSet;
use std::io::{self, BufReader, Read, Seek};

/// Values of all lists together. The largest vocabularies have a quarter of a million tokens, with as many
/// scores and kinds, and half a million merges; each value takes 32 bytes once it is read.
const MAX_VALUES: u64 = 4 << 20;
/// Keys of the metadata, and names of tensors.
const MAX_NAME: u64 = 1 << 16;
/// Lists in lists: no known file has any.
const MAX_DEPTH: u32 = 4;
const MAX_DIMS: u32 = 4;

/// Why a header is refused.
pub(super) enum Refusal {
    Read(io::Error),
    Malformed(String),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

type Walked<T> = Result<T, Refusal>;

fn malformed<T>(reason: impl Into<String>) -> Walked<T> {
    Err(Refusal::Malformed(reason.into()))
}

/// Checks the header of a file of `size` bytes, which `from` stands at the beginning of. What is no GGUF file at
/// all is left for the reader to say.
pub(super) fn check<R: Read + Seek>(from: &mut BufReader<R>, size: u64) -> Walked<()> {
    let mut walk = Walk { from, at: 0, size, values: 0, short: false };
    if size < 8 || walk.take::<4>()? != *b"GGUF" {
        return Ok(());
    }
    walk.short = match walk.u32()? {
        1 => true,
        2 | 3 => false,
        _ => return Ok(()),
    };
    let tensors = walk.length()?;
    let keys = walk.length()?;
    let mut seen = HashSet::new();
    for _ in 0..keys {
        let key = walk.name()?;
        let kind = walk.u32()?;
        if key == b"general.alignment" {
            walk.alignment(kind)?;
        } else {
            walk.skip_value(kind, 0)?;
        }
        if !seen.insert(key) {
            return malformed("its metadata names a key twice");
        }
    }
    let mut seen = HashSet::new();
    for _ in 0..tensors {
        let name = walk.name()?;
        let dims = walk.u32()?;
        if dims > MAX_DIMS {
            return malformed(format!("a tensor has {dims} dimensions"));
        }
        let dim = if walk.short { 4 } else { 8 };
        // Then its type and its offset.
        walk.skip(u64::from(dims) * dim + 4 + 8)?;
        if !seen.insert(name) {
            return malformed("it holds a tensor twice");
        }
    }
    Ok(())
}

struct Walk<'a, R> {
    from: &'a mut BufReader<R>,
    at: u64,
    size: u64,
    /// Values in lists so far.
    values: u64,
    /// Lengths have four bytes, as in the first version.
    short: bool,
}

impl<R: Read + Seek> Walk<'_, R> {
    fn advance(&mut self, bytes: u64) -> Walked<()> {
        self.at = match self.at.checked_add(bytes) {
            Some(at) if at <= self.size => at,
            _ => return malformed("its header reaches past the end of the file"),
        };
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Walked<[u8; N]> {
        self.advance(N as u64)?;
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn skip(&mut self, bytes: u64) -> Walked<()> {
        self.advance(bytes)?;
        match i64::try_from(bytes) {
            Ok(bytes) => Ok(self.from.seek_relative(bytes)?),
            Err(_) => malformed("its header reaches past the end of the file"),
        }
    }

    fn u32(&mut self) -> Walked<u32> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn length(&mut self) -> Walked<u64> {
        match self.short {
            true => Ok(u64::from(self.u32()?)),
            false => Ok(u64::from_le_bytes(self.take()?)),
        }
    }

    fn name(&mut self) -> Walked<Vec<u8>> {
        let length = self.length()?;
        if length > MAX_NAME {
            return malformed(format!("a name in it has {length} bytes"));
        }
        self.advance(length)?;
        let mut bytes = vec![0; length as usize];
        self.from.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn skip_value(&mut self, kind: u32, depth: u32) -> Walked<()> {
        match width(kind) {
            Some(width) => self.skip(width),
            None if kind == STRING => {
                let length = self.length()?;
                self.skip(length)
            }
            None if kind == LIST && depth < MAX_DEPTH => {
                let of = self.u32()?;
                let length = self.length()?;
                self.values = self.values.saturating_add(length);
                if self.values > MAX_VALUES {
                    return malformed(format!("its metadata lists more than {MAX_VALUES} values"));
                }
                match width(of) {
                    Some(width) => self.skip(length.saturating_mul(width)),
                    None => (0..length).try_for_each(|_| self.skip_value(of, depth + 1)),
                }
            }
            None if kind == LIST => malformed("its metadata nests lists too deeply"),
            None => malformed(format!("its metadata holds a value of the unknown kind {kind}")),
        }
    }

    /// Where tensors begin is a multiple of this.
    fn alignment(&mut self, kind: u32) -> Walked<()> {
        let Some(width @ (1 | 2 | 4)) = width(kind).filter(|_| kind < 6) else {
            return malformed("its alignment is not a number that fits");
        };
        let mut bytes = [0; 4];
        self.advance(width)?;
        self.from.read_exact(&mut bytes[..width as usize])?;
        match u32::from_le_bytes(bytes) {
            alignment if alignment.is_power_of_two() && alignment <= 1 << 20 => Ok(()),
            alignment => malformed(format!("its tensors are aligned to {alignment} bytes")),
        }
    }
}

const STRING: u32 = 8;
const LIST: u32 = 9;

/// Bytes of a value of one of the kinds that have always as many.
fn width(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}
