//! What becomes of cases, whichever pass they ask for.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flashproof_conformance::adapter::exec::Exec;
use flashproof_conformance::adapter::{Failure, Options, Subject, open};
use flashproof_spec::format::Format;
use flashproof_spec::mask::Rule;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Outputs, Tensor};
use libtest_mimic::Trial;
use ndarray::{ArrayD, IxDyn};
use tempfile::TempDir;

use crate::adapter_support::conduct::{Fault, Pass, faults};
use crate::adapter_support::pointed;
use crate::worker;

/// For a case that is not answered. Answers take milliseconds, so that only a hang meets it.
const SHORT: Duration = Duration::from_secs(2);

/// For a case that is answered, however busy the machine is.
pub const LONG: Duration = Duration::from_secs(60);

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial("answers_are_the_kernels_own", answers_are_the_kernels_own),
        trial("extents_of_zero_are_cases_too", extents_of_zero_are_cases_too),
        trial("the_lse_is_optional", the_lse_is_optional),
        trial("a_format_not_declared_is_unsupported", a_format_not_declared_is_unsupported),
        trial("a_worker_says_what_it_does_not_support", a_worker_says_what_it_does_not_support),
        trial("a_case_that_can_not_be_posed_is_not_sent", a_case_that_can_not_be_posed_is_not_sent),
        trial("one_process_answers_all_cases", one_process_answers_all_cases),
        trial("a_worker_may_exit_at_the_end_of_its_input", a_worker_exits_at_the_end_of_its_input),
        trial("a_worker_that_exits_costs_the_next_case", a_worker_that_exits_costs_the_next_case),
        trial("a_dropped_worker_is_gone", a_dropped_worker_is_gone),
        trial("what_a_hung_worker_started_is_killed", what_a_hung_worker_started_is_killed),
        trial("a_worker_that_never_reads_times_out", a_worker_that_never_reads_times_out),
        trial("standard_error_does_not_block", standard_error_does_not_block),
        trial("the_end_of_standard_error_is_kept", the_end_of_standard_error_is_kept),
        trial("a_line_without_end_is_refused", a_line_without_end_is_refused),
        trial("a_removed_outputs_file_is_unreadable", a_removed_outputs_file_is_unreadable),
        trial("a_worker_may_not_change_its_mind", a_worker_may_not_change_its_mind),
        trial("a_worker_that_does_not_come_back_crashes", a_worker_that_does_not_come_back_crashes),
        trial("no_files_are_left_behind", no_files_are_left_behind),
    ];
    trials.extend(faults().map(|(fault, pass)| {
        Trial::test(format!("fault::{}::{pass:?}", fault.name).to_lowercase(), move || {
            costs_one_case(&fault, pass);
            Ok(())
        })
    }));
    trials
}

/// A test by its name.
pub fn trial(name: &str, test: fn()) -> Trial {
    Trial::test(name, move || {
        test();
        Ok(())
    })
}

/// The command of this program as a worker with `fault`.
pub fn command(fault: &str, file: &str) -> String {
    let program = std::env::current_exe().expect("the test program's path");
    let program = program.to_str().expect("a path in UTF-8");
    shlex::try_join([program, worker::SWITCH, fault, file]).expect("words without NUL")
}

pub fn start(fault: &str, file: &str, case_limit: Duration) -> Exec {
    let options = Options { start_limit: LONG, case_limit };
    Exec::start(&command(fault, file), &options).expect("a worker")
}

/// A case on which faults show.
pub fn masked() -> Problem {
    pointed::problem(Format::F32)
}

/// A case on which they do not.
pub fn unmasked() -> Problem {
    pointed::problem_with(Format::F32, Vec::new())
}

pub fn run(subject: &mut dyn Subject, problem: &Problem) -> Result<Outputs, Failure> {
    subject.forward(problem, &pointed::inputs(problem))
}

fn costs_one_case(fault: &Fault, pass: Pass) {
    let limit = if fault.name == "hang" { SHORT } else { LONG };
    let mut subject = start(fault.name, "", limit);
    let outcome = pass.run(&mut subject, &masked());
    assert!((fault.shows)(&outcome), "{}: {outcome:?}", fault.name);
    let problem = unmasked();
    assert_eq!(pass.run(&mut subject, &problem), Ok(pass.exact(&problem)), "{}", fault.name);
}

