//! The exact answer for one query row.

use flashproof_spec::bound::RowCondition;
use flashproof_spec::problem::Problem;

use crate::enclosure::Enclosure;
use crate::error::OracleError;

/// Which query row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowIndex {
    /// Batch member, from 0.
    pub batch: usize,
    /// Query head, from 0.
    pub head: usize,
    /// Query position, from 0.
    pub query: usize,
}

impl RowIndex {
    /// Checks that the problem has this row.
    ///
    /// # Errors
    /// [`OracleError::Row`] names the first part of the index that is out of range.
    pub fn check(self, problem: &Problem) -> Result<(), OracleError> {
        for (field, index, extent) in [
            ("batch", self.batch, problem.batch),
            ("head", self.head, problem.query_heads),
            ("query", self.query, problem.query_len),
        ] {
            if index >= extent {
                return Err(OracleError::Row { field, index, extent });
            }
        }
        Ok(())
    }
}

/// What a kernel should give for one query row (`FAS:fwd.softmax.definition`, `FAS:fwd.special.*`).
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Which row.
    pub index: RowIndex,
    /// How many keys the mask admits: the visible ones, and those that only a bias of minus infinity
    /// hides.
    pub admitted: usize,
    /// The keys that the row sees, ascending.
    pub visible: Vec<usize>,
    /// The visible keys with a finite score, ascending: all of them, unless inputs are infinite.
    /// The vectors of `condition` run over these.
    pub weighted: Vec<usize>,
    /// The output, one entry a value dimension. In a row where a sink has all the weight, it is
    /// exactly zero, but for values that are not finite.
    pub outputs: Vec<Expected>,
    /// The LSE, in natural logarithm. In a row where a sink has all the weight, it is exactly its
    /// logit.
    pub lse: Expected,
    /// What the error bounds depend on; `None` where no key is weighted, be there a sink or not, or a score is NaN or plus
    /// infinity. An output entry that is not [`Expected::Exact`] stands in it as minus and plus
    /// infinity.
    pub condition: Option<RowCondition>,
}

/// The right answer for one element.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    /// A real number.
    Exact(Exact),
    /// NaN.
    Nan,
    /// An infinity of this sign, or NaN: the exact answer has no bound, and whether a kernel meets
    /// `0 * inf` or `inf - inf` on its way there depends on the order of its operations.
    InfinityOrNan {
        /// Whether the infinity is negative.
        negative: bool,
    },
    /// Minus infinity: the LSE of a row without visible keys and without a sink.
    MinusInfinity,
    /// An output entry of a row without visible keys and without a sink: what the kernel declares
    /// (`FAS:choice.empty-row.output`).
    EmptyRow,
    /// The same or NaN: an output entry of a row whose visible scores are all minus infinity, or that
    /// has no visible key and a sink of NaN or plus infinity.
    EmptyRowOrNan,
    /// Anything: an output entry with a NaN or an infinity among values whose weight dropout drops. It
    /// may be what it would be without them, or NaN.
    Unspecified,
}

/// A real number, enclosed and rounded.
#[derive(Clone, Debug, PartialEq)]
pub struct Exact {
    /// Contains the number.
    pub enclosure: Enclosure,
    /// The value of the output format nearest to the number, ties to even; `None` when the largest
    /// precision allowed could not decide between two.
    pub rounded: Option<f64>,
}

impl Expected {
    /// The real number, where the answer is one.
    #[must_use]
    pub const fn exact(&self) -> Option<&Exact> {
        match self {
            Self::Exact(exact) => Some(exact),
            _ => None,
        }
    }
}

/// Output and LSE of a row, enclosed at one working precision.
#[derive(Clone, Debug, PartialEq)]
pub struct RowEnclosures {
    /// The output entries, those of the value dimensions without infinities and NaN.
    pub outputs: Vec<Enclosure>,
    /// The LSE.
    pub lse: Enclosure,
}
