//! A survey as a plot: bytes moved, and bytes held, over the length.

use std::io;
use std::ops::Range;

use flashproof_spec::format::Format;
use flashproof_spec::traffic::{dense, streamed};
use plotters::coord::Shift;
use plotters::coord::combinators::BindKeyPoints;
use plotters::prelude::*;

use super::measure::{Point, Shape};
use super::words::{asked, short_name};
use super::{Series, Survey};

const SIZE: (u32, u32) = (1000, 560);
const LEGEND_LINE: i32 = 24;
const FONT: &str = "sans-serif";
const TEXT: u32 = 14;
const TITLE: u32 = 16;
const GREY: RGBColor = RGBColor(110, 110, 110);
/// Told apart by people with any kind of colour vision (Okabe and Ito); markers differ, too.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Curve = Vec<(f64, f64)>;
type Drew = Result<(), DrawingAreaErrorKind<io::Error>>;

/// Series that moved and held the same bytes, drawn as one.
struct Drawn<'a> {
    series: &'a Series,
    label: String,
    /// The bytes that `FAS:io.traffic.streamed` foretells, where it does.
    foretold: Curve,
}

/// Draws a survey of at least one series.
///
/// # Errors
/// Where there is nothing to draw.
pub fn svg(survey: &Survey) -> io::Result<String> {
    if survey.series.is_empty() {
        return Err(io::Error::other("nothing was measured"));
    }
    let drawn = drawn(survey);
    let mut text = String::new();
    draw(survey, &drawn, &mut text).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(text)
}

/// Series of a kernel and pass that have the same bytes in several formats become one.
fn drawn(survey: &Survey) -> Vec<Drawn<'_>> {
    let mut drawn: Vec<Drawn<'_>> = Vec::new();
    for series in &survey.series {
        let alike = |other: &Series| {
            let bytes = |point: &Point| (point.total(), point.held);
            (&other.kernel, other.pass) == (&series.kernel, series.pass)
                && other.points.iter().map(bytes).eq(series.points.iter().map(bytes))
        };
        if let Some(known) = drawn.iter_mut().find(|known| alike(known.series)) {
            known.label = format!("{}, {}", known.label, series.format);
            continue;
        }
        let label =
            format!("{} {}, {}", short_name(&series.kernel), series.pass.name(), series.format);
        drawn.push(Drawn { series, label, foretold: foretold(survey, series) });
    }
    drawn
}

/// Multiples of the lengths' greatest common divisor, from the shortest to the longest.
fn lengths(survey: &Survey) -> impl Iterator<Item = usize> + '_ {
    let divisor = survey.lengths.iter().copied().reduce(gcd).unwrap_or(1);
    let (first, last) = (survey.lengths.first(), survey.lengths.last());
    let range = *first.unwrap_or(&1)..=*last.unwrap_or(&1);
    range.step_by(divisor)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn shape(survey: &Survey, format: Format, length: usize) -> Shape {
    Shape { format, length, head_dim: survey.head_dim, causal: survey.causal }
}

fn foretold(survey: &Survey, series: &Series) -> Curve {
    let Some(tile) = series.judgement.query_tile else { return Vec::new() };
    let moved = |length| {
        let problem = shape(survey, series.format, length).problem();
        (length as f64, streamed(&problem, series.lse_format, tile).total() as f64)
    };
    lengths(survey).map(moved).collect()
}

fn narrowest(survey: &Survey) -> Option<&Series> {
    survey.series.iter().min_by_key(|series| series.format.bytes())
}

/// What a kernel moves at least that stores scores, in the narrowest format measured.
fn dense_curve(survey: &Survey) -> Curve {
    let Some(narrowest) = narrowest(survey) else { return Curve::new() };
    let moved = |length| {
        let problem = shape(survey, narrowest.format, length).problem();
        (length as f64, dense(&problem, narrowest.lse_format, Format::F32).total() as f64)
    };
    lengths(survey).map(moved).collect()
}

