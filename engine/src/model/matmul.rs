//! Activations times packed weights, without ever unpacking a whole matrix.
//!
//! Activations become 16-bit integers, a few parts of them with one scale, so that products with the weights' small
//! integers are exact and take half the instructions of floats. Eight bits, as llama.cpp and candle take, are not
//! enough: a single outlier among 32, as small llama models have them, costs the other 31 their precision (SmolLM2:
//! cosine 0.997 to the exact logits).

use std::ops::Range;

use candle_core::quantized::GgmlDType;
use rayon::prelude::*;

use super::formats::{Format, MOST_PARTS, PART, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
use crate::simd::{Floats, Ints, Words, prefetch};

/// Rows of weights that share each load of activations.
const ROWS: usize = 4;

/// Tokens that share each load of weights.
const COLUMNS: usize = 2;

/// Parts of a token's activations that share a scale where weights are unpacked first: so many products are added up
/// as integers.
const GROUP: usize = 2;

/// The largest unpacked weight of a row: [`GROUP`] parts of such products, four a part in each lane, fit 32 bits.
const LARGEST: i16 = 8190;

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
    /// Groups of a row.
    groups: usize,
    /// `[n, groups]`
    scales: Vec<f32>,
}

impl Activations {
    /// Rounds `x`, `group` parts with one scale.
    fn new(x: &[f32], n_in: usize, group: usize) -> Self {
        let (blocks, _) = x.as_chunks::<PART>();
        let parts = n_in / PART;
        let groups = parts.div_ceil(group);
        let mut q = vec![[0; PART]; blocks.len()];
        let mut scales = vec![0.0; blocks.len() / parts * groups];
        let rows = q.par_chunks_mut(parts).zip(blocks.par_chunks(parts)).zip(scales.par_chunks_mut(groups));
        rows.for_each(|((q, x), scales)| {
            for ((q, x), scale) in q.chunks_mut(group).zip(x.chunks(group)).zip(scales) {
                *scale = quantize(x, q);
            }
        });
        Self { parts, q, groups, scales }
    }

    fn row(&self, i: usize) -> (&[[i16; PART]], &[f32]) {
        (&self.q[i * self.parts..(i + 1) * self.parts], &self.scales[i * self.groups..(i + 1) * self.groups])
    }
}

/// Rounds to integers of 16 bits; gives their scale. In lanes, which the compiler turns into vector code.
#[inline(always)]
fn quantize(x: &[[f32; PART]], q: &mut [[i16; PART]]) -> f32 {
    let (mut most, mut sums) = ([0f32; 8], [0f32; 8]);
    for eight in x.as_flattened().as_chunks::<8>().0 {
        for lane in 0..8 {
            most[lane] = most[lane].max(eight[lane].abs());
            sums[lane] += eight[lane];
        }
    }
    let most = most.into_iter().fold(0f32, f32::max);
    let by = if most > 0.0 { f32::from(i16::MAX) / most } else { 0.0 };
    for (q, x) in q.as_flattened_mut().iter_mut().zip(x.as_flattened()) {
        // What is no number becomes 0 here, and its scale says so.
        *q = (x * by).round_ties_even() as i32 as i16;
    }
    // `max` leaves out what is not a number; it must reach the result all the same.
    let finite = sums.into_iter().sum::<f32>().is_finite();
    if finite { most / f32::from(i16::MAX) } else { f32::NAN }
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
    match x.len() / n_in {
        1 => one(weights, x, n_out),
        n => many(weights, &Activations::new(x, n_in, GROUP), n, n_out),
    }
}

/// One token: memory bounds it, so that the weights are unpacked as they come, in the order in which they lie.
fn one<F: Format>(weights: &[F], x: &[f32], n_out: usize) -> Vec<f32> {
    let mut y = vec![0f32; n_out];
    let row = weights.len() / n_out;
    let sums: Vec<f32> = x.as_chunks::<PART>().0.iter().map(|part| part.iter().sum()).collect();
    let x = &Activations::new(x, x.len(), 1);
    y.par_chunks_mut(TASK_ROWS).zip(weights.par_chunks(TASK_ROWS * row)).for_each(|(y, weights)| {
        for (y, weights) in y.iter_mut().zip(weights.chunks_exact(row)) {
            *y = dot(weights, x, &sums);
        }
    });
    y
}

