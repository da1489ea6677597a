//! The worker of these tests: the example's, with a fault on cases that have a mask.
//!
//! The test program runs itself as `PROGRAM --worker FAULT [FILE]`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, exit};
use std::thread::sleep;
use std::time::Duration;

use flashproof_conformance::adapter::exec::protocol::{Answer, Files, Operation, Outcome, Request};
use flashproof_conformance::io::safetensors::{Archive, write};
use flashproof_kernels::Kernel;
use flashproof_spec::format::Format;
use flashproof_spec::layout::Placed;
use flashproof_spec::tensor::Tensor;
use ndarray::{ArrayD, Axis};
use serde_json::Value;

use crate::serve;

/// The argument that makes the test program this worker.
pub const SWITCH: &str = "--worker";

/// Longer than any limit of these tests.
const FOREVER: Duration = Duration::from_secs(600);

/// More than any pipe holds, and than is kept of standard error.
const FLOOD_BYTES: usize = 1 << 20;

/// The kernel behind the worker.
pub fn kernel() -> Box<dyn Kernel> {
    flashproof_kernels::builtin("naive").expect("a built-in kernel")
}

/// Runs the worker until its input ends, or its fault ends it.
pub fn run(fault: &str, file: Option<&String>) {
    let kernel = kernel();
    let stdin = std::io::stdin().lock();
    if fault == "quantized" {
        let kernel = flashproof_kernels::builtin(fault).expect("a built-in kernel");
        return serve::serve(kernel.as_ref(), stdin, std::io::stdout()).expect("requests");
    }
    if fault == "none" {
        return serve::serve(kernel.as_ref(), stdin, std::io::stdout()).expect("requests");
    }
    let file = file.map_or("", String::as_str);
    for line in stdin.lines() {
        let request = serde_json::from_str(&line.expect("a line of text")).expect("a request");
        let (operation, case) = match request {
            Request::Hello { .. } => {
                introduce(kernel.as_ref(), fault, file);
                continue;
            }
            Request::Forward(case) => (Operation::Forward, case),
            Request::Backward(case) => (Operation::Backward, case),
            Request::Merge(case) => (Operation::Merge, case),
        };
        if case.problem.mask.rules.is_empty() {
            say(&serve::answer(kernel.as_ref(), operation, &case));
        } else {
            misbehave(kernel.as_ref(), operation, &case, fault, file);
        }
    }
    if fault == "says-goodbye" {
        fs::write(file, "goodbye").expect("a file to write to");
    }
}

fn introduce(kernel: &dyn Kernel, fault: &str, file: &str) {
    let mut hello = serve::hello(kernel).expect("a declaration");
    match fault {
        "introduces-itself-as" => return println!("{file}"),
        "redeclares" => hello.name = format!("start {}", starts(file)),
        "dies-for-good" if starts(file) > 1 => exit(4),
        "has-no-backward" => hello.operations = vec![Operation::Forward],
        "has-no-forward" => hello.operations = vec![Operation::Backward],
        _ => {}
    }
    say(&hello);
    if fault == "never-reads" {
        sleep(FOREVER);
    }
}

/// How often a worker that leaves its marks in `file` has been started.
fn starts(file: &str) -> u64 {
    let mut marks = OpenOptions::new().create(true).append(true).open(file).expect("a file");
    marks.write_all(b"x").expect("a file to write to");
    marks.metadata().expect("a length").len()
}

fn misbehave(kernel: &dyn Kernel, operation: Operation, case: &Files, fault: &str, file: &str) {
    if fault == "unwritten-output" {
        return say(&Answer { id: case.id, outcome: Outcome::Done });
    }
    let answer = serve::answer(kernel, operation, case);
    match fault {
        "crash" | "redeclares" | "dies-for-good" | "has-no-backward" | "has-no-forward" => {
            eprintln!("out of registers");
            exit(3);
        }
        "hang" => sleep(FOREVER),
        "hangs-with-a-child" => {
            let mut child = Command::new("sleep").arg("600").spawn().expect("a child");
            fs::write(file, child.id().to_string()).expect("a file to write to");
            child.wait().expect("the child's end");
        }
        "floods-standard-error" => eprintln!("{}, the end", "-".repeat(FLOOD_BYTES)),
        "floods-and-crashes" => {
            eprintln!("{}, the end", "-".repeat(FLOOD_BYTES));
            exit(3);
        }
        "never-ends-its-line" => {
            println!("{}", "-".repeat(FLOOD_BYTES + 1));
            sleep(FOREVER);
        }
        "not-json" => return println!("all is well"),
        "not-an-answer" => return println!("{{\"id\": {}, \"ok\": false}}", case.id),
        "wrong-id" => return say(&Answer { id: case.id + 1, ..answer }),
        "reports-error" => return fail(case, "out of registers"),
        "tells-its-process-id" => return fail(case, &std::process::id().to_string()),
        "says-unsupported" => return refuse(case, "masks"),
        "has-no-lse-gradient" if reads(case, "lse_gradient") => {
            return refuse(case, "a gradient of the LSE");
        }
        "has-no-lse-gradient" | "says-goodbye" | "exits-after-an-answer" => {}
        "removes-outputs" => fs::remove_file(&case.outputs).expect("an outputs file"),
        "truncated-output" => cut_file(&case.outputs),
        "writes-beside" => write_beside(case),
        "writes-an-input-buffer" => write_buffer(&case.inputs, "key", 0),
        "long-buffer" => lengthen(case),
        "no-bias-gradient" => drop_bias_gradient(case),
        "writes-inputs" => write_input(case, "key"),
        "writes-cotangents" => write_input(case, "output_gradient"),
        _ => rewrite_outputs(case, fault),
    }
    say(&answer);
    if fault == "exits-after-an-answer" {
        exit(0);
    }
}

