//! Changes to steps of the passes: a copy of the tiled kernel in which each step that can be wrong asks
//! whether it is the one.
//!
//! Without a fault the copy is the tiled kernel, bit for bit, which a test holds it to: so what a fault
//! changes is the one thing that its name says.
//!
//! | file | what it copies |
//! |---|---|
//! | `forward.rs` | `cpu/forward.rs` and `cpu/tiled/forward.rs`: batch, heads, tiles |
//! | `terms.rs` | what a query meets in one block of keys |
//! | `state.rs` | `cpu/tiled/state.rs`: online softmax |
//! | `exponential.rs` | the exponential, and roundings to fewer bits |
//! | `upstream.rs` | `cpu/backward.rs`: what a backward pass reads, batch, heads |
//! | `backward.rs` | `cpu/tiled/backward.rs`: tiles |
//! | `bias.rs` | `cpu/bias_gradient.rs`: the sum over what shares an entry |

mod backward;
mod bias;
mod exponential;
mod forward;
mod state;
mod terms;
mod upstream;

pub(super) use backward::BackwardFault;
pub(super) use forward::{ForwardFault, Passing, driven, forward};
pub(super) use upstream::{Read, backward};

use super::Tiles;

/// The tiled kernel with perhaps a fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arithmetic<F> {
    pub(super) fault: Option<F>,
    pub(super) tiles: Tiles,
}

impl<F: PartialEq> Arithmetic<F> {
    /// Whether the fault is this one.
    fn has(&self, fault: &F) -> bool {
        self.fault.as_ref() == Some(fault)
    }
}
