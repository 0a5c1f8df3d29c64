//! How the window is painted where there is no GPU.

use std::env;
use std::fs;

/// WebKitGTK's switch for painting the page as one picture.
const PLAIN: &str = "WEBKIT_DISABLE_COMPOSITING_MODE";

/// Has WebKitGTK paint with the processor alone where no GPU could help it. It composes layers with OpenGL otherwise,
/// and a software OpenGL takes three times as long for that as painting anew.
///
/// # Safety
/// No other thread may run yet.
pub unsafe fn choose() {
    if env::var_os(PLAIN).is_none() && !has_gpu() {
        // SAFETY: the caller's.
        unsafe { env::set_var(PLAIN, "1") };
    }
}

/// Whether a driver offers rendering.
fn has_gpu() -> bool {
    fs::read_dir("/dev/dri")
        .is_ok_and(|nodes| nodes.flatten().any(|node| node.file_name().to_string_lossy().starts_with("renderD")))
}
