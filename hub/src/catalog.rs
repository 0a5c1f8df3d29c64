//! The models that Cistern knows by name.

use std::sync::LazyLock;

use serde::Deserialize;

/// The models of `models/catalog.toml`, smallest first.
#[derive(Debug, Clone, Deserialize)]
pub struct Catalog {
    #[serde(rename = "model")]
    entries: Vec<Entry>,
}

/// A known model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Stable name, as typed in the terminal.
    pub id: String,
    /// For people.
    pub name: String,
    /// One sentence: what it is good for.
    pub summary: String,
    /// `owner/name` on the Hugging Face Hub.
    pub repo: String,
    /// The file in that repository.
    pub file: String,
    /// Size of the file.
    pub bytes: u64,
    /// Its SHA-256, in lower-case hexadecimal digits.
    pub sha256: String,
    /// SPDX id or name.
    pub licence: String,
    /// Trained context in tokens.
    pub context: u32,
    /// Memory of the smallest usual GPU for it, for example "8 GB", or "any".
    pub fits: String,
    /// What decides how much memory it takes.
    pub shape: Shape,
    /// The model that a first start opens.
    #[serde(default)]
    pub starter: bool,
}

/// The figures of a file's header that say how much memory the model takes, for before the file is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Decoder layers.
    pub layers: u64,
    /// Width of the residual stream.
    pub width: u64,
    /// Width of the feed-forward layer.
    pub ff_width: u64,
    /// KV heads of a layer.
    pub kv_heads: u64,
    /// Width of one head.
    pub head_dim: u64,
    /// Tokens of the vocabulary.
    pub vocab: u64,
    /// Bytes of an embedding that is not the output's, too: it is only looked up.
    #[serde(default)]
    pub looked_up: u64,
}

impl Catalog {
    /// The catalogue that was built in.
    #[must_use]
    pub fn builtin() -> &'static Self {
        static BUILTIN: LazyLock<Catalog> = LazyLock::new(|| {
            toml::from_str(include_str!("../../models/catalog.toml")).expect("the built-in catalogue is tested")
        });
        &BUILTIN
    }

    /// All models, smallest first.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The model of that id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.id == id)
    }

    /// The model that a first start opens.
    #[must_use]
    pub fn starter(&self) -> &Entry {
        self.entries.iter().find(|entry| entry.starter).unwrap_or(&self.entries[0])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_entry_can_be_fetched_and_checked() {
        let entries = Catalog::builtin().entries();
        for entry in entries {
            assert!(entry.repo.split('/').count() == 2, "{}", entry.id);
            assert!(entry.file.ends_with(".gguf") && !entry.file.contains('/'), "{}", entry.id);
            assert!(entry.sha256.len() == 64, "{}", entry.id);
            assert!(entry.sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')), "{}", entry.id);
            assert!(entry.context >= 2048 && entry.bytes > 1 << 20, "{}", entry.id);
            let Shape { layers, width, ff_width, kv_heads, head_dim, vocab, looked_up } = entry.shape;
            let gate_up_down_q_and_out = layers * (3 * width * ff_width + 2 * width * width);
            // From under 3 to over 8 bits a weight.
            let (least, most) = (gate_up_down_q_and_out * 3 / 8, (gate_up_down_q_and_out + 4 * vocab * width) * 9 / 8);
            assert!((least..most).contains(&entry.bytes), "{}: {least}..{most}", entry.id);
            assert!(kv_heads * head_dim <= width && looked_up < vocab * width, "{}", entry.id);
        }
        assert_eq!(entries.iter().map(|e| &e.id).collect::<HashSet<_>>().len(), entries.len());
        assert_eq!(entries.iter().map(|e| &e.file).collect::<HashSet<_>>().len(), entries.len());
        assert!(entries.is_sorted_by_key(|e| e.bytes), "people look for their size from the top");
    }

    #[test]
    fn there_is_one_starter_and_it_is_the_smallest() {
        let catalog = Catalog::builtin();
        assert_eq!(catalog.entries().iter().filter(|e| e.starter).count(), 1);
        assert_eq!(catalog.starter().id, "smollm2-135m-instruct");
        assert!(catalog.entries().iter().all(|e| e.bytes >= catalog.starter().bytes));
        assert_eq!(catalog.get("qwen3-8b").map(|e| e.context), Some(40960));
        assert_eq!(catalog.get("gpt-5"), None);
    }
}
