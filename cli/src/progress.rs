//! A line on stderr that says what is going on; nothing where stderr is no terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The line; it disappears with the value.
pub struct Line(ProgressBar);

impl Line {
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        bar.set_style(ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Self(bar)
    }

    /// Shows `text` in place of what was there.
    pub fn set(&self, text: &str) {
        self.0.set_message(text.to_owned());
        self.0.tick();
    }

    /// Clears the line, so that other output can follow.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.clear();
    }
}

/// `98.4 MB`
pub fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1000.0 {
            return if unit == "B" { format!("{value} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

/// `3 s`, `2 min 5 s`
pub fn seconds(seconds: f32) -> String {
    let whole = Duration::try_from_secs_f32(seconds).unwrap_or_default().as_secs();
    if whole < 60 { format!("{whole} s") } else { format!("{} min {} s", whole / 60, whole % 60) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(98_362_432), "98.4 MB");
        assert_eq!(bytes(5_027_783_488), "5.0 GB");
        assert_eq!(seconds(3.9), "3 s");
        assert_eq!(seconds(125.0), "2 min 5 s");
        assert_eq!(seconds(f32::NAN), "0 s");
    }
}
