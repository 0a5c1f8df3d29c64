//! Whether this processor has the instructions that the program was compiled for.
//!
//! A build for `x86-64-v3` ends with an illegal instruction on an older processor, without a word. So both
//! programs ask first thing in `main`. Nothing here may need what it asks for, and the compiler uses the
//! features anywhere, even to test a bit or to copy two words: hence the assembly, the fixed sentence, and no
//! formatting, which would be compiled with this crate. (`is_x86_feature_detected!` answers from the
//! compiler's own settings where those promise the feature.)

use std::io::Write;

const SENTENCE: &[u8] = b"This build of Cistern was made for a newer processor than this one (the packages need AVX2, \
which Intel has since 2013 and AMD since 2015); build it from source on this computer.\n";

/// Ends the process with one sentence where the processor lacks something that this build uses.
#[inline(never)]
pub fn require() {
    if !is_enough() {
        // The standard library itself is compiled for every processor.
        let _ = std::io::stderr().write_all(SENTENCE);
        std::process::exit(1);
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn is_enough() -> bool {
    true
}

#[cfg(target_arch = "x86_64")]
fn is_enough() -> bool {
    let lacking = lacks::<{ needs::LEAF_1_ECX }>(cpuid(1).ecx)
        | (needs::LEAF_7_EBX != 0 && cpuid(0).eax < 7) as u8
        | lacks::<{ needs::LEAF_7_EBX }>(cpuid(7).ebx)
        | lacks::<{ needs::EXTENDED_ECX }>(cpuid(0x8000_0001).ecx);
    // Last, since the instruction that asks for it is itself among those asked for above.
    lacking == 0 && (needs::SAVED == 0 || lacks::<{ needs::SAVED }>(saved_registers()) == 0)
}

/// The bits that this build takes for granted, as the manuals of Intel and AMD number them.
#[cfg(target_arch = "x86_64")]
mod needs {
    macro_rules! bits {
        ($($name:tt: $bit:expr),* $(,)?) => { 0 $(| ((cfg!(target_feature = $name) as u32) << $bit))* };
    }

    const AVX: u32 = cfg!(target_feature = "avx") as u32;
    const AVX512: u32 = cfg!(target_feature = "avx512f") as u32;

    /// With AVX, also that the operating system says which registers it saves.
    pub const LEAF_1_ECX: u32 = bits! {
        "sse3": 0, "pclmulqdq": 1, "ssse3": 9, "fma": 12, "sse4.1": 19, "sse4.2": 20, "movbe": 22, "popcnt": 23,
        "aes": 25, "avx": 28, "f16c": 29,
    } | AVX << 27;

    pub const LEAF_7_EBX: u32 = bits! {
        "bmi1": 3, "avx2": 5, "bmi2": 8, "avx512f": 16, "avx512dq": 17, "adx": 19, "avx512ifma": 21, "avx512cd": 28,
        "sha": 29, "avx512bw": 30, "avx512vl": 31,
    };

    pub const EXTENDED_ECX: u32 = bits! { "lzcnt": 5, "sse4a": 6 };

    /// The operating system saves the wide registers; those that it does not are as good as missing.
    pub const SAVED: u32 = (AVX * 0x06) | (AVX512 * 0xe0);
}

#[cfg(target_arch = "x86_64")]
struct Leaf {
    eax: u32,
    ebx: u32,
    ecx: u32,
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn cpuid(leaf: u32) -> Leaf {
    let (eax, ebx, ecx): (u32, u64, u32);
    // SAFETY: every x86-64 processor has this instruction; it writes only these four registers, and rbx, which
    // the compiler keeps for itself, is put back.
    unsafe {
        std::arch::asm!(
            "mov {saved}, rbx",
            "cpuid",
            "xchg {saved}, rbx",
            saved = out(reg) ebx,
            inout("eax") leaf => eax,
            inout("ecx") 0u32 => ecx,
            out("edx") _,
            options(nomem, nostack, preserves_flags),
        );
    }
    Leaf { eax, ebx: ebx as u32, ecx }
}

/// 1 where a bit of the mask is not set.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn lacks<const MASK: u32>(word: u32) -> u8 {
    let missing: u8;
    // SAFETY: plain arithmetic on registers, spelled out since the compiler may choose BMI for it.
    unsafe {
        std::arch::asm!(
            "not {word:e}",
            "test {word:e}, {mask}",
            "setne {missing}",
            word = inout(reg) word => _,
            mask = const MASK,
            missing = out(reg_byte) missing,
            options(pure, nomem, nostack),
        );
    }
    missing
}

/// The low half of XCR0.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn saved_registers() -> u32 {
    let low: u32;
    // SAFETY: only asked where AVX is needed, and then only after OSXSAVE was seen; it only reads.
    unsafe {
        std::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _, options(nomem, nostack, preserves_flags));
    }
    low
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_processor_that_compiled_for_itself_has_what_it_needs() {
        assert!(is_enough());
    }

    #[test]
    fn a_missing_bit_is_noticed() {
        assert_eq!(lacks::<0b101>(0b1101), 0);
        assert_eq!(lacks::<0b101>(0b1100), 1);
        assert_eq!(lacks::<{ 1 << 31 }>(1 << 31), 0);
        assert_eq!(lacks::<{ 1 << 31 }>(!(1 << 31)), 1);
        assert_eq!(lacks::<0>(0), 0);
    }

    #[test]
    fn the_bits_are_those_that_the_standard_library_reads() {
        let saved = if lacks::<{ 1 << 27 }>(cpuid(1).ecx) == 0 { saved_registers() } else { 0 };
        let (wide, wider) = (saved & 6 == 6, saved & 0xe6 == 0xe6);
        let bit = |word: u32, n: u32| word >> n & 1 == 1;
        assert_eq!(bit(cpuid(1).ecx, 28) && wide, std::is_x86_feature_detected!("avx"));
        assert_eq!(bit(cpuid(1).ecx, 12) && wide, std::is_x86_feature_detected!("fma"));
        assert_eq!(bit(cpuid(1).ecx, 29) && wide, std::is_x86_feature_detected!("f16c"));
        assert_eq!(bit(cpuid(7).ebx, 5) && wide, std::is_x86_feature_detected!("avx2"));
        assert_eq!(bit(cpuid(7).ebx, 8), std::is_x86_feature_detected!("bmi2"));
        assert_eq!(bit(cpuid(7).ebx, 16) && wider, std::is_x86_feature_detected!("avx512f"));
        assert_eq!(bit(cpuid(0x8000_0001).ecx, 5), std::is_x86_feature_detected!("lzcnt"));
    }
}
