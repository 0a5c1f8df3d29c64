//! Links that the person clicked.

use tauri::Url;

use crate::error::Problem;

/// A link that a browser may open: of the web, and of nothing else that a system has programs for.
///
/// # Errors
/// [`Problem::LinkKind`] for every other.
pub fn web_address(link: &str) -> Result<Url, Problem> {
    Url::parse(link).ok().filter(|url| matches!(url.scheme(), "http" | "https")).ok_or(Problem::LinkKind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_the_web_are_opened() {
        for link in ["http://example.org", "https://example.org/a?b=c#d", "HTTPS://EXAMPLE.ORG"] {
            assert!(web_address(link).is_ok(), "{link}");
        }
        for link in [
            "javascript:alert(1)",
            "java\nscript:alert(1)",
            " file:///etc/passwd",
            "file:///etc/passwd",
            "smb://host/share",
            "mailto:a@b.c",
            "tauri://localhost",
            "data:text/html,x",
            "vscode://file/etc/passwd",
            "/etc/passwd",
            "C:\\Windows\\System32\\calc.exe",
            "//example.org",
            "https:",
            "",
        ] {
            assert_eq!(web_address(link).unwrap_err().code(), "link_kind", "{link}");
        }
    }
}
