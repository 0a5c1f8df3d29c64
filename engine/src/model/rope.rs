//! Rotary position embedding (arXiv 2104.09864), with the scalings that GGUF metadata can ask for.

use candle_core::{Device, Tensor};

use super::Config;
use crate::error::{Error, Result};
use crate::gguf::Gguf;

/// Angles for every pair of a head.
#[derive(Debug, Clone)]
pub struct Rope {
    /// Radians a position, `[head_dim / 2]`.
    frequencies: Vec<f64>,
    /// YaRN's correction of the attention's temperature, applied to both q and k.
    magnitude: f64,
    /// Pairs are neighbours (`llama`) or halves of a head (`qwen2`, `qwen3`).
    interleaved: bool,
}

impl Rope {
    /// Reads `rope.*` of the metadata and `rope_freqs.weight`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a scaling that is not known.
    pub fn read(gguf: &mut Gguf, config: &Config) -> Result<Self> {
        let key = |name: &str| format!("{}.rope.{name}", config.architecture);
        let base = f64::from(gguf.opt_f32(&key("freq_base")).unwrap_or(10_000.0));
        let half = config.head_dim / 2;
        let mut frequencies: Vec<f64> = (0..half).map(|i| base.powf(-(i as f64) / half as f64)).collect();
        let mut magnitude = 1.0;

        let factor = gguf.opt_f32(&key("scaling.factor")).or_else(|| gguf.opt_f32(&key("scale_linear")));
        let factor = f64::from(factor.filter(|&f| f > 0.0).unwrap_or(1.0));
        match gguf.opt_str(&key("scaling.type")) {
            Some("none") => {}
            None | Some("linear") => frequencies.iter_mut().for_each(|f| *f /= factor),
            Some("yarn") => {
                let trained = gguf.opt_u32(&key("scaling.original_context_length")).unwrap_or(config.context);
                let beta_fast = gguf.opt_f32(&key("scaling.yarn_beta_fast")).unwrap_or(32.0);
                let beta_slow = gguf.opt_f32(&key("scaling.yarn_beta_slow")).unwrap_or(1.0);
                yarn(&mut frequencies, base, factor, trained, beta_fast, beta_slow);
                magnitude = 1.0 + 0.1 * factor.ln();
            }
            Some(other) => return Err(Error::Unsupported(format!("its RoPE scaling is \"{other}\""))),
        }
        // Llama 3.1 and later: one factor a pair, computed when the file was made.
        if gguf.has("rope_freqs.weight") {
            let factors = gguf.tensor("rope_freqs.weight", &[half], &Device::Cpu)?;
            let factors = factors.dequantize(&Device::Cpu)?.to_vec1::<f32>()?;
            for (frequency, factor) in frequencies.iter_mut().zip(factors) {
                *frequency /= f64::from(factor);
            }
        }
        Ok(Self { frequencies, magnitude, interleaved: config.architecture == "llama" })
    }

    /// Cosines and sines of `n` positions from `start`, each `[n, head_dim / 2]`.
    ///
    /// # Errors
    /// When the device fails.
    pub fn tables(&self, start: u32, n: usize, device: &Device) -> Result<(Tensor, Tensor)> {
        let (sin, cos): (Vec<f32>, Vec<f32>) = (0..n)
            .flat_map(|t| {
                let position = f64::from(start) + t as f64;
                self.frequencies.iter().map(move |f| {
                    let (sin, cos) = (position * f).sin_cos();
                    ((sin * self.magnitude) as f32, (cos * self.magnitude) as f32)
                })
            })
            .unzip();
        let shape = (n, self.frequencies.len());
        Ok((Tensor::from_vec(cos, shape, device)?, Tensor::from_vec(sin, shape, device)?))
    }

    /// Rotates `x`, `[heads, n, head_dim]`, by the angles of [`Rope::tables`].
    ///
    /// # Errors
    /// When the device fails.
    pub fn rotate(&self, x: &Tensor, (cos, sin): &(Tensor, Tensor)) -> Result<Tensor> {
        let x = x.unsqueeze(0)?;
        let x = match self.interleaved {
            true => candle_nn::rotary_emb::rope_i(&x, cos, sin)?,
            false => candle_nn::rotary_emb::rope(&x, cos, sin)?,
        };
        Ok(x.squeeze(0)?)
    }
}

