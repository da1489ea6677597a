//! What the counts of a series come to, by `FAS:io.*`.

use flashproof_spec::format::Format;
use flashproof_spec::traffic::{Growth, Tiling, dense, is_tiled, streamed};
use serde::Serialize;

use super::measure::{Pass, Point, Shape};

/// What a series comes to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// `FAS:io.memory.linear`: scratch memory.
    pub memory: Memory,
    /// `FAS:io.traffic.shared-memory`: traffic.
    pub traffic: Traffic,
    /// `FAS:io.traffic.streamed`: the least power of two for which tiles of so many queries explain every
    /// byte at every length, where there is one.
    pub query_tile: Option<usize>,
    /// For each length, what a kernel moves at least that stores scores.
    pub dense_bytes: Vec<u64>,
}

/// How scratch memory grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Memory {
    /// By the same bytes with every row.
    Affine,
    /// Otherwise: `FAS:io.memory.linear` is violated.
    Violated {
        /// Three lengths that show it, and the scratch bytes at each.
        lengths_and_bytes: [(usize, u64); 3],
    },
}

/// How traffic grows.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    /// Between the constants of a tiled kernel.
    Tiled(Constants),
    /// Outside of them: `FAS:io.traffic.shared-memory` is violated.
    Violated(Constants),
    /// Not judged.
    NotJudged {
        /// The constants, where there are lengths enough.
        constants: Option<Constants>,
        /// Why they are not judged.
        reason: String,
    },
}

/// The `c` of [`Tiling::constant`], over every three lengths that follow each other and are whole tiles:
/// multiples of the query tile where it is known, or else of [`ANY_TILE`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Constants {
    /// The least.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
}

/// A multiple of the tiles of all kernels that are known, of 64, 128 or 256 positions.
pub const ANY_TILE: usize = 256;

impl Judgement {
    /// Whether a clause is violated.
    #[must_use]
    pub const fn is_violated(&self) -> bool {
        matches!(self.memory, Memory::Violated { .. })
            || matches!(self.traffic, Traffic::Violated(_))
    }
}

/// Judges points of three or more lengths that ascend; the shape's own length is of no interest.
#[must_use]
pub fn judge(pass: Pass, shape: Shape, lse_format: Format, points: &[Point]) -> Judgement {
    let problem = |point: &Point| Shape { length: point.length, ..shape }.problem();
    let query_tile = match pass {
        Pass::Forward => query_tile(shape, lse_format, points),
        Pass::Backward => None,
    };
    let dense_bytes = |point| dense(&problem(point), lse_format, Format::F32).total() as u64;
    Judgement {
        memory: memory(points),
        traffic: traffic(pass, shape, query_tile, points),
        query_tile,
        dense_bytes: match pass {
            Pass::Forward => points.iter().map(dense_bytes).collect(),
            Pass::Backward => Vec::new(),
        },
    }
}

fn triples(points: &[Point]) -> impl Iterator<Item = [Point; 3]> {
    points.windows(3).map(|three| [three[0], three[1], three[2]])
}

fn growth(points: [Point; 3], count: impl Fn(Point) -> u64) -> Growth {
    Growth::of(points.map(|point| (point.length as u64, count(point))))
}

fn memory(points: &[Point]) -> Memory {
    let bent = triples(points).find(|three| !growth(*three, |point| point.scratch).is_affine());
    bent.map_or(Memory::Affine, |three| Memory::Violated {
        lengths_and_bytes: three.map(|point| (point.length, point.scratch)),
    })
}

fn traffic(pass: Pass, shape: Shape, query_tile: Option<usize>, points: &[Point]) -> Traffic {
    let Shape { format, head_dim, causal, .. } = shape;
    let (head_dim, element_bytes) = (head_dim as u64, format.bytes() as u64);
    let shared = points.iter().map(|point| point.shared).max().unwrap_or(0);
    let tiling = Tiling { shared, head_dim, element_bytes, causal };
    // A tile that no length exceeds may be larger.
    let longest = points.iter().map(|point| point.length).max().unwrap_or(0);
    let tile = query_tile.filter(|tile| *tile < longest).unwrap_or(ANY_TILE);
    let whole: Vec<_> =
        points.iter().copied().filter(|point| point.length.is_multiple_of(tile)).collect();
    let of = |three| tiling.constant(growth(three, |point| point.total()));
    let all: Vec<_> = triples(&whole).map(of).collect();
    if all.is_empty() {
        let reason = format!("fewer than three lengths are multiples of {tile}");
        return Traffic::NotJudged { constants: None, reason };
    }
    let per_square = || all.iter().map(|constant| constant.per_square());
    let constants = Constants {
        least: per_square().fold(f64::INFINITY, f64::min),
        greatest: per_square().fold(f64::NEG_INFINITY, f64::max),
    };
    let not_judged =
        |reason: &str| Traffic::NotJudged { constants: Some(constants), reason: reason.to_owned() };
    if pass == Pass::Backward {
        not_judged("the range is that of forward passes")
    } else if shared < head_dim * element_bytes {
        not_judged("shared memory has no room for a row")
    } else if all.iter().copied().all(is_tiled) {
        Traffic::Tiled(constants)
    } else {
        Traffic::Violated(constants)
    }
}

