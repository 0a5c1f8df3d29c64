//! Resident memory of this process; `None` where the system does not tell.

/// Most bytes that were ever resident.
pub fn rss_peak() -> Option<u64> {
    status("VmHWM:")
}

/// Bytes that are resident now and are not a file's, such as the weights: what was allocated.
pub fn rss_allocated() -> Option<u64> {
    status("RssAnon:")
}

fn status(name: &str) -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = name;
        None
    }
}

/// Starts [`rss_peak`] anew from what is resident now, where the system can.
pub fn reset_rss_peak() {
    #[cfg(target_os = "linux")]
    // Where this is forbidden, the peak stays that of the whole run: never too low.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_peak_rises_with_what_is_used() {
        let before = rss_peak().unwrap();
        let block = vec![1u8; 64 << 20];
        let after = rss_peak().unwrap();
        assert!(after >= before && after > block.len() as u64, "{before} {after}");
        assert!(rss_allocated().unwrap() >= block.len() as u64);
    }
}
