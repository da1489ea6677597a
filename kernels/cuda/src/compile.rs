//! CUDA to PTX, by NVRTC.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use cudarc::nvrtc::{result, sys};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::toolkit::{HOW_TO_INSTALL, Toolkit};
use crate::variant::{Element, Variant};

/// The virtual architecture that PTX is compiled for: every device from the A100 on runs it.
pub const TARGET: &str = "compute_80";

/// The version of NVRTC that the committed PTX is of.
const VERSION: (i32, i32) = (13, 0);

/// NVRTC 13.0, and CUDA's headers.
#[derive(Clone, Debug)]
pub struct Compiler {
    headers: PathBuf,
}

/// Why there is no compiler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCompiler {
    /// No library of NVRTC.
    #[error("no NVRTC: {looked_for} is not there; {HOW_TO_INSTALL}")]
    NotFound {
        /// A file, or what the loader was asked for.
        looked_for: String,
    },
    /// A library that does not open.
    #[error("NVRTC does not open: {reason}")]
    Broken {
        /// What the loader says.
        reason: String,
    },
    /// NVRTC of another version.
    #[error(
        "NVRTC {}.{} was found, not 13.0, whose PTX is committed (a libnvrtc.so in the loader's path goes \
         before that of FLASHPROOF_CUDA); {HOW_TO_INSTALL}",
        .found.0,
        .found.1
    )]
    Version {
        /// Major and minor version.
        found: (i32, i32),
    },
    /// No headers.
    #[error("no CUDA headers: {} is not there; {HOW_TO_INSTALL}", .looked_for.display())]
    NoHeaders {
        /// One of them.
        looked_for: PathBuf,
    },
}

/// Why a source was not compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The source can not be read.
    #[error("{}: {error}", .path.display())]
    Read {
        /// The source.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The source is no CUDA.
    #[error("{}: NVRTC refuses it:\n{log}", .path.display())]
    Rejected {
        /// The source.
        path: PathBuf,
        /// NVRTC's log: lines and errors.
        log: String,
    },
    /// Anything else that NVRTC says.
    #[error("{}: {error}", .path.display())]
    Nvrtc {
        /// The source.
        path: PathBuf,
        /// Its code.
        #[source]
        error: result::NvrtcError,
    },
}

/// What NVRTC makes of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The PTX.
    pub ptx: String,
    /// NVRTC's log: empty where it has nothing to warn of.
    pub warnings: String,
}

impl Compiler {
    /// The compiler of [`Toolkit::from_environment`].
    ///
    /// # Errors
    /// [`NoCompiler`].
    pub fn open() -> Result<Self, NoCompiler> {
        Self::of(&Toolkit::from_environment())
    }

    /// The compiler of a toolkit.
    ///
    /// # Errors
    /// [`NoCompiler`].
    pub fn of(toolkit: &Toolkit) -> Result<Self, NoCompiler> {
        let headers = toolkit.headers();
        let libraries = toolkit.compiler_libraries();
        if let Some(path) = libraries.iter().find(|path| !path.is_file()) {
            return Err(NoCompiler::NotFound { looked_for: path.display().to_string() });
        }
        for path in &libraries {
            keep_open(path)?;
        }
        // SAFETY: opening a library runs its initialisers; those of NVRTC have no preconditions.
        if !unsafe { sys::is_culib_present() } {
            let looked_for = "libnvrtc.so.13, in the loader's path,".to_owned();
            return Err(NoCompiler::NotFound { looked_for });
        }
        let found = version();
        if found != VERSION {
            return Err(NoCompiler::Version { found });
        }
        let looked_for = headers.join("cuda_fp16.h");
        if !looked_for.is_file() {
            return Err(NoCompiler::NoHeaders { looked_for });
        }
        Ok(Self { headers })
    }

    /// Compiles a variant of a source in this folder, for [`TARGET`].
    ///
    /// # Errors
    /// [`CompileError`].
    pub fn compile_variant(
        &self,
        folder: &Path,
        variant: &Variant,
    ) -> Result<Compiled, CompileError> {
        self.compile(&folder.join(variant.source_file()), variant.element, variant.head_dim)
    }

