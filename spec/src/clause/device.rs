//! `FAS:device.*`: what a kernel must keep to on a device, whatever numbers come out.

use super::{Clause, Status};

pub(super) const CLAUSES: &[Clause] = &[
    Clause {
        id: "FAS:device.memory.bounds",
        status: Status::Normative,
        title: "Accesses stay within their memory",
        statement: "Every access lies within the buffer that its address was counted from, within the \
            shared memory of its block or the local memory of its thread, in the bytes that are read and \
            thrown away, too.",
        equation: "",
        rationale: "What lies past a buffer is another tensor or nothing: wrong numbers today, a fault \
            of the device tomorrow.",
        references: &["PTX ISA, State Spaces", "Compute Sanitizer, memcheck"],
        executable: "",
        checked_by: &[
            "kernels/ptx/tests/faults.rs::bounds_and_alignment_hold_in_every_memory",
            "kernels/ptx/tests/synchronisation.rs::an_address_past_the_end_or_between_elements_is_found",
            "conformance/tests/adapter_compiled.rs::faults_fail_the_case_and_name_their_clause",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:device.memory.aligned",
        status: Status::Normative,
        title: "Addresses are multiples of what is accessed",
        statement: "The address of an access is a multiple of its size, vectors taken as a whole, under \
            every stride and offset that the kernel says it takes.",
        equation: "address mod bytes = 0",
        rationale: "A kernel that reads 16 bytes at once is right for strides of 64 entries and faults for \
            views that begin in between.",
        references: &["PTX ISA, Addresses as Operands", "Compute Sanitizer, memcheck"],
        executable: "",
        checked_by: &[
            "kernels/ptx/tests/faults.rs::bounds_and_alignment_hold_in_every_memory",
            "conformance/tests/adapter_compiled.rs::faults_fail_the_case_and_name_their_clause",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:device.memory.initialised",
        status: Status::Normative,
        title: "What is read has been written",
        statement: "A kernel reads no byte of global, shared or local memory that neither the host nor a \
            launch has written, even where the value does not reach an output.",
        equation: "",
        rationale: "Memory that was never written holds what the last kernel left: right on a fresh device, \
            NaN on a used one.",
        references: &["PTX ISA, Shared State Space", "Compute Sanitizer, initcheck"],
        executable: "",
        checked_by: &[
            "kernels/ptx/tests/faults.rs::a_read_before_any_write_is_found",
            "conformance/tests/adapter_compiled.rs::faults_fail_the_case_and_name_their_clause",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:device.race.shared",
        status: Status::Normative,
        title: "Accesses to shared memory are ordered",
        statement: "Of two accesses to the same bytes of shared memory by different threads, one of them a \
            write and not both atomic, one comes before the other by a barrier.",
        equation: "",
        rationale: "Without the barrier the order is that of the warp scheduler: right in every test on one \
            device, and wrong on the next.",
        references: &[
            "PTX ISA, Memory Consistency Model: Conflict and Data-races",
            "Compute Sanitizer, racecheck",
        ],
        executable: "",
        checked_by: &[
            "kernels/ptx/tests/synchronisation.rs::every_synchronisation_that_matters_is_missed",
            "kernels/ptx/tests/faults.rs::lanes_of_a_warp_are_ordered_by_warp_barriers_alone",
            "conformance/tests/adapter_compiled.rs::faults_fail_the_case_and_name_their_clause",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:device.race.global",
        status: Status::Normative,
        title: "Blocks do not race",
        statement: "Of two accesses to the same bytes of global memory by different blocks of a launch, both \
            are reads or both are atomic, also where both write the same value.",
        equation: "",
        rationale: "Blocks run in any order and at the same time. A sum of gradients without atomics loses \
            terms only when two blocks meet.",
        references: &["PTX ISA, Memory Consistency Model: Conflict and Data-races"],
        executable: "",
        checked_by: &[
            "kernels/ptx/tests/faults.rs::blocks_race_on_plain_stores_and_not_on_atomics",
            "kernels/ptx/tests/synchronisation.rs::sums_of_a_gradient_without_atomics_race",
            "conformance/tests/adapter_compiled.rs::faults_fail_the_case_and_name_their_clause",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:device.copy.waited",
        status: Status::Normative,
        title: "Asynchronous copies are waited for",
        statement: "Nothing reads or writes the bytes that an asynchronous copy fills before the thread that \
            issued it has waited for it, and a barrier has told the other threads.",
        equation: "",
        rationale: "A wait for one group too few reads the tile before last, which in a test of equal tiles \
            is the right one.",
        references: &["PTX ISA, Data Movement: Asynchronous copy"],
        executable: "",
        checked_by: &[
            "kernels/ptx/tests/synchronisation.rs::a_wait_that_leaves_one_group_more_is_missed",
            "kernels/ptx/tests/copies.rs::a_wait_leaves_the_newest_groups_unfinished",
            "conformance/tests/adapter_compiled.rs::faults_fail_the_case_and_name_their_clause",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:device.product.waited",
        status: Status::Normative,
        title: "Operands of unfinished matrix products stay as they are",
        statement: "Until an asynchronous matrix product has been waited for, nothing writes the shared \
            memory and the registers that it reads, and nothing touches the registers that it writes.",
        equation: "",
        rationale: "The product reads its operands whenever it gets to them, and the next tile may be there by then.",
        references: &[
            "PTX ISA, Asynchronous Warpgroup Level Matrix Multiply-Accumulate: wgmma.wait_group",
        ],
        executable: "",
        checked_by: &[
            "kernels/ptx/tests/synchronisation.rs::every_synchronisation_that_matters_is_missed",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:device.product.fenced",
        status: Status::Normative,
        title: "Matrix products see what was written for them",
        statement: "An asynchronous matrix product comes after a wgmma.fence that follows the last write to \
            its registers, and after a proxy fence that follows the last write to its operands in shared memory.",
        equation: "",
        rationale: "The product reads shared memory by another way than stores write it, and may find what was \
            there before.",
        references: &[
            "PTX ISA, Asynchronous Warpgroup Level Matrix Multiply-Accumulate: wgmma.fence",
            "PTX ISA, Async proxy",
        ],
        executable: "",
        checked_by: &[
            "kernels/ptx/tests/synchronisation.rs::every_synchronisation_that_matters_is_missed",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:device.barrier.complete",
        status: Status::Normative,
        title: "Every barrier is complete",
        statement: "All threads that a barrier waits for arrive at it; none has ended, and none waits for \
            another thread that waits for it.",
        equation: "",
        rationale: "A barrier in a branch that some threads do not take hangs, or lets the others pass too \
            early, as the device likes.",
        references: &[
            "PTX ISA, Parallel Synchronization: bar, barrier",
            "Compute Sanitizer, synccheck",
        ],
        executable: "",
        checked_by: &[
            "kernels/ptx/tests/faults.rs::barriers_that_not_all_threads_reach_are_found",
            "kernels/ptx/tests/faults.rs::a_wait_for_a_phase_that_never_ends_is_a_deadlock",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:device.barrier.valid",
        status: Status::Normative,
        title: "Barriers are such as there are",
        statement: "A barrier has a number from 0 to 15 and a count of threads that is a multiple of 32 and \
            at most that of the block; a barrier object is initialised before it is used, and no more threads \
            arrive than it awaits.",
        equation: "",
        rationale: "The result of any other is undefined.",
        references: &[
            "PTX ISA, Parallel Synchronization: bar, barrier",
            "PTX ISA, Parallel Synchronization: mbarrier",
        ],
        executable: "",
        checked_by: &[
            "kernels/ptx/tests/faults.rs::barriers_that_not_all_threads_reach_are_found",
            "kernels/ptx/tests/faults.rs::barrier_objects_order_those_that_arrive_before_those_that_wait",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:device.warp.converged",
        status: Status::Normative,
        title: "What a warp does together, all its named lanes do",
        statement: "An instruction for a whole warp is executed by all its lanes together, one with a mask by \
            the lanes of the mask, all with the same mask; a shuffle takes values from lanes that take part.",
        equation: "",
        rationale: "A reduction over lanes of which some have left takes whatever their registers hold.",
        references: &[
            "PTX ISA, shfl.sync",
            "PTX ISA, mma and ldmatrix: .aligned",
            "Compute Sanitizer, synccheck",
        ],
        executable: "",
        checked_by: &["kernels/ptx/tests/faults.rs::exchanges_need_the_lanes_they_name"],
        proof: None,
    },
    Clause {
        id: "FAS:device.result.specified",
        status: Status::Normative,
        title: "No result is left open",
        statement: "A kernel executes no operation whose result the instruction set does not specify, such as \
            an integer division by zero.",
        equation: "",
        rationale: "The result differs between devices, and between compilers.",
        references: &["PTX ISA, Integer Arithmetic Instructions: div, rem"],
        executable: "",
        checked_by: &[
            "kernels/ptx/tests/faults.rs::results_that_ptx_leaves_open_and_traps_and_endless_loops_are_found",
        ],
        proof: None,
    },
];
