//! Which device computes, and how much of its memory is free.

use candle_core::Device;

use crate::{memory, protocol};

/// The best device that this build can use and that answers; `Device::cuda_if_available` would test the
/// build alone.
pub fn pick() -> Device {
    #[cfg(feature = "cuda")]
    if let Ok(device) = Device::new_cuda(0) {
        return device;
    }
    #[cfg(feature = "metal")]
    if let Ok(device) = Device::new_metal(0) {
        return device;
    }
    Device::Cpu
}

/// For people and for the protocol.
pub fn describe(device: &Device) -> protocol::Device {
    let (kind, name) = match device {
        Device::Cpu => ("cpu", format!("CPU, {} threads", threads())),
        Device::Cuda(_) => ("cuda", "NVIDIA GPU".to_owned()),
        Device::Metal(_) => ("metal", "Apple GPU".to_owned()),
    };
    protocol::Device { kind: kind.into(), name }
}

/// Threads that compute on the CPU.
pub fn threads() -> usize {
    rayon::current_num_threads()
}

/// Runs `work` on one of the threads that compute: what it shares out then costs no change to another thread, of
/// which a token would take hundreds.
pub fn computing<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    memory::on_the_pool(work)
}

/// Free bytes on the device, other programs counted; `None` where they cannot be read.
pub fn free_memory(device: &Device) -> Option<u64> {
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(_) => {
            let (free, _total) = candle_core::cuda_backend::cudarc::driver::result::mem_get_info().ok()?;
            Some(free as u64)
        }
        _ => {
            let mut system = sysinfo::System::new().ok()?;
            system.refresh_memory();
            let available = Some(system.available_memory()).filter(|&bytes| bytes > 0)?;
            // Of what its group may take, pages of files are no loss: the system drops them when it needs to.
            let limits = own_process(&mut system).and_then(sysinfo::Process::cgroup_limits);
            let of_group = limits.map_or(u64::MAX, |limits| limits.total_memory.saturating_sub(limits.rss));
            Some(available.min(of_group).min(address_space().unwrap_or(u64::MAX)))
        }
    }
}

/// Free bytes of the host's memory; `None` where they cannot be read.
pub fn free_host_memory() -> Option<u64> {
    free_memory(&Device::Cpu)
}

fn own_process(system: &mut sysinfo::System) -> Option<&sysinfo::Process> {
    let pid = sysinfo::get_current_pid().ok()?;
    system.refresh_processes_specifics(
        sysinfo::ProcessesToUpdate::Some(&[pid]),
        false,
        sysinfo::ProcessRefreshKind::nothing().with_memory(),
    );
    system.process(pid)
}

/// Bytes that this process may still map, where it was started under a limit (`ulimit -v`).
fn address_space() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` is a valid place for what is written.
        let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } == 0;
        if !known || limit.rlim_cur == libc::RLIM_INFINITY {
            return None;
        }
        let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
        let pages: u64 = pages.split(' ').next()?.parse().ok()?;
        // SAFETY: takes no pointers.
        let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
        Some(limit.rlim_cur.saturating_sub(pages * page))
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// Resident bytes of this process; `None` where they cannot be read.
pub fn resident_memory() -> Option<u64> {
    own_process(&mut sysinfo::System::new().ok()?).map(sysinfo::Process::memory)
}

/// Uses `threads` threads for all computation from here on, `None` as many as there are physical cores.
/// Only the first call of a process counts, so it belongs at its start.
pub fn set_threads(threads: Option<usize>) {
    let threads = threads.unwrap_or_else(num_cpus::get_physical).max(1);
    // SAFETY: called at the start of `main`, before any other thread exists.
    unsafe {
        // candle's own pools read these, once.
        std::env::set_var("CANDLE_NUM_THREADS", threads.to_string());
        std::env::set_var("RAYON_NUM_THREADS", threads.to_string());
    }
}
