//! A launch on a real device, by the CUDA driver.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUevent_flags, CUfunction_attribute};
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream, DevicePtr};
use cudarc::driver::{DriverError, result};
use cudarc::nvrtc::Ptx;

/// The first device that the driver shows; `CUDA_VISIBLE_DEVICES` chooses.
///
/// Launches and copies follow each other in the order that they are asked for.
///
/// Once a kernel has failed on the device, such as by an access out of bounds, the driver refuses
/// everything until the process ends.
#[derive(Debug)]
pub struct Device {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    name: String,
    driver: Version,
}

/// Major and minor version of CUDA.
type Version = (i32, i32);

/// The first driver that knows the PTX that NVRTC 13.0 writes.
const OLDEST_DRIVER: Version = (13, 0);

/// Why there is no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoDevice {
    /// No driver.
    #[error("no CUDA driver: libcuda.so.1 is not in the loader's path")]
    NoDriver,
    /// A driver without a device.
    #[error("no CUDA device: the driver shows none")]
    NoDevice,
    /// A driver that does not know the PTX of CUDA 13.0.
    #[error("the CUDA driver is of CUDA {}.{}, and at least 13.0 is needed", .found.0, .found.1)]
    OldDriver {
        /// Of CUDA, not of the driver itself.
        found: (i32, i32),
    },
    /// A driver that fails.
    #[error("the CUDA driver fails: {reason}")]
    Driver {
        /// What it says.
        reason: String,
    },
}

/// Why something was not done on a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The driver refuses it, or a kernel failed that was launched before.
    #[error("{doing}: {reason}")]
    Driver {
        /// What was to be done.
        doing: &'static str,
        /// What the driver says.
        reason: String,
    },
    /// A text with a NUL character.
    #[error("{0} has a NUL character")]
    Nul(&'static str),
    /// More or fewer arguments than parameters.
    #[error("{found} arguments for {expected} parameters of '{entry}'")]
    ArgumentCount {
        /// The entry.
        entry: String,
        /// Parameters of the entry.
        expected: usize,
        /// Arguments given.
        found: usize,
    },
    /// An argument of another size than its parameter.
    #[error("argument {position} of '{entry}': {found} bytes, expected {expected}")]
    ArgumentSize {
        /// The entry.
        entry: String,
        /// Which argument, from 0.
        position: usize,
        /// Bytes of the parameter.
        expected: usize,
        /// Bytes of the argument.
        found: usize,
    },
    /// More dynamic shared memory than can be asked for.
    #[error("{0} bytes of dynamic shared memory")]
    Shared(u32),
}

/// Memory of a device, freed when it is dropped.
#[derive(Debug)]
pub struct Buffer {
    slice: CudaSlice<u8>,
    address: u64,
    len: usize,
}

/// A module that the driver has compiled for a device.
#[derive(Clone, Debug)]
pub struct Module(Arc<CudaModule>);

/// How an entry is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of a block; the device may have to be asked for more than 48 KiB,
    /// and is.
    pub dynamic_shared: u32,
}

impl Device {
    /// Opens the first device.
    ///
    /// # Errors
    /// [`NoDevice`].
    pub fn open() -> Result<Self, NoDevice> {
        // SAFETY: opening a library runs its initialisers; those of the driver have no preconditions.
        if !unsafe { sys::is_culib_present() } {
            return Err(NoDevice::NoDriver);
        }
        // Before anything else: a function that an older driver lacks is a panic of cudarc.
        let driver = driver_version().map_err(unusable)?;
        if driver < OLDEST_DRIVER {
            return Err(NoDevice::OldDriver { found: driver });
        }
        match CudaContext::device_count() {
            Ok(0) | Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => {
                return Err(NoDevice::NoDevice);
            }
            Ok(_) => {}
            Err(error) => return Err(unusable(error)),
        }
        let context = CudaContext::new(0).map_err(unusable)?;
        let name = context.name().map_err(unusable)?;
        Ok(Self { stream: context.default_stream(), context, name, driver })
    }

    /// Such as `NVIDIA H100 80GB HBM3`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Major and minor version of CUDA that the driver is of.
    #[must_use]
    pub fn driver_version(&self) -> (i32, i32) {
        self.driver
    }

    /// Major and minor compute capability, such as (9, 0).
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    pub fn compute_capability(&self) -> Result<(i32, i32), DeviceError> {
        self.context.compute_capability().map_err(failed("asking for the compute capability"))
    }

    /// Copies bytes to new memory of the device.
    ///
    /// # Errors
    /// [`DeviceError::Driver`], where memory is short for one thing.
    pub fn upload(&self, bytes: &[u8]) -> Result<Buffer, DeviceError> {
        // The driver gives no memory of no bytes.
        let at_least_one = if bytes.is_empty() { &[0] } else { bytes };
        let slice =
            self.stream.clone_htod(at_least_one).map_err(failed("copying to the device"))?;
        let address = slice.device_ptr(&self.stream).0;
        Ok(Buffer { slice, address, len: bytes.len() })
    }

    /// New memory of the device, in which every byte is 0xff: NaN in every floating-point format, and -1
    /// in every integer.
    ///
    /// # Errors
    /// As [`Device::upload`].
    pub fn poisoned(&self, len: usize) -> Result<Buffer, DeviceError> {
        self.upload(&vec![0xff; len])
    }

    /// Waits for what was launched, and copies a buffer from the device.
    ///
    /// # Errors
    /// [`DeviceError::Driver`], also where what was launched failed.
    pub fn read(&self, buffer: &Buffer) -> Result<Vec<u8>, DeviceError> {
        let copied = self.stream.clone_dtoh(&buffer.slice);
        let mut bytes = copied.map_err(failed("copying from the device"))?;
        self.synchronise()?;
        bytes.truncate(buffer.len);
        Ok(bytes)
    }

