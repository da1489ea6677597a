//! What a manifest can say of a problem: its numbers by name, and the masks that these can tell.

use flashproof_spec::layout::{Layout, Placed, Strides};
use flashproof_spec::mask::{Alignment, Rule, Window};
use flashproof_spec::problem::Problem;

use super::expression::{Names, Value};

/// What of a problem's mask is a few numbers; lengths are arrays beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Masked {
    /// 0: none, 1: top-left, 2: bottom-right.
    causal: i64,
    window_left: Option<i64>,
    window_right: Option<i64>,
    /// 0: no window, 1: top-left, 2: bottom-right.
    window_alignment: i64,
    pub(super) query_lengths: Option<Vec<usize>>,
    pub(super) key_lengths: Option<Vec<usize>>,
    pub(super) key_starts: Option<Vec<usize>>,
}

const TOP_LEFT: i64 = 1;
const BOTTOM_RIGHT: i64 = 2;

impl Masked {
    /// Several rules of a kind become the one that says the same; an error names what can not.
    pub(super) fn of(problem: &Problem) -> Result<Self, String> {
        let mut masked = Self::default();
        for rule in &problem.mask.rules {
            match rule {
                Rule::CausalTopLeft => masked.set_causal(TOP_LEFT)?,
                Rule::CausalBottomRight => masked.set_causal(BOTTOM_RIGHT)?,
                Rule::KeyLengths(lengths) => join(&mut masked.key_lengths, lengths, usize::min),
                Rule::QueryLengths(lengths) => join(&mut masked.query_lengths, lengths, usize::min),
                Rule::KeyStarts(starts) => join(&mut masked.key_starts, starts, usize::max),
                Rule::Window(window) => masked.add_window(problem, *window)?,
                Rule::Prefix(_)
                | Rule::Chunked(_)
                | Rule::Dilated(_)
                | Rule::Documents(_)
                | Rule::Boolean(_)
                | Rule::BlockSparse(_) => return Err(format!("the mask '{}'", rule_name(rule))),
            }
        }
        Ok(masked)
    }

    fn set_causal(&mut self, alignment: i64) -> Result<(), String> {
        if self.causal != 0 && self.causal != alignment {
            return Err("causal masks of both alignments at once".to_owned());
        }
        self.causal = alignment;
        Ok(())
    }

    fn add_window(&mut self, problem: &Problem, window: Window) -> Result<(), String> {
        let alignment = match window.alignment {
            Alignment::TopLeft => TOP_LEFT,
            Alignment::BottomRight => BOTTOM_RIGHT,
        };
        if self.window_alignment != 0 && self.window_alignment != alignment {
            return Err("windows of both alignments at once".to_owned());
        }
        self.window_alignment = alignment;
        // No key is farther from any position than this: a wider window admits no more.
        let farthest = problem.query_len.saturating_add(problem.key_len);
        let least = |held: Option<i64>, new: Option<usize>| {
            let new = new.map(|new| new.min(farthest) as i64);
            held.into_iter().chain(new).min()
        };
        self.window_left = least(self.window_left, window.left);
        self.window_right = least(self.window_right, window.right);
        Ok(())
    }
}

/// The rule that admits what both do.
fn join(held: &mut Option<Vec<usize>>, new: &[usize], both: fn(usize, usize) -> usize) {
    *held = Some(match held.take() {
        None => new.to_vec(),
        Some(held) => held.into_iter().zip(new).map(|(held, &new)| both(held, new)).collect(),
    });
}

/// The name of a rule, as in `PROTOCOL.md`.
pub(super) const fn rule_name(rule: &Rule) -> &'static str {
    match rule {
        Rule::CausalTopLeft => "causal-top-left",
        Rule::CausalBottomRight => "causal-bottom-right",
        Rule::KeyLengths(_) => "key-lengths",
        Rule::KeyStarts(_) => "key-starts",
        Rule::QueryLengths(_) => "query-lengths",
        Rule::Window(_) => "window",
        Rule::Prefix(_) => "prefix",
        Rule::Chunked(_) => "chunked",
        Rule::Dilated(_) => "dilated",
        Rule::Documents(_) => "documents",
        Rule::Boolean(_) => "boolean",
        Rule::BlockSparse(_) => "block-sparse",
    }
}

/// The rules that a manifest has numbers for.
pub(super) const RULES: [&str; 6] = [
    "causal-top-left",
    "causal-bottom-right",
    "key-lengths",
    "key-starts",
    "query-lengths",
    "window",
];

/// The name of a layout, as in `PROTOCOL.md`.
pub(super) const fn layout_name(layout: &Layout) -> &'static str {
    match layout {
        Layout::Contiguous => "contiguous",
        Layout::Strided(_) => "strided",
        Layout::Ragged(_) => "ragged",
        Layout::Paged(_) => "paged",
    }
}

