//! Activations times packed weights, without ever unpacking a whole matrix.
//!
//! Activations become 16-bit integers, 32 of them with one scale, so that a product with the weights' small
//! integers is exact and takes half the instructions of floats. Eight bits, as llama.cpp and candle take, are not
//! enough: a single outlier among 32, as small llama models have them, costs the other 31 their precision (SmolLM2:
//! cosine 0.997 to the exact logits).

use std::ops::Range;

use candle_core::quantized::GgmlDType;
use rayon::prelude::*;

use super::formats::{Format, MOST_PARTS, PART, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
use crate::simd::{Floats, Words, prefetch};

/// Rows of weights that share each load of activations.
const ROWS: usize = 3;

/// Tokens that share each load of weights.
const COLUMNS: usize = 2;

/// Rows of one task for a single token.
const TASK_ROWS: usize = 64;

/// Sums that a single token's dot product is added up in: one would wait for its own last addition.
const CHAINS: usize = 4;

/// Rows of weights that are unpacked at once, and most parts of each: they stay in the L2 cache of a core.
const TILE_ROWS: usize = 48;
const PANEL_PARTS: usize = 32;

/// Tokens that the same few rows of weights meet one after another: both stay in the L1 cache.
const BLOCK_TOKENS: usize = 16;

/// Rows of activations, `[n, n_in]`.
struct Activations {
    /// Parts of a row.
    parts: usize,
    /// `[n, parts]`
    q: Vec<[i16; PART]>,
    /// `[n, parts]`
    scales: Vec<f32>,
    /// Sums of the activations themselves, `[n, parts]`.
    sums: Vec<f32>,
}

impl Activations {
    fn new(x: &[f32], n_in: usize) -> Self {
        let (blocks, _) = x.as_chunks::<PART>();
        let parts = n_in / PART;
        let mut all = Self {
            parts,
            q: vec![[0; PART]; blocks.len()],
            scales: vec![0.0; blocks.len()],
            sums: vec![0.0; blocks.len()],
        };
        let rows =
            all.q.par_chunks_mut(parts).zip(all.scales.par_chunks_mut(parts)).zip(all.sums.par_chunks_mut(parts));
        rows.zip(blocks.par_chunks(parts)).for_each(|(((q, scales), sums), x)| {
            for (i, x) in x.iter().enumerate() {
                (scales[i], sums[i]) = quantize(x, &mut q[i]);
            }
        });
        all
    }

    fn row(&self, i: usize) -> (&[[i16; PART]], &[f32], &[f32]) {
        let row = i * self.parts..(i + 1) * self.parts;
        (&self.q[row.clone()], &self.scales[row.clone()], &self.sums[row])
    }
}

/// Rounds to integers of 16 bits; gives their scale, and the sum of the numbers themselves. In lanes, which the
/// compiler turns into vector code.
#[inline(always)]
fn quantize(x: &[f32; PART], q: &mut [i16; PART]) -> (f32, f32) {
    let (mut most, mut sums) = ([0f32; 8], [0f32; 8]);
    for eight in x.as_chunks::<8>().0 {
        for lane in 0..8 {
            most[lane] = most[lane].max(eight[lane].abs());
            sums[lane] += eight[lane];
        }
    }
    let most = most.into_iter().fold(0f32, f32::max);
    let sum: f32 = sums.into_iter().sum();
    let by = if most > 0.0 { f32::from(i16::MAX) / most } else { 0.0 };
    for (q, x) in q.iter_mut().zip(x) {
        // What is no number becomes 0 here, and its scale says so.
        *q = (x * by).round_ties_even() as i32 as i16;
    }
    // `max` leaves out what is not a number; it must reach the result all the same.
    (if sum.is_finite() { most / f32::from(i16::MAX) } else { f32::NAN }, sum)
}

/// `y[n, n_out] = x[n, n_in] Wᵀ` for the packed rows of `data`; `None` for a type that is packed in another way.
pub fn matmul(dtype: GgmlDType, data: &[u8], x: &[f32], n_in: usize, n_out: usize) -> Option<Vec<f32>> {
    let by = match dtype {
        GgmlDType::Q4_0 => run::<Q4_0>,
        GgmlDType::Q4_1 => run::<Q4_1>,
        GgmlDType::Q5_0 => run::<Q5_0>,
        GgmlDType::Q5_1 => run::<Q5_1>,
        GgmlDType::Q8_0 => run::<Q8_0>,
        GgmlDType::Q4K => run::<Q4K>,
        GgmlDType::Q5K => run::<Q5K>,
        GgmlDType::Q6K => run::<Q6K>,
        _ => return None,
    };
    Some(by(data, x, n_in, n_out))
}

fn run<F: Format>(data: &[u8], x: &[f32], n_in: usize, n_out: usize) -> Vec<f32> {
    let row = n_in / (F::PARTS * PART);
    assert_eq!(n_in, row * F::PARTS * PART, "a row holds whole blocks");
    assert_eq!(data.len(), n_out * row * size_of::<F>(), "a tensor holds whole rows");
    assert_eq!(data.as_ptr().align_offset(align_of::<F>()), 0, "candle aligns its blocks");
    // SAFETY: the bytes are whole, aligned blocks of this type, which has no invalid bit patterns.
    let weights = unsafe { std::slice::from_raw_parts(data.as_ptr().cast::<F>(), n_out * row) };
    let x = Activations::new(x, n_in);
    match x.q.len() / x.parts {
        1 => one(weights, &x, n_out),
        n => many(weights, &x, n, n_out),
    }
}

/// One token: memory bounds it, so that the weights are unpacked as they come, in the order in which they lie.
fn one<F: Format>(weights: &[F], x: &Activations, n_out: usize) -> Vec<f32> {
    let mut y = vec![0f32; n_out];
    let row = weights.len() / n_out;
    y.par_chunks_mut(TASK_ROWS).zip(weights.par_chunks(TASK_ROWS * row)).for_each(|(y, weights)| {
        for (y, weights) in y.iter_mut().zip(weights.chunks_exact(row)) {
            *y = dot(weights, x);
        }
    });
    y
}

/// The dot product of a row with the first token.
#[inline(always)]
fn dot<F: Format>(weights: &[F], x: &Activations) -> f32 {
    let (q, scales, sums) = x.row(0);
    let mut lanes = [Floats::zero(); CHAINS];
    let mut offsets = [0f32; CHAINS];
    // Blocks that take every chain as often as the others.
    let step = CHAINS.div_ceil(F::PARTS);
    let parts = |blocks: usize| blocks * F::PARTS;
    let mut add = |weights: &[F], first: usize| {
        for (b, block) in weights.iter().enumerate() {
            prefetch(block);
            let at = parts(first + b);
            let (q, by, sums) = (&q[at..][..F::PARTS], &scales[at..][..F::PARTS], &sums[at..][..F::PARTS]);
            let (scales, offset) = block.scales();
            block.each(|i, w| {
                let chain = (parts(b) + i) % CHAINS;
                lanes[chain] = lanes[chain].plus(w.dot(Words::load(&q[i])), Floats::all(&(scales[i] * by[i])));
            });
            if F::OFFSETS && F::PARTS == MOST_PARTS {
                let (offset, sums) = (Floats::load(&offset), Floats::load(&sums.as_chunks().0[0]));
                lanes[b % CHAINS] = lanes[b % CHAINS].plus(offset, sums);
            } else if F::OFFSETS {
                for i in 0..F::PARTS {
                    let chain = (parts(b) + i) % CHAINS;
                    offsets[chain] = offset[i].mul_add(sums[i], offsets[chain]);
                }
            }
        }
    };
    let whole = weights.chunks_exact(step);
    let rest = whole.remainder();
    for (i, weights) in whole.enumerate() {
        add(weights, i * step);
    }
    add(rest, weights.len() - rest.len());
    let [a, b, c, d] = lanes;
    a.and(b).and(c.and(d)).sum() + offsets.iter().sum::<f32>()
}

/// Some rows of weights, unpacked.
#[derive(Default)]
struct Tile {
    /// `[groups, parts of a panel, ROWS]`
    q: Vec<[[i16; PART]; ROWS]>,
    scales: Vec<[f32; ROWS]>,
    /// `[groups, ROWS, parts of a panel]`
    offsets: Vec<f32>,
}

impl Tile {
    /// Unpacks the parts `panel` of some rows of `parts`; the last group is filled up with zeros.
    fn fill<F: Format>(&mut self, weights: &[F], parts: usize, panel: &Range<usize>) {
        let rows = weights.len() * F::PARTS / parts;
        let groups = rows.div_ceil(ROWS);
        self.q.resize(groups * panel.len(), [[0; PART]; ROWS]);
        self.scales.resize(groups * panel.len(), [0.0; ROWS]);
        self.offsets.resize(groups * ROWS * panel.len(), 0.0);
        for row in 0..groups * ROWS {
            let (to, r) = (row / ROWS * panel.len(), row % ROWS);
            let of_row = &mut self.offsets[row * panel.len()..(row + 1) * panel.len()];
            if row >= rows {
                self.scales[to..to + panel.len()].iter_mut().for_each(|scales| scales[r] = 0.0);
                of_row.fill(0.0);
                continue;
            }
            for at in panel.clone().step_by(F::PARTS) {
                let (of_row, to) = (&mut of_row[at - panel.start..][..F::PARTS], to + at - panel.start);
                let weights = &weights[(row * parts + at) / F::PARTS];
                let (scales, offsets) = weights.scales();
                weights.each(|i, q| {
                    q.store(&mut self.q[to + i][r]);
                    (self.scales[to + i][r], of_row[i]) = (scales[i], offsets[i]);
                });
            }
        }
    }
}

/// Several tokens: each tile of weights is unpacked once for all of them.
fn many<F: Format>(weights: &[F], x: &Activations, n: usize, n_out: usize) -> Vec<f32> {
    let mut y = vec![0f32; n * n_out];
    let row = weights.len() / n_out;
    // Panels of about the same width, of whole blocks.
    let panel = x.parts.div_ceil(x.parts.div_ceil(PANEL_PARTS)).next_multiple_of(F::PARTS);
    let out = SendPtr(y.as_mut_ptr());
    weights.par_chunks(TILE_ROWS * row).enumerate().for_each_init(Tile::default, |tile, (i, weights)| {
        let (first, rows) = (i * TILE_ROWS, weights.len() / row);
        let out = &out;
        for start in (0..x.parts).step_by(panel) {
            let panel = start..x.parts.min(start + panel);
            tile.fill(weights, x.parts, &panel);
            let blocks = (0..n).step_by(BLOCK_TOKENS).map(|start| start..n.min(start + BLOCK_TOKENS));
            for (tokens, group) in blocks.flat_map(|tokens| (0..rows.div_ceil(ROWS)).map(move |g| (tokens.clone(), g)))
            {
                for token in tokens.clone().step_by(COLUMNS) {
                    let sums = match tokens.end - token {
                        1 => {
                            let [sums] = block::<F, 1>(tile, group, x, token, &panel);
                            [sums; COLUMNS]
                        }
                        _ => block::<F, COLUMNS>(tile, group, x, token, &panel),
                    };
                    for (c, sums) in sums.iter().enumerate().take(tokens.end - token) {
                        for r in 0..ROWS.min(rows - group * ROWS) {
                            // SAFETY: token + c < n and first + … < n_out; this task alone writes these rows' results.
                            unsafe { *out.0.add((token + c) * n_out + first + group * ROWS + r) += sums[r] };
                        }
                    }
                }
            }
        }
    });
    y
}

/// The dot products of the `panel` of [`ROWS`] unpacked rows with `C` tokens.
#[inline(always)]
fn block<F: Format, const C: usize>(
    tile: &Tile,
    group: usize,
    x: &Activations,
    token: usize,
    panel: &Range<usize>,
) -> [[f32; ROWS]; C] {
    let tokens: [_; C] = std::array::from_fn(|c| {
        let (q, scales, sums) = x.row(token + c);
        (&q[panel.clone()], &scales[panel.clone()], &sums[panel.clone()])
    });
    let of_group = group * panel.len()..(group + 1) * panel.len();
    let (q, scales) = (&tile.q[of_group.clone()], &tile.scales[of_group]);
    let mut lanes = [[Floats::zero(); ROWS]; C];
    let mut more = [[0f32; ROWS]; C];
    for i in 0..panel.len() {
        // What the tokens need stays in registers, beside the sums, while the rows pass.
        let x: [_; C] = std::array::from_fn(|c| Words::load(&tokens[c].0[i]));
        let by: [_; C] = std::array::from_fn(|c| Floats::all(&tokens[c].1[i]));
        for r in 0..ROWS {
            let (w, scale) = (Words::load(&q[i][r]), Floats::all(&scales[i][r]));
            for c in 0..C {
                lanes[c][r] = lanes[c][r].plus(w.dot(x[c]).times(scale), by[c]);
            }
        }
    }
    if F::OFFSETS {
        for r in 0..ROWS {
            let (offsets, rest) = tile.offsets[(group * ROWS + r) * panel.len()..][..panel.len()].as_chunks();
            for c in 0..C {
                let (sums, rest_of_sums) = tokens[c].2.as_chunks();
                for (offsets, sums) in offsets.iter().zip(sums) {
                    lanes[c][r] = lanes[c][r].plus(Floats::load(offsets), Floats::load(sums));
                }
                more[c][r] = rest.iter().zip(rest_of_sums).map(|(offset, sum)| offset * sum).sum();
            }
        }
    }
    std::array::from_fn(|c| std::array::from_fn(|r| lanes[c][r].sum() + more[c][r]))
}

/// Lets tasks write disjoint columns of one matrix.
struct SendPtr(*mut f32);
// SAFETY: every user writes its own columns only, as the caller's comment says.
unsafe impl Sync for SendPtr {}
// SAFETY: see above.
unsafe impl Send for SendPtr {}

#[cfg(test)]
mod tests {
    use candle_core::quantized::QTensor;
    use candle_core::{Device, Tensor};

    use super::*;

    /// Numbers from -1 to 1 that are the same every time.
    fn numbers(n: usize, mut state: u64) -> Vec<f32> {
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        std::iter::repeat_with(next).take(n).collect()
    }

    #[test]
    fn products_equal_those_with_the_dequantized_matrix() {
        let device = &Device::Cpu;
        for (dtype, offsets, n_in) in [
            (GgmlDType::Q4_0, false, 96),
            (GgmlDType::Q4_1, true, 576),
            (GgmlDType::Q5_0, false, 96),
            (GgmlDType::Q5_1, true, 96),
            (GgmlDType::Q8_0, false, 1_120),
            (GgmlDType::Q4K, true, 512),
            (GgmlDType::Q5K, true, 256),
            (GgmlDType::Q6K, false, 1_280),
        ] {
            for (n, n_out) in [(1, 3), (1, 131), (2, 131), (3, 70), (24, 64)] {
                let weight = Tensor::from_vec(numbers(n_out * n_in, 5), (n_out, n_in), device).unwrap();
                let weight = QTensor::quantize(&weight, dtype).unwrap();
                let mut x = numbers(n * n_in, 77);
                // An outlier must not cost the others their precision.
                x[7] = 300.0;
                let got = matmul(dtype, &weight.data().unwrap(), &x, n_in, n_out).unwrap();
                let plain = weight.dequantize(device).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
                for (at, got) in got.iter().enumerate() {
                    let (x, w) = (&x[at / n_out * n_in..][..n_in], &plain[at % n_out * n_in..][..n_in]);
                    let want: f64 = x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum();
                    // Rounding to a step of each part is all that may be lost: six standard deviations of it.
                    let lost = |(x, w): (&[f32], &[f32])| {
                        let most = x.iter().fold(0f32, |most, x| most.max(x.abs()));
                        let step = f64::from(most) / f64::from(i16::MAX);
                        // What is added apart, as an offset, takes the activations as they are.
                        let apart = if offsets { w.iter().copied().fold(0.0, f32::min) } else { 0.0 };
                        step * step / 12.0 * w.iter().map(|w| f64::from(w - apart).powi(2)).sum::<f64>()
                    };
                    let variance: f64 = x.chunks(PART).zip(w.chunks(PART)).map(lost).sum();
                    let (off, most) = ((f64::from(*got) - want).abs(), 6.0 * variance.sqrt() + 1e-6 * want.abs());
                    assert!(off <= most, "{dtype:?} {n}×{n_out}: {got} is {off:e} from {want}, over {most:e}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_number_stays_none() {
        let weight = Tensor::rand(-1f32, 1f32, (4, 32), &Device::Cpu).unwrap();
        let weight = QTensor::quantize(&weight, GgmlDType::Q8_0).unwrap();
        for bad in [f32::NAN, f32::INFINITY] {
            let mut x = [0.5; 32];
            x[3] = bad;
            let y = matmul(GgmlDType::Q8_0, &weight.data().unwrap(), &x, 32, 4).unwrap();
            assert!(y.iter().all(|y| !y.is_finite()));
        }
    }
}
