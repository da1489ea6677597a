//! Words and numbers that text and Markdown share.

use flashproof_spec::traffic::{ALGORITHM_1_CONSTANT, LEAST_CONSTANT};

use super::judge::{Constants, Memory, Traffic};
use super::measure::{Pass, Point};
use super::{Series, Survey};

/// What the columns of [`row`] are.
pub(super) const COLUMNS: [&str; 8] =
    ["T", "read", "written", "scratch", "shared", "warp instructions", "c", "dense / this"];

/// A row of the table of a series.
pub(super) fn row(survey: &Survey, series: &Series, index: usize) -> [String; COLUMNS.len()] {
    let point = &series.points[index];
    let Point { length, read, written, scratch, shared, warp_instructions, .. } = *point;
    let dense = series.judgement.dense_bytes.get(index);
    let dense =
        dense.map_or_else(String::new, |&dense| two_places(dense as f64 / point.total() as f64));
    let c = two_places(constant_at(survey, series, point));
    let [length, read, written, scratch, shared, warps] =
        [length as u64, read, written, scratch, shared, warp_instructions].map(|it| it.to_string());
    [length, read, written, scratch, shared, warps, c, dense]
}

fn two_places(number: f64) -> String {
    format!("{number:.2}")
}

/// All bytes of one length, times `M / (P d^2 e^2)`: what `c` is with what grows less than `T^2`.
fn constant_at(survey: &Survey, series: &Series, point: &Point) -> f64 {
    let pairs = (point.length as f64).powi(2) / if survey.causal { 2.0 } else { 1.0 };
    let row = (survey.head_dim * series.format.bytes()) as f64;
    point.total() as f64 * point.shared as f64 / (pairs * row * row)
}

/// What is said of scratch memory.
pub(super) fn memory(series: &Series) -> String {
    match series.judgement.memory {
        Memory::Affine => match series.points.as_slice() {
            [first, .., last] => {
                let bytes = (last.scratch as f64 - first.scratch as f64)
                    / (last.length as f64 - first.length as f64);
                format!("affine, {bytes} bytes a row")
            }
            _ => "affine".to_owned(),
        },
        Memory::Violated { lengths_and_bytes } => {
            let [a, b, c] = lengths_and_bytes.map(|(length, bytes)| format!("{bytes} at {length}"));
            format!("VIOLATED, not affine: {a}, {b}, {c}")
        }
    }
}

/// What is said of the growth of traffic.
pub(super) fn traffic(series: &Series) -> String {
    let range = format!("{LEAST_CONSTANT} to {ALGORITHM_1_CONSTANT}");
    match &series.judgement.traffic {
        Traffic::Tiled(constants) => format!("{}, within {range}", c(*constants)),
        Traffic::Violated(constants) => format!("VIOLATED, {}, outside of {range}", c(*constants)),
        Traffic::NotJudged { constants: None, reason } => format!("not judged: {reason}"),
        Traffic::NotJudged { constants: Some(constants), reason } => {
            format!("{}, not judged: {reason}", c(*constants))
        }
    }
}

fn c(constants: Constants) -> String {
    let [least, greatest] = [constants.least, constants.greatest].map(two_places);
    if least == greatest { format!("c = {least}") } else { format!("c = {least} to {greatest}") }
}

/// What is said of tiles of queries.
pub(super) fn query_tile(series: &Series) -> String {
    match (series.pass, series.judgement.query_tile) {
        (Pass::Backward, _) => "not judged".to_owned(),
        (Pass::Forward, Some(tile)) => format!("tiles of {tile} queries, to the byte"),
        (Pass::Forward, None) => "no tile of queries explains the bytes".to_owned(),
    }
}

/// What was asked.
pub(super) fn asked(survey: &Survey) -> String {
    let mask = if survey.causal { "causal" } else { "every key visible" };
    format!("one head of {} entries, {mask}, T queries and T keys", survey.head_dim)
}

/// The command that measures this, but for files.
pub(super) fn command(survey: &Survey) -> String {
    let mut words = vec!["flashproof".to_owned(), "traffic".to_owned()];
    words.extend(survey.kernels.iter().cloned());
    words.push(format!("--format {}", joined(&survey.formats)));
    words.push(format!("--lengths {}", joined(&survey.lengths)));
    words.push(format!("--head-dim {}", survey.head_dim));
    if survey.causal {
        words.push("--causal".to_owned());
    }
    let passes =
        survey.series.iter().map(|it| it.pass).chain(survey.skipped.iter().map(|it| it.pass));
    if passes.into_iter().any(|pass| pass == Pass::Backward) {
        words.push("--backward".to_owned());
    }
    words.join(" ")
}

fn joined(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The manifest's name, without its folder and ending.
pub(super) fn short_name(kernel: &str) -> &str {
    let file = kernel.rsplit(['/', ':']).next().unwrap_or(kernel);
    let file = file.split('?').next().unwrap_or(file);
    file.strip_suffix(".toml").unwrap_or(file)
}
