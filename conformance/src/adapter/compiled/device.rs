//! A real device as a machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use flashproof_cuda::{Buffer, Device, DeviceError, Module, NoDevice};

use super::machine::{Contents, Launch, Machine};
use crate::adapter::Failure;

/// Bytes of a buffer: it is held by the host, too.
const MOST_BYTES: usize = 1 << 30;

/// The first device, with the modules that it has compiled and the buffers of a case.
///
/// It computes in its own way and order: a policy and a seed change nothing.
pub(super) struct RealDevice {
    device: Device,
    modules: BTreeMap<PathBuf, Module>,
    buffers: BTreeMap<u64, Buffer>,
}

impl RealDevice {
    pub(super) fn open() -> Result<Self, NoDevice> {
        let device = Device::open()?;
        Ok(Self { device, modules: BTreeMap::new(), buffers: BTreeMap::new() })
    }

    fn hold(&mut self, buffer: Result<Buffer, DeviceError>) -> Result<u64, Failure> {
        let buffer = buffer.map_err(|error| Failure::Crashed(error.to_string()))?;
        let address = buffer.address();
        self.buffers.insert(address, buffer);
        Ok(address)
    }
}

impl Machine for RealDevice {
    fn policies(&self) -> Vec<String> {
        Vec::new()
    }

    fn begin(&mut self, _policy: usize, _seed: u64) {}

    fn most_bytes(&self) -> usize {
        MOST_BYTES
    }

    fn load(&mut self, file: &Path) -> Result<(), Failure> {
        if self.modules.contains_key(file) {
            return Ok(());
        }
        let name = file.display();
        let text = fs::read_to_string(file)
            .map_err(|error| Failure::Reported(format!("cannot read '{name}': {error}")))?;
        let module = self.device.load(&text);
        let module = module.map_err(|error| Failure::Reported(format!("'{name}': {error}")))?;
        self.modules.insert(file.to_owned(), module);
        Ok(())
    }

    fn clear(&mut self) {
        self.buffers.clear();
    }

    fn upload(&mut self, _name: &str, contents: &[u8]) -> Result<u64, Failure> {
        let buffer = self.device.upload(contents);
        self.hold(buffer)
    }

    fn allocate(&mut self, _name: &str, bytes: usize) -> Result<u64, Failure> {
        let buffer = self.device.poisoned(bytes);
        self.hold(buffer)
    }

    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), Failure> {
        self.load(launch.file)?;
        let Launch { key, file, entry, grid, block, shared, ref arguments } = *launch;
        let called = || format!("{key}, entry '{entry}' of '{}'", file.display());
        let Some(module) = self.modules.get(file) else {
            return Err(Failure::Environment(format!("{}: not loaded", called())));
        };
        let launch = flashproof_cuda::Launch { grid, block, dynamic_shared: shared };
        let arguments: Vec<_> = arguments.iter().map(Vec::as_slice).collect();
        // Waited for, so that a failure is this launch's.
        self.device
            .launch(module, entry, &launch, &arguments)
            .and_then(|()| self.device.synchronise())
            .map_err(|error| Failure::Crashed(format!("{}: {error}", called())))
    }

    fn read(&self, address: u64) -> Result<Contents, Failure> {
        let nothing = || Failure::Environment(format!("no buffer begins at {address:#x}"));
        let buffer = self.buffers.get(&address).ok_or_else(nothing)?;
        let bytes = self.device.read(buffer);
        let bytes = bytes.map_err(|error| Failure::Crashed(error.to_string()))?;
        Ok(Contents { bytes, written: None })
    }
}
