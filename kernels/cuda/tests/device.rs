//! A launch on a real device, where there is one.

use std::path::Path;

use flashproof_cuda::{Device, DeviceError, Launch, NoDevice};
use flashproof_ptx::{Argument, Memory, Module, Options};

const DOUBLE: &str = include_str!("data/double.ptx");
const THREADS: u32 = 64;
const ADDEND: u32 = 3;
/// More than a block has without asking for it.
const SHARED: u32 = 64 << 10;

fn numbers() -> Vec<u8> {
    (0..THREADS).flat_map(u32::to_le_bytes).collect()
}

fn doubled() -> Vec<u8> {
    (0..THREADS).flat_map(|number| (2 * number + ADDEND).to_le_bytes()).collect()
}

fn pointers(from: u64, to: u64) -> Vec<u8> {
    [from, to].into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Of the kernel that the device is asked to run.
#[test]
fn the_emulator_doubles() {
    let module = Module::parse(DOUBLE).expect("PTX");
    let mut memory = Memory::new();
    let from = memory.upload("in", &numbers());
    let to = memory.upload("out", &doubled().iter().map(|_| 0xff).collect::<Vec<_>>());
    let launch = flashproof_ptx::Launch {
        grid: [1, 1, 1],
        block: [THREADS, 1, 1],
        dynamic_shared: SHARED as usize,
        arguments: vec![
            Argument::Bytes(pointers(from.address(), to.address())),
            Argument::U32(ADDEND),
        ],
    };
    flashproof_ptx::run(&module, "double", &launch, &memory, &Options::default()).expect("a run");
    assert_eq!(memory.read(to), Some(doubled()));
}

#[test]
fn a_device_doubles_or_there_is_an_error_that_says_why_not() {
    match Device::open() {
        Ok(device) => use_device(&device).expect("a device that works"),
        Err(NoDevice::NoDriver) => assert!(
            !Path::new("/proc/driver/nvidia/version").exists(),
            "there is a driver, and it was not found"
        ),
        Err(reason) => assert!(!reason.to_string().is_empty(), "{reason:?}"),
    }
}

fn use_device(device: &Device) -> Result<(), DeviceError> {
    assert!(!device.name().is_empty());
    assert!(device.driver_version() >= (13, 0));
    assert!(device.compute_capability()? >= (8, 0));

    let module = device.load(DOUBLE)?;
    let from = device.upload(&numbers())?;
    let to = device.poisoned(numbers().len())?;
    assert_eq!(device.read(&to)?, vec![0xff; to.len()]);
    assert!(device.upload(&[])?.is_empty());

    let launch = Launch { grid: [1; 3], block: [THREADS, 1, 1], dynamic_shared: SHARED };
    let (buffers, addend) = (pointers(from.address(), to.address()), ADDEND.to_le_bytes());
    let run = |arguments: &[&[u8]]| device.launch(&module, "double", &launch, arguments);
    let milliseconds = device.time(|| run(&[&buffers, &addend]))?;
    assert!(milliseconds > 0.0);
    assert_eq!(device.read(&to)?, doubled());

    assert!(matches!(
        run(&[&buffers]),
        Err(DeviceError::ArgumentCount { expected: 2, found: 1, .. })
    ));
    assert!(matches!(
        run(&[&buffers, &buffers]),
        Err(DeviceError::ArgumentSize { position: 1, expected: 4, found: 16, .. })
    ));
    assert!(matches!(device.load("wrong"), Err(DeviceError::Driver { .. })));
    assert!(matches!(device.load("a\0b"), Err(DeviceError::Nul(_))));
    assert!(matches!(
        device.launch(&module, "treble", &launch, &[]),
        Err(DeviceError::Driver { doing: "finding the entry", .. })
    ));
    Ok(())
}
