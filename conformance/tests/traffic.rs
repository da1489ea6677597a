//! Memory traffic of the CUDA kernels, byte for byte: derived numbers against counted ones.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use flashproof_conformance::adapter::Subject;
use flashproof_conformance::adapter::compiled::Compiled;
use flashproof_conformance::inputs::{Family, Scores, generate};
use flashproof_conformance::report::Outcome;
use flashproof_conformance::suite::DEFAULT_SEED;
use flashproof_conformance::traffic::judge::{Memory, Traffic};
use flashproof_conformance::traffic::markdown::table_row;
use flashproof_conformance::traffic::measure::Pass;
use flashproof_conformance::traffic::{self, Plan, Series, Survey, TrafficError};
use flashproof_ptx::Space;
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Alignment, Mask, Rule, Window};
use flashproof_spec::problem::Problem;
use flashproof_spec::traffic::streamed;

/// A manifest of the CUDA kernels, as a kernel's name.
fn kernel(name: &str) -> String {
    format!("ptx:../kernels/cuda/manifests/{name}.toml")
}

/// The queries that a block of every forward kernel keeps.
const QUERY_TILE: usize = 64;

/// Forward kernels that are launched once, the formats that they take, and their largest head dims.
const STREAMING: [(&str, &[Format], &[usize]); 3] = [
    ("tensor_cores", &[Format::Bf16, Format::F16], &[32, 64, 96, 128]),
    ("tensor_cores_long_heads", &[Format::Bf16, Format::F16], &[256]),
    ("f32", &[Format::F32], &[32, 64, 96, 128]),
];

/// Bytes read and written by the forward pass of an opened kernel.
fn moved(kernel: &mut Compiled, problem: &Problem) -> (u128, u128) {
    let inputs = generate(problem, Family::of(Scores::Normal), DEFAULT_SEED).expect("inputs");
    kernel.begin(0, DEFAULT_SEED);
    kernel.forward(problem, &inputs).unwrap_or_else(|failure| panic!("{problem:?}: {failure}"));
    let launches = &kernel.counts().expect("the emulator counts").launches;
    let counted = launches.iter().map(|launch| launch.statistics.traffic_of(Space::Global));
    counted.fold((0, 0), |(read, written), it| {
        (read + u128::from(it.read), written + u128::from(it.written))
    })
}

fn opened(name: &str) -> Compiled {
    let kernel = kernel(name);
    let manifest = kernel.strip_prefix("ptx:").expect("a manifest");
    Compiled::emulated(manifest).unwrap_or_else(|error| panic!("{error}"))
}

/// Square and not, whole tiles and ragged ones, several heads and members, and every mask that is told
/// in numbers: arrays of lengths would be read, too.
fn problems(format: Format, head_dim: usize) -> Vec<Problem> {
    let window = |left, right, alignment| {
        Rule::Window(Window { left: Some(left), right: Some(right), alignment })
    };
    let one = |queries, keys, rules| Problem {
        key_len: keys,
        mask: Mask { rules },
        ..Problem::new(format, 1, queries, head_dim)
    };
    let narrow = head_dim - 3;
    vec![
        one(128, 128, vec![]),
        one(1, 1, vec![]),
        one(65, 130, vec![]),
        one(130, 65, vec![Rule::CausalTopLeft]),
        one(130, 65, vec![Rule::CausalBottomRight]),
        one(65, 190, vec![Rule::CausalBottomRight]),
        one(200, 200, vec![window(40, 0, Alignment::TopLeft)]),
        one(100, 170, vec![window(10, 7, Alignment::BottomRight)]),
        Problem {
            batch: 2,
            query_heads: 4,
            key_heads: 2,
            ..one(70, 70, vec![Rule::CausalTopLeft])
        },
        // Rows that are not whole 16 bytes, read entry by entry.
        Problem { head_dim: narrow, value_dim: narrow, ..one(70, 90, vec![]) },
        Problem { value_dim: head_dim - 8, ..one(70, 90, vec![Rule::CausalTopLeft]) },
    ]
}

#[test]
fn forward_kernels_move_exactly_what_is_derived() {
    for (name, formats, head_dims) in STREAMING {
        let mut kernel = opened(name);
        for &format in formats {
            for problem in head_dims.iter().flat_map(|&head_dim| problems(format, head_dim)) {
                let found = moved(&mut kernel, &problem);
                let derived = streamed(&problem, Format::F32, QUERY_TILE);
                assert_eq!(found, (derived.read, derived.written), "{name}: {problem:?}");
            }
        }
    }
}

/// What `dense.cu` reads and writes, from its three launches: tiles of 64 rows and columns.
fn dense_moves(problem: &Problem) -> (u128, u128) {
    let Problem { batch, query_heads, query_len, key_len, head_dim, value_dim, format, .. } =
        *problem;
    let [heads, queries, keys] = [batch * query_heads, query_len, key_len].map(|it| it as u128);
    let [head_dim, value_dim, e] = [head_dim, value_dim, format.bytes()].map(|it| it as u128);
    let tiles = |extent: u128| extent.div_ceil(64);
    let scores = 4 * queries * keys;
    let of_scores = (tiles(keys) * queries + tiles(queries) * keys) * head_dim * e;
    let of_output = tiles(value_dim) * scores + tiles(queries) * keys * value_dim * e;
    let read = of_scores + scores + of_output;
    let written = scores + (scores + 4 * queries) + queries * value_dim * e;
    (heads * read, heads * written)
}

