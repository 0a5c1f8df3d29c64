//! The memory gauge: NVML where the model computes on an NVIDIA GPU, system memory where it computes on the CPU.

use engine::protocol::WorkerMemory;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::{Device, Nvml};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use crate::api::{Gauge, GaugeKind};
use crate::worker::Seen;
use crate::worker::program::nvml;

/// Takes the readings.
pub struct Meter {
    /// Opened when first needed.
    nvml: Option<Nvml>,
    /// `None` where the system does not say.
    system: Option<System>,
}

/// What was measured, before it is split into parts. `None` where it cannot be read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Measured {
    total: Option<u64>,
    used: Option<u64>,
    worker: Option<u64>,
    room: Option<u64>,
}

impl Meter {
    /// A meter of this machine.
    pub fn new() -> Self {
        Self { nvml: None, system: System::new().ok() }
    }

    /// One reading. `memory` is what the worker last said of itself.
    pub fn read(&mut self, worker: &Seen, memory: &WorkerMemory) -> Gauge {
        match &worker.device {
            Some(device) if worker.is_on_gpu() => {
                let measured = self.vram(worker.pid, &device.name, memory);
                gauge(GaugeKind::Vram, device.name.clone(), measured, memory)
            }
            _ => {
                let measured = self.ram(worker.pid, memory);
                gauge(GaugeKind::Ram, "RAM".to_owned(), measured, memory)
            }
        }
    }

    fn ram(&mut self, pid: Option<u32>, memory: &WorkerMemory) -> Measured {
        let Some(system) = &mut self.system else { return Measured { worker: memory.rss, ..Measured::default() } };
        system.refresh_memory();
        let total = Some(system.total_memory()).filter(|&total| total > 0);
        let available = total.map(|_| system.available_memory());
        let used = total.zip(available).map(|(total, available)| total.saturating_sub(available));
        let Some(pid) = pid.map(Pid::from_u32) else {
            return Measured { total, used, worker: None, room: available };
        };
        system.refresh_processes_specifics(
            ProcessesToUpdate::Some(&[pid]),
            true,
            ProcessRefreshKind::nothing().with_memory(),
        );
        let worker = system.process(pid).map(sysinfo::Process::memory).or(memory.rss);
        let held = allocated(pid.as_u32()).or(worker.map(|worker| worker.saturating_sub(memory.weights)));
        let room = available.map(|available| available.saturating_add(held.unwrap_or(0)));
        Measured { total, used, worker, room }
    }

    fn vram(&mut self, pid: Option<u32>, name: &str, own: &WorkerMemory) -> Measured {
        if self.nvml.is_none() {
            self.nvml = nvml();
        }
        let Some(device) = self.nvml.as_ref().and_then(|nvml| device_of(nvml, pid, name)) else {
            return Measured::default();
        };
        let memory = device.memory_info().ok();
        Measured {
            total: memory.as_ref().map(|memory| memory.total),
            used: memory.as_ref().map(|memory| memory.used),
            worker: pid.and_then(|pid| held_by(&device, pid)),
            // The worker's own share of the device stays when its model goes.
            room: memory.as_ref().map(|memory| memory.free.saturating_add(own.weights).saturating_add(own.kv_hot)),
        }
    }
}

/// Memory of a process that is not a file's; `None` where the system does not say.
fn allocated(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The device that the worker is on: CUDA and NVML do not number them alike.
fn device_of<'nvml>(nvml: &'nvml Nvml, pid: Option<u32>, name: &str) -> Option<Device<'nvml>> {
    let devices = || (0..nvml.device_count().unwrap_or(0)).filter_map(|index| nvml.device_by_index(index).ok());
    devices()
        .find(|device| pid.is_some_and(|pid| runs_on(device, pid)))
        .or_else(|| devices().find(|device| device.name().is_ok_and(|own| name.contains(&own))))
        .or_else(|| devices().next())
}

fn runs_on(device: &Device<'_>, pid: u32) -> bool {
    device.running_compute_processes().is_ok_and(|running| running.iter().any(|process| process.pid == pid))
}

fn held_by(device: &Device<'_>, pid: u32) -> Option<u64> {
    device.running_compute_processes().ok()?.into_iter().find(|process| process.pid == pid).and_then(|process| {
        match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        }
    })
}

