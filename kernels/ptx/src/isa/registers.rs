//! Which registers an operation touches: asked where registers are in use by an unfinished matrix
//! product.

use super::matrix::WgmmaA;
use super::operand::{Address, Base, Destination, Source};
use super::operation::Operation;
use super::types::{Class, Int};

/// Calls `visit` with each 32-bit register that the operation reads or writes, and whether it writes
/// it.
///
/// Only such registers hold operands of matrix products. Of `wgmma` itself the sums are left out: a
/// product may add to the sums of the one before.
pub(crate) fn visit_words(operation: &Operation, visit: &mut dyn FnMut(u32, bool)) {
    let mut visitor = Visitor { visit };
    visitor.operation(operation);
}

struct Visitor<'a> {
    visit: &'a mut dyn FnMut(u32, bool),
}

const fn is_word(ty: Int) -> bool {
    !matches!(ty, Int::U64 | Int::S64)
}

impl Visitor<'_> {
    fn to(&mut self, destination: Destination) {
        if let Some(slot) = destination {
            (self.visit)(slot, true);
        }
    }

    fn from(&mut self, source: Source) {
        if let Source::Register(slot) = source {
            (self.visit)(slot, false);
        }
    }

    fn address(&mut self, address: Address) {
        if let Base::Word(slot) = address.base {
            (self.visit)(slot, false);
        }
    }

    fn of_class(&mut self, class: Class, destinations: &[Destination], sources: &[Source]) {
        if class == Class::Word {
            for &destination in destinations {
                self.to(destination);
            }
            for &source in sources {
                self.from(source);
            }
        }
    }

    #[allow(clippy::too_many_lines)] // one arm an operation
    fn operation(&mut self, operation: &Operation) {
        use super::operation::IntegerOp;
        match operation {
            Operation::Integer { op, ty, d, s } => {
                let counts = matches!(
                    op,
                    IntegerOp::CountOnes
                        | IntegerOp::CountLeadingZeros
                        | IntegerOp::FindMostSignificant
                        | IntegerOp::FindMostSignificantShift
                );
                let widens = matches!(op, IntegerOp::MulWide | IntegerOp::MadWide);
                if is_word(*ty) {
                    let last = if *op == IntegerOp::MadWide { 2 } else { 4 };
                    s[..last].iter().for_each(|&source| self.from(source));
                } else if matches!(op, IntegerOp::ShiftLeft | IntegerOp::ShiftRight) {
                    self.from(s[1]);
                } else if matches!(op, IntegerOp::ExtractField) {
                    self.from(s[1]);
                    self.from(s[2]);
                } else if matches!(op, IntegerOp::InsertField) {
                    self.from(s[2]);
                    self.from(s[3]);
                }
                let writes_word = match ty {
                    Int::U16 | Int::S16 => true,
                    Int::U32 | Int::S32 => !widens,
                    Int::U64 | Int::S64 => counts,
                };
                if writes_word {
                    self.to(*d);
                }
            }
            Operation::Single { d, s, .. } | Operation::Halves { d, s, .. } => {
                self.of_class(Class::Word, &[*d], s);
            }
            Operation::Setp(setp) => self.of_class(setp.ty.class(), &[], &[setp.a, setp.b]),
            Operation::Select { class, d, a, b, .. } => self.of_class(*class, &[*d], &[*a, *b]),
            Operation::Convert(convert) => {
                self.of_class(Class::of_bits(convert.register_bits), &[convert.d], &[]);
                self.of_class(convert.from.class(), &[], &convert.s);
            }
            Operation::Move { class, d, a } | Operation::ConvertAddress { class, d, a, .. } => {
                self.of_class(*class, &[*d], &[*a]);
            }
            Operation::Pack { class, d, parts, bits } => {
                self.of_class(*class, &[*d], &[]);
                self.of_class(if *bits == 64 { Class::Long } else { Class::Word }, &[], parts);
            }
            Operation::Unpack { class, a, parts, bits } => {
                self.of_class(*class, &[], &[*a]);
                self.of_class(if *bits == 64 { Class::Long } else { Class::Word }, parts, &[]);
            }
            Operation::Load(access) | Operation::Store(access) => {
                self.address(access.address);
                self.of_class(
                    Class::of_bits(access.register_bits),
                    &access.destinations,
                    &access.sources,
                );
            }
            Operation::Atomic(atomic) => {
                self.address(atomic.address);
                self.of_class(atomic.ty.class(), &atomic.destinations, &atomic.values);
                self.of_class(atomic.ty.class(), &[], &[atomic.compare]);
            }
            Operation::CopyAsync(copy) => {
                self.address(copy.to);
                self.address(copy.from);
                self.from(copy.source_bytes);
            }
            Operation::ArriveAfterCopies { barrier, .. } => self.address(*barrier),
            Operation::LoadMatrix(matrix) | Operation::StoreMatrix(matrix) => {
                self.address(matrix.address);
                self.of_class(Class::Word, &matrix.destinations, &matrix.sources);
            }
            Operation::Mma(mma) => {
                self.of_class(Class::Word, &mma.d, &mma.a);
                self.of_class(Class::Word, &[], &mma.b);
                self.of_class(Class::Word, &[], &mma.c);
            }
            Operation::Wgmma(wgmma) => {
                if let WgmmaA::Registers(registers) = wgmma.a {
                    self.of_class(Class::Word, &[], &registers);
                }
            }
            Operation::Shuffle { d, a, lane, clamp, members, .. } => {
                self.of_class(Class::Word, &[*d], &[*a, *lane, *clamp, *members]);
            }
            Operation::Vote { mode, d, members, .. } => {
                self.from(*members);
                if *mode == super::operation::VoteMode::Ballot {
                    self.to(*d);
                }
            }
            Operation::Match { class, d, a, members, .. } => {
                self.of_class(*class, &[], &[*a]);
                self.of_class(Class::Word, &[*d], &[*members]);
            }
            Operation::Reduce { d, a, members, .. } => {
                self.of_class(Class::Word, &[*d], &[*a, *members]);
            }
            Operation::Elect { d, members, .. } => self.of_class(Class::Word, &[*d], &[*members]),
            Operation::ActiveMask { d } => self.to(*d),
            Operation::WarpSync { members } => self.from(*members),
            Operation::Barrier(barrier) => {
                self.from(barrier.number);
                if let Some(threads) = barrier.threads {
                    self.from(threads);
                }
            }
            Operation::MemoryBarrier(_, operands) => self.address(operands.address),
            Operation::Double { .. }
            | Operation::Predicate { .. }
            | Operation::IsSpace { .. }
            | Operation::CommitCopies
            | Operation::WaitCopies(_)
            | Operation::WgmmaFence
            | Operation::CommitWgmma
            | Operation::WaitWgmma(_)
            | Operation::ProxyFence
            | Operation::Fence
            | Operation::Branch { .. }
            | Operation::Exit
            | Operation::Trap
            | Operation::Hint => {}
        }
    }
}