fn draw(survey: &Survey, drawn: &[Drawn<'_>], text: &mut String) -> Drew {
    let rows = drawn.len().div_ceil(2) as i32 + 1;
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (charts, legend) = root.split_vertically(SIZE.1 as i32 - rows * LEGEND_LINE);
    let (left, right) = charts.split_horizontally(SIZE.0 / 2);
    let moved = Panel {
        title: "Global memory moved (read and written)",
        measured: drawn.iter().map(|it| (curve(it, Point::total), it.foretold.clone())).collect(),
        dense: dense_curve(survey),
    };
    let held = Panel {
        title: "Global memory held (inputs, outputs, scratch)",
        measured: drawn.iter().map(|it| (curve(it, |point| point.held), Curve::new())).collect(),
        dense: Curve::new(),
    };
    draw_panel(&root, &left, survey, moved)?;
    draw_panel(&root, &right, survey, held)?;
    draw_legend(&legend, survey, drawn)?;
    root.present()
}

fn curve(drawn: &Drawn<'_>, bytes: fn(&Point) -> u64) -> Curve {
    let of = |point: &Point| (point.length as f64, bytes(point) as f64);
    drawn.series.points.iter().map(of).collect()
}

/// A panel.
struct Panel {
    title: &'static str,
    /// The points of each series, and the line that they are expected on; without one, it goes through
    /// the points.
    measured: Vec<(Curve, Curve)>,
    /// A line to compare with.
    dense: Curve,
}

/// Draws a panel on its area; markers on the `root`, in whose pixels their places are known.
fn draw_panel(root: &Area<'_>, area: &Area<'_>, survey: &Survey, panel: Panel) -> Drew {
    let Panel { title, measured, dense } = panel;
    let points = || measured.iter().flat_map(|(points, _)| points);
    let x_range = around(points().map(|(x, _)| *x), 1.15);
    let y_range = around(points().chain(&dense).map(|(_, y)| *y), 1.5);
    let ticks = powers_of_four(&y_range);
    let lengths = survey.lengths.iter().map(|length| *length as f64).collect();
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .caption(title, (FONT, TITLE))
        .x_label_area_size(46)
        .y_label_area_size(74)
        .build_cartesian_2d(
            x_range.log_scale().with_key_points(lengths),
            y_range.log_scale().with_key_points(ticks),
        )?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GREY.mix(0.25))
        .axis_style(GREY)
        .x_desc("T, queries and keys")
        .label_style((FONT, TEXT))
        .axis_desc_style((FONT, TEXT))
        .x_label_formatter(&|x| format!("{x}"))
        .y_label_formatter(&|y| bytes_in_words(*y))
        .draw()?;
    chart.draw_series(DashedLineSeries::new(dense, 6, 4, GREY.stroke_width(2)))?;
    for (index, (points, foretold)) in measured.iter().enumerate() {
        let colour = colour(index);
        let line = if foretold.is_empty() { points } else { foretold };
        let style = colour.stroke_width(if foretold.is_empty() { 1 } else { 2 });
        chart.draw_series(LineSeries::new(line.clone(), style))?;
        points.iter().try_for_each(|point| mark(root, index, chart.backend_coord(point)))?;
    }
    Ok(())
}

fn draw_legend(area: &Area<'_>, survey: &Survey, drawn: &[Drawn<'_>]) -> Drew {
    let style = TextStyle::from((FONT, TEXT).into_font()).color(&BLACK);
    let text = |words: String, x, y| area.draw(&Text::new(words, (x + 26, y - 7), style.clone()));
    for (index, Drawn { series, label, .. }) in drawn.iter().enumerate() {
        let (x, y) = place(index);
        area.draw(&PathElement::new([(x - 18, y), (x + 18, y)], colour(index).stroke_width(2)))?;
        mark(area, index, (x, y))?;
        let line = series.judgement.query_tile;
        let line = line.map(|tile| format!("; line: derived, tiles of {tile} queries"));
        text(format!("{label}{}", line.unwrap_or_default()), x, y)?;
    }
    let (x, y) = place(drawn.len().next_multiple_of(2));
    for dash in [x - 18, x - 5, x + 8] {
        let ends = [(dash, y), (dash + 8, y)];
        area.draw(&PathElement::new(ends, GREY.stroke_width(2)))?;
    }
    let format = narrowest(survey).map_or_else(String::new, |it| format!(", {}", it.format));
    text(format!("the least of kernels that store their scores in f32{format}"), x, y)?;
    let (x, y) = place(drawn.len().next_multiple_of(2) + 1);
    text(format!("For {}", asked(survey)), x - 44, y)
}

/// Where an entry of the legend stands, in two columns.
const fn place(index: usize) -> (i32, i32) {
    (40 + (index as i32 % 2) * (SIZE.0 as i32 / 2), 10 + (index as i32 / 2) * LEGEND_LINE)
}

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// A marker of its own for each of four series, at a pixel.
fn mark(area: &Area<'_>, index: usize, at: (i32, i32)) -> Drew {
    let colour = colour(index);
    match index % 4 {
        0 => area.draw(&Circle::new(at, 5, colour.filled())),
        1 => area.draw(&TriangleMarker::new(at, 6, colour.filled())),
        2 => area.draw(&Cross::new(at, 5, colour.stroke_width(2))),
        _ => area.draw(&Circle::new(at, 5, colour.stroke_width(2))),
    }
}

fn around(values: impl Iterator<Item = f64>, factor: f64) -> Range<f64> {
    let (least, greatest) =
        values.fold((f64::INFINITY, 0.0_f64), |(a, b), value| (a.min(value), b.max(value)));
    least / factor..greatest * factor
}

fn powers_of_four(range: &Range<f64>) -> Vec<f64> {
    (0..32).map(|power| 4_f64.powi(power)).filter(|it| range.contains(it)).collect()
}

fn bytes_in_words(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut rest = bytes;
    let mut unit = units.iter();
    let mut name = unit.next().copied().unwrap_or_default();
    while rest >= 1024.0
        && let Some(next) = unit.next()
    {
        (rest, name) = (rest / 1024.0, next);
    }
    format!("{rest} {name}")
}
