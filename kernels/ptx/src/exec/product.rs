//! Asynchronous matrix products of a warp group.
//!
//! Four warps execute `wgmma` together; each computes 16 of the 64 rows, and here each does so by
//! itself. Sums are computed when the product is issued. Until it is waited for, its registers belong
//! to it and shared memory that it reads must not be written: touching either is a fault, so that no
//! kernel without fault can tell when the product was computed. Registers that other instructions have
//! written, and all before the first product, need a `wgmma.fence` before a product may use them. Not
//! seen: a missing fence after sums were only read.

use std::collections::VecDeque;

use super::matrix::factor_of;
use super::registers::LANES;
use super::step::{Done, Raised, Step, raise};
use crate::fault::{Access, FaultKind};
use crate::isa::matrix::{Wgmma, WgmmaA};
use crate::isa::operand::{Source, Space};
use crate::isa::operation::Operation;
use crate::isa::registers::visit_words;
use crate::numerics::tensor;

/// Bytes that a descriptor's matrices are made of: 8 elements side by side.
const CHUNK: usize = 16;
/// Elements of a chunk.
const CHUNK_ELEMENTS: usize = 8;
/// Elements along k of one instruction.
const K: usize = 16;

/// Matrix products that a warp has not waited for.
pub(crate) struct Products {
    open: Vec<Product>,
    groups: VecDeque<Vec<Product>>,
    /// How many unfinished products write each register, and read it.
    written: Vec<u16>,
    read: Vec<u16>,
    in_flight: usize,
}

/// An unfinished product.
struct Product {
    instruction: u32,
    sums: Vec<u32>,
    factors: Vec<u32>,
    /// Addresses of the chunks of shared memory that it reads.
    chunks: Vec<u64>,
}

impl Products {
    pub(super) fn new(words: u32) -> Self {
        Self {
            open: Vec::new(),
            groups: VecDeque::new(),
            written: vec![0; words as usize],
            read: vec![0; words as usize],
            in_flight: 0,
        }
    }

    pub(super) fn commit(&mut self) {
        let group = std::mem::take(&mut self.open);
        self.groups.push_back(group);
    }

    fn begin(&mut self, product: Product) {
        product.sums.iter().for_each(|slot| self.written[*slot as usize] += 1);
        product.factors.iter().for_each(|slot| self.read[*slot as usize] += 1);
        self.in_flight += 1;
        self.open.push(product);
    }

    fn end(&mut self, product: &Product) {
        product.sums.iter().for_each(|slot| self.written[*slot as usize] -= 1);
        product.factors.iter().for_each(|slot| self.read[*slot as usize] -= 1);
        self.in_flight -= 1;
    }

    /// The unfinished product whose registers an operation must not touch, and whether the operation
    /// writes one.
    pub(super) fn disturbed_by(&self, operation: &Operation) -> Option<(u32, bool)> {
        if self.in_flight == 0 {
            return None;
        }
        let mut found = None;
        visit_words(operation, &mut |slot, writes| {
            let at = slot as usize;
            if self.written[at] > 0 || (writes && self.read[at] > 0) {
                found = found.or(Some((slot, writes)));
            }
        });
        let (slot, writes) = found?;
        let uses =
            |product: &&Product| product.sums.contains(&slot) || product.factors.contains(&slot);
        let product = self.groups.iter().flatten().chain(&self.open).find(uses)?;
        Some((product.instruction, writes))
    }
}

/// A matrix in shared memory (PTX ISA, "Matrix Descriptor Format").
struct Descriptor {
    start: u64,
    leading: u64,
    stride: u64,
    /// Bytes of a row of the swizzle pattern; 16 where there is none.
    swizzle: u64,
    transposed: bool,
}

impl Descriptor {
    fn decode(bits: u64, transposed: bool) -> Result<Self, Box<Raised>> {
        // Each field holds bits 4 to 17 of a number of bytes.
        let field = |shift: u32| (bits >> shift & 0x3fff) << 4;
        let wrong = |problem| raise(FaultKind::Descriptor { descriptor: bits, problem }, None);
        let swizzle = match bits >> 62 {
            0 => CHUNK as u64,
            1 => 128,
            2 => 64,
            _ => 32,
        };
        if bits >> 49 & 7 != 0 {
            return wrong("a base offset is not supported");
        }
        if bits >> 14 & 3 != 0
            || bits >> 30 & 3 != 0
            || bits >> 46 & 7 != 0
            || bits >> 52 & 0x3ff != 0
        {
            return wrong("a reserved bit is set");
        }
        Ok(Self { start: field(0), leading: field(16), stride: field(32), swizzle, transposed })
    }

    /// Address of a chunk: 8 elements along k of row `row`, or, transposed, 8 rows at one `k`.
    ///
    /// Swizzled layouts repeat every 8 rows of `swizzle` bytes, and bits 4 to 6 of an address are
    /// changed by bits 7 to 9, as many as the pattern has chunks.
    fn chunk(&self, row: u64, k: u64) -> u64 {
        let eight = CHUNK_ELEMENTS as u64;
        let bytes = 2;
        let offset = match (self.swizzle, self.transposed) {
            (16, false) => row / eight * self.stride + row % eight * 16 + k / eight * self.leading,
            (16, true) => row / eight * self.stride + k / eight * self.leading + k % eight * 16,
            (width, false) => row / eight * self.stride + row % eight * width + k * bytes,
            (width, true) => {
                let along = row * bytes;
                k / eight * self.stride
                    + k % eight * width
                    + along % width
                    + along / width * self.leading
            }
        };
        let address = self.start + offset;
        let chunks = self.swizzle / CHUNK as u64;
        address ^ (address >> 7 & (chunks - 1)) << 4
    }
}

