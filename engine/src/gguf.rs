//! Opening a GGUF file: its metadata, and its tensors one at a time.

mod scan;

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::Device;
use candle_core::quantized::gguf_file::{Content, TensorInfo, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use memmap2::Mmap;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::model::mapped;

/// Samples of the weights in a fingerprint, and bytes of each.
const SAMPLES: u64 = 64;
const SAMPLE_BYTES: u64 = 4096;

/// An open file whose header has been read and checked against the file's size.
pub struct Gguf {
    path: PathBuf,
    file: BufReader<File>,
    map: Arc<Mmap>,
    content: Content,
}

impl Gguf {
    /// Reads the header of the file at `path`.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::NotGguf`], or [`Error::Quantization`] where the header names a type that
    /// candle does not have.
    pub fn open(path: &Path) -> Result<Self> {
        let read = |source| Error::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(read)?;
        let size = file.metadata().map_err(read)?.len();
        let mut file = BufReader::new(file);
        scan::check(&mut file, size).map_err(|refusal| match refusal {
            scan::Refusal::Read(source) => read(source),
            scan::Refusal::Malformed(reason) => Error::NotGguf { path: path.to_owned(), reason },
        })?;
        file.rewind().map_err(read)?;
        let content = Content::read(&mut file).map_err(|error| refusal(path, &error))?;
        for (name, info) in &content.tensor_infos {
            if info.shape.dims().last().is_some_and(|row| !row.is_multiple_of(info.ggml_dtype.block_size())) {
                let reason = format!("the rows of {name} do not fit its packing");
                return Err(Error::NotGguf { path: path.to_owned(), reason });
            }
            let end = bytes(info)
                .and_then(|bytes| info.offset.checked_add(bytes as u64))
                .and_then(|end| end.checked_add(content.tensor_data_offset));
            if end.is_none_or(|end| end > size) {
                let reason = format!("{name} reaches past the end of the file");
                return Err(Error::NotGguf { path: path.to_owned(), reason });
            }
        }
        // SAFETY: packed weights have no invalid values, so that a file that another program writes to can make
        // the model talk nonsense, no more. One that is cut short ends the process at the next read of what is gone:
        // a worker, whose end the window notices and explains.
        let map = unsafe { Mmap::map(file.get_ref()) }.map_err(read)?;
        Ok(Self { path: path.to_owned(), file, map: Arc::new(map), content })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All of its metadata.
    pub fn metadata(&self) -> &std::collections::HashMap<String, Value> {
        &self.content.metadata
    }

    /// Whether there is a tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.content.tensor_infos.contains_key(name)
    }

    /// Bytes of a tensor in the file; 0 where there is none of this name.
    pub fn bytes_of(&self, name: &str) -> u64 {
        self.content.tensor_infos.get(name).and_then(bytes).unwrap_or(0) as u64
    }

    /// Bytes of all tensors.
    pub fn bytes_of_all(&self) -> u64 {
        self.content.tensor_infos.values().filter_map(bytes).map(|bytes| bytes as u64).fold(0, u64::saturating_add)
    }

    /// The shape of a tensor, rows first.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.content.tensor_infos.get(name).map(|info| info.shape.dims())
    }

    /// Elements of all tensors.
    pub fn parameters(&self) -> u64 {
        self.content.tensor_infos.values().map(|info| info.shape.elem_count() as u64).sum()
    }

    /// SHA-256 of the header, the file's size and samples of its weights: cheap, and no two models share it.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn fingerprint(&mut self) -> Result<String> {
        let read = |source| Error::Read { path: self.path.clone(), source };
        let header = self.content.tensor_data_offset;
        let file = self.file.get_mut();
        let size = file.metadata().map_err(read)?.len();
        let mut hash = Sha256::new();
        hash.update(size.to_le_bytes());
        file.rewind().map_err(read)?;
        let mut bytes = Vec::new();
        file.take(header).read_to_end(&mut bytes).map_err(read)?;
        hash.update(&bytes);
        for i in 0..SAMPLES {
            let at = header + (size.saturating_sub(header + SAMPLE_BYTES)) / SAMPLES * i;
            file.seek(SeekFrom::Start(at)).map_err(read)?;
            bytes.clear();
            file.take(SAMPLE_BYTES).read_to_end(&mut bytes).map_err(read)?;
            hash.update(&bytes);
        }
        // What is buffered no longer lies where the file stands.
        self.file.seek(SeekFrom::Start(0)).map_err(read)?;
        Ok(hex(hash))
    }

    /// What people call its quantization: the mix that the metadata names, otherwise the type of most weights.
    pub fn quantization(&self) -> String {
        // `LLAMA_FTYPE_*` of llama.h.
        let mix = match self.opt_u32("general.file_type") {
            Some(10) => "Q2_K",
            Some(11) => "Q3_K_S",
            Some(12) => "Q3_K_M",
            Some(13) => "Q3_K_L",
            Some(14) => "Q4_K_S",
            Some(15) => "Q4_K_M",
            Some(16) => "Q5_K_S",
            Some(17) => "Q5_K_M",
            Some(18) => "Q6_K",
            _ => return self.commonest_type(),
        };
        mix.to_owned()
    }

    fn commonest_type(&self) -> String {
        let mut elements: Vec<(GgmlDType, usize)> = Vec::new();
        for info in self.content.tensor_infos.values() {
            match elements.iter_mut().find(|(dtype, _)| *dtype == info.ggml_dtype) {
                Some((_, n)) => *n += info.shape.elem_count(),
                None => elements.push((info.ggml_dtype, info.shape.elem_count())),
            }
        }
        let commonest = elements.into_iter().max_by_key(|&(_, n)| n);
        commonest.map_or_else(String::new, |(dtype, _)| format!("{dtype:?}"))
    }

    /// One tensor on `device`: for the CPU where it lies in the file, as long as it is packed. Its shape must be
    /// `shape` (rows first).
    ///
    /// # Errors
    /// [`Error::NotGguf`] where it is missing or of another shape.
    pub fn tensor(&mut self, name: &str, shape: &[usize], device: &Device) -> Result<QTensor> {
        let not_gguf = |reason| Error::NotGguf { path: self.path.clone(), reason };
        let Some(info) = self.content.tensor_infos.get(name) else {
            return Err(not_gguf(format!("{name} is missing")));
        };
        if info.shape.dims() != shape {
            return Err(not_gguf(format!("{name} has the shape {:?} where {shape:?} is right", info.shape.dims())));
        }
        if device.is_cpu() {
            let start = self.content.tensor_data_offset.saturating_add(info.offset);
            let mapped = bytes(info).and_then(|bytes| mapped::storage(&self.map, info.ggml_dtype, start, bytes));
            if let Some(storage) = mapped {
                return Ok(QTensor::new(storage, shape)?);
            }
        }
        Ok(self.content.tensor(&mut self.file, name, device)?)
    }

    /// A number of the metadata.
    ///
    /// # Errors
    /// [`Error::NotGguf`] where it is missing or not a number that fits.
    pub fn u32(&self, key: &str) -> Result<u32> {
        self.opt_u32(key)
            .ok_or_else(|| Error::NotGguf { path: self.path.clone(), reason: format!("the metadata lacks {key}") })
    }

    /// A number of the metadata, where it is there.
    pub fn opt_u32(&self, key: &str) -> Option<u32> {
        let value = self.content.metadata.get(key)?;
        value.to_u64().ok().and_then(|n| u32::try_from(n).ok()).or_else(|| value.to_i32().ok()?.try_into().ok())
    }

    /// A fraction of the metadata, where it is there.
    pub fn opt_f32(&self, key: &str) -> Option<f32> {
        self.content.metadata.get(key)?.to_f32().ok()
    }

    /// A text of the metadata, where it is there.
    pub fn opt_str(&self, key: &str) -> Option<&str> {
        self.content.metadata.get(key)?.to_string().ok().map(String::as_str)
    }
}

/// Bytes of a tensor in the file; `None` where no file can hold them.
fn bytes(info: &TensorInfo) -> Option<usize> {
    let elements = info.shape.dims().iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
    (elements / info.ggml_dtype.block_size()).checked_mul(info.ggml_dtype.type_size())
}

/// A digest as people write it.
pub(crate) fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// candle names an unknown type only in its message.
fn refusal(path: &Path, error: &candle_core::Error) -> Error {
    let text = error.to_string();
    let text = text.lines().next().unwrap_or_default();
    match text.split_once("unknown dtype for tensor ") {
        Some((_, dtype)) => Error::Quantization { tensor: "a tensor".into(), dtype: dtype.into() },
        None => Error::NotGguf { path: path.to_owned(), reason: text.into() },
    }
}