/// The dot product of a row with the only token, whose parts have these `sums`.
#[inline(always)]
fn dot<F: Format>(weights: &[F], x: &Activations, sums: &[f32]) -> f32 {
    let (q, scales) = x.row(0);
    let mut total = Total { lanes: [Floats::zero(); CHAINS], offsets: [0.0; CHAINS] };
    // Blocks that take every chain as often as the others. All run side by side in pieces of a known size, so that no
    // place in them needs a check.
    let step = const { CHAINS.div_ceil(F::PARTS) };
    let parts = const { CHAINS.div_ceil(F::PARTS) * F::PARTS };
    let (weights, q) = (weights.chunks_exact(step), q.chunks_exact(parts));
    let (scales, sums) = (scales.chunks_exact(parts), sums.chunks_exact(parts));
    let rest = (weights.remainder(), q.remainder(), scales.remainder(), sums.remainder());
    for (((weights, q), scales), sums) in weights.zip(q).zip(scales).zip(sums) {
        total.add(weights, q, scales, sums);
    }
    total.add(rest.0, rest.1, rest.2, rest.3);
    total.sum()
}

/// A dot product as it is added up.
struct Total {
    lanes: [Floats; CHAINS],
    offsets: [f32; CHAINS],
}

impl Total {
    /// The products of some blocks with the same parts of the activations.
    #[inline(always)]
    fn add<F: Format>(&mut self, weights: &[F], q: &[[i16; PART]], by: &[f32], sums: &[f32]) {
        for (b, block) in weights.iter().enumerate() {
            let first = b * F::PARTS;
            // The small blocks are shorter than what memory gives at once.
            if F::PARTS > 1 || b % 2 == 0 {
                prefetch(block);
            }
            let (scales, offset) = block.scales();
            block.each(|i, w| {
                let chain = (first + i) % CHAINS;
                let products = Ints::zero().plus(w, Words::load(&q[first + i])).floats();
                self.lanes[chain] = self.lanes[chain].plus(products, Floats::all(&(scales[i] * by[first + i])));
            });
            let sums = &sums[first..first + F::PARTS];
            if F::OFFSETS && F::PARTS == MOST_PARTS {
                let (offset, sums) = (Floats::load(&offset), Floats::load(&sums.as_chunks().0[0]));
                self.lanes[b % CHAINS] = self.lanes[b % CHAINS].plus(offset, sums);
            } else if F::OFFSETS {
                for i in 0..F::PARTS {
                    let chain = (first + i) % CHAINS;
                    self.offsets[chain] = offset[i].mul_add(sums[i], self.offsets[chain]);
                }
            }
        }
    }

    fn sum(self) -> f32 {
        let [a, b, c, d] = self.lanes;
        a.and(b).and(c.and(d)).sum() + self.offsets.iter().sum::<f32>()
    }
}

/// Some rows of weights, unpacked: integers with one scale a row.
#[derive(Default)]
struct Tile {
    /// `[groups of rows, parts of a panel, ROWS]`
    q: Vec<[[i16; PART]; ROWS]>,
    /// `[groups of rows]`
    scales: Vec<[f32; ROWS]>,
}

impl Tile {
    /// Unpacks the parts `panel` of some rows of `parts`; the last group is filled up with zeros.
    fn fill<F: Format>(&mut self, weights: &[F], parts: usize, panel: &Range<usize>) {
        let groups = (weights.len() * F::PARTS / parts).div_ceil(ROWS);
        self.q.resize(groups * panel.len(), [[0; PART]; ROWS]);
        self.scales.clear();
        self.scales.resize(groups, [0.0; ROWS]);
        let blocks = panel.start / F::PARTS..panel.end / F::PARTS;
        for (row, weights) in weights.chunks_exact(parts / F::PARTS).enumerate() {
            let (group, r) = (row / ROWS, row % ROWS);
            let weights = &weights[blocks.clone()];
            let largest = weights.iter().map(largest).fold(0f32, f32::max);
            let by = if largest > 0.0 { f32::from(LARGEST - 1) / largest } else { 0.0 };
            self.scales[group][r] = largest / f32::from(LARGEST - 1);
            for (at, weights) in weights.iter().enumerate() {
                let (scales, offsets) = weights.scales();
                weights.each(|i, q| {
                    let factor = scales[i] * by * const { (1 << (15 - shift::<F>())) as f32 };
                    let (factor, offset) =
                        (factor.round_ties_even() as i16, (offsets[i] * by).round_ties_even() as i16);
                    q.scaled(shift::<F>(), factor, offset)
                        .store(&mut self.q[group * panel.len() + at * F::PARTS + i][r]);
                });
            }
        }
    }
}

