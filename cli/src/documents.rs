//! Documents for the terminal: PDF, plain text and Markdown, page by page.

use std::io;
use std::path::{Path, PathBuf};

use engine::protocol::Document;
use pdf_oxide::PdfDocument;
use pdf_oxide::error::Error as PdfError;

use crate::progress::Line;

/// Why a document cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("{} cannot be read ({source}); check the path.", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is protected; give its password with --password.", .0.display())]
    Protected(PathBuf),
    #[error("The password for {} is wrong.", .0.display())]
    WrongPassword(PathBuf),
    #[error("{} is damaged, or not a PDF; open it in another program and save it anew.", .0.display())]
    Broken(PathBuf),
    #[error("{} has no text, its pages are images as in a scan; run it through a text recognition first.", .0.display())]
    NoText(PathBuf),
    #[error("{} is neither UTF-8 text nor a PDF; convert it to PDF, text or Markdown.", .0.display())]
    Unsupported(PathBuf),
}

/// A document, and what there is to say about it.
#[derive(Debug)]
pub struct Loaded {
    /// For the model.
    pub document: Document,
    /// Sentences for the person: pages without text, and pages that could not be read.
    pub notes: Vec<String>,
}

/// Reads a document whole. What it is, its bytes say, not its name.
pub fn load(path: &Path, password: Option<&str>) -> Result<Loaded, DocumentError> {
    let bytes = std::fs::read(path).map_err(|source| DocumentError::Read { path: path.to_owned(), source })?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let is_pdf = bytes.get(..1024).unwrap_or(&bytes).windows(5).any(|window| window == b"%PDF-")
        || path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("pdf"));
    if is_pdf {
        return read_pdf(path, bytes, password, name);
    }
    let text = String::from_utf8(bytes).map_err(|_| DocumentError::Unsupported(path.to_owned()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned();
    if text.contains('\0') {
        return Err(DocumentError::Unsupported(path.to_owned()));
    }
    Ok(Loaded { document: Document { name, pages: vec![text] }, notes: Vec::new() })
}

fn read_pdf(path: &Path, bytes: Vec<u8>, password: Option<&str>, name: String) -> Result<Loaded, DocumentError> {
    let broken = |error: PdfError| match error {
        PdfError::EncryptedPdf => DocumentError::Protected(path.to_owned()),
        _ => DocumentError::Broken(path.to_owned()),
    };
    let pdf = PdfDocument::from_bytes(bytes).map_err(broken)?;
    if pdf.is_encrypted() && !pdf.is_authenticated() {
        let password = password.ok_or_else(|| DocumentError::Protected(path.to_owned()))?;
        if !pdf.authenticate(password.as_bytes()).map_err(broken)? {
            return Err(DocumentError::WrongPassword(path.to_owned()));
        }
    }

    let count = pdf.page_count().map_err(broken)?;
    let (mut pages, mut without_text, mut unreadable) = (Vec::with_capacity(count), Vec::new(), Vec::new());
    let line = Line::new();
    for page in 0..count {
        line.set(&format!("Reading {name} … page {} of {count}", page + 1));
        match pdf.extract_text(page) {
            Ok(text) => {
                if text.trim().is_empty() {
                    without_text.push(page + 1);
                }
                pages.push(text);
            }
            Err(_) => {
                unreadable.push(page + 1);
                pages.push(String::new());
            }
        }
    }
    if unreadable.len() == count {
        return Err(DocumentError::Broken(path.to_owned()));
    }
    if without_text.len() + unreadable.len() == count {
        return Err(DocumentError::NoText(path.to_owned()));
    }
    let mut notes = Vec::new();
    if !without_text.is_empty() {
        notes.push(format!("{name}: {} without text, as of images.", numbers(&without_text)));
    }
    if !unreadable.is_empty() {
        notes.push(format!("{name}: {} could not be read and left out.", numbers(&unreadable)));
    }
    Ok(Loaded { document: Document { name, pages }, notes })
}

/// `page 2`, `pages 2, 5–7`
fn numbers(pages: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &page in pages {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == page => *last = page,
            _ => runs.push((page, page)),
        }
    }
    let runs: Vec<_> = runs
        .into_iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}–{last}") })
        .collect();
    format!("{} {}", if pages.len() == 1 { "page" } else { "pages" }, runs.join(", "))
}

#[cfg(test)]
mod hostile;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    pub fn guide() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide.pdf")
    }

    #[test]
    fn the_sample_document_reads_page_by_page() {
        let loaded = load(&guide(), None).unwrap();
        let pages = &loaded.document.pages;
        assert_eq!((loaded.document.name.as_str(), pages.len()), ("guide.pdf", 3));
        assert!(loaded.notes.is_empty());
        let flat = |page: &str| page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat(&pages[0]).contains("This model is 98 megabytes in size."), "{}", pages[0]);
        assert!(flat(&pages[1]).contains("The slider sets the budget."), "{}", pages[1]);
        assert!(flat(&pages[2]).contains("The policy h2o is the default."), "{}", pages[2]);
    }

    #[test]
    fn text_and_markdown_are_one_page_and_binary_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let loaded = load(&file("a.md", "\u{feff}# Café\n".as_bytes()), None).unwrap();
        assert_eq!(loaded.document.pages, ["# Café\n"]);
        assert!(matches!(load(&file("a.docx", b"PK\x03\x04\0\0"), None), Err(DocumentError::Unsupported(_))));
        assert!(matches!(load(&file("a.txt", b"caf\xe9"), None), Err(DocumentError::Unsupported(_))));
        assert!(matches!(load(&dir.path().join("gone"), None), Err(DocumentError::Read { .. })));
        assert!(matches!(load(&file("cut.pdf", b"%PDF-1.7\n1 0 obj"), None), Err(DocumentError::Broken(_))));
        assert!(matches!(load(&file("fake.pdf", b"hello"), None), Err(DocumentError::Broken(_))));
    }

    #[test]
    fn page_numbers_are_told_briefly() {
        assert_eq!(numbers(&[2]), "page 2");
        assert_eq!(numbers(&[2, 5, 6, 7, 9]), "pages 2, 5–7, 9");
    }
}
