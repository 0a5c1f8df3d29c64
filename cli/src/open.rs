//! From `--model` to an open model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::device;
use engine::model::Model;
use hub::Catalog;

use crate::args::ModelArgs;
use crate::failure::Failure;
use crate::progress::Line;

/// Takes the number of threads from the command line. Comes first in a command: the environment may only be
/// changed while there is one thread.
pub fn set_threads(args: &ModelArgs) {
    device::set_threads(args.threads.map(usize::from));
}

/// Opens the model that the command line names.
pub fn model(args: &ModelArgs) -> Result<Arc<Model>, Failure> {
    let path = path(args.model.as_deref())?;
    let line = Line::new();
    let model = Model::open(&path, &device::pick(), &mut |fraction| {
        line.set(&format!("Opening {} … {:.0}%", name(&path), fraction * 100.0));
    })?;
    Ok(Arc::new(model))
}

/// The file that `--model` means.
pub fn path(model: Option<&str>) -> Result<PathBuf, Failure> {
    let catalog = Catalog::builtin();
    let entry = match model {
        None => catalog.starter(),
        Some(model) => match catalog.get(model) {
            Some(entry) => entry,
            None if Path::new(model).exists() || looks_like_a_path(model) => return Ok(model.into()),
            None => {
                return Err(Failure::Usage(format!(
                    "No model is called {model}; give a GGUF file, or an id that `cistern models list` names."
                )));
            }
        },
    };
    hub::local_path(entry).ok_or_else(|| {
        Failure::Usage(format!(
            "{} is not on this computer; fetch it with `cistern models fetch {}`, or give a GGUF file with --model.",
            entry.name, entry.id
        ))
    })
}

/// The engine says better than "unknown id" what is wrong with a file.
fn looks_like_a_path(model: &str) -> bool {
    model.ends_with(".gguf") || model.contains(['/', '\\'])
}

fn name(path: &Path) -> std::borrow::Cow<'_, str> {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_wrong_use_and_a_file_is_left_to_the_engine() {
        let failure = path(Some("gpt-5")).unwrap_err();
        assert_eq!(failure.exit_code(), 2);
        assert!(failure.to_string().contains("cistern models list"));
        assert_eq!(path(Some("missing.gguf")).unwrap(), Path::new("missing.gguf"));
    }
}
