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
const DEEPSEEK_LETTERS: &str = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
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