/// Splits a measurement into parts that never add up to more than the whole. The figures are taken a moment
/// apart from each other, and pages of a mapped file count for the process but not as used by the system.
fn gauge(kind: GaugeKind, name: String, measured: Measured, memory: &WorkerMemory) -> Gauge {
    let Measured { total, used, worker, room } = measured;
    let cap = |bytes: u64| total.map_or(bytes, |total| bytes.min(total));
    let weights = cap(memory.weights);
    let kv_hot = cap(memory.kv_hot);
    // On a GPU the store lies elsewhere: in the host's memory.
    let kv_store = if kind == GaugeKind::Ram { cap(memory.kv_store) } else { 0 };
    let named = cap(weights.saturating_add(kv_hot).saturating_add(kv_store));
    let worker = worker.map(|bytes| cap(bytes.max(named)));
    let used = used.map(|bytes| cap(bytes.max(worker.unwrap_or(named))));
    Gauge {
        kind,
        name,
        total,
        used,
        weights,
        kv_hot,
        kv_store,
        scratch: worker.map(|worker| worker - named),
        other: used.zip(worker).map(|(used, worker)| used - worker),
        room: room.map(cap),
    }
}

#[cfg(test)]
mod tests {
    use engine::protocol::Device;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn parts(gauge: &Gauge) -> u64 {
        gauge.weights + gauge.kv_hot + gauge.kv_store + gauge.scratch.unwrap_or(0) + gauge.other.unwrap_or(0)
    }

    #[test]
    fn the_parts_add_up_to_what_is_used_and_never_to_more_than_there_is() {
        let figures = [0, 1, GIB, 3 * GIB, 7 * GIB, 9 * GIB, u64::MAX];
        for total in [None, Some(8 * GIB)] {
            for used in figures {
                for worker in figures.map(Some).into_iter().chain([None]) {
                    for weights in figures {
                        let memory = WorkerMemory { weights, kv_hot: GIB / 2, kv_store: 0, rss: None };
                        let measured = Measured { total, used: Some(used), worker, room: None };
                        let gauge = gauge(GaugeKind::Vram, "a card".to_owned(), measured, &memory);
                        let used = gauge.used.unwrap();
                        assert!(total.is_none_or(|total| used <= total), "{measured:?} {memory:?} {gauge:?}");
                        if total.is_some() && weights < 7 * GIB {
                            assert!(parts(&gauge) <= used, "{measured:?} {memory:?} {gauge:?}");
                        }
                        if gauge.other.is_some() && weights < 7 * GIB {
                            assert_eq!(parts(&gauge), used, "{measured:?} {memory:?} {gauge:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn without_an_nvidia_gpu_it_reads_this_process_in_ram() {
        let worker = Seen {
            pid: Some(std::process::id()),
            device: Some(Device { kind: "cpu".to_owned(), name: "CPU".to_owned() }),
        };
        let gauge = Meter::new().read(&worker, &WorkerMemory::default());
        assert_eq!(gauge.kind, GaugeKind::Ram);
        let (total, used, own) = (gauge.total.unwrap(), gauge.used.unwrap(), gauge.scratch.unwrap());
        assert!(own > 1 << 20 && own < used && used < total, "{gauge:?}");
        let room = gauge.room.unwrap();
        assert!(room > total - used && room < total, "closing this process gives its memory back: {gauge:?}");
        assert_eq!(parts(&gauge), used);
    }

    #[test]
    fn a_gpu_that_nvml_cannot_read_is_left_open_and_not_guessed() {
        if nvml().is_some() {
            return;
        }
        let worker = Seen {
            pid: Some(std::process::id()),
            device: Some(Device { kind: "cuda".to_owned(), name: "NVIDIA RTX".to_owned() }),
        };
        let memory = WorkerMemory { weights: GIB, kv_hot: GIB, kv_store: 0, rss: Some(4 * GIB) };
        let gauge = Meter::new().read(&worker, &memory);
        assert_eq!(gauge.kind, GaugeKind::Vram);
        assert_eq!((gauge.total, gauge.used, gauge.scratch, gauge.other, gauge.room), (None, None, None, None, None));
        assert_eq!((gauge.weights, gauge.kv_hot), (GIB, GIB));
    }
}