fn query_tile(shape: Shape, lse_format: Format, points: &[Point]) -> Option<usize> {
    let longest = points.iter().map(|point| point.length).max()?;
    let explains = |tile: usize| {
        points.iter().all(|point| {
            let problem = Shape { length: point.length, ..shape }.problem();
            let moved = streamed(&problem, lse_format, tile);
            (moved.read, moved.written) == (point.read.into(), point.written.into())
        })
    };
    let tiles = std::iter::successors(Some(1_usize), |tile| tile.checked_mul(2));
    tiles.take_while(|tile| *tile <= longest.next_power_of_two()).find(|tile| explains(*tile))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { format: Format::Bf16, length: 0, head_dim: 64, causal: false };

    /// Points of a pass that moves and keeps these bytes.
    fn points(lengths: &[usize], moved: fn(u64) -> u64, kept: fn(u64) -> u64) -> Vec<Point> {
        let point = |&length: &usize| {
            let (read, scratch) = (moved(length as u64), kept(length as u64));
            Point {
                length,
                read,
                written: 0,
                scratch,
                held: 0,
                shared: 32_768,
                warp_instructions: 0,
            }
        };
        lengths.iter().map(point).collect()
    }

    fn judged(lengths: &[usize], moved: fn(u64) -> u64, kept: fn(u64) -> u64) -> Judgement {
        judge(Pass::Forward, SHAPE, Format::F32, &points(lengths, moved, kept))
    }

    #[test]
    fn memory_that_bends_is_named() {
        let lengths = [256, 512, 1024, 2048];
        let found = judged(&lengths, |t| 4 * t * t, |t| if t > 1024 { t + 1 } else { t });
        let lengths_and_bytes = [(512, 512), (1024, 1024), (2048, 2049)];
        assert_eq!(found.memory, Memory::Violated { lengths_and_bytes });
        assert!(found.is_violated());
        let found = judged(&lengths, |t| 4 * t * t, |t| 7 * t + 3);
        assert_eq!(found.memory, Memory::Affine);
    }

    #[test]
    fn traffic_is_judged_by_whole_tiles_alone() {
        // M / (d e)^2 is 2: c is twice the bytes a pair.
        let constants = |c| Constants { least: c, greatest: c };
        let at = |moved| judged(&[100, 256, 512, 1024], moved, |_| 0).traffic;
        assert_eq!(at(|t| 6 * t * t + 9 * t), Traffic::Tiled(constants(12.0)));
        assert_eq!(at(|t| 7 * t * t), Traffic::Violated(constants(14.0)));
        assert_eq!(at(|t| t * t + t), Traffic::Tiled(constants(2.0)));
        assert_eq!(at(|t| 50 * t), Traffic::Violated(constants(0.0)));
        // A length that is no multiple of 256 is not looked at, and three are needed.
        assert_eq!(at(|t| if t == 100 { 0 } else { 6 * t * t }), Traffic::Tiled(constants(12.0)));
        let few = judged(&[100, 256, 512], |t| 7 * t * t, |_| 0);
        assert!(matches!(few.traffic, Traffic::NotJudged { constants: None, .. }));
        assert!(!few.is_violated());
    }

    #[test]
    fn tiles_explain_all_bytes_or_none() {
        fn by_tiles_of_128(t: u64) -> u64 {
            t * 128 + t.div_ceil(128) * t * 256
        }
        let with_results = |extra: u64| {
            let mut points = points(&[100, 300, 640], by_tiles_of_128, |_| 0);
            for point in &mut points {
                point.written = point.length as u64 * (128 + 4);
            }
            points[1].read += extra;
            judge(Pass::Forward, SHAPE, Format::F32, &points)
        };
        assert_eq!(with_results(0).query_tile, Some(128));
        assert_eq!(with_results(1).query_tile, None);
    }
}
