//! `kl` and `ppl`: a text is read, then its continuation is fed token by token whatever was foretold.

use engine::context::Context;
use engine::error::Error;
use engine::protocol::{CacheOptions, KvType, PolicyName, PrefillMode};
use engine::tokenizer::Special;

use super::{Bench, Case, Measured, read_once};
use crate::failure::Failure;

pub fn run(bench: &Bench, cases: &[Case]) -> Result<Vec<Measured>, Failure> {
    let (n, generated) = (bench.args.tokens as usize, bench.args.r#gen as usize);
    let ids = bench.model.tokenizer.encode(&bench.text, Special::AsText);
    if ids.len() < n + generated {
        return Err(Failure::Usage(format!(
            "The text has {} tokens, fewer than the {} asked for; give a longer one with --text, or lower --tokens.",
            ids.len(),
            n + generated
        )));
    }
    let (prompt, rest) = (&ids[..n], &ids[n..n + generated]);
    bench.line.set("Reading the text with everything kept …");
    let reference = CacheOptions {
        kv: if bench.args.kv == KvType::F16 { KvType::F16 } else { KvType::F32 },
        policy: PolicyName::Full,
        ..bench.options(&cases[0])
    };
    let want = foretell(&mut Context::new(bench.model.clone(), &reference)?, prompt, rest, None)?;

    let mut read: Vec<(PolicyName, Context)> = Vec::new();
    let mut measured = Vec::new();
    for (i, case) in cases.iter().enumerate() {
        bench.say(i, cases, format_args!(""));
        let options = bench.options(case);
        let mut context;
        let got = if bench.args.prefill == PrefillMode::Streaming {
            context = Context::new(bench.model.clone(), &options)?;
            foretell(&mut context, prompt, rest, None)?
        } else {
            let reading = bench.reading(case.policy);
            let whole = read_once(&mut read, reading.policy, || {
                let mut whole = Context::new(bench.model.clone(), &reading)?;
                // All but the last token, so that every case computes the first logits itself.
                whole.prefill(&prompt[..n - 1])?;
                Ok(whole)
            })?;
            context = whole.fork()?;
            foretell(&mut context, &prompt[n - 1..], rest, Some(&options))?
        };
        let state = context.cache().state();
        measured.push(Measured {
            kl: Some(mean(want.iter().zip(&got).map(|(want, got)| divergence(want, got)))),
            top1: Some(mean(want.iter().zip(&got).map(|(a, b)| f64::from(u8::from(top(a) == top(b)))))),
            ppl: Some(mean(got.iter().zip(rest).map(|(row, &id)| -f64::from(row[id as usize]))).exp()),
            hot_bytes: state.hot_bytes,
            store_bytes: state.store_bytes,
            ..Measured::default()
        });
    }
    Ok(measured)
}

/// Log probabilities before each token of `rest`, `[rest][vocab]`.
fn foretell(
    context: &mut Context,
    prompt: &[u32],
    rest: &[u32],
    options: Option<&CacheOptions>,
) -> Result<Vec<Vec<f32>>, Failure> {
    if let Some(options) = options {
        context.set_options(options)?;
    }
    let mut logits = match prompt {
        [last] => context.step(*last)?,
        _ => context.prefill(prompt)?,
    };
    let mut rows = Vec::with_capacity(rest.len());
    for &id in rest {
        let row: Vec<f32> = logits.to_vec1().map_err(Error::from)?;
        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let whole = max + row.iter().map(|x| f64::from(x - max).exp()).sum::<f64>().ln() as f32;
        rows.push(row.into_iter().map(|x| x - whole).collect());
        logits = context.step(id)?;
    }
    Ok(rows)
}

/// `KL(want ‖ got)` in nats, of log probabilities.
fn divergence(want: &[f32], got: &[f32]) -> f64 {
    want.iter().zip(got).map(|(&p, &q)| f64::from(p).exp() * f64::from(p - q)).sum()
}

fn top(row: &[f32]) -> usize {
    (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut n) = (0.0, 0.0);
    for value in values {
        (sum, n) = (sum + value, n + 1.0);
    }
    sum / f64::max(n, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_has_no_divergence_from_itself_and_some_from_another() {
        let (a, b) = ([0.5f32.ln(), 0.5f32.ln()], [0.9f32.ln(), 0.1f32.ln()]);
        assert!(divergence(&a, &a).abs() < 1e-7);
        // 0.5 ln(0.5/0.9) + 0.5 ln(0.5/0.1)
        assert!((divergence(&a, &b) - 0.510_825_6).abs() < 1e-6);
        assert_eq!(top(&b), 0);
    }
}