fn answers_are_the_kernels_own() {
    let mut subject =
        open(&format!("exec:{}", command("none", "")), &Options::default()).expect("a worker");
    assert_eq!(subject.description(), worker::kernel().summary());
    for format in [Format::F64, Format::F32, Format::F16, Format::Bf16] {
        assert_eq!(subject.profile(format), Ok(worker::kernel().profile(format)));
        for rules in [
            vec![],
            vec![Rule::CausalTopLeft],
            vec![Rule::CausalBottomRight],
            vec![Rule::KeyLengths(vec![0, 3]), Rule::CausalBottomRight],
        ] {
            let problem = pointed::problem_with(format, rules);
            let answer = run(subject.as_mut(), &problem);
            assert_eq!(answer, Ok(pointed::outputs(&problem)), "{problem:?}");
        }
    }
}

fn extents_of_zero_are_cases_too() {
    let mut subject = start("none", "", LONG);
    for (query_len, key_len) in [(0, 20), (5, 0), (0, 0)] {
        let problem = Problem { query_len, key_len, ..unmasked() };
        let answer = run(&mut subject, &problem);
        assert_eq!(answer, Ok(pointed::outputs(&problem)), "{problem:?}");
    }
}

fn the_lse_is_optional() {
    let problem = masked();
    let expected = Outputs { lse: None, ..pointed::outputs(&problem) };
    assert_eq!(run(&mut start("no-lse", "", LONG), &problem), Ok(expected));
}

fn a_format_not_declared_is_unsupported() {
    let mut subject = start("none", "", LONG);
    let problem = Problem { format: Format::E4m3, ..unmasked() };
    let zero = |shape: &[usize]| Tensor::rounded(Format::E4m3, &ArrayD::zeros(IxDyn(shape)));
    let inputs = flashproof_spec::tensor::Inputs {
        query: zero(&problem.query_shape()),
        key: zero(&problem.key_shape()),
        value: zero(&problem.value_shape()),
        bias: None,
        sink: None,
        descale: None,
    };
    let expected = "e4m3 is not among its formats, f64, f32, f16, bf16";
    let expected = Err(Failure::Unsupported(expected.to_owned()));
    assert_eq!(subject.forward(&problem, &inputs), expected);
}

fn a_worker_says_what_it_does_not_support() {
    let result = run(&mut start("says-unsupported", "", LONG), &masked());
    assert_eq!(result, Err(Failure::Unsupported("masks".to_owned())));
}

fn a_case_that_can_not_be_posed_is_not_sent() {
    let mut subject = start("none", "", LONG);
    let problem = masked();
    let inputs = pointed::inputs(&problem);
    let wrong = Problem { key_len: 21, ..problem.clone() };
    let expected = "key has shape [2, 2, 20, 20]: expected [2, 2, 21, 20]".to_owned();
    assert_eq!(subject.forward(&wrong, &inputs), Err(Failure::Environment(expected)));
    let impossible = Problem { key_heads: 3, ..problem };
    let expected = "query_heads is 4, not a multiple of key_heads = 3".to_owned();
    assert_eq!(subject.forward(&impossible, &inputs), Err(Failure::Environment(expected)));
}

fn process_id(subject: &mut Exec) -> String {
    match run(subject, &masked()) {
        Err(Failure::Reported(id)) => id,
        other => panic!("a process id was expected, not {other:?}"),
    }
}

fn one_process_answers_all_cases() {
    let mut subject = start("tells-its-process-id", "", LONG);
    let first = process_id(&mut subject);
    assert!(run(&mut subject, &unmasked()).is_ok());
    assert_eq!(process_id(&mut subject), first);
}

fn a_worker_exits_at_the_end_of_its_input() {
    let (folder, file) = scratch();
    drop(start("says-goodbye", &file, LONG));
    assert_eq!(std::fs::read_to_string(&file).expect("its last words"), "goodbye");
    drop(folder);
}

fn a_worker_that_exits_costs_the_next_case() {
    let mut subject = start("exits-after-an-answer", "", LONG);
    let problem = masked();
    assert_eq!(run(&mut subject, &problem), Ok(pointed::outputs(&problem)));
    let next = run(&mut subject, &problem);
    assert!(
        matches!(&next, Err(Failure::Crashed(how)) if how.contains("exit status: 0")),
        "{next:?}"
    );
    assert_eq!(run(&mut subject, &problem), Ok(pointed::outputs(&problem)));
}

fn a_dropped_worker_is_gone() {
    let mut subject = start("tells-its-process-id", "", LONG);
    let id = process_id(&mut subject);
    assert!(is_running(&id));
    drop(subject);
    assert!(!is_running(&id), "process {id} is left");
}

