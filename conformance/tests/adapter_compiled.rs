//! `ptx:` and `cuda:`: kernels of compilers, launched as manifests tell, right and wrong.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::adapter::compiled::Compiled;
use flashproof_conformance::adapter::{
    Backward, Choices, Failure, Options, OwnershipError, Subject, open,
};
use flashproof_conformance::case::Case;
use flashproof_conformance::inputs::{Family, Scores};
use flashproof_conformance::report::CaseReport;
use flashproof_conformance::run::run;
use flashproof_conformance::suite::{self, DEFAULT_SEED, Direction, Suite};
use flashproof_conformance::verdict::Verdict;
use flashproof_spec::format::Format;
use flashproof_spec::layout::{Layout, Strided, Strides};
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Inputs, Outputs};
use tempfile::TempDir;

const SEED: u64 = 0x5eed_0201;

fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests")
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/ptx/tests/data")
}

fn text(file: &str) -> String {
    let path = manifests().join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A manifest of the repository, with its kernels beside it, and what stands in the place of parts of both.
struct Changed {
    directory: TempDir,
}

impl Changed {
    /// Each part must be there.
    fn new(manifest: &str, changes: &[(&str, &str)], kernel: impl Fn(&str) -> String) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut manifest = text(manifest).replace("../../kernels/ptx/tests/data/", "");
        for (from, to) in changes {
            assert!(manifest.contains(from), "{from}");
            manifest = manifest.replace(from, to);
        }
        fs::write(directory.path().join("kernel.toml"), manifest).expect("a file");
        for file in ["triton_fwd_bf16_sm80.ptx", "nvrtc_fwd_bf16_sm80.ptx"] {
            let text = fs::read_to_string(fixtures().join(file)).expect(file);
            fs::write(directory.path().join(file), kernel(&text)).expect("a file");
        }
        Self { directory }
    }

    fn spec(&self) -> String {
        self.directory.path().join("kernel.toml").display().to_string()
    }

    fn open(&self) -> Compiled {
        Compiled::emulated(&self.spec()).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Causal attention of two heads, in two blocks.
fn problem() -> Problem {
    let mask = Mask::only(Rule::CausalTopLeft);
    Problem { mask, ..Problem::new(Format::Bf16, 2, 65, 64) }
}

fn case(problem: Problem) -> Case {
    Case::new(problem, Family::of(Scores::Normal), None, SEED)
}

fn report(subject: &mut dyn Subject, case: Case) -> CaseReport {
    let cases = [case];
    run(subject, Suite::Quick, &cases, |_| ()).expect("a run").remove(0)
}

/// What the suite makes of a manifest: the cases that pass, and the names of those that do not.
fn judged(manifest: &str, direction: Direction, formats: &[Format]) -> (usize, Vec<String>) {
    let mut subject = Compiled::emulated(&manifests().join(manifest).display().to_string())
        .unwrap_or_else(|error| panic!("{error}"));
    let mut cases = suite::cases(Suite::Quick, formats, DEFAULT_SEED);
    cases.retain(|case| direction.includes(case));
    let reports = run(&mut subject, Suite::Quick, &cases, |_| ()).expect("a run");
    let passing = reports.iter().filter(|it| it.verdict == Verdict::Pass).count();
    let failing = reports.iter().filter(|it| it.verdict.is_failure());
    (passing, failing.map(|it| format!("{}: {:?}", it.name, it.violations)).collect())
}

/// Every name in them is known, and every expression can be read.
#[test]
fn every_manifest_of_the_repository_is_read() {
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/cuda/manifests");
    let files = [manifests(), kernels].map(|directory| fs::read_dir(directory).expect("manifests"));
    let paths = files.into_iter().flatten().map(|file| file.expect("a file").path());
    let mut read = 0;
    for path in paths {
        Compiled::emulated(&path.display().to_string()).unwrap_or_else(|error| panic!("{error}"));
        read += 1;
    }
    assert!(read >= 10, "{read} manifests");
}

/// A NaN among values that the first query does not see reaches its row: a weight of 0 does not hide it
/// in a matrix product. All else that the kernels say they support is right.
fn assert_only_hidden_values_leak(manifest: &str, formats: &[Format]) {
    let (passing, failing) = judged(manifest, Direction::Forward, formats);
    assert!(passing >= 10 * formats.len(), "{manifest}: {passing} cases pass");
    assert_eq!(failing.len(), formats.len(), "{failing:#?}");
    for (name, format) in failing.iter().zip(formats) {
        let case = format!("{format}/reported/25-masked-key-leaks");
        assert!(name.starts_with(&case) && name.contains("FAS:fwd.special.invisible"), "{name}");
    }
}

#[test]
fn triton_kernels_are_right_but_for_hidden_values() {
    assert_only_hidden_values_leak("triton_sm80.toml", &[Format::F16, Format::Bf16]);
    assert_only_hidden_values_leak("triton_sm90.toml", &[Format::Bf16]);
}

/// One head alone, causal: few cases are.
#[test]
fn gradients_of_triton_kernels_are_right() {
    for manifest in ["triton_backward_sm80.toml", "triton_backward_sm90.toml"] {
        let (passing, failing) = judged(manifest, Direction::Backward, &[Format::Bf16]);
        assert!(passing > 0 && failing.is_empty(), "{manifest}: {passing} pass, {failing:#?}");
        println!("{manifest}: {passing} cases pass");
    }
}

#[test]
fn a_kernel_in_cuda_is_right_but_for_hidden_values() {
    assert_only_hidden_values_leak("nvrtc_sm80.toml", &[Format::Bf16]);
}

/// Rows, blocks and members that end anywhere.
#[test]
fn every_length_and_batch_passes() {
    let path = manifests().join("triton_sm80.toml").display().to_string();
    let mut subject = Compiled::emulated(&path).unwrap_or_else(|error| panic!("{error}"));
    for (batch, heads, len, entries) in
        [(1, 1, 1, 64), (2, 3, 63, 64), (1, 1, 64, 33), (3, 1, 65, 64), (1, 2, 200, 1)]
    {
        let mask = Mask::only(Rule::CausalBottomRight);
        let problem = Problem { batch, mask, ..Problem::new(Format::F16, heads, len, entries) };
        let report = report(&mut subject, case(problem));
        assert_eq!(report.verdict, Verdict::Pass, "{len}: {:?}", report.violations);
        assert!(report.policy.is_some() && report.lse.is_some());
    }
}

#[test]
fn faults_fail_the_case_and_name_their_clause() {
    let triton = "triton_sm80.toml";
    let stride = r#"{ i32 = "query_head_stride" }"#;
    let unchanged = |text: &str| text.to_owned();
    let noise = "[scratch.noise]\nformat = \"bf16\"\nelements = \"2 * 65 * 64\"\n\n[[forward]]";
    let faulty = [
        (
            "FAS:device.memory.bounds",
            Changed::new(
                triton,
                &[(r#"{ i32 = "query_len" }"#, r#"{ i32 = "query_len + 1" }"#)],
                unchanged,
            ),
        ),
        (
            "FAS:device.memory.aligned",
            Changed::new(triton, &[(stride, r#"{ i32 = "query_head_stride + 1" }"#)], unchanged),
        ),
        (
            "FAS:device.memory.initialised",
            Changed::new(
                triton,
                &[("{ pointer = \"value\" }", "{ pointer = \"noise\" }"), ("[[forward]]", noise)],
                unchanged,
            ),
        ),
        ("FAS:device.race.global", Changed::new(triton, &[(stride, "{ i32 = 0 }")], unchanged)),
        (
            "FAS:device.race.shared",
            Changed::new(triton, &[], |text| {
                let (before, after) = text.rsplit_once("bar.sync \t0;").expect("a barrier");
                format!("{before}{after}")
            }),
        ),
        (
            "FAS:device.copy.waited",
            Changed::new("nvrtc_sm80.toml", &[], |text| {
                text.replace("cp.async.wait_group 1;", "").replace("cp.async.wait_group \t1;", "")
            }),
        ),
    ];
    for (clause, changed) in faulty {
        let report = report(&mut changed.open(), case(problem()));
        let no_answer = report.no_answer.unwrap_or_else(|| panic!("{clause}: an answer"));
        assert_eq!(no_answer.clause, Some(clause), "{}", no_answer.reason);
        assert_eq!(report.verdict, Verdict::Fail, "{clause}");
        for part in ["forward[0]", "fwd", "line ", "thread (", "block ("] {
            assert!(no_answer.reason.contains(part), "{part}: {}", no_answer.reason);
        }
        assert!(report.reproduce.contains("?policy=") && report.reproduce.contains("&seed="));
    }
}

#[test]
fn a_written_input_is_named() {
    let change = ("{ pointer = \"lse\" }", "{ pointer = \"key\" }");
    let changed = Changed::new("triton_sm80.toml", &[change], str::to_owned);
    let mut subject = changed.open();
    // One block, so that its own reads do not race with the write.
    let mask = Mask::only(Rule::CausalTopLeft);
    let problem = Problem { mask, ..Problem::new(Format::Bf16, 1, 8, 64) };
    let inputs = case(problem.clone()).inputs().expect("inputs");
    let answer = subject.forward(&problem, &inputs);
    assert_eq!(answer, Err(Failure::InputChanged("key".to_owned())));
}

#[test]
fn rows_left_out_and_rows_beside_are_named() {
    let rows = |rows: &str| format!("{{ i32 = \"query_len {rows}\" }}");
    let asked = r#"{ i32 = "query_len" }"#;
    let fewer = Changed::new("triton_sm80.toml", &[(asked, &rows("- 1"))], str::to_owned);
    let one = Problem { query_heads: 1, key_heads: 1, ..problem() };
    let inputs = case(one.clone()).inputs().expect("inputs");
    let offset = 64 * 64;
    let unwritten = OwnershipError::Unwritten { tensor: "output", place: [0, 0, 64, 0], offset };
    assert_eq!(fewer.open().forward(&one, &inputs), Err(unwritten.into()));

    // Guards before and after leave room for a row that is not there.
    let guard = 64;
    let guarded = |shape| Strides::dense(shape, [0, 1, 2, 3]).guarded(guard);
    let layout = Layout::Strided(Strided {
        query: guarded(one.query_shape()),
        key: guarded(one.key_shape()),
        value: guarded(one.value_shape()),
        output: guarded(one.output_shape()),
    });
    let spare = "[scratch.spare]\nformat = \"f32\"\nelements = 128\n\n[[forward]]";
    let pad = "[pad]\nhead_dim = 64\nvalue_dim = 64\n";
    let strided = (r#"layouts = ["contiguous"]"#, r#"layouts = ["contiguous", "strided"]"#);
    let lse = ("{ pointer = \"lse\" }", "{ pointer = \"spare\" }");
    let right = [strided, (pad, ""), lse, ("[[forward]]", spare)];
    let one = Problem { layout, ..one };
    let answer =
        Changed::new("triton_sm80.toml", &right, str::to_owned).open().forward(&one, &inputs);
    let outputs = answer.unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(outputs.lse, None);
    let more = rows("+ 1");
    let wrong = [&right[..], &[(asked, more.as_str())]].concat();
    let beside = OwnershipError::Beside { tensor: "output", offset: guard + 65 * 64 };
    let answer =
        Changed::new("triton_sm80.toml", &wrong, str::to_owned).open().forward(&one, &inputs);
    assert_eq!(answer, Err(beside.into()));
}

#[test]
fn what_is_not_supported_is_named() {
    let path = manifests().join("triton_sm80.toml").display().to_string();
    let mut subject = Compiled::emulated(&path).unwrap_or_else(|error| panic!("{error}"));
    let mask = |rule| Mask::only(rule);
    for (problem, named) in [
        (Problem { mask: Mask::full(), ..problem() }, "not causal"),
        (Problem { mask: mask(Rule::KeyLengths(vec![3])), ..problem() }, "key-lengths"),
        (Problem { head_dim: 65, ..problem() }, "more than 64 entries"),
        (Problem { key_heads: 1, ..problem() }, "several query heads share"),
    ] {
        let inputs = case(problem.clone()).inputs().expect("inputs");
        match subject.forward(&problem, &inputs) {
            Err(Failure::Unsupported(what)) => assert!(what.contains(named), "{what}"),
            other => panic!("{named}: {other:?}"),
        }
    }
}

#[test]
fn numbers_that_come_to_nothing_cost_the_case_and_name_the_key() {
    for (from, to, parts) in [
        (
            "shared = 65536",
            "shared = \"1 / (head_dim - 64)\"",
            &["forward[0].shared", "head_dim - 64"][..],
        ),
        (
            "{ f32 = \"scale\" }",
            "{ f32 = \"1e300\" }",
            &["forward[0].arguments[6]", "1e300", "f32"],
        ),
        ("block = [128]", "block = [64]", &["forward[0]", "[64, 1, 1]", "128"]),
        ("block = [128]", "block = [\"query_len - 65\"]", &["forward[0].block[0]", "from 1 on"]),
        ("entry = \"fa_fwd\"", "entry = \"fa_bwd\"", &["no entry 'fa_bwd'"]),
        ("shared = 65536", "shared = 1048576", &["shared memory"]),
        ("triton_fwd_{format}_sm80", "absent_{format}", &["absent_bf16.ptx", "cannot read"]),
        ("    { pointer = \"key\" },\n", "", &["9 arguments for 10 parameters"]),
    ] {
        let changed = Changed::new("triton_sm80.toml", &[(from, to)], str::to_owned);
        let report = report(&mut changed.open(), case(problem()));
        let reason = report.no_answer.expect("no answer").reason;
        assert_eq!(report.verdict, Verdict::Crashed, "{reason}");
        assert!(parts.iter().all(|part| reason.contains(part)), "{reason}");
    }
}

#[test]
fn manifests_that_tell_of_no_kernel_are_refused() {
    for (from, to, parts) in [
        ("entry = \"fa_fwd\"\n", "", &["entry"][..]),
        ("shared = 65536", "shard = 65536", &["shard", "shared"]),
        ("grid = [", "grid = [1, 1, 1, ", &["forward[0].grid", "1 to 3"]),
        ("\"causal-top-left\"", "\"causal\"", &["supports.rules", "'causal'", "causal-top-left"]),
        (
            "{ pointer = \"key\" }",
            "{ pointer = \"keys\" }",
            &["forward[0].arguments[1]", "'keys'", "key"],
        ),
        ("{ pointer = \"key\" }", "{ struct = \"params\" }", &["arguments[1].struct", "'params'"]),
        ("{ i32 = \"query_len\" }", "{ i32 = \"rows\" }", &["arguments[5].i32", "rows"]),
        (
            "{ i32 = \"query_len\" }",
            "{ i32 = \"query_len +\" }",
            &["arguments[5].i32", "query_len +"],
        ),
        ("{format}", "{format", &["forward[0].ptx", "}"]),
        ("[tensors.output]", "[tensors.query]", &["tensors.query", "output"]),
        ("format = \"f32\"", "format = \"f31\"", &["tensors.output.format", "'f31'", "bf16"]),
        ("[formats.f16.", "[formats.f8.", &["f8", "bf16"]),
        ("base = \"standard\"", "base = \"fast\"", &["fast", "standard"]),
        ("flush_to_zero = true", "flush = true", &["flush", "flush_to_zero"]),
        ("\"highest-ampere\"", "\"highest\"", &["policies[1]", "'highest'", "highest-ampere"]),
        ("[\"forward\"]", "[\"forward\", \"backward\"]", &["backward", "launch"]),
        ("[\"forward\"]", "[\"merge\"]", &["merge"]),
        ("[[forward]]", "[let]\nscale = 1\n[[forward]]", &["let.scale", "scale"]),
        ("[[forward]]", "[let]\nx = \"y\"\ny = 1\n[[forward]]", &["let.x", "y"]),
        (
            "[[forward]]",
            "[scratch.query]\nformat = \"f32\"\nelements = 1\n[[forward]]",
            &["scratch.query"],
        ),
        (
            r#"layouts = ["contiguous"]"#,
            r#"layouts = ["strided"]"#,
            &["supports.layouts", "padded"],
        ),
        ("name = ", "include = \"absent.toml\"\nname = ", &["absent.toml", "cannot be read"]),
    ] {
        let changed = Changed::new("triton_sm80.toml", &[(from, to)], str::to_owned);
        let Err(error) = Compiled::emulated(&changed.spec()) else {
            panic!("{from} -> {to} is taken");
        };
        let text = error.to_string();
        assert!(text.contains("kernel.toml"), "{text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{to}: {text}");
    }
    let choices = ["policy=fast", "policy", "seed=x", "sed=1", ""];
    for choice in choices {
        let spec = format!("{}?{choice}", manifests().join("triton_sm80.toml").display());
        assert!(Compiled::emulated(&spec).is_err(), "{choice}");
    }
    let absent = open("ptx:/nonexistent/kernel.toml", &Options::default()).err().expect("none");
    assert!(absent.to_string().contains("/nonexistent/kernel.toml"), "{absent}");
}

/// An instruction that the emulator does not run is named, with line and text: when the manifest is
/// opened, where it names the file, and by each case otherwise.
#[test]
fn refused_instructions_are_named() {
    let sm100 =
        fs::read_to_string(fixtures().join("triton_fwd_bf16_sm100.ptx")).expect("a fixture");
    let named = [("triton_fwd_{format}_sm80", "triton_fwd_bf16_sm80")];
    let changed = Changed::new("triton_sm80.toml", &named, |_| sm100.clone());
    let error = Compiled::emulated(&changed.spec()).err().expect("an error").to_string();
    assert!(error.contains("forward[0].ptx") && error.contains("line "), "{error}");
    let changed = Changed::new("triton_sm80.toml", &[], |_| sm100.clone());
    let report = report(&mut changed.open(), case(problem()));
    assert_eq!(report.verdict, Verdict::Unsupported);
    let reason = report.no_answer.expect("no answer").reason;
    assert!(reason.contains("by the emulator") && reason.contains("line "), "{reason}");
}

#[test]
fn a_policy_and_a_seed_can_be_chosen() {
    let path = manifests().join("triton_sm80.toml");
    let named = |choice: &str| {
        let spec = format!("{}?{choice}", path.display());
        Compiled::emulated(&spec).unwrap_or_else(|error| panic!("{error}"))
    };
    let inputs = case(problem()).inputs().expect("inputs");
    let answer = |choice: &str| named(choice).forward(&problem(), &inputs).expect("an answer");
    let accurate = answer("policy=accurate-rounded&seed=1");
    // The kernel does not race: the order of its warps changes nothing.
    assert_eq!(answer("policy=accurate-rounded&seed=2"), accurate);
    assert_ne!(answer("policy=lowest-ampere&seed=1"), accurate);
    let mut subject = named("policy=lowest-ampere&seed=7");
    assert_eq!(subject.policies(), ["lowest-ampere"]);
    let reached = subject.begin(0, 1);
    assert!(reached.ends_with("triton_sm80.toml?policy=lowest-ampere&seed=7"), "{reached}");
}

/// A kernel that is right under one policy and wrong under another.
struct Divided {
    kernel: Builtin,
    is_wrong: bool,
}

impl Subject for Divided {
    fn name(&self) -> &'static str {
        "divided"
    }

    fn description(&self) -> &'static str {
        "a kernel that one policy makes wrong"
    }

    fn profile(&mut self, format: Format) -> Result<Profile, Failure> {
        self.kernel.profile(format)
    }

    fn choices(&self) -> Choices {
        Choices::default()
    }

    fn policies(&self) -> Vec<String> {
        ["first", "second", "third"].map(str::to_owned).into()
    }

    fn begin(&mut self, policy: usize, seed: u64) -> String {
        self.is_wrong = policy == 1;
        format!("divided?policy={policy}&seed={seed}")
    }

    fn forward(&mut self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Failure> {
        if self.is_wrong && problem.query_len == 9 {
            return Err(Failure::Unsupported("nine queries".to_owned()));
        }
        let mut outputs = self.kernel.forward(problem, inputs)?;
        if self.is_wrong && problem.query_len == 8 {
            let query = &inputs.query;
            outputs.output = query.clone();
        }
        Ok(outputs)
    }

    fn backward(
        &mut self,
        problem: &Problem,
        inputs: &Inputs,
        cotangents: &Cotangents,
    ) -> Result<Backward, Failure> {
        self.kernel.backward(problem, inputs, cotangents)
    }
}

#[test]
fn the_worst_verdict_of_all_policies_is_the_case_s() {
    let kernel = Builtin::open("tiled").expect("a kernel");
    let mut subject = Divided { kernel, is_wrong: false };
    let problem = |len| Problem::new(Format::F32, 1, len, 4);
    let failing = report(&mut subject, case(problem(8)));
    assert_eq!(failing.verdict, Verdict::Fail);
    assert_eq!(failing.policy.as_deref(), Some("second"));
    assert!(failing.reproduce.contains("divided?policy=1&seed="), "{}", failing.reproduce);
    let passing = report(&mut subject, case(problem(7)));
    assert_eq!((passing.verdict, passing.policy.as_deref()), (Verdict::Pass, Some("first")));
    assert!(passing.not_discriminating.is_some());
    let unsupported = report(&mut subject, case(problem(9)));
    assert_eq!(unsupported.verdict, Verdict::Unsupported);
    assert_eq!(unsupported.policy.as_deref(), Some("second"));
}

fn flashproof(arguments: &[String]) -> (Option<i32>, String) {
    let program = env!("CARGO_BIN_EXE_flashproof");
    let output = Command::new(program).args(arguments).output().expect("the program");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).expect("text"))
}

/// The command that a report gives fails as the case did, under the same policy.
#[test]
fn a_reported_command_repeats_the_failure() {
    let path = manifests().join("triton_sm80.toml").display().to_string();
    let case = "bf16/reported/25-masked-key-leaks";
    let asked = ["check", &format!("ptx:{path}"), "--case", case].map(str::to_owned);
    let (status, text) = flashproof(&asked);
    assert_eq!(status, Some(1), "{text}");
    let line = text.lines().find_map(|line| line.trim().strip_prefix("reproduce"));
    let command = shlex::split(line.expect("a command")).expect("words");
    assert_eq!(command[0], "flashproof");
    assert!(command[2].contains("?policy=accurate-rounded&seed="), "{}", command[2]);
    let (status, again) = flashproof(&command[1..]);
    assert_eq!(status, Some(1), "{again}");
    for part in ["FAS:fwd.special.invisible", "got NaN"] {
        assert!(text.contains(part) && again.contains(part), "{part}: {text} {again}");
    }
}

#[test]
fn a_device_that_is_not_there_is_said_at_once() {
    let path = manifests().join("triton_sm80.toml").display().to_string();
    let (status, text) = flashproof(&["check".to_owned(), format!("cuda:{path}?seed=1")]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("a device computes in its own way"), "{text}");
    if let Err(error) = flashproof_cuda::Device::open() {
        let (status, text) = flashproof(&["check".to_owned(), format!("cuda:{path}")]);
        assert_eq!(status, Some(2), "{text}");
        assert!(text.contains(&error.to_string()), "{text}");
    }
}

/// Without a driver nothing is checked, and that is said; with one, a kernel passes there too.
#[test]
fn a_device_answers_or_is_said_to_be_absent() {
    let path = manifests().join("triton_sm80.toml").display().to_string();
    let mut subject = open(&format!("cuda:{path}"), &Options::default()).expect("a manifest");
    let report = report(subject.as_mut(), case(problem()));
    match flashproof_cuda::Device::open() {
        Err(error) => {
            assert_eq!(report.verdict, Verdict::Unsupported);
            let reason = report.no_answer.expect("no answer").reason;
            assert_eq!(reason, format!("unsupported: {error}"));
        }
        Ok(_) => assert_eq!(report.verdict, Verdict::Pass, "{:?}", report.no_answer),
    }
}