    /// Compiles a source for [`TARGET`], with `ELEMENT` and, where one is given, `HEAD_DIM` defined.
    /// Headers beside it are found.
    ///
    /// The bytes of the result depend on the source, the headers, the definitions and the build of NVRTC,
    /// on no path and no time.
    ///
    /// # Errors
    /// [`CompileError`].
    pub fn compile(
        &self,
        source: &Path,
        element: Element,
        head_dim: Option<u32>,
    ) -> Result<Compiled, CompileError> {
        let path = || source.to_owned();
        let unreadable = |error| CompileError::Read { path: path(), error };
        let text = std::fs::read(source).map_err(unreadable)?;
        let text = CString::new(text).map_err(|error| unreadable(error.into()))?;
        let name = source.file_name().unwrap_or_default().as_encoded_bytes();
        let name = CString::new(name).map_err(|error| unreadable(error.into()))?;
        let failed = |error| CompileError::Nvrtc { path: path(), error };

        let program = Program::new(&text, &name).map_err(failed)?;
        match program.compile(&self.options(source, element, head_dim)) {
            Ok(()) => {}
            Err(result::NvrtcError(sys::nvrtcResult::NVRTC_ERROR_COMPILATION)) => {
                let log = program.log().map_err(failed)?;
                return Err(CompileError::Rejected { path: path(), log });
            }
            Err(error) => return Err(failed(error)),
        }
        let ptx = program.ptx().map_err(failed)?;
        Ok(Compiled { ptx, warnings: program.log().map_err(failed)? })
    }

    /// Without NUL characters, since files were found under these paths.
    fn options(&self, source: &Path, element: Element, head_dim: Option<u32>) -> Vec<Vec<u8>> {
        let include = |folder: &Path| [b"-I", folder.as_os_str().as_encoded_bytes()].concat();
        let mut options = vec![
            format!("--gpu-architecture={TARGET}").into_bytes(),
            b"--std=c++17".to_vec(),
            include(&self.headers),
            include(source.parent().unwrap_or(Path::new("."))),
            format!("-DELEMENT={}", element.cuda_name()).into_bytes(),
        ];
        options.extend(head_dim.map(|head_dim| format!("-DHEAD_DIM={head_dim}").into_bytes()));
        options
    }
}

/// Opens a library for the rest of the process. NVRTC opens its builtins by name, and cudarc NVRTC: both
/// are then found among the open libraries, whatever the loader's path.
fn keep_open(path: &Path) -> Result<(), NoCompiler> {
    // SAFETY: opening a library runs its initialisers; those of NVRTC have no preconditions.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    let library = library.map_err(|error| NoCompiler::Broken { reason: error.to_string() })?;
    std::mem::forget(library);
    Ok(())
}

/// Major and minor version of the NVRTC that cudarc uses, which must be present.
fn version() -> (i32, i32) {
    let mut found: (c_int, c_int) = (0, 0);
    // SAFETY: the pointers are valid for a write. It fails only where one of them is null.
    let status = unsafe { sys::nvrtcVersion(&raw mut found.0, &raw mut found.1) };
    debug_assert_eq!(status, sys::nvrtcResult::NVRTC_SUCCESS);
    found
}

/// A program of NVRTC, which may refer to its text and its name.
struct Program<'a>(sys::nvrtcProgram, PhantomData<&'a CStr>);

impl<'a> Program<'a> {
    fn new(text: &'a CStr, name: &'a CStr) -> Result<Self, result::NvrtcError> {
        Ok(Self(result::create_program(text, Some(name))?, PhantomData))
    }

    fn compile(&self, options: &[Vec<u8>]) -> Result<(), result::NvrtcError> {
        // SAFETY: the program was created and is destroyed only by `drop`.
        unsafe { result::compile_program(self.0, options) }
    }

    fn ptx(&self) -> Result<String, result::NvrtcError> {
        // SAFETY: as above.
        unsafe { result::get_ptx(self.0) }.map(text)
    }

    fn log(&self) -> Result<String, result::NvrtcError> {
        // SAFETY: as above.
        unsafe { result::get_program_log(self.0) }.map(text)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the program was created, and nothing uses it after this. There is nobody to tell of a
        // failure, and what is lost is memory.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

/// What NVRTC writes, up to the NUL that ends it.
fn text(characters: Vec<c_char>) -> String {
    let bytes: Vec<u8> =
        characters.into_iter().map(|it| it as u8).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