/// The largest magnitude that a weight of this block can have.
#[inline(always)]
fn largest<F: Format>(block: &F) -> f32 {
    let (scales, offsets) = block.scales();
    (0..F::PARTS).fold(0f32, |most, i| {
        let ends = [F::LEAST, F::MOST].map(|q| (scales[i] * f32::from(q) + offsets[i]).abs());
        most.max(ends[0]).max(ends[1])
    })
}

/// Bits that the integers of a format are moved up by, so that a scale, at most [`LARGEST`] over them, becomes a
/// fraction of 15 bits.
const fn shift<F: Format>() -> u32 {
    let (least, most) = (-(F::LEAST as i32), F::MOST as i32);
    let largest = LARGEST as i32;
    let scale = match F::OFFSETS {
        true => 2 * largest / (most + least),
        false if least > most => largest / least,
        false => largest / most,
    };
    (scale as u32 + 1).next_power_of_two().trailing_zeros()
}

/// Several tokens: each tile of weights is unpacked once for all of them.
fn many<F: Format>(weights: &[F], x: &Activations, n: usize, n_out: usize) -> Vec<f32> {
    let mut y = vec![0f32; n * n_out];
    let row = weights.len() / n_out;
    // Panels of about the same width, of whole blocks and whole groups.
    let whole = const { if F::PARTS > GROUP { F::PARTS } else { GROUP } };
    let panel = x.parts.div_ceil(x.parts.div_ceil(PANEL_PARTS)).next_multiple_of(whole);
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
                            let [sums] = block::<1>(tile, group, x, token, &panel);
                            [sums; COLUMNS]
                        }
                        _ => block::<COLUMNS>(tile, group, x, token, &panel),
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
fn block<const C: usize>(
    tile: &Tile,
    group: usize,
    x: &Activations,
    token: usize,
    panel: &Range<usize>,
) -> [[f32; ROWS]; C] {
    let tokens: [_; C] = std::array::from_fn(|c| {
        let (q, scales) = x.row(token + c);
        (&q[panel.clone()], &scales[panel.start / GROUP..])
    });
    let q = &tile.q[group * panel.len()..(group + 1) * panel.len()];
    let mut lanes = [[Floats::zero(); ROWS]; C];
    for (g, q) in q.chunks(GROUP).enumerate() {
        let mut sums = [[Ints::zero(); ROWS]; C];
        for (i, q) in q.iter().enumerate() {
            let x: [_; C] = std::array::from_fn(|c| Words::load(&tokens[c].0[g * GROUP + i]));
            for r in 0..ROWS {
                let w = Words::load(&q[r]);
                for c in 0..C {
                    sums[c][r] = sums[c][r].plus(w, x[c]);
                }
            }
        }
        for c in 0..C {
            let by = Floats::all(&tokens[c].1[g]);
            for r in 0..ROWS {
                lanes[c][r] = lanes[c][r].plus(sums[c][r].floats(), by);
            }
        }
    }
    std::array::from_fn(|c| std::array::from_fn(|r| lanes[c][r].sum() * tile.scales[group][r]))
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
                    // Rounding of activations to a step of their group, and of weights to one of their row, is all
                    // that may be lost: six standard deviations of it.
                    let largest = |x: &[f32]| x.iter().fold(0f64, |most, x| most.max(f64::from(x.abs())));
                    let squares = |x: &[f32], less: f32| x.iter().map(|x| f64::from(x - less).powi(2)).sum::<f64>();
                    let lost = |(x, w): (&[f32], &[f32])| {
                        let step = largest(x) / f64::from(i16::MAX);
                        // What is added apart, as an offset, takes the activations as they are.
                        let apart = if offsets && n == 1 { w.iter().copied().fold(0.0, f32::min) } else { 0.0 };
                        step * step / 12.0 * squares(w, apart)
                    };
                    let group = if n == 1 { PART } else { PART * GROUP };
                    let mut variance: f64 = x.chunks(group).zip(w.chunks(group)).map(lost).sum();
                    if n > 1 {
                        // Integer, scale and offset are rounded.
                        let step = 1.2 * largest(w) / f64::from(LARGEST);
                        variance += 3.0 * step * step / 12.0 * squares(x, 0.0);
                    }
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