    /// Compiles PTX for this device.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] where the driver refuses the text, [`DeviceError::Nul`].
    pub fn load(&self, ptx: &str) -> Result<Module, DeviceError> {
        without_nul(ptx, "the PTX")?;
        let module = self.context.load_module(Ptx::from_src(ptx));
        module.map(Module).map_err(failed("loading the PTX"))
    }

    /// Launches an entry, and does not wait for it. An argument is the bytes of its parameter, as they
    /// stand in memory; a pointer is the eight bytes of a [`Buffer::address`].
    ///
    /// The kernel is trusted as a program is that is started: where it writes beyond its buffers, so it
    /// does.
    ///
    /// # Errors
    /// [`DeviceError`]. What goes wrong on the device is said by whatever is asked for next.
    pub fn launch(
        &self,
        module: &Module,
        entry: &str,
        launch: &Launch,
        arguments: &[&[u8]],
    ) -> Result<(), DeviceError> {
        without_nul(entry, "the name of the entry")?;
        let function = module.0.load_function(entry).map_err(failed("finding the entry"))?;
        check_arguments(&function, entry, arguments)?;
        self.context.bind_to_thread().map_err(failed("using the device"))?;
        if launch.dynamic_shared > 0 {
            let bytes = c_int::try_from(launch.dynamic_shared)
                .map_err(|_| DeviceError::Shared(launch.dynamic_shared))?;
            function
                .set_attribute(
                    CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                    bytes,
                )
                .map_err(failed("asking for dynamic shared memory"))?;
        }
        let mut pointers: Vec<*mut c_void> =
            arguments.iter().map(|bytes| bytes.as_ptr().cast_mut().cast()).collect();
        let [grid, block] = [launch.grid, launch.block].map(|[x, y, z]| (x, y, z));
        // SAFETY: the function's module is loaded as long as `function` is there, and its context is
        // current. There is a pointer for each parameter, to as many bytes as the parameter has; the
        // driver has copied them when it returns, and writes to none.
        let launched = unsafe {
            result::launch_kernel(
                function.cu_function(),
                grid,
                block,
                launch.dynamic_shared,
                self.stream.cu_stream(),
                &mut pointers,
            )
        };
        launched.map_err(failed("launching the kernel"))
    }

    /// Waits for everything that was launched.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] where some of it failed.
    pub fn synchronise(&self) -> Result<(), DeviceError> {
        self.stream.synchronize().map_err(failed("running the kernel"))
    }

    /// Milliseconds that the device takes for what `work` launches, to about a microsecond, by its own
    /// clock. Waits for it.
    ///
    /// # Errors
    /// [`DeviceError::Driver`], and those of `work`.
    pub fn time(&self, work: impl FnOnce() -> Result<(), DeviceError>) -> Result<f32, DeviceError> {
        let now = || {
            let event = self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
            event.map_err(failed("recording an event"))
        };
        let start = now()?;
        work()?;
        let end = now()?;
        start.elapsed_ms(&end).map_err(failed("running the kernel"))
    }
}

impl Buffer {
    /// Where it begins, for kernels: at a multiple of 256 bytes.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// One argument for each parameter, of its size.
fn check_arguments(
    function: &CudaFunction,
    entry: &str,
    arguments: &[&[u8]],
) -> Result<(), DeviceError> {
    let sizes = parameter_sizes(function).map_err(failed("asking for the parameters"))?;
    let (entry, expected, found) = (entry.to_owned(), sizes.len(), arguments.len());
    if found != expected {
        return Err(DeviceError::ArgumentCount { entry, expected, found });
    }
    let found = arguments.iter().map(|argument| argument.len());
    match sizes.into_iter().zip(found).enumerate().find(|(_, (expected, found))| found != expected)
    {
        None => Ok(()),
        Some((position, (expected, found))) => {
            Err(DeviceError::ArgumentSize { entry, position, expected, found })
        }
    }
}

/// Bytes of each parameter.
fn parameter_sizes(function: &CudaFunction) -> Result<Vec<usize>, DriverError> {
    let mut sizes = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        let [to_offset, to_size] = [&raw mut offset, &raw mut size];
        // SAFETY: the function's module is loaded as long as `function` is there; the pointers are valid
        // for a write.
        let status = unsafe {
            sys::cuFuncGetParamInfo(function.cu_function(), sizes.len(), to_offset, to_size)
        };
        match status {
            // There is no parameter of this position.
            sys::CUresult::CUDA_ERROR_INVALID_VALUE => return Ok(sizes),
            status => status.result()?,
        }
        sizes.push(size);
    }
}

/// The driver must be present. It need not have a device.
fn driver_version() -> Result<Version, DriverError> {
    let mut version: c_int = 0;
    // SAFETY: the pointer is valid for a write.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result()?;
    // As CUDA has it: 13010 is 13.1.
    Ok((version / 1000, version % 1000 / 10))
}

fn without_nul(text: &str, what: &'static str) -> Result<(), DeviceError> {
    if text.contains('\0') { Err(DeviceError::Nul(what)) } else { Ok(()) }
}

/// The name of a driver's error, and what it says about it.
fn reason(error: DriverError) -> String {
    let DriverError(code) = error;
    let text = error.error_string().map(|text| text.to_string_lossy().into_owned());
    text.map_or_else(|_| format!("{code:?}"), |text| format!("{code:?}, {text}"))
}

fn unusable(error: DriverError) -> NoDevice {
    NoDevice::Driver { reason: reason(error) }
}

fn failed(doing: &'static str) -> impl Fn(DriverError) -> DeviceError {
    move |error| DeviceError::Driver { doing, reason: reason(error) }
}
