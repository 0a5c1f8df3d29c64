//! How a GGUF file packs weights: each format as parts of 32 weights that are `scale · q + offset` with small
//! integers `q` (ggml's `block_q4_0` to `block_q6_K`).

use half::f16;

use crate::simd::{Bytes, Words};

/// Weights in a part.
pub const PART: usize = 32;

/// Most parts of a block.
pub const MOST_PARTS: usize = 8;

/// Scales and offsets of a block's parts; past the last they mean nothing.
pub type Scales = ([f32; MOST_PARTS], [f32; MOST_PARTS]);

/// A packed block of one format.
pub trait Format: Copy + Send + Sync {
    /// Parts in a block.
    const PARTS: usize;

    /// Whether there are offsets at all.
    const OFFSETS: bool;

    /// Scales and offsets of the parts.
    fn scales(&self) -> Scales;

    /// Hands out the number and the integers of each part.
    fn each(&self, f: impl FnMut(usize, Words));
}

/// One scale and one offset for all parts.
#[inline(always)]
fn alike(scale: f16, offset: f16) -> Scales {
    ([scale.to_f32(); MOST_PARTS], [offset.to_f32(); MOST_PARTS])
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Q4_0 {
    d: f16,
    qs: [u8; 16],
}

impl Format for Q4_0 {
    const PARTS: usize = 1;
    const OFFSETS: bool = false;

    #[inline(always)]
    fn scales(&self) -> Scales {
        alike(self.d, f16::ZERO)
    }

    #[inline(always)]
    fn each(&self, mut f: impl FnMut(usize, Words)) {
        f(0, Words::nibbles(&self.qs).minus(8));
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Q4_1 {
    d: f16,
    m: f16,
    qs: [u8; 16],
}

impl Format for Q4_1 {
    const PARTS: usize = 1;
    const OFFSETS: bool = true;

    #[inline(always)]
    fn scales(&self) -> Scales {
        alike(self.d, self.m)
    }

    #[inline(always)]
    fn each(&self, mut f: impl FnMut(usize, Words)) {
        f(0, Words::nibbles(&self.qs));
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Q5_0 {
    d: f16,
    high: [u8; 4],
    qs: [u8; 16],
}

impl Format for Q5_0 {
    const PARTS: usize = 1;
    const OFFSETS: bool = false;

    #[inline(always)]
    fn scales(&self) -> Scales {
        alike(self.d, f16::ZERO)
    }

    #[inline(always)]
    fn each(&self, mut f: impl FnMut(usize, Words)) {
        f(0, Bytes::nibbles(&self.qs).less_sixteens(u32::from_le_bytes(self.high)));
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Q5_1 {
    d: f16,
    m: f16,
    high: [u8; 4],
    qs: [u8; 16],
}

impl Format for Q5_1 {
    const PARTS: usize = 1;
    const OFFSETS: bool = true;

    #[inline(always)]
    fn scales(&self) -> Scales {
        alike(self.d, self.m)
    }

    #[inline(always)]
    fn each(&self, mut f: impl FnMut(usize, Words)) {
        f(0, Bytes::nibbles(&self.qs).plus_sixteens(u32::from_le_bytes(self.high)).words());
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Q8_0 {
    d: f16,
    qs: [i8; 32],
}

impl Format for Q8_0 {
    const PARTS: usize = 1;
    const OFFSETS: bool = false;

    #[inline(always)]
    fn scales(&self) -> Scales {
        alike(self.d, f16::ZERO)
    }

    #[inline(always)]
    fn each(&self, mut f: impl FnMut(usize, Words)) {
        f(0, Words::signed(&self.qs));
    }
}

/// The scales and offsets of a Q4_K or Q5_K block: 6 bits each, the upper two of the last four apart.
#[inline(always)]
fn scales_and_mins(d: f16, dmin: f16, packed: &[u8; 12]) -> Scales {
    let (d, dmin) = (d.to_f32(), -dmin.to_f32());
    let word = |at: usize| u32::from_le_bytes([packed[at], packed[at + 1], packed[at + 2], packed[at + 3]]);
    let (first, second, third) = (word(0), word(4), word(8));
    let bytes = |low: u32, high: u32| (u64::from(low) | u64::from(high) << 32).to_le_bytes();
    const LOW_SIX: u32 = 0x3f3f_3f3f;
    const LOW_FOUR: u32 = 0x0f0f_0f0f;
    const LOW_TWO: u32 = 0x0303_0303;
    let scales = bytes(first & LOW_SIX, (third & LOW_FOUR) | (first >> 6 & LOW_TWO) << 4);
    let mins = bytes(second & LOW_SIX, (third >> 4 & LOW_FOUR) | (second >> 6 & LOW_TWO) << 4);
    (scales.map(|x| d * f32::from(x)), mins.map(|x| dmin * f32::from(x)))
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Q4K {
    d: f16,
    dmin: f16,
    scales: [u8; 12],
    qs: [u8; 128],
}

impl Format for Q4K {
    const PARTS: usize = 8;
    const OFFSETS: bool = true;

    #[inline(always)]
    fn scales(&self) -> Scales {
        scales_and_mins(self.d, self.dmin, &self.scales)
    }

    #[inline(always)]
    fn each(&self, mut f: impl FnMut(usize, Words)) {
        for (j, both) in self.qs.as_chunks().0.iter().enumerate() {
            let [low, high] = Words::both_nibbles(both);
            f(2 * j, low);
            f(2 * j + 1, high);
        }
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Q5K {
    d: f16,
    dmin: f16,
    scales: [u8; 12],
    qh: [u8; 32],
    qs: [u8; 128],
}

impl Format for Q5K {
    const PARTS: usize = 8;
    const OFFSETS: bool = true;

    #[inline(always)]
    fn scales(&self) -> Scales {
        scales_and_mins(self.d, self.dmin, &self.scales)
    }

    #[inline(always)]
    fn each(&self, mut f: impl FnMut(usize, Words)) {
        let high = Bytes::load(&self.qh);
        for (j, both) in self.qs.as_chunks().0.iter().enumerate() {
            let (both, i) = (Bytes::load(both), 2 * j);
            f(i, both.low().plus_sixteens_at(high, i as u32).words());
            f(i + 1, both.high().plus_sixteens_at(high, i as u32 + 1).words());
        }
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Q6K {
    ql: [u8; 128],
    qh: [u8; 64],
    scales: [i8; 16],
    d: f16,
}

impl Format for Q6K {
    const PARTS: usize = 8;
    const OFFSETS: bool = false;

    #[inline(always)]
    fn scales(&self) -> Scales {
        alike(self.d, f16::ZERO)
    }

    #[inline(always)]
    fn each(&self, mut f: impl FnMut(usize, Words)) {
        let (low, high) = (self.ql.as_chunks().0, self.qh.as_chunks().0);
        for (half, scales) in self.scales.as_chunks::<8>().0.iter().enumerate() {
            let both = [Bytes::load(&low[2 * half]), Bytes::load(&low[2 * half + 1])];
            let high = Bytes::load(&high[half]);
            // Sixteen weights share a scale of 8 bits, which the integers have room for.
            let by = |quarter: usize| [i16::from(scales[2 * quarter]), i16::from(scales[2 * quarter + 1])];
            f(4 * half, both[0].low().plus_pairs::<0>(high).words().minus(32).times(by(0)));
            f(4 * half + 1, both[1].low().plus_pairs::<2>(high).words().minus(32).times(by(1)));
            f(4 * half + 2, both[0].high().plus_pairs::<4>(high).words().minus(32).times(by(2)));
            f(4 * half + 3, both[1].high().plus_pairs::<6>(high).words().minus(32).times(by(3)));
        }
    }
}
