//! What launches did, where the machine counts it.

use std::collections::BTreeMap;

use flashproof_ptx::Statistics;

/// What the launches of a pass did, and the buffers that they had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The launches, in their order.
    pub launches: Vec<LaunchCounts>,
    /// Bytes of each buffer, by name.
    pub buffers: BTreeMap<String, usize>,
}

/// What a launch did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchCounts {
    /// Which launch of the manifest it is, such as `forward[0]`.
    pub key: String,
    /// Bytes of shared memory of a block.
    pub shared: usize,
    /// Instructions, and bytes moved.
    pub statistics: Statistics,
}
