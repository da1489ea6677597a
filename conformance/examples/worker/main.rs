//! A worker in Rust: puts a kernel behind the protocol of `PROTOCOL.md`.
//!
//! ```sh
//! cargo build --release --example worker
//! flashproof check "exec:target/release/examples/worker tiled:32x48"
//! ```

use std::error::Error;

mod serve;
mod tensors;

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "tiled".to_owned());
    let kernel = flashproof_kernels::builtin(&name)?;
    serve::serve(kernel.as_ref(), std::io::stdin().lock(), std::io::stdout().lock())
}
