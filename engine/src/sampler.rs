//! Choosing the next token from the logits.

use candle_core::Tensor;
use candle_transformers::generation::{LogitsProcessor, Sampling as Chain};
use candle_transformers::utils::apply_repeat_penalty;

use crate::error::{Error, Result};
use crate::protocol::Sampling;

/// The repetition penalty looks back this far.
const PENALTY_WINDOW: usize = 64;

/// The random generator and the options of one answer.
pub struct Sampler {
    options: Sampling,
    chain: LogitsProcessor,
}

impl Sampler {
    /// A sampler whose choices depend on the options alone.
    ///
    /// # Errors
    /// [`Error::Options`] for values outside of their range.
    pub fn new(options: &Sampling) -> Result<Self> {
        let ok = options.temperature >= 0.0
            && options.temperature.is_finite()
            && (0.0..=1.0).contains(&options.top_p)
            && (0.0..=1.0).contains(&options.min_p)
            && options.repetition_penalty > 0.0
            && options.repetition_penalty.is_finite();
        if !ok {
            return Err(Error::Options(
                "The temperature and the repetition penalty must be positive numbers, and top-p and min-p lie between 0 and 1; correct the value.".into(),
            ));
        }
        let temperature = f64::from(options.temperature);
        let p = f64::from(options.top_p);
        let chain = match (options.temperature == 0.0, options.top_k as usize) {
            (true, _) => Chain::ArgMax,
            (false, 0) => Chain::TopP { p, temperature },
            (false, k) => Chain::TopKThenTopP { k, p, temperature },
        };
        Ok(Self { options: options.clone(), chain: LogitsProcessor::from_sampling(options.seed, chain) })
    }

    /// The token that follows `context`, from `logits` `[vocab]`.
    ///
    /// # Errors
    /// When the device fails.
    pub fn sample(&mut self, logits: &Tensor, context: &[u32]) -> Result<u32> {
        let recent = &context[context.len().saturating_sub(PENALTY_WINDOW)..];
        let penalised = match self.options.repetition_penalty {
            1.0 => logits.clone(),
            penalty => apply_repeat_penalty(logits, penalty, recent)?,
        };
        let filtered = match self.options.min_p {
            min_p if min_p > 0.0 && self.options.temperature > 0.0 => min_p_filter(&penalised, min_p)?,
            _ => penalised,
        };
        Ok(self.chain.sample(&filtered)?)
    }
}

/// Drops tokens that are less than `min_p` times as likely as the likeliest, before the temperature is applied.
fn min_p_filter(logits: &Tensor, min_p: f32) -> Result<Tensor> {
    let mut values = logits.to_vec1::<f32>()?;
    let limit = values.iter().fold(f32::NEG_INFINITY, |max, &x| max.max(x)) + min_p.ln();
    values.iter_mut().filter(|x| **x < limit).for_each(|x| *x = f32::NEG_INFINITY);
    let len = values.len();
    Ok(Tensor::from_vec(values, len, logits.device())?)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    fn sampler(options: Sampling) -> Sampler {
        Sampler::new(&options).unwrap()
    }

    fn plain() -> Sampling {
        Sampling { temperature: 1.0, top_p: 1.0, top_k: 0, min_p: 0.0, repetition_penalty: 1.0, seed: 7 }
    }

    fn drawn(options: &Sampling, logits: &[f32]) -> Vec<u32> {
        let logits = Tensor::new(logits, &Device::Cpu).unwrap();
        let mut sampler = sampler(options.clone());
        (0..200).map(|_| sampler.sample(&logits, &[]).unwrap()).collect()
    }

    #[test]
    fn temperature_zero_takes_the_likeliest_and_a_seed_repeats_itself() {
        let logits = [0.0, 2.0, 1.9, -1.0];
        assert!(drawn(&Sampling { temperature: 0.0, ..plain() }, &logits).iter().all(|&t| t == 1));
        assert_eq!(drawn(&plain(), &logits), drawn(&plain(), &logits));
        assert_ne!(drawn(&plain(), &logits), drawn(&Sampling { seed: 8, ..plain() }, &logits));
    }

    #[test]
    fn each_filter_leaves_only_what_it_should() {
        // Probabilities 0.64, 0.24, 0.09, 0.03.
        let logits = [3.0, 2.0, 1.0, 0.0];
        let seen = |options: Sampling| {
            let mut seen = drawn(&options, &logits);
            seen.sort_unstable();
            seen.dedup();
            seen
        };
        assert_eq!(seen(plain()), [0, 1, 2, 3]);
        assert_eq!(seen(Sampling { top_k: 2, ..plain() }), [0, 1]);
        assert_eq!(seen(Sampling { top_p: 0.7, ..plain() }), [0, 1]);
        assert_eq!(seen(Sampling { min_p: 0.3, ..plain() }), [0, 1]);
        assert_eq!(seen(Sampling { top_k: 3, top_p: 0.8, ..plain() }), [0, 1]);
    }

    #[test]
    fn the_penalty_lowers_a_token_that_was_just_said() {
        let logits = Tensor::new(&[2.0f32, 1.9], &Device::Cpu).unwrap();
        let mut sampler = sampler(Sampling { temperature: 0.0, repetition_penalty: 1.3, ..plain() });
        assert_eq!(sampler.sample(&logits, &[]).unwrap(), 0);
        assert_eq!(sampler.sample(&logits, &[0]).unwrap(), 1);
    }
}