#[test]
fn the_dense_kernel_moves_exactly_what_is_derived() {
    let mut kernel = opened("dense");
    for format in [Format::Bf16, Format::F16, Format::F32] {
        for problem in [64, 128].iter().flat_map(|&head_dim| problems(format, head_dim)) {
            let found = moved(&mut kernel, &problem);
            assert_eq!(found, dense_moves(&problem), "{problem:?}");
        }
    }
}

fn plan(kernels: &[&str], formats: &[Format], lengths: &[usize], head_dim: usize) -> Plan {
    Plan {
        kernels: kernels.iter().map(|name| kernel(name)).collect(),
        formats: formats.to_vec(),
        lengths: lengths.to_vec(),
        head_dim,
        causal: false,
        backward: false,
        seed: DEFAULT_SEED,
    }
}

fn run(plan: &Plan) -> Survey {
    traffic::run(plan, &|| {}).unwrap_or_else(|error| panic!("{error}"))
}

/// Bytes of shared memory of a block, from its tiles: for heads of up to 128 entries two stages of 64 keys
/// and values, through one of which the queries pass; for longer ones stages of 32, and the queries; in f32
/// the queries, 32 keys and values, their weights, and what each query sees. Rows are padded by 16 bytes.
fn shared_bytes(format: Format, head_dim: u64) -> u64 {
    let row = head_dim * format.bytes() as u64 + 16;
    match format {
        Format::F32 => (64 + 32 + 32) * row + 64 * (32 + 4) * 4 + 64 * 8,
        _ if head_dim <= 128 => 4 * 64 * row,
        _ => (4 * 32 + 64) * row,
    }
}

#[test]
fn constants_lie_where_the_tiles_put_them() {
    for (name, formats, head_dims) in STREAMING {
        for &head_dim in head_dims {
            for causal in [false, true] {
                let survey =
                    run(&Plan { causal, ..plan(&[name], formats, &[64, 128, 192], head_dim) });
                assert_eq!(survey.series.len(), formats.len(), "{:?}", survey.skipped);
                for series in &survey.series {
                    let shared = shared_bytes(series.format, head_dim as u64);
                    let found: Vec<_> = series.points.iter().map(|point| point.shared).collect();
                    assert_eq!(found, [shared; 3], "{name}, {}, {head_dim}", series.format);
                    // c = 2 M / (B d e): a quotient of whole numbers that f64 rounds once.
                    let tile = (QUERY_TILE * head_dim * series.format.bytes()) as f64;
                    let Traffic::Tiled(constants) = series.judgement.traffic else {
                        panic!("{name}, {head_dim}: {:?}", series.judgement.traffic);
                    };
                    let expected = 2.0 * shared as f64 / tile;
                    assert_eq!((constants.least, constants.greatest), (expected, expected));
                    assert_eq!(series.judgement.query_tile, Some(QUERY_TILE));
                }
                assert_eq!(survey.outcome(), Outcome::Passed);
            }
        }
    }
}

#[test]
fn flash_kernels_hold_memory_in_proportion_to_the_rows() {
    let names = ["tensor_cores", "tensor_cores_atomic", "split_keys", "f32"];
    // Not equally spaced, and long enough for the most splits.
    let lengths = [200, 256, 321, 448];
    let survey = run(&plan(&names, &[Format::Bf16, Format::F32], &lengths, 64));
    assert_eq!(survey.series.len(), names.len());
    // Bytes a row, of f32: D; D and a row of dQ; four splits of an output and an LSE.
    let rows = [4, 4 + 64 * 4, 4 * (64 * 4 + 4), 4];
    for (series, bytes) in survey.series.iter().zip(rows) {
        assert_eq!(series.judgement.memory, Memory::Affine, "{}", series.kernel);
        for point in &series.points {
            assert_eq!(point.scratch, point.length as u64 * bytes, "{}", series.kernel);
        }
    }
}

#[test]
fn the_dense_kernel_is_caught() {
    let survey = run(&plan(&["dense"], &[Format::Bf16, Format::F32], &[256, 512, 768], 64));
    let [narrow, wide] = survey.series.as_slice() else { panic!("two series") };
    for series in [narrow, wide] {
        let lengths_and_bytes =
            [256, 512, 768].map(|length| (length, (4 * length * length) as u64));
        assert_eq!(series.judgement.memory, Memory::Violated { lengths_and_bytes });
        assert_eq!(series.judgement.query_tile, None);
    }
    // 22 bytes a pair from blocks with 18,432 bytes, heads of 128 bytes.
    let Traffic::Violated(constants) = narrow.judgement.traffic else { panic!("violated") };
    assert_eq!((constants.least, constants.greatest), (24.75, 24.75));
    // In f32 M is little more than d^2 entries, and c is of no use.
    assert!(matches!(wide.judgement.traffic, Traffic::Tiled(_)));
    assert_eq!(survey.outcome(), Outcome::Failed);
}

