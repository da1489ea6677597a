//! `FAS:layout.*`: where the elements of tensors stand in memory.

use super::{Clause, Status};

pub(super) const CLAUSES: &[Clause] = &[
    Clause {
        id: "FAS:layout.strided",
        status: Status::Normative,
        title: "Strides are free",
        statement: "Query, key, value and output may each have any strides along batch, head, position \
            and entry: interleaved heads, transposed matrices, views into larger buffers, and \
            stride 0 where inputs share elements. The answer depends on the elements alone.",
        equation: "element[b, h, p, e] at offset + b s_b + h s_h + p s_p + e s_e",
        rationale: "A kernel that takes a view for a dense tensor reads other elements of the same \
            buffer: finite, plausible and wrong.",
        references: &["pytorch#181133, #163597 and #112577", "candle PR#3703"],
        executable: "layout::place::Problem::offset_of",
        checked_by: &[
            "spec/tests/layout.rs::offsets_are_those_stated",
            "spec/tests/layout.rs::storing_and_gathering_changes_nothing",
            "conformance/tests/adapter_layouts.rs::every_kernel_is_exact_in_every_layout",
            "kernels/tests/storage.rs::a_layout_changes_no_bit",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:layout.ragged",
        status: Status::Normative,
        title: "Sequences of uneven length, one after another",
        statement: "In a ragged batch the rows of member b start at row start[b] of a common buffer and \
            number as many as its length, none included; rows between members, and past the \
            last, belong to none. Members do not see each other.",
        equation: "element[b, h, p, e] = buffer[start[b] + p, h, e]",
        rationale: "Members of length 0 at either side, and lengths shorter than what is allocated, \
            break kernels that derive one from the other.",
        references: &["rocm-libraries PR#5790 and flash-attention#2562", "flash-attention#443"],
        executable: "layout::place::Problem::offset_of",
        checked_by: &[
            "spec/tests/layout.rs::rows_without_storage_are_told",
            "spec/tests/layout.rs::a_member_without_rows_takes_none",
            "conformance/tests/adapter_layouts.rs::every_kernel_is_exact_in_every_layout",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:layout.paged",
        status: Status::Normative,
        title: "Keys and values in pages",
        statement: "In a paged cache, key p of member b stands in slot p mod page_size of page \
            table[b][p div page_size]. Pages may be in any order and shared; entries of the \
            table past the last page in use are not read.",
        equation: "key[b, h, p, e] = pages[table[b][p div size], p mod size, h, e]",
        rationale: "One page too many is read where the length divides the page size; what lies there is \
            another sequence's.",
        references: &["pegainfer#291", "flash-attention PR#2711", "onnxruntime PR#32391"],
        executable: "layout::place::Problem::offset_of",
        checked_by: &[
            "spec/tests/layout.rs::offsets_are_those_stated",
            "spec/tests/layout.rs::pages_that_do_not_fit_are_refused",
            "conformance/tests/adapter_layouts.rs::every_kernel_is_exact_in_every_layout",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:layout.ownership",
        status: Status::Normative,
        title: "Every owned element is written, and none beside",
        statement: "A kernel writes every element of its outputs that the layout gives to the problem, \
            whatever memory held before, and writes nothing else: not the gaps between rows or \
            members, not beyond the buffers, not its inputs.",
        equation: "",
        rationale: "An element left out keeps what memory held, often yesterday's right answer; one \
            written beside is somebody else's.",
        references: &["pytorch PR#188933", "flash-attention PR#2324 and PR#2906"],
        executable: "",
        checked_by: &[
            "conformance/tests/adapter_layouts.rs::what_is_written_beside_the_elements_is_caught",
            "conformance/tests/adapter_layouts.rs::what_is_left_unwritten_is_caught",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:layout.offset",
        status: Status::Normative,
        title: "Offsets do not wrap",
        statement: "Offsets of elements are computed in integers wide enough for the buffer: strides \
            whose products exceed 2^31 or 2^32 elements address what they say.",
        equation: "offset < 2^63",
        rationale: "Thirty-two bits are enough for every test of ordinary size and wrap silently in long \
            contexts.",
        references: &["xformers#719", "pytorch#187227", "flash-attention#2611"],
        executable: "layout::place::Problem::offset_of",
        checked_by: &[
            "spec/tests/layout.rs::offsets_go_past_32_bits",
            "conformance/tests/adapter_layouts.rs::every_kernel_is_exact_in_every_layout",
        ],
        proof: None,
    },
];