impl Rope {
    /// Whether pairs are neighbours, or halves of a head.
    pub fn interleaved(&self) -> bool {
        self.interleaved
    }

    /// Takes the rotation for positions from `start` on out of `x` `[heads, n, head_dim]`, which
    /// [`Rope::rotate`] put in. A scaling of the magnitude stays.
    ///
    /// # Errors
    /// When the device fails.
    pub fn unrotate(&self, x: &Tensor, start: u32) -> Result<Tensor> {
        let (cos, sin) = self.tables(start, x.dim(1)?, x.device())?;
        self.rotate(x, &((cos / self.magnitude)?, (sin / -self.magnitude)?))
    }

    /// The mean rotation over `n` positions from `start`: cosine and sine of each pair.
    pub fn mean_turns(&self, start: u32, n: u32) -> Vec<(f32, f32)> {
        let mean = |f: &f64| {
            let (mut cos, mut sin) = (0.0, 0.0);
            for position in start..start + n {
                let (s, c) = (f64::from(position) * f).sin_cos();
                (cos, sin) = (cos + c, sin + s);
            }
            ((cos / f64::from(n)) as f32, (sin / f64::from(n)) as f32)
        };
        self.frequencies.iter().map(mean).collect()
    }

    /// Rotates row `i` of `x` `[heads, n, head_dim]`, counted over all heads, on by `turns[i]` positions.
    ///
    /// # Errors
    /// When the device fails.
    pub fn turn(&self, x: &Tensor, turns: &[i64]) -> Result<Tensor> {
        let (heads, n, d) = x.dims3()?;
        let (sin, cos): (Vec<f32>, Vec<f32>) = turns
            .iter()
            .flat_map(|&turn| self.frequencies.iter().map(move |f| (turn as f64 * f).sin_cos()))
            .map(|(sin, cos)| (sin as f32, cos as f32))
            .unzip();
        // The halves of each pair, [heads, n, head_dim / 2].
        let dim = if self.interleaved { 3 } else { 2 };
        let pairs = match self.interleaved {
            true => x.reshape((heads, n, d / 2, 2))?,
            false => x.reshape((heads, n, 2, d / 2))?,
        };
        let (a, b) = (pairs.narrow(dim, 0, 1)?.squeeze(dim)?, pairs.narrow(dim, 1, 1)?.squeeze(dim)?);
        let cos = Tensor::from_vec(cos, (heads, n, d / 2), x.device())?;
        let sin = Tensor::from_vec(sin, (heads, n, d / 2), x.device())?;
        let turned_a = ((&a * &cos)? - (&b * &sin)?)?;
        let turned_b = ((a * sin)? + (b * cos)?)?;
        Ok(Tensor::stack(&[turned_a, turned_b], dim)?.reshape((heads, n, d))?)
    }
}

/// YaRN (arXiv 2309.00071, section 3.2): fast pairs stay as they are, slow ones are interpolated.
fn yarn(frequencies: &mut [f64], base: f64, factor: f64, trained: u32, beta_fast: f32, beta_slow: f32) {
    let half = frequencies.len() as f64;
    let pair_with_turns =
        |turns: f32| half * (f64::from(trained) / (f64::from(turns) * std::f64::consts::TAU)).ln() / base.ln();
    let low = pair_with_turns(beta_fast).floor().max(0.0);
    let high = pair_with_turns(beta_slow).ceil().min(half * 2.0 - 1.0);
    for (i, frequency) in frequencies.iter_mut().enumerate() {
        let ramp = ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
        *frequency *= (1.0 - ramp) + ramp / factor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turning_a_key_on_equals_rotating_it_for_the_later_position() {
        let device = &Device::Cpu;
        for interleaved in [true, false] {
            let frequencies = (0..8).map(|i| 10_000f64.powf(-f64::from(i) / 8.0)).collect();
            let rope = Rope { frequencies, magnitude: 1.0, interleaved };
            let x = Tensor::rand(-1f32, 1f32, (2, 3, 16), device).unwrap();
            let at = |start| rope.rotate(&x, &rope.tables(start, 3, device).unwrap()).unwrap();
            let turned = rope.turn(&at(5_000), &[-4_900; 6]).unwrap();
            let difference = (turned - at(100)).unwrap().abs().unwrap().max_all().unwrap();
            assert!(difference.to_scalar::<f32>().unwrap() < 1e-5);
        }
    }
}
