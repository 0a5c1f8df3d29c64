//! How a byte-level BPE splits text into words before it merges: the `tokenizer.ggml.pre` of llama.cpp.
//!
//! The patterns are those of the models' own tokenizers, less the lookahead that most of them end with:
//! `\s+(?!\S)|\s+` (white space, but leave its last character to the word that follows) is a plain `\s+` here,
//! whose match [`Step::next`] shortens. So every pattern runs in time linear in the text, whatever the text.

use std::ops::Range;

use regex::Regex;

use super::TokenizerError;

/// The names of `tokenizer.ggml.pre` that are built in.
pub(super) const NAMES: [&str; 44] = [
    "default",
    "gpt-2",
    "phi-2",
    "mpt",
    "olmo",
    "jais",
    "exaone4",
    "trillion",
    "granite-docling",
    "mellum",
    "a.x-4.0",
    "gigachat",
    "llama3",
    "llama-v3",
    "llama-bpe",
    "falcon3",
    "pixtral",
    "midm-2.0",
    "smaug-bpe",
    "dbrx",
    "chatglm-bpe",
    "glm4",
    "qwen2",
    "deepseek-r1-qwen",
    "stablelm2",
    "megrez",
    "hunyuan",
    "solar-open",
    "qwen35",
    "smollm",
    "starcoder",
    "refact",
    "command-r",
    "codeshell",
    "exaone",
    "minerva-7b",
    "tekken",
    "gpt-4o",
    "llama4",
    "deepseek-llm",
    "deepseek-coder",
    "deepseek-v3",
    "bailingmoe",
    "seed-coder",
];

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";
const LLAMA3: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const QWEN35: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+";
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"##;
const BAILING: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+";
const SEED_CODER: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+";
/// Letters of scripts with two cases.
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[",
    r"A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}",
    r"\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}",
    r"\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}",
    r"\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}",
    r"\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}",
    r"\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}",
    r"\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}",
    r"\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}",
    r"\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}",
    r"\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}",
    r"\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}",
    r"\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}",
    r"\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}",
    r"]+"
);
const DEEPSEEK_CJK: &str = r"[一-龥ࠀ-一가-퟿]+";

struct Step {
    pattern: Regex,
    /// White space that it matches leaves its last character to the word that follows.
    leaves_last_space: bool,
    /// But not where the white space ends in a line break, for which it has a branch of its own.
    knows_breaks: bool,
}

/// Splits text into words.
pub(super) struct PreTokenizer {
    /// Each splits further what the ones before it have left.
    steps: Vec<Step>,
    /// A word that is in the vocabulary is that token, whatever the merges say.
    pub(super) ignore_merges: bool,
    /// What the model expects where the metadata does not say.
    pub(super) add_bos: bool,
}

impl PreTokenizer {
    pub(super) fn named(name: &str) -> Result<Self, TokenizerError> {
        let steps: &[&str] = match name {
            "default" => &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
            "gpt-2" | "phi-2" | "mpt" | "olmo" | "jais" | "exaone4" | "trillion" | "granite-docling" | "mellum"
            | "a.x-4.0" | "gigachat" => &[GPT2],
            "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "pixtral" | "midm-2.0" | "smaug-bpe" | "dbrx"
            | "chatglm-bpe" | "glm4" => &[LLAMA3],
            "qwen2" | "deepseek-r1-qwen" | "stablelm2" | "megrez" | "hunyuan" | "solar-open" => &[QWEN2],
            "qwen35" => &[QWEN35],
            "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone" | "minerva-7b" => {
                &[r"\p{N}", GPT2]
            }
            "tekken" => &[TEKKEN],
            "gpt-4o" | "llama4" => &[GPT4O],
            "deepseek-llm" => {
                &[r"[\r\n]", DEEPSEEK_LETTERS, r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", DEEPSEEK_CJK, r"\p{N}+"]
            }
            "deepseek-coder" => &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK, r"\p{N}"],
            "deepseek-v3" => &[r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3],
            "bailingmoe" => &[BAILING],
            "seed-coder" => &[SEED_CODER],
            other => return Err(TokenizerError::Pre(other.to_owned())),
        };
        let steps = steps.iter().map(|pattern| Step::new(pattern)).collect::<Result<_, _>>();
        let steps = steps.map_err(|error| TokenizerError::Malformed(error.to_string()))?;
        let llama3 = matches!(name, "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "pixtral" | "midm-2.0");
        Ok(Self {
            steps,
            ignore_merges: llama3 || matches!(name, "tekken" | "glm4"),
            add_bos: llama3 || name == "tekken",
        })
    }

    pub(super) fn split(&self, text: &str, word: &mut dyn FnMut(&str)) {
        split_by(&self.steps, text, word);
    }
}

fn split_by(steps: &[Step], text: &str, word: &mut dyn FnMut(&str)) {
    let Some((step, rest)) = steps.split_first() else {
        if !text.is_empty() {
            word(text);
        }
        return;
    };
    let mut from = 0;
    while let Some(found) = step.next(text, from) {
        split_by(rest, &text[from..found.start], word);
        from = found.end;
        split_by(rest, &text[found], word);
    }
    split_by(rest, &text[from..], word);
}

impl Step {
    fn new(pattern: &str) -> Result<Self, regex::Error> {
        let leaves_last_space = pattern.ends_with(r"|\s+");
        let knows_breaks = pattern.contains(r"|\s*[\r\n]");
        Ok(Self { pattern: Regex::new(pattern)?, leaves_last_space, knows_breaks })
    }

    fn next(&self, text: &str, from: usize) -> Option<Range<usize>> {
        let found = self.pattern.find_at(text, from)?.range();
        let (last, c) = text[found.clone()].char_indices().next_back()?;
        let stays = !self.leaves_last_space
            || last == 0
            || found.end == text.len()
            || self.knows_breaks && matches!(c, '\r' | '\n')
            || !text[found.clone()].chars().all(char::is_whitespace);
        Some(if stays { found } else { found.start..found.start + last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(name: &str, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        PreTokenizer::named(name).unwrap().split(text, &mut |word| words.push(word.to_owned()));
        words
    }

    #[test]
    fn every_listed_name_is_built_in_and_loses_no_text() {
        let text = "Hello'Ve  wörld 12345\r\n\n\t x = {y}; 你好。 🙂\u{3000}\u{3000}e\u{301} ";
        for name in NAMES {
            assert_eq!(words(name, text).concat(), text, "{name}");
        }
        assert!(matches!(PreTokenizer::named("nope"), Err(TokenizerError::Pre(_))));
    }

    #[test]
    fn white_space_leaves_its_last_character_to_the_next_word() {
        assert_eq!(words("gpt-2", "a   b\n\nc  "), ["a", "  ", " b", "\n", "\n", "c", "  "]);
        assert_eq!(words("llama3", "a   b\n\nc \n d"), ["a", "  ", " b", "\n\n", "c", " \n", " d"]);
    }

    #[test]
    fn numbers_are_grouped_as_each_family_does() {
        assert_eq!(words("smollm", "ab 1234"), ["ab", " ", "1", "2", "3", "4"]);
        assert_eq!(words("llama-bpe", "1234"), ["123", "4"]);
        assert_eq!(words("gpt-2", " 1234"), [" 1234"]);
    }
}
