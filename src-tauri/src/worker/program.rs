//! Which worker to start: the one built for CUDA where a driver and a device answer, otherwise the other.

use std::path::{Path, PathBuf};

use nvml_wrapper::Nvml;

use crate::error::Problem;

/// The programs to try, best first, from the folder that holds our own executable.
///
/// # Errors
/// When there is none.
pub fn candidates(folder: &Path) -> Result<Vec<PathBuf>, Problem> {
    let name = |stem: &str| folder.join(format!("{stem}{}", std::env::consts::EXE_SUFFIX));
    let mut programs = Vec::new();
    let cuda = name("cistern-cuda");
    if cuda.is_file() && cuda_answers() {
        programs.push(cuda);
    }
    let cpu = name("cistern");
    if cpu.is_file() {
        programs.push(cpu);
    } else if programs.is_empty() {
        return Err(Problem::WorkerMissing(cpu));
    }
    Ok(programs)
}

/// Whether the driver's library loads and sees a device. The library alone may be left over from a card
/// that is gone, and the CUDA worker would not even start without it.
fn cuda_answers() -> bool {
    let library = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
    // SAFETY: NVIDIA's driver library runs nothing but its own initialisers when it is loaded, which is what
    // every CUDA program does first.
    let driver = unsafe { libloading::Library::new(library) };
    driver.is_ok() && nvml().and_then(|nvml| nvml.device_count().ok()).is_some_and(|count| count > 0)
}

/// NVML, where the driver brings it.
pub fn nvml() -> Option<Nvml> {
    // The unversioned name that `init` looks for on Linux comes only with the CUDA toolkit.
    Nvml::init().or_else(|_| Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init()).ok()
}
