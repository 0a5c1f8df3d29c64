//! Options that several commands share.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use engine::protocol::{CacheOptions, KvType, PolicyName, PrefillMode, Sampling};
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
    #[arg(long, default_value = "h2o", value_parser = named::<PolicyName>(&POLICIES))]
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
    /// The same as a share of the budget, 0 to 1
    #[arg(long, value_name = "X", conflicts_with = "recent")]
    pub recent_share: Option<f32>,
    /// Tokens that are read at once
    #[arg(long, value_name = "N", default_value_t = CacheOptions::default().chunk)]
    pub chunk: u32,
    /// Tokens that are written before the cache is cut back to the budget
    #[arg(long, value_name = "N", default_value_t = CacheOptions::default().evict_every)]
    pub evict_every: u32,
    /// How keys and values are held
    #[arg(long, default_value = "f16", value_parser = named::<KvType>(&KV_TYPES))]
    pub kv: KvType,
    /// How a long prompt is read: layer by layer with everything in view, or in chunks that are cut back at once
    #[arg(long, default_value = "auto", value_parser = named::<PrefillMode>(&["auto", "exact", "streaming"]))]
    pub prefill: PrefillMode,
    /// Whether each question brings back what it asks for
    #[arg(long, value_name = "on|off", default_value = "on", action = clap::ArgAction::Set, value_parser = on_off())]
    pub recall: bool,
    /// Share of the budget that a question may bring back
    #[arg(long, value_name = "X", default_value_t = CacheOptions::default().recall_share)]
    pub recall_share: f32,
    /// Bring back again after so many tokens of an answer [default: never]
    #[arg(long, value_name = "N")]
    pub recall_every: Option<u32>,
    /// Whether an answer that misses much of what is not in the cache brings it back while it is written
    #[arg(long, value_name = "on|off", default_value = "on", action = clap::ArgAction::Set, value_parser = on_off())]
    pub guard: bool,
    /// Bytes of host memory for what is not in the cache; 0 keeps nothing [default: half of the free memory]
    #[arg(long, value_name = "BYTES")]
    pub store_limit: Option<u64>,
}

/// The policies, as [`PolicyName`] spells them.
pub const POLICIES: [&str; PolicyName::ALL.len()] = {
    let mut names = [""; PolicyName::ALL.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = PolicyName::ALL[i].as_str();
        i += 1;
    }
    names
};

/// The ways to hold keys and values.
pub const KV_TYPES: [&str; 3] = ["f16", "f32", "q8_0"];

/// Parses `on` or `off`.
pub fn on_off() -> impl TypedValueParser<Value = bool> {
    PossibleValuesParser::new(["on", "off"]).map(|text| text == "on")
}

impl CacheArgs {
    /// For the engine.
    pub fn options(&self) -> CacheOptions {
        CacheOptions {
            policy: self.policy,
            budget: self.budget.0,
            sinks: self.sinks,
            recent: self.recent,
            recent_share: self.recent_share,
            chunk: self.chunk,
            evict_every: self.evict_every,
            kv: self.kv,
            prefill: self.prefill,
            recall: self.recall,
            recall_share: self.recall_share,
            recall_every: self.recall_every,
            guard: self.guard,
            store_limit: self.store_limit,
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
        for policy in PolicyName::ALL {
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.as_str());
            let line = Line::parse_from(["x", "--policy", policy.as_str(), "--kv", "f32", "--budget", "256"]);
            assert_eq!(line.cache.options().policy, policy);
            assert_eq!((line.cache.options().kv, line.cache.options().budget), (KvType::F32, Some(256)));
        }
        assert!(Line::try_parse_from(["x", "--policy", "lru"]).is_err());
        assert!(Line::try_parse_from(["x", "--budget", "0"]).is_err());
    }
}
