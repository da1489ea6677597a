//! The kill matrix as one HTML page that needs nothing else.

use askama::Template;

use super::matrix::{Count, Matrix, Row, RuleCell, Sight};
use super::words::{accepted, command, described, extent, fraction, kill, misses, ratio, sight};

/// The page.
#[derive(Template)]
#[template(path = "mutants.html")]
struct Page<'a> {
    matrix: &'a Matrix,
    command: String,
    extent: String,
    faults: Vec<Line<'a>>,
    controls: Vec<Line<'a>>,
    rules: Vec<Bar<'a>>,
    killed: usize,
    described: usize,
    flagged: usize,
}

/// A specimen.
struct Line<'a> {
    row: &'a Row,
    kills: Vec<String>,
    clauses: Vec<(&'static str, String)>,
    ratio: String,
    sights: Vec<Cell>,
}

/// What a rule says of a specimen.
struct Cell {
    own: Said,
    ours: Said,
}

/// A sign, a class for its colour, and counts.
struct Said {
    class: &'static str,
    sign: &'static str,
    fraction: String,
}

/// A rule, with shares of the faults in percent.
struct Bar<'a> {
    rule: &'a super::matrix::RuleColumn,
    /// On its own inputs, and on ours.
    shares: [Shares; 2],
    /// Wrong answers accepted.
    accepted: String,
    right: (String, String),
}

struct Shares {
    misses: String,
    caught: usize,
    missed: usize,
    unseen: usize,
}

/// Renders the page.
///
/// # Errors
/// None but those of memory: the template is compiled in.
pub fn render(matrix: &Matrix) -> Result<String, askama::Error> {
    Page {
        matrix,
        command: command(matrix),
        extent: extent(matrix),
        faults: matrix.faults().map(|row| Line::new(matrix, row)).collect(),
        controls: matrix.controls().map(|row| Line::new(matrix, row)).collect(),
        rules: (0..matrix.rules.len()).map(|index| Bar::new(matrix, index)).collect(),
        killed: matrix.faults().filter(|row| row.is_killed()).count(),
        described: matrix.faults().filter(|row| !row.described_by().is_empty()).count(),
        flagged: matrix.controls().filter(|row| row.is_killed()).count(),
    }
    .render()
}

impl<'a> Line<'a> {
    fn new(matrix: &Matrix, row: &'a Row) -> Self {
        Self {
            row,
            kills: matrix.formats.keys().map(|format| kill(row.kills.get(format))).collect(),
            clauses: described(row),
            ratio: ratio(row.strongest()),
            sights: row.rules.iter().map(Cell::new).collect(),
        }
    }
}

impl Cell {
    fn new(cell: &RuleCell) -> Self {
        Self { own: Said::new(cell.own), ours: Said::new(cell.ours) }
    }
}

impl Said {
    fn new(count: Count) -> Self {
        let class = match count.sight() {
            Sight::Caught => "caught",
            Sight::Missed => "missed",
            Sight::Unseen => "unseen",
        };
        let (sign, fraction) = sight(count);
        Self { class, sign, fraction }
    }
}

impl<'a> Bar<'a> {
    fn new(matrix: &'a Matrix, index: usize) -> Self {
        let shares = |of: fn(&RuleCell) -> Count| {
            let sights = matrix.sights(index, of);
            Shares {
                misses: misses(sights),
                caught: sights.caught,
                missed: sights.missed,
                unseen: sights.unseen,
            }
        };
        let rule = &matrix.rules[index];
        Self {
            rule,
            shares: [shares(|cell| cell.own), shares(|cell| cell.ours)],
            accepted: accepted(matrix.wrong_answers(index)),
            right: (fraction(rule.right_on_own), fraction(rule.right_on_ours)),
        }
    }
}

impl Shares {
    /// Width of a bar in pixels.
    #[allow(clippy::unused_self)] // the template asks a bar
    const fn width(&self) -> usize {
        200
    }

    fn of_width(&self, part: usize) -> usize {
        let all = self.caught + self.missed + self.unseen;
        (self.width() * part).checked_div(all).unwrap_or(0)
    }

    /// Width of those looked at.
    fn seen(&self) -> usize {
        self.of_width(self.caught + self.missed)
    }

    /// Width of those missed.
    fn missed(&self) -> usize {
        self.of_width(self.missed)
    }
}
