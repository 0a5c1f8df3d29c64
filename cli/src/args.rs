//! Options that several commands share.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use engine::protocol::{CacheOptions, KvType, PolicyName, Sampling};
use serde::de::DeserializeOwned;

/// Which model, and on how many threads.
#[derive(clap::Args)]
pub struct ModelArgs {
    /// A GGUF file, or the id of a model that `cistern models list` names [default: the starter model]
    #[arg(long, value_name = "FILE|ID")]
    pub model: Option<String>,
    /// Threads that compute [default: the physical cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

/// How the cache behaves.
#[derive(clap::Args)]
#[command(next_help_heading = "Cache")]
pub struct CacheArgs {
    /// What decides which entries stay
    #[arg(long, default_value = "h2o", value_parser = named::<PolicyName>(&["full", "window", "h2o", "h2o-paper"]))]
    pub policy: PolicyName,
    /// Tokens that stay in the cache, or `auto` to follow the free memory
    #[arg(long, default_value = "auto", value_name = "N|auto", value_parser = budget)]
    pub budget: Budget,
    /// First tokens that always stay
    #[arg(long, value_name = "N", default_value_t = CacheOptions::default().sinks)]
    pub sinks: u32,
    /// Last tokens that always stay [default: the policy's share of the budget]
    #[arg(long, value_name = "N")]
    pub recent: Option<u32>,
    /// Tokens that are read at once
    #[arg(long, value_name = "N", default_value_t = CacheOptions::default().chunk)]
    pub chunk: u32,
    /// Tokens that are written before the cache is cut back to the budget
    #[arg(long, value_name = "N", default_value_t = CacheOptions::default().evict_every)]
    pub evict_every: u32,
    /// How keys and values are held
    #[arg(long, default_value = "f16", value_parser = named::<KvType>(&["f16", "f32"]))]
    pub kv: KvType,
}

impl CacheArgs {
    /// For the engine.
    pub fn options(&self) -> CacheOptions {
        CacheOptions {
            policy: self.policy,
            budget: self.budget.0,
            sinks: self.sinks,
            recent: self.recent,
            chunk: self.chunk,
            evict_every: self.evict_every,
            kv: self.kv,
        }
    }
}

/// A number of tokens, or `None` for `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget(pub Option<u32>);

/// How answers are sampled.
#[derive(clap::Args)]
#[command(next_help_heading = "Answers")]
pub struct SamplingArgs {
    /// An answer ends after this many tokens at the latest
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub max_tokens: u32,
    /// 0 takes the likeliest token each time
    #[arg(long, value_name = "T", default_value_t = Sampling::default().temperature)]
    pub temperature: f32,
    /// Only the likeliest tokens that together reach this probability; 1 is off
    #[arg(long, value_name = "P", default_value_t = Sampling::default().top_p)]
    pub top_p: f32,
    /// Only this many of the likeliest tokens; 0 is off
    #[arg(long, value_name = "N", default_value_t = Sampling::default().top_k)]
    pub top_k: u32,
    /// Only tokens at least this share as likely as the likeliest; 0 is off
    #[arg(long, value_name = "P", default_value_t = Sampling::default().min_p)]
    pub min_p: f32,
    /// Makes tokens of the last 64 less likely; 1 is off
    #[arg(long, value_name = "X", default_value_t = Sampling::default().repetition_penalty)]
    pub repetition_penalty: f32,
    /// The same seed gives the same answer
    #[arg(long, value_name = "N", default_value_t = Sampling::default().seed)]
    pub seed: u64,
}

impl SamplingArgs {
    /// For the engine.
    pub fn sampling(&self) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            seed: self.seed,
        }
    }
}

/// Documents to read.
#[derive(clap::Args)]
pub struct DocumentArgs {
    /// A PDF, text or Markdown file to read first; may be given several times
    #[arg(long = "doc", value_name = "FILE")]
    pub docs: Vec<PathBuf>,
    /// The password of a protected PDF
    #[arg(long, value_name = "PASSWORD", requires = "docs")]
    pub password: Option<String>,
}

/// Parses a name of the protocol, as its JSON spells it.
pub fn named<T: DeserializeOwned + Clone + Send + Sync + 'static>(
    names: &'static [&'static str],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(names).try_map(|name| serde_json::from_value(name.into()))
}

/// Parses `N` or `auto`.
pub fn budget(text: &str) -> Result<Budget, String> {
    match text {
        "auto" => Ok(Budget(None)),
        _ => match text.parse() {
            Ok(tokens) if tokens > 0 => Ok(Budget(Some(tokens))),
            _ => Err("a budget is a number of tokens, or auto".to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        cache: CacheArgs,
        #[command(flatten)]
        sampling: SamplingArgs,
    }

    #[test]
    fn without_options_the_defaults_are_the_engines() {
        let line = Line::parse_from(["x"]);
        assert_eq!(line.cache.options(), CacheOptions::default());
        assert_eq!(line.sampling.sampling(), Sampling::default());
    }

    #[test]
    fn every_name_of_the_protocol_is_taken() {
        for policy in [PolicyName::Full, PolicyName::Window, PolicyName::H2o, PolicyName::H2oPaper] {
            let name = serde_json::to_value(policy).unwrap();
            let line = Line::parse_from(["x", "--policy", name.as_str().unwrap(), "--kv", "f32", "--budget", "256"]);
            assert_eq!(line.cache.options().policy, policy);
            assert_eq!((line.cache.options().kv, line.cache.options().budget), (KvType::F32, Some(256)));
        }
        assert!(Line::try_parse_from(["x", "--policy", "lru"]).is_err());
        assert!(Line::try_parse_from(["x", "--budget", "0"]).is_err());
    }
}
