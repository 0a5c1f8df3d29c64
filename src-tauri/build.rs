//! Prepares what `tauri::generate_context!` embeds.

use std::path::Path;

fn main() {
    let page = Path::new("../ui/dist/index.html");
    println!("cargo::rerun-if-changed={}", page.display());
    if std::env::var_os("CARGO_FEATURE_CUSTOM_PROTOCOL").is_some() && !page.exists() {
        println!(
            "cargo::error=The window's page is not built yet. Run `npm --prefix ui ci && npm --prefix ui run build` \
             in the repository, then build again."
        );
        return;
    }
    tauri_build::build();
}
