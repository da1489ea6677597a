//! Which memory an address lies in.
//!
//! Every buffer has a region of addresses to itself, [`REGION`] bytes long and far longer than the
//! buffer: an address computed from one buffer can not come to lie in another, whatever the error in
//! the index, unless that error exceeds the region.

use crate::isa::operand::Space;

/// Bytes from the start of one buffer to that of the next.
pub(crate) const REGION: u64 = 1 << 36;
/// Where the buffers of a launch begin.
pub(crate) const BUFFERS: u64 = 1 << 46;
/// Where global variables of modules begin.
const MODULE_GLOBALS: u64 = 1 << 45;
/// The most global variables that a module may have.
pub(crate) const MOST_MODULE_GLOBALS: usize = 512;

/// Bytes of each window of generic addresses.
const WINDOW: u64 = 1 << 32;
const SHARED_WINDOW: u64 = WINDOW;
const LOCAL_WINDOW: u64 = 2 * WINDOW;
const CONST_WINDOW: u64 = 3 * WINDOW;
const PARAM_WINDOW: u64 = 4 * WINDOW;

/// Address of the global variable of this number; `None` past the last there is room for.
pub(crate) fn module_global(index: usize) -> Option<u64> {
    (index < MOST_MODULE_GLOBALS).then(|| MODULE_GLOBALS + index as u64 * REGION)
}

/// Address of the buffer of this number.
pub(crate) const fn buffer(index: usize) -> u64 {
    BUFFERS + index as u64 * REGION
}

/// What a global address points to: a buffer or a global variable, by number, and the offset in it.
pub(crate) enum Region {
    Buffer(usize, u64),
    ModuleGlobal(usize, u64),
    Nothing,
}

/// The region of a global address.
pub(crate) fn region(address: u64) -> Region {
    let split = |base: u64| (((address - base) / REGION) as usize, (address - base) % REGION);
    if address >= BUFFERS {
        let (index, offset) = split(BUFFERS);
        Region::Buffer(index, offset)
    } else if address >= MODULE_GLOBALS {
        let (index, offset) = split(MODULE_GLOBALS);
        Region::ModuleGlobal(index, offset)
    } else {
        Region::Nothing
    }
}

/// The generic address of an offset in a space; a global address is one already.
pub(crate) const fn to_generic(space: Space, address: u64) -> u64 {
    match window(space) {
        Some(base) => base + (address % WINDOW),
        None => address,
    }
}

/// The space that a generic address lies in, and the address there.
pub(crate) const fn from_generic(address: u64) -> (Space, u64) {
    let space = match address / WINDOW {
        1 => Space::Shared,
        2 => Space::Local,
        3 => Space::Const,
        4 => Space::Param,
        _ => return (Space::Global, address),
    };
    (space, address % WINDOW)
}

/// The address in a space of a generic address that is known to lie there.
pub(crate) const fn to_space(space: Space, address: u64) -> u64 {
    match window(space) {
        Some(base) => address.wrapping_sub(base),
        None => address,
    }
}

const fn window(space: Space) -> Option<u64> {
    match space {
        Space::Shared => Some(SHARED_WINDOW),
        Space::Local => Some(LOCAL_WINDOW),
        Space::Const => Some(CONST_WINDOW),
        Space::Param => Some(PARAM_WINDOW),
        Space::Global | Space::Generic => None,
    }
}
