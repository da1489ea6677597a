//! Faults in which elements the forward pass reads and writes.

use super::Change::{AnswersForward, ReadsForward, Storage};
use super::{Mutant, forward_fault as fault};
use crate::cpu::mutant::answer;
use crate::cpu::mutant::misreading::heads;
use crate::cpu::mutant::storage::StorageFault;

/// Heads, layouts and stores.
pub(super) const PLACES: &[Mutant] = &[
    fault(
        "gqa-head-mod",
        ReadsForward(heads::modulo),
        &["FAS:head.group.block"],
        "query head h reads key head h mod key_heads",
    ),
    fault(
        "output-transposed",
        AnswersForward(answer::heads_and_queries_swapped),
        &["FAS:problem.shape", "FAS:meta.head-independence"],
        "the output is written with the axes of heads and queries swapped",
    ),
    fault(
        "last-query-unwritten",
        AnswersForward(answer::last_query_unwritten),
        &["FAS:fwd.output.written"],
        "the last query is not written where queries do not fill a store of four",
    ),
    fault(
        "assume-packed",
        Storage(StorageFault::AssumePacked),
        &["FAS:layout.strided"],
        "query, key and value are read without their strides",
    ),
    fault(
        "offset-i32",
        Storage(StorageFault::Offset32),
        &["FAS:layout.offset"],
        "offsets are 32-bit integers, and wrap",
    ),
    fault(
        "pages-of-batch-0",
        Storage(StorageFault::PagesOfFirst),
        &["FAS:layout.paged", "FAS:meta.batch-independence"],
        "the pages of the first batch member are read for all",
    ),
    fault(
        "write-past-tail",
        Storage(StorageFault::WritePastTail),
        &["FAS:layout.ownership"],
        "the store of a sequence's last queries goes one row further",
    ),
];
