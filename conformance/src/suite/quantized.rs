//! Cases of inputs in 8 bits with descales: a few, each of which has several conditions.

use flashproof_spec::format::Format;
use flashproof_spec::mask::Alignment;
use flashproof_spec::problem::Problem;
use flashproof_spec::quantization::{Descale, Quantization};
use flashproof_spec::score::{Alibi, Sink, Slopes, Softcap, SoftcapOrder};

use super::masks::MaskKind;
use crate::case::Case;
use crate::inputs::poison::Poison;
use crate::inputs::{Family, Scores, Values};

/// One descale a head for each tensor, as FlashAttention-3's interface has them.
const HEADS: Quantization = quantization(Descale::Head, Descale::Head, Descale::Head, Format::Bf16);

/// Blocks of the tiles of kernels, for query and key (FlashAttention-3, section 3.3).
const TILES: Quantization =
    quantization(Descale::Block(64), Descale::Block(64), Descale::Head, Format::Bf16);

/// Blocks for all three, of sizes that are no tile's and differ.
const UNEVEN: Quantization =
    quantization(Descale::Block(16), Descale::Block(24), Descale::Block(40), Format::F16);

/// Descales of values alone by block, and an output without rounding.
const VALUES: Quantization =
    quantization(Descale::Head, Descale::Head, Descale::Block(32), Format::F32);

const fn quantization(
    query: Descale,
    key: Descale,
    value: Descale,
    output: Format,
) -> Quantization {
    Quantization { query, key, value, output }
}

/// A case before it is named.
struct Entry {
    quantization: Quantization,
    mask: MaskKind,
    /// Batch, query heads and key heads.
    heads: (usize, usize, usize),
    /// Queries, keys, and entries of both.
    shape: (usize, usize, usize),
    family: Family,
    poison: Option<Poison>,
    /// Whether it has softcap, linear biases and a sink.
    modified: bool,
}

const PLAIN: Entry = Entry {
    quantization: HEADS,
    mask: MaskKind::Full,
    heads: (1, 2, 2),
    shape: (65, 129, 64),
    family: Family::of(Scores::Normal),
    poison: None,
    modified: false,
};

const ENTRIES: [Entry; 15] = [
    PLAIN,
    Entry { quantization: TILES, mask: MaskKind::BottomRight, ..PLAIN },
    Entry { quantization: UNEVEN, heads: (2, 4, 2), shape: (33, 70, 40), ..PLAIN },
    Entry { quantization: VALUES, mask: MaskKind::TopLeft, shape: (64, 96, 128), ..PLAIN },
    Entry {
        quantization: UNEVEN,
        mask: MaskKind::LengthsBottomRight,
        heads: (3, 4, 1),
        shape: (20, 65, 8),
        ..PLAIN
    },
    Entry {
        quantization: TILES,
        family: Family { scores: Scores::Outliers, values: Values::OneHot },
        shape: (65, 65, 128),
        ..PLAIN
    },
    Entry {
        quantization: VALUES,
        family: Family { scores: Scores::Rising, values: Values::Ones },
        shape: (5, 257, 64),
        ..PLAIN
    },
    Entry {
        quantization: TILES,
        family: Family { scores: Scores::Falling, values: Values::Positive },
        mask: MaskKind::WindowCausal,
        ..PLAIN
    },
    Entry {
        family: Family { scores: Scores::Large, values: Values::Positive },
        shape: (17, 257, 64),
        ..PLAIN
    },
    // Many small weights beside a large one.
    Entry {
        heads: (1, 1, 1),
        family: Family { scores: Scores::Peak, values: Values::Positive },
        shape: (5, 1025, 16),
        ..PLAIN
    },
    Entry {
        quantization: UNEVEN,
        family: Family { scores: Scores::Ties, values: Values::Cancelling },
        shape: (17, 130, 16),
        ..PLAIN
    },
    Entry { modified: true, quantization: TILES, heads: (2, 4, 2), shape: (17, 70, 32), ..PLAIN },
    Entry {
        modified: true,
        mask: MaskKind::Lengths,
        heads: (2, 2, 2),
        shape: (1, 33, 72),
        ..PLAIN
    },
    Entry {
        quantization: UNEVEN,
        mask: MaskKind::LengthsBottomRight,
        heads: (2, 2, 1),
        shape: (17, 66, 16),
        poison: Some(Poison::Unseen),
        ..PLAIN
    },
    Entry { shape: (1, 1, 1), ..PLAIN },
];

/// The cases in `format`; none where it has more than 8 bits.
pub(super) fn cases(format: Format, seed: u64) -> Vec<Case> {
    if !matches!(format, Format::E4m3 | Format::E5m2) {
        return Vec::new();
    }
    let cases = ENTRIES
        .iter()
        .map(|entry| Case::new(entry.problem(format), entry.family, entry.poison, seed));
    cases.chain([value_descale_dropped(format, seed)]).collect()
}

/// The fault of `flashinfer#1023` as it was, where problems without descales can only come near it.
fn value_descale_dropped(format: Format, seed: u64) -> Case {
    let entry = Entry { heads: (1, 1, 1), shape: (3, 7, 16), ..PLAIN };
    let case = Case::new(entry.problem(format), entry.family, None, seed);
    Case {
        name: format!("{format}/reported/38-value-descale-dropped"),
        clause: Some("FAS:num.descale.head"),
        why: "The descales of FP8 keys and values were dropped on the path that returns the LSE. Those \
            of the key and of the value differ here, so that one for the other shows too."
            .to_owned(),
        source: vec!["flashinfer#1023".to_owned()],
        bug: Some(38),
        ..case
    }
}

impl Entry {
    fn problem(&self, format: Format) -> Problem {
        let (batch, query_heads, key_heads) = self.heads;
        let (query_len, key_len, head_dim) = self.shape;
        let mut problem = Problem {
            batch,
            key_heads,
            query_len,
            quantization: Some(self.quantization),
            ..Problem::new(format, query_heads, key_len, head_dim)
        };
        problem.mask = self.mask.mask(&problem);
        if self.modified {
            problem.softcap = Some(Softcap { cap: 30.0, order: SoftcapOrder::BeforeBias });
            problem.alibi =
                Some(Alibi { slopes: Slopes::Standard, alignment: Alignment::BottomRight });
            problem.sink = Some(Sink::Logits(Format::F32));
        }
        problem
    }
}