impl Step<'_> {
    pub(super) fn wgmma(&mut self, wgmma: &Wgmma) -> Done {
        self.whole_warp()?;
        let mut product = Product {
            instruction: self.instruction,
            sums: wgmma.d.to_vec(),
            factors: Vec::new(),
            chunks: Vec::new(),
        };
        let mut a = vec![0_f32; 16 * K];
        match wgmma.a {
            WgmmaA::Registers(registers) => {
                self.fragment(wgmma.factor, K, 16, &registers, &mut a);
                product.factors.extend(registers.iter().filter_map(|source| match source {
                    Source::Register(slot) => Some(*slot),
                    _ => None,
                }));
            }
            WgmmaA::Shared(source) => {
                let descriptor = Descriptor::decode(self.uniform(source)?, wgmma.transpose_a)?;
                let first = self.warp % 4 * 16;
                self.matrix(wgmma, &descriptor, first, &mut a, &mut product.chunks)?;
            }
        }
        // The predicate is one of the warp group; the first lane's is taken.
        let accumulates = self.condition(wgmma.accumulate) & 1 == 1;
        let used = product.factors.iter().chain(product.sums.iter());
        if used.copied().any(|slot| self.registers.is_unfenced(slot)) {
            return raise(FaultKind::MissingProductFence, None);
        }
        let mut b = vec![0_f32; wgmma.n * K];
        let descriptor = Descriptor::decode(self.uniform(wgmma.b)?, wgmma.transpose_b)?;
        self.matrix(wgmma, &descriptor, 0, &mut b, &mut product.chunks)?;
        if wgmma.negate {
            for value in &mut a {
                *value = -*value;
            }
        }
        self.add_product(wgmma, accumulates, &a, &b);
        self.products.begin(product);
        Ok(())
    }

    fn add_product(&mut self, wgmma: &Wgmma, accumulates: bool, a: &[f32], b: &[f32]) {
        let n = wgmma.n;
        let mut sums = vec![0_f32; 16 * n];
        // Registers hold 8 columns after 8 columns, of each two rows of two columns a lane.
        let place = |lane: usize, register: usize| {
            let row = lane / 4 + 8 * (register / 2 % 2);
            row * n + register / 4 * 8 + lane % 4 * 2 + register % 2
        };
        if accumulates {
            for (register, slot) in wgmma.d.iter().enumerate() {
                let values = self.registers.get::<f32>(*slot);
                for (lane, value) in values.iter().enumerate() {
                    sums[place(lane, register)] = *value;
                }
            }
        }
        let model = self.context.options.policy.tensor_core;
        tensor::accumulate(model, wgmma.factor, K, a, b, &mut sums);
        for (register, slot) in wgmma.d.iter().enumerate() {
            let values: [f32; LANES] = std::array::from_fn(|lane| sums[place(lane, register)]);
            self.write(Some(*slot), &values);
            self.registers.keep_fenced(*slot);
        }
    }

    /// A value that all lanes of the warp must agree on.
    fn uniform(&self, source: Source) -> Result<u64, Box<Raised>> {
        let values = self.read::<u64>(source);
        match values.iter().position(|value| *value != values[0]) {
            None => Ok(values[0]),
            Some(lane) => raise(
                FaultKind::Descriptor {
                    descriptor: values[lane],
                    problem: "differs from that of lane 0",
                },
                lane,
            ),
        }
    }

    /// Reads rows of `K` elements from `first` on.
    fn matrix(
        &mut self,
        wgmma: &Wgmma,
        descriptor: &Descriptor,
        first: usize,
        into: &mut [f32],
        chunks: &mut Vec<u64>,
    ) -> Done {
        let rows = into.len() / K;
        let (row_step, k_step) =
            if descriptor.transposed { (CHUNK_ELEMENTS, 1) } else { (1, CHUNK_ELEMENTS) };
        for row in (0..rows).step_by(row_step) {
            for k in (0..K).step_by(k_step) {
                let address = descriptor.chunk((first + row) as u64, k as u64);
                let who = self.accessor(LANES);
                self.counters.read(Space::Shared, CHUNK);
                let bytes = match self.shared.product_load(address, who) {
                    Ok(bytes) => bytes,
                    Err(wrong) => {
                        return self.shared_fault(wrong, address, CHUNK, Access::Read, LANES);
                    }
                };
                chunks.push(address);
                let (pairs, _) = bytes.as_chunks::<2>();
                for (at, pair) in pairs.iter().enumerate() {
                    let value = factor_of(wgmma.factor, u16::from_le_bytes(*pair).into(), 0);
                    let place =
                        if descriptor.transposed { (row + at) * K + k } else { row * K + k + at };
                    into[place] = value;
                }
            }
        }
        Ok(())
    }

    pub(super) fn wait_products(&mut self, most: u32) -> Done {
        self.whole_warp()?;
        while self.products.groups.len() > most as usize {
            for product in self.products.groups.pop_front().unwrap_or_default() {
                let mut who = self.accessor(LANES);
                who.instruction = product.instruction;
                for chunk in &product.chunks {
                    self.shared.tracker.complete_product_read(*chunk as usize, CHUNK, who);
                }
                self.products.end(&product);
            }
        }
        Ok(())
    }
}