fn fail(case: &Files, why: &str) {
    say(&Answer { id: case.id, outcome: Outcome::Failed(why.to_owned()) });
}

fn refuse(case: &Files, why: &str) {
    say(&Answer { id: case.id, outcome: Outcome::Unsupported(why.to_owned()) });
}

fn reads(case: &Files, name: &str) -> bool {
    Archive::open(&case.inputs).expect("the inputs").contains(name)
}

fn cut_file(path: &Path) {
    let file = OpenOptions::new().write(true).open(path).expect("a file");
    let length = file.metadata().expect("a length").len();
    file.set_len(length - 1).expect("a file to write to");
}

/// Changes a tensor of the case that the kernel has answered.
fn rewrite_outputs(case: &Files, fault: &str) {
    let mut tensors = read(&case.outputs);
    let mut change = |name: &str, change: fn(&Tensor) -> Tensor| {
        let tensor = tensors.get_mut(name).expect("a tensor of that name");
        *tensor = change(tensor);
    };
    match fault {
        "wrong-shape" => change("output", short),
        "wrong-gradient-shape" => change("query_gradient", short),
        "wrong-dtype" => change("output", wide),
        "wrong-gradient-dtype" => change("value_gradient", wide),
        "non-finite-output" => change("lse", |lse| filled(lse, f64::INFINITY)),
        "unwritten-gradient" => change("key_gradient", |gradient| filled(gradient, f64::NAN)),
        "missing-output" => drop(tensors.remove("output")),
        "missing-gradient" => drop(tensors.remove("key_gradient")),
        "no-lse" => drop(tensors.remove("lse")),
        "extra-output" => drop(tensors.insert("weights".to_owned(), tensors["lse"].clone())),
        unknown => panic!("no fault is called '{unknown}'"),
    }
    replace(&case.outputs, &tensors);
}

/// Writes to the first place of the output's buffer where no element stands.
fn write_beside(case: &Files) {
    let owned: BTreeSet<_> = case.problem.owned(Placed::Output).map(|(_, offset)| offset).collect();
    let len = case.problem.buffer_len(Placed::Output);
    let beside = (0..len).find(|offset| !owned.contains(offset)).expect("a place beside");
    write_buffer(&case.outputs, "output", beside);
}

/// Writes a zero to a place of a buffer of f32, in a file that is too long to be read whole.
fn write_buffer(path: &Path, name: &str, offset: usize) {
    let text = fs::File::open(path).and_then(|mut file| {
        let mut length = [0; 8];
        file.read_exact(&mut length)?;
        let mut text = vec![0; u64::from_le_bytes(length) as usize];
        file.read_exact(&mut text)?;
        Ok(text)
    });
    let text = text.expect("a header");
    let header: Value = serde_json::from_slice(&text).expect("JSON");
    let start = header[name]["data_offsets"][0].as_u64().expect("an offset");
    let at = 8 + text.len() as u64 + start + 4 * offset as u64;
    let file = OpenOptions::new().write(true).open(path).expect("a file");
    file.write_all_at(&0_f32.to_le_bytes(), at).expect("a file to write to");
}

/// Puts a buffer of one more element in the place of the output's.
fn lengthen(case: &Files) {
    let mut tensors = read(&case.outputs);
    let values = tensors["output"].values().iter().copied().chain([0.0]).collect::<Vec<_>>();
    let longer = Tensor::rounded_from(Format::F32, &[values.len()], values).expect("a tensor");
    tensors.insert("output".to_owned(), longer);
    replace(&case.outputs, &tensors);
}

fn drop_bias_gradient(case: &Files) {
    let mut tensors = read(&case.outputs);
    tensors.remove("bias_gradient");
    replace(&case.outputs, &tensors);
}

/// Changes one element of an input.
fn write_input(case: &Files, name: &str) {
    let mut tensors = read(&case.inputs);
    let tensor = tensors.get_mut(name).expect("an input of that name");
    let mut values = tensor.values().clone();
    values[[0, 0, 0, 0]] += 1.0;
    *tensor = Tensor::rounded(tensor.format(), &values);
    replace(&case.inputs, &tensors);
}

fn short(tensor: &Tensor) -> Tensor {
    let mut values = tensor.values().clone();
    values.remove_index(Axis(3), 0);
    Tensor::rounded(tensor.format(), &values)
}

fn wide(tensor: &Tensor) -> Tensor {
    Tensor::rounded(Format::F64, tensor.values())
}

fn filled(tensor: &Tensor, value: f64) -> Tensor {
    let values = ArrayD::from_elem(tensor.values().raw_dim(), value);
    Tensor::rounded(tensor.format(), &values)
}

fn read(path: &Path) -> BTreeMap<String, Tensor> {
    let mut archive = Archive::open(path).expect("a file of tensors");
    let names = archive.names();
    let tensors = names.into_iter().map(|name| {
        let tensor = archive.tensor(&name).expect("a tensor");
        (name, tensor)
    });
    tensors.collect()
}

fn replace(path: &Path, tensors: &BTreeMap<String, Tensor>) {
    let tensors: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    write(path, &tensors, &BTreeMap::new()).expect("a file to write to");
}

fn say(message: &impl serde::Serialize) {
    println!("{}", serde_json::to_string(message).expect("a message"));
}