/// The layouts that a manifest has numbers for.
pub(super) const LAYOUTS: [&str; 3] = ["contiguous", "strided", "ragged"];

/// A tensor that stands where the layout places it, and the name of the upstream gradient that stands
/// likewise.
pub(super) const PLACED: [(&str, Placed); 10] = [
    ("query", Placed::Query),
    ("key", Placed::Key),
    ("value", Placed::Value),
    ("output", Placed::Output),
    ("lse", Placed::Lse),
    ("output_gradient", Placed::Output),
    ("lse_gradient", Placed::Lse),
    ("query_gradient", Placed::QueryGradient),
    ("key_gradient", Placed::KeyGradient),
    ("value_gradient", Placed::ValueGradient),
];

/// Where element `[0, 0, 0, 0]` of a tensor stands, and the distances along
/// `[batch, head, position, entry]`, in elements.
pub(super) fn strides_of(problem: &Problem, placed: Placed) -> Strides {
    let shape @ [_, heads, _, entries] = problem.placed_shape(placed);
    let dense = Strides::dense(shape, [0, 1, 2, 3]);
    if problem.stands_contiguous(placed) {
        return dense;
    }
    match &problem.layout {
        Layout::Contiguous | Layout::Paged(_) => dense,
        Layout::Strided(strided) => match placed {
            Placed::Query | Placed::QueryGradient => strided.query,
            Placed::Key | Placed::KeyGradient => strided.key,
            Placed::Value | Placed::ValueGradient => strided.value,
            Placed::Output => strided.output,
            Placed::Lse => dense,
        },
        Layout::Ragged(ragged) => {
            let elements = problem.buffer_len(placed);
            let strides = match placed {
                Placed::Lse => [0, ragged.query_rows, 1, 1],
                _ => [0, entries, heads * entries, 1],
            };
            Strides { elements, offset: 0, strides }
        }
    }
}

/// What is known of a problem besides the problem.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    pub(super) has_lse_gradient: bool,
    /// Whether every row of every tensor of the operation begins at a multiple of 16 bytes and is a
    /// multiple of 16 bytes long.
    pub(super) aligned: bool,
}