#[test]
fn backward_passes_are_counted_apart() {
    let plan =
        Plan { backward: true, ..plan(&["f32", "dense"], &[Format::F32], &[32, 64, 96], 32) };
    let survey = run(&plan);
    let passes: Vec<_> =
        survey.series.iter().map(|series| (series.kernel.as_str(), series.pass)).collect();
    let (f32, dense) = (kernel("f32"), kernel("dense"));
    assert_eq!(
        passes,
        [(f32.as_str(), Pass::Forward), (&f32, Pass::Backward), (&dense, Pass::Forward)]
    );
    let [skipped] = survey.skipped.as_slice() else { panic!("{:?}", survey.skipped) };
    assert_eq!((skipped.kernel.as_str(), skipped.pass), (dense.as_str(), Pass::Backward));
    let [forward, backward, _] = survey.series.as_slice() else { panic!("three series") };
    assert!(matches!(backward.judgement.traffic, Traffic::NotJudged { .. }));
    for (point, forward) in backward.points.iter().zip(&forward.points) {
        // Gradients of query, key and value, and D of each row.
        assert_eq!(point.written, (point.length * (3 * 32 + 1) * 4) as u64);
        assert!(point.read > forward.read);
    }
}

/// The committed table, but for the lengths that take long.
#[test]
fn the_committed_table_is_what_is_measured() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("TRAFFIC.md");
    let committed = fs::read_to_string(path).expect("TRAFFIC.md");
    let formats = [Format::Bf16, Format::F16, Format::F32];
    let survey = run(&plan(&["tensor_cores", "f32", "dense"], &formats, &[64, 128, 256], 64));
    for series in &survey.series {
        let Series { description, format, pass, points, .. } = series;
        let title = format!("### {description}, {format}, {}\n", pass.name());
        let Some((_, section)) = committed.split_once(&title) else {
            panic!("no section '{title}'");
        };
        let table = section.split("\n### ").next().unwrap_or(section);
        for index in 0..points.len() {
            let row = table_row(&survey, series, index);
            assert!(table.lines().any(|line| line == row), "{title} lacks {row}");
        }
    }
}

#[test]
fn lengths_that_show_nothing_are_refused() {
    let refused = |lengths: &[usize]| {
        traffic::run(&plan(&["f32"], &[Format::F32], lengths, 64), &|| {}).expect_err("refused")
    };
    assert!(matches!(refused(&[1, 2]), TrafficError::TooFew { found: 2 }));
    assert!(matches!(refused(&[1, 2, 2]), TrafficError::Repeated { length: 2 }));
    assert!(matches!(refused(&[0, 1, 2]), TrafficError::Length { found: 0 }));
    assert!(matches!(refused(&[1, 2, usize::MAX]), TrafficError::Length { .. }));
}

fn flashproof(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flashproof"))
        .arg("traffic")
        .args(args)
        .output()
        .expect("it runs")
}

#[test]
fn the_exit_status_says_what_was_found() {
    let lengths = ["--lengths", "64,128,192"];
    let status = |args: &[&str]| flashproof(&[args, &lengths].concat()).status.code();
    let (tensor_cores, dense) = (kernel("tensor_cores"), kernel("dense"));
    assert_eq!(status(&[&tensor_cores]), Some(0));
    assert_eq!(status(&[&tensor_cores, &dense]), Some(1));
    // A format that it does not take: nothing is checked.
    assert_eq!(status(&[&tensor_cores, "--format", "f32"]), Some(2));
    let output = flashproof(&["builtin:naive"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("'builtin:naive' is no ptx:MANIFEST"), "{error}");
}

#[test]
fn files_are_written_beside_the_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (svg, markdown, json) = (file("plot.svg"), file("table.md"), file("counts.json"));
    let kernel = kernel("tensor_cores");
    let files = ["--svg", &svg, "--markdown", &markdown, "--json", &json];
    let output =
        flashproof(&[&[kernel.as_str(), "--lengths", "32,64,96", "--causal"], &files[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |path: &str| fs::read_to_string(path).expect("written");
    let plot = read(&svg);
    assert!(plot.starts_with("<svg") && plot.trim_end().ends_with("</svg>"));
    for label in ["Global memory moved", "tensor_cores forward, bf16", "64 KiB", ">\n96\n<"] {
        assert!(plot.contains(label), "no '{label}' in the plot");
    }
    let table = read(&markdown);
    assert!(table.contains("](plot.svg)") && table.contains("--causal"), "{table}");
    let counts: serde_json::Value = serde_json::from_str(&read(&json)).expect("JSON");
    // Queries, and the keys that two tiles of 64 queries see, twice; outputs and their LSE.
    let point = &counts["series"][0]["points"][2];
    let rows = 96 + 2 * (64 + 96);
    assert_eq!(point["read"], rows * 64 * 2);
    assert_eq!(point["written"], 96 * (64 * 2 + 4));
}
