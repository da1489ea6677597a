//! Matrix products of a warp, and the loads and stores of their operands.
//!
//! Which lane holds which element: PTX ISA, "Matrix Fragments for mma.m16n8k16" and "ldmatrix". With
//! `g = lane / 4` and `t = lane % 4`, registers of A hold rows `g` and `g + 8`, of B columns `g`, of
//! the sums rows `g` and `g + 8` and columns `2 t` and `2 t + 1`.

use super::registers::LANES;
use super::step::{Done, Step};
use crate::fault::Access;
use crate::isa::matrix::{Factor, MatrixAccess, Mma};
use crate::isa::operand::{Source, Space};
use crate::isa::types::Half;
use crate::memory::address::from_generic;
use crate::numerics::{half, tensor};

/// Rows and columns of a matrix that `ldmatrix` loads.
const SIDE: usize = 8;
/// Bytes of a row of it.
const ROW_BYTES: usize = 16;

/// The value of the element at a place in a register of factors.
pub(super) fn factor_of(factor: Factor, register: u32, at: usize) -> f32 {
    match factor {
        Factor::F16 => half::decode(Half::F16, (register >> (16 * at)) as u16),
        Factor::Bf16 => half::decode(Half::Bf16, (register >> (16 * at)) as u16),
        // The lowest 13 bits are not read.
        Factor::Tf32 => f32::from_bits(register & !0x1fff),
    }
}

impl Step<'_> {
    /// Addresses of the rows of `count` matrices, eight lanes a matrix.
    fn rows(&self, access: &MatrixAccess) -> [u64; LANES] {
        let addresses = self.addresses(access.address);
        match access.space {
            Space::Generic => addresses.map(|address| from_generic(address).1),
            _ => addresses,
        }
    }

    pub(super) fn load_matrix(&mut self, access: &MatrixAccess) -> Done {
        self.whole_warp()?;
        let rows = self.rows(access);
        for (number, d) in access.destinations.iter().enumerate() {
            let mut matrix = [[0_u16; SIDE]; SIDE];
            for (row, elements) in matrix.iter_mut().enumerate() {
                let address = rows[number * SIDE + row];
                // The row is read for the warp, not for the lane that names it.
                let who = self.accessor(LANES);
                self.counters.read(Space::Shared, ROW_BYTES);
                let bytes = match self.shared.load(address, ROW_BYTES, who) {
                    Ok(bytes) => bytes,
                    Err(wrong) => {
                        return self.shared_fault(wrong, address, ROW_BYTES, Access::Read, LANES);
                    }
                };
                let (pairs, _) = bytes.as_chunks::<2>();
                for (element, pair) in elements.iter_mut().zip(pairs) {
                    *element = u16::from_le_bytes(*pair);
                }
            }
            let values: [u32; LANES] = std::array::from_fn(|lane| {
                let (row, column) = (lane / 4, lane % 4 * 2);
                let (low, high) = if access.transposed {
                    (matrix[column][row], matrix[column + 1][row])
                } else {
                    (matrix[row][column], matrix[row][column + 1])
                };
                u32::from(high) << 16 | u32::from(low)
            });
            self.write(*d, &values);
        }
        Ok(())
    }

    pub(super) fn store_matrix(&mut self, access: &MatrixAccess) -> Done {
        self.whole_warp()?;
        let rows = self.rows(access);
        for (number, source) in access.sources.iter().enumerate() {
            let values = self.read::<u32>(*source);
            let mut matrix = [[0_u16; SIDE]; SIDE];
            for (lane, value) in values.iter().enumerate() {
                let (row, column) = (lane / 4, lane % 4 * 2);
                for half in 0..2 {
                    let bits = (value >> (16 * half)) as u16;
                    if access.transposed {
                        matrix[column + half][row] = bits;
                    } else {
                        matrix[row][column + half] = bits;
                    }
                }
            }
            for (row, elements) in matrix.iter().enumerate() {
                let address = rows[number * SIDE + row];
                let mut bytes = [0; ROW_BYTES];
                for (pair, element) in bytes.chunks_exact_mut(2).zip(elements) {
                    pair.copy_from_slice(&element.to_le_bytes());
                }
                let who = self.accessor(LANES);
                self.counters.write(Space::Shared, ROW_BYTES);
                if let Err(wrong) = self.shared.store(address, ROW_BYTES, &bytes, who) {
                    return self.shared_fault(wrong, address, ROW_BYTES, Access::Write, LANES);
                }
            }
        }
        Ok(())
    }

    /// `d = a b + c`, 16 by k by 8.
    pub(super) fn mma(&mut self, mma: &Mma) -> Done {
        self.whole_warp()?;
        let mut a = [0_f32; 16 * 16];
        self.fragment(mma.factor, mma.k, 16, &mma.a, &mut a);
        let mut b = [0_f32; 8 * 16];
        self.fragment(mma.factor, mma.k, 8, &mma.b, &mut b);
        let mut sums = [0_f32; 16 * 8];
        let c = mma.c.map(|source| self.read::<f32>(source));
        for lane in 0..LANES {
            for (at, c) in c.iter().enumerate() {
                sums[sum_place(lane, at)] = c[lane];
            }
        }
        let model = self.context.options.policy.tensor_core;
        let (a, b) = (&a[..16 * mma.k], &b[..8 * mma.k]);
        tensor::accumulate(model, mma.factor, mma.k, a, b, &mut sums);
        for (at, d) in mma.d.iter().enumerate() {
            let values: [f32; LANES] = std::array::from_fn(|lane| sums[sum_place(lane, at)]);
            self.write(*d, &values);
        }
        Ok(())
    }

    /// A factor of `rows` rows (of B, columns), each `k` long.
    pub(super) fn fragment(
        &self,
        factor: Factor,
        k: usize,
        rows: usize,
        registers: &[Source],
        into: &mut [f32],
    ) {
        match factor {
            Factor::Bf16 => self.spread(k, rows, registers, into, |register| {
                [f32::from_bits(register << 16), f32::from_bits(register & 0xffff_0000)]
            }),
            Factor::F16 => self.spread(k, rows, registers, into, |register| {
                [factor_of(factor, register, 0), factor_of(factor, register, 1)]
            }),
            Factor::Tf32 => {
                self.spread(k, rows, registers, into, |register| [factor_of(factor, register, 0)]);
            }
        }
    }

    /// Registers go down the rows in steps of 8 first, then along `k`.
    fn spread<const EACH: usize>(
        &self,
        k: usize,
        rows: usize,
        registers: &[Source],
        into: &mut [f32],
        decode: impl Fn(u32) -> [f32; EACH],
    ) {
        for (number, source) in registers.iter().enumerate() {
            let values = self.read::<u32>(*source);
            let (down, along) = (number % (rows / 8), number / (rows / 8));
            for (lane, value) in values.iter().enumerate() {
                let start = (lane / 4 + 8 * down) * k + (lane % 4 + along * 4) * EACH;
                into[start..start + EACH].copy_from_slice(&decode(*value));
            }
        }
    }
}

/// Where the sum in a register of a lane stands in a matrix of 16 rows of 8.
const fn sum_place(lane: usize, register: usize) -> usize {
    let row = lane / 4 + 8 * (register / 2);
    let column = lane % 4 * 2 + register % 2;
    row * 8 + column
}
