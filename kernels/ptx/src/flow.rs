//! Where diverged lanes meet again, and what else follows from the instructions of an entry alone.
//!
//! Lanes that part at a branch meet at its *immediate post-dominator*: the first instruction that
//! every path from the branch to the end passes. Post-dominators are found as dominators of the
//! reversed control flow graph (Cooper, Harvey, Kennedy: A Simple, Fast Dominance Algorithm, 2001).
//!
//! Lanes that end early are not waited for, and so paths to an early end do not count where another
//! path goes on: the end is the last one in the text, and earlier ends are ends only of code that
//! does not lead to the last.

use crate::isa::Instruction;
use crate::isa::operand::{Condition, Space};
use crate::isa::operation::Operation;
use crate::module::NEVER;

/// Basic blocks: maximal runs of instructions that are entered at their first and left at their last.
struct Graph {
    /// First instruction of each block; the last entry is past the end of the code.
    starts: Vec<usize>,
    /// Blocks that follow each block.
    successors: Vec<Vec<usize>>,
    /// Blocks that threads end in, whatever their predicates.
    ends: Vec<usize>,
}

/// For each instruction that is a branch that lanes can part at, its immediate post-dominator, or
/// [`NEVER`] where there is none; [`NEVER`] for all other instructions.
pub(crate) fn reconvergence(code: &[Instruction]) -> Vec<u32> {
    let graph = graph(code);
    let dominators = post_dominators(&graph);
    let mut meets = vec![NEVER; code.len()];
    for (block, window) in graph.starts.windows(2).enumerate() {
        let last = window[1] - 1;
        if matches!(code[last].operation, Operation::Branch { .. }) && code[last].guard.is_some() {
            meets[last] = dominators[block]
                .and_then(|block| graph.starts.get(block).filter(|at| **at < code.len()))
                .map_or(NEVER, |at| *at as u32);
        }
    }
    meets
}

fn is_certain(instruction: &Instruction) -> bool {
    matches!(instruction.guard, None | Some(Condition::Constant(true)))
}

fn graph(code: &[Instruction]) -> Graph {
    let mut is_start = vec![false; code.len() + 1];
    is_start[0] = true;
    for (at, instruction) in code.iter().enumerate() {
        match instruction.operation {
            Operation::Branch { target, .. } => {
                is_start[target as usize] = true;
                is_start[at + 1] = true;
            }
            Operation::Exit | Operation::Trap => is_start[at + 1] = true,
            _ => {}
        }
    }
    is_start[code.len()] = true;
    let starts: Vec<usize> = (0..=code.len()).filter(|at| is_start[*at]).collect();
    let block_of = |at: usize| starts.partition_point(|start| *start <= at) - 1;
    let (mut successors, mut ends) = (Vec::new(), Vec::new());
    for (block, window) in starts.windows(2).enumerate() {
        let instruction = &code[window[1] - 1];
        let falls = (window[1] < code.len()).then(|| block_of(window[1]));
        let next: Vec<usize> = match instruction.operation {
            Operation::Branch { target, .. } if is_certain(instruction) => {
                vec![block_of(target as usize)]
            }
            Operation::Branch { target, .. } => {
                std::iter::once(block_of(target as usize)).chain(falls).collect()
            }
            Operation::Exit | Operation::Trap if is_certain(instruction) => {
                ends.push(block);
                Vec::new()
            }
            _ => falls.into_iter().collect(),
        };
        successors.push(next);
    }
    Graph { starts, successors, ends }
}

/// The immediate post-dominator of each block, the number past the last block standing for the end;
/// `None` for blocks that no path leads to an end from.
fn post_dominators(graph: &Graph) -> Vec<Option<usize>> {
    let blocks = graph.successors.len();
    let mut found = vec![None; blocks];
    for &end in graph.ends.iter().rev() {
        if found[end].is_none() {
            dominate(graph, end, &mut found);
        }
    }
    found
}

/// Finds the post-dominators of blocks that lead to `end` and have none yet.
fn dominate(graph: &Graph, end: usize, found: &mut [Option<usize>]) {
    let exit = graph.successors.len();
    let mut successors = graph.successors.clone();
    successors[end].push(exit);
    let mut predecessors = vec![Vec::new(); exit + 1];
    for (block, successors) in successors.iter().enumerate() {
        if found[block].is_none() {
            for &successor in successors {
                predecessors[successor].push(block);
            }
        }
    }
    let order = post_order(exit, &predecessors);
    let mut number = vec![usize::MAX; exit + 1];
    for (place, &block) in order.iter().enumerate() {
        number[block] = place;
    }
    let mut dominator: Vec<Option<usize>> = vec![None; exit + 1];
    dominator[exit] = Some(exit);
    let mut changed = true;
    while changed {
        changed = false;
        for &block in order.iter().rev().filter(|block| **block != exit) {
            let mut nearest = None;
            for &next in &successors[block] {
                if dominator[next].is_some() {
                    nearest = Some(match nearest {
                        None => next,
                        Some(other) => common(&dominator, &number, next, other),
                    });
                }
            }
            if nearest != dominator[block] {
                dominator[block] = nearest;
                changed = true;
            }
        }
    }
    for (found, dominator) in found.iter_mut().zip(&dominator) {
        *found = found.or(*dominator);
    }
}

/// Nodes of the reversed graph from the exit, each after those reached from it.
fn post_order(exit: usize, predecessors: &[Vec<usize>]) -> Vec<usize> {
    let mut order = Vec::new();
    let mut seen = vec![false; predecessors.len()];
    let mut stack = vec![(exit, 0)];
    seen[exit] = true;
    while let Some((block, next)) = stack.pop() {
        match predecessors[block].get(next) {
            Some(&other) => {
                stack.push((block, next + 1));
                if !seen[other] {
                    seen[other] = true;
                    stack.push((other, 0));
                }
            }
            None => order.push(block),
        }
    }
    order
}

/// The nearest node that dominates both.
fn common(dominator: &[Option<usize>], number: &[usize], mut a: usize, mut b: usize) -> usize {
    while a != b {
        if number[a] < number[b] {
            a = dominator[a].unwrap_or(b);
        } else {
            b = dominator[b].unwrap_or(a);
        }
    }
    a
}

/// The most bytes that divide every access to shared memory: nothing finer need be told apart.
pub(crate) fn shared_granule(code: &[Instruction]) -> usize {
    let may_be_shared = |space: Space| matches!(space, Space::Shared | Space::Generic);
    code.iter()
        .filter_map(|instruction| match &instruction.operation {
            Operation::Load(access) | Operation::Store(access) if may_be_shared(access.space) => {
                Some(access.ty.bytes())
            }
            Operation::Atomic(atomic) if may_be_shared(atomic.space) => Some(atomic.ty.bytes()),
            Operation::CopyAsync(copy) => Some(copy.bytes as usize),
            Operation::MemoryBarrier(..) | Operation::ArriveAfterCopies { .. } => Some(8),
            _ => None,
        })
        .fold(16, usize::min)
}

/// Whether there are asynchronous matrix products.
pub(crate) fn has_products(code: &[Instruction]) -> bool {
    code.iter().any(|instruction| matches!(instruction.operation, Operation::Wgmma(_)))
}

/// Whether blocks exchange values through atomics.
pub(crate) fn has_global_atomics(code: &[Instruction]) -> bool {
    code.iter().any(|instruction| match &instruction.operation {
        Operation::Atomic(atomic) => atomic.space != Space::Shared,
        _ => false,
    })
}