fn what_a_hung_worker_started_is_killed() {
    let (folder, file) = scratch();
    let mut subject = start("hangs-with-a-child", &file, SHORT);
    let result = run(&mut subject, &masked());
    assert_eq!(result, Err(Failure::TimedOut { seconds: SHORT.as_secs_f64() }));
    let child = std::fs::read_to_string(&file).expect("the child's process id");
    // Its new parent reaps it in its own time.
    let killed = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        !is_running(&child)
    });
    assert!(killed, "process {child}, started by the worker, still runs");
    drop(folder);
}

fn a_worker_that_never_reads_times_out() {
    let mut subject = start("never-reads", "", SHORT);
    // A request of more than any pipe holds: one key length for each of many batch members.
    let batch = 50_000;
    let problem = Problem {
        batch,
        query_heads: 1,
        key_heads: 1,
        query_len: 1,
        key_len: 1,
        head_dim: 1,
        value_dim: 1,
        ..pointed::problem_with(Format::F32, vec![Rule::KeyLengths(vec![1; batch])])
    };
    let one = |shape: &[usize]| Tensor::rounded(Format::F32, &ArrayD::ones(IxDyn(shape)));
    let inputs = flashproof_spec::tensor::Inputs {
        query: one(&problem.query_shape()),
        key: one(&problem.key_shape()),
        value: one(&problem.value_shape()),
        bias: None,
        sink: None,
        descale: None,
    };
    let expected = Err(Failure::TimedOut { seconds: SHORT.as_secs_f64() });
    assert_eq!(subject.forward(&problem, &inputs), expected);
}

fn standard_error_does_not_block() {
    let problem = masked();
    let result = run(&mut start("floods-standard-error", "", LONG), &problem);
    assert_eq!(result, Ok(pointed::outputs(&problem)));
}

fn the_end_of_standard_error_is_kept() {
    match run(&mut start("floods-and-crashes", "", LONG), &masked()) {
        Err(Failure::Crashed(how)) => {
            assert!(how.contains("exit status: 3") && how.ends_with("-, the end"), "{how}");
            // 2 KiB of it, and the words around.
            assert!(how.len() < 3 << 10, "{} bytes", how.len());
        }
        other => panic!("a crash was expected, not {other:?}"),
    }
}

fn a_line_without_end_is_refused() {
    let mut subject = start("never-ends-its-line", "", LONG);
    let result = run(&mut subject, &masked());
    assert!(
        matches!(&result, Err(failure) if failure.to_string().contains("a line of more than")),
        "{result:?}"
    );
}

fn a_removed_outputs_file_is_unreadable() {
    let result = run(&mut start("removes-outputs", "", LONG), &masked());
    assert!(
        matches!(&result, Err(failure) if failure.to_string().contains("cannot read")),
        "{result:?}"
    );
}

fn a_worker_may_not_change_its_mind() {
    let (folder, file) = scratch();
    let mut subject = start("redeclares", &file, LONG);
    assert!(matches!(run(&mut subject, &masked()), Err(Failure::Crashed(_))));
    let next = run(&mut subject, &unmasked());
    assert!(
        matches!(&next, Err(Failure::Crashed(how)) if how.contains("declares otherwise")),
        "{next:?}"
    );
    drop(folder);
}

fn a_worker_that_does_not_come_back_crashes() {
    let (folder, file) = scratch();
    let mut subject = start("dies-for-good", &file, LONG);
    for problem in [masked(), unmasked(), unmasked()] {
        let result = run(&mut subject, &problem);
        let expected =
            if problem == masked() { "exit status: 3" } else { "could not be started again" };
        assert!(
            matches!(&result, Err(Failure::Crashed(how)) if how.contains(expected)),
            "{result:?}"
        );
    }
    drop(folder);
}

fn no_files_are_left_behind() {
    let mut subject = start("none", "", LONG);
    let directory = subject.directory().to_owned();
    assert!(run(&mut subject, &masked()).is_ok());
    assert!(Pass::Backward.run(&mut subject, &masked()).is_ok());
    assert_eq!(std::fs::read_dir(&directory).expect("a directory").count(), 0);
    drop(subject);
    assert!(!directory.exists(), "{} is left", directory.display());
}

/// A path to a file that is not there yet, in a folder that is removed when dropped.
fn scratch() -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file").to_str().expect("a path in UTF-8").to_owned();
    (folder, file)
}

/// Whether a process runs; one that has ended and waits for its parent does not.
fn is_running(id: &str) -> bool {
    let state = if Path::new("/proc/self").exists() {
        // "id (name) state ...", where the name may hold anything
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit(')').next().unwrap_or_default().to_owned()
    } else {
        let listed = Command::new("ps").args(["-o", "stat=", "-p", id]).output();
        String::from_utf8(listed.expect("ps").stdout).expect("text")
    };
    !matches!(state.trim().chars().next(), None | Some('Z'))
}
