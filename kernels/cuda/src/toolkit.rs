//! Where the parts of CUDA are.

use std::path::{Path, PathBuf};

/// The build of NVRTC and ptxas that the committed PTX and resources are of.
pub const BUILD: &str = "13.0.88";

/// How to install what compiles and assembles, without a GPU or a system-wide CUDA.
pub const HOW_TO_INSTALL: &str = "python3 -m pip install --no-deps --target DIR \
    nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-nvcc==13.0.88, \
    and set FLASHPROOF_CUDA=DIR/nvidia/cu13";

/// A folder of CUDA with `bin`, `include` and `lib`, or what the system offers where none is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toolkit {
    folder: Option<PathBuf>,
}

impl Toolkit {
    /// The folder that `FLASHPROOF_CUDA` names; what the system offers where it is unset or empty.
    #[must_use]
    pub fn from_environment() -> Self {
        let folder = std::env::var_os("FLASHPROOF_CUDA").filter(|folder| !folder.is_empty());
        Self { folder: folder.map(PathBuf::from) }
    }

    /// This folder, and nothing else.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()) }
    }

    /// The folder that was named.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// CUDA's headers.
    pub(crate) fn headers(&self) -> PathBuf {
        self.folder.as_deref().unwrap_or(Path::new("/usr/local/cuda")).join("include")
    }

    /// The program ptxas, in `PATH` where no folder is named.
    pub(crate) fn assembler(&self) -> PathBuf {
        self.folder.as_ref().map_or_else(|| "ptxas".into(), |folder| folder.join("bin/ptxas"))
    }

    /// The libraries to open before NVRTC is used, in order; none where the loader is to find them.
    pub(crate) fn compiler_libraries(&self) -> Vec<PathBuf> {
        let names = ["libnvrtc-builtins.so.13.0", "libnvrtc.so.13"];
        let of = |folder: &PathBuf| names.map(|name| folder.join("lib").join(name)).to_vec();
        self.folder.as_ref().map(of).unwrap_or_default()
    }
}