/// The numbers of a problem, by name (`MANIFEST.md`, "Numbers of a problem").
/// The LSE and its gradient stand as in the problem `lse`.
pub(super) fn names_of(
    problem: &Problem,
    lse: &Problem,
    masked: &Masked,
    about: Circumstances,
) -> Names {
    let mut names = Names::default();
    // Shapes of tensors that can be addressed fit.
    let mut integer = |name: &str, value: usize| {
        names.set(name, Value::Integer(i64::try_from(value).unwrap_or(i64::MAX)));
    };
    let Problem { batch, query_heads, key_heads, query_len, key_len, head_dim, value_dim, .. } =
        *problem;
    for (name, value) in [
        ("batch", batch),
        ("query_heads", query_heads),
        ("key_heads", key_heads),
        ("query_len", query_len),
        ("key_len", key_len),
        ("head_dim", head_dim),
        ("value_dim", value_dim),
        ("element_bytes", problem.format.bytes()),
    ] {
        integer(name, value);
    }
    for (tensor, placed) in PLACED {
        let problem = if placed == Placed::Lse { lse } else { problem };
        let [batch, head, row, entry] = strides_of(problem, placed).strides;
        integer(&format!("{tensor}_batch_stride"), batch);
        integer(&format!("{tensor}_head_stride"), head);
        integer(&format!("{tensor}_row_stride"), row);
        integer(&format!("{tensor}_entry_stride"), entry);
    }
    let (query_rows, key_rows) = match &problem.layout {
        Layout::Ragged(ragged) => (ragged.query_rows, ragged.key_rows),
        _ => (batch * query_len, batch * key_len),
    };
    integer("query_rows", query_rows);
    integer("key_rows", key_rows);
    let mut signed = |name: &str, value: i64| names.set(name, Value::Integer(value));
    signed("causal", masked.causal);
    signed("window_left", masked.window_left.unwrap_or(-1));
    signed("window_right", masked.window_right.unwrap_or(-1));
    signed("window_alignment", masked.window_alignment);
    for (name, value) in [
        ("has_query_lengths", masked.query_lengths.is_some()),
        ("has_key_lengths", masked.key_lengths.is_some()),
        ("has_key_starts", masked.key_starts.is_some()),
        ("has_lse_gradient", about.has_lse_gradient),
        ("aligned", about.aligned),
        ("ragged", matches!(problem.layout, Layout::Ragged(_))),
    ] {
        names.set(name, Value::Truth(value));
    }
    names.set("scale", Value::Number(problem.scale_f64()));
    names.set("softcap", Value::Number(problem.softcap.map_or(0.0, |softcap| softcap.cap)));
    names.set("format", Value::Word(problem.format.name().to_owned()));
    names.set("layout", Value::Word(layout_name(&problem.layout).to_owned()));
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashproof_spec::format::Format;
    use flashproof_spec::mask::{Mask, Site};

    fn problem(rules: Vec<Rule>) -> Problem {
        let problem = Problem { batch: 2, key_len: 9, ..Problem::new(Format::F32, 1, 6, 8) };
        Problem { mask: Mask { rules }, ..problem }
    }

    fn window(left: usize, right: Option<usize>, alignment: Alignment) -> Rule {
        Rule::Window(Window { left: Some(left), right, alignment })
    }

    /// Every problem that is told in numbers is the same problem when it is written back as rules.
    #[test]
    fn joined_rules_admit_what_all_of_them_do() {
        let rules = vec![
            Rule::CausalBottomRight,
            Rule::KeyLengths(vec![8, 5]),
            Rule::KeyLengths(vec![7, 9]),
            Rule::QueryLengths(vec![6, 4]),
            Rule::QueryLengths(vec![5, 6]),
            Rule::KeyStarts(vec![1, 0]),
            Rule::KeyStarts(vec![0, 2]),
            window(usize::MAX, Some(2), Alignment::BottomRight),
            window(4, None, Alignment::BottomRight),
            Rule::CausalBottomRight,
        ];
        let asked = problem(rules);
        let masked = Masked::of(&asked).expect("rules that have numbers");
        assert_eq!((masked.window_left, masked.window_right), (Some(4), Some(2)));
        let told = problem(vec![
            Rule::CausalBottomRight,
            Rule::KeyLengths(masked.key_lengths.expect("lengths")),
            Rule::QueryLengths(masked.query_lengths.expect("lengths")),
            Rule::KeyStarts(masked.key_starts.expect("starts")),
            window(4, Some(2), Alignment::BottomRight),
        ]);
        for (batch, query, key) in ndarray::indices((2, 6, 9)) {
            let site = Site { batch, head: 0, query, key };
            assert_eq!(told.sees(site), asked.sees(site), "{site:?}");
        }
    }

    #[test]
    fn a_huge_window_admits_no_more_than_the_widest_that_is_told() {
        let asked = problem(vec![window(usize::MAX, None, Alignment::TopLeft)]);
        let masked = Masked::of(&asked).expect("a window");
        let left = usize::try_from(masked.window_left.expect("a bound")).expect("not negative");
        let told = problem(vec![window(left, None, Alignment::TopLeft)]);
        for (batch, query, key) in ndarray::indices((2, 6, 9)) {
            let site = Site { batch, head: 0, query, key };
            assert_eq!(told.sees(site), asked.sees(site), "{site:?}");
        }
    }

    #[test]
    fn what_has_no_numbers_is_named() {
        for (rules, named) in [
            (vec![Rule::CausalTopLeft, Rule::CausalBottomRight], "both alignments"),
            (
                vec![window(1, None, Alignment::TopLeft), window(1, None, Alignment::BottomRight)],
                "both alignments",
            ),
            (
                vec![Rule::Dilated(flashproof_spec::mask::Dilated {
                    step: 2,
                    alignment: Alignment::TopLeft,
                })],
                "dilated",
            ),
        ] {
            let refused = Masked::of(&problem(rules)).expect_err("no numbers");
            assert!(refused.contains(named), "{refused}");
        }
    }

    #[test]
    fn strides_lead_where_elements_stand() {
        use flashproof_spec::layout::{Ragged, Strided};
        let plain = problem(vec![Rule::QueryLengths(vec![6, 3]), Rule::KeyLengths(vec![4, 9])]);
        let ragged = Ragged {
            query_starts: vec![4, 0],
            query_rows: 12,
            key_starts: vec![0, 5],
            key_rows: 15,
        };
        for layout in [
            Layout::Contiguous,
            Layout::Strided(Strided::bshd(&plain)),
            Layout::Strided(Strided::transposed(&plain)),
            Layout::Ragged(ragged),
        ] {
            let problem = Problem { layout: layout.clone(), ..plain.clone() };
            for (name, placed) in PLACED {
                let Strides { offset, strides, .. } = strides_of(&problem, placed);
                for ([b, h, p, e], stands) in problem.owned(placed) {
                    let starts = match &layout {
                        Layout::Ragged(ragged) if name.starts_with(['k', 'v']) => {
                            ragged.key_starts[b]
                        }
                        Layout::Ragged(ragged) => ragged.query_starts[b],
                        _ => 0,
                    };
                    let place = [b, h, p + starts, e];
                    let steps = place.iter().zip(strides).map(|(index, stride)| index * stride);
                    assert_eq!(offset + steps.sum::<usize>(), stands, "{name} {place:?}");
                }
            }
        }
    }
}
