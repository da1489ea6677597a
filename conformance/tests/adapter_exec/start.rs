//! Commands that start no worker: each is refused by name, with what it did and what was expected.

use std::time::Duration;

use flashproof_conformance::adapter::exec::{Exec, HelloError, StartFault};
use flashproof_conformance::adapter::{OpenError, Options, open};
use libtest_mimic::Trial;

use crate::cases::command;

/// Whether a fault is the one that was expected.
type Expected = fn(&StartFault) -> bool;

pub fn trials() -> Vec<Trial> {
    let refused = |name: &str, command: String, expected: Expected| {
        Trial::test(format!("refused::{name}"), move || {
            refuses(&command, expected);
            Ok(())
        })
    };
    let says = |hello: &str| command("introduces-itself-as", hello);
    vec![
        refused("nothing", String::new(), |fault| matches!(fault, StartFault::Empty)),
        refused("empty_word", "''".to_owned(), |fault| matches!(fault, StartFault::Empty)),
        refused("open_quotation", "cat '".to_owned(), |fault| matches!(fault, StartFault::Words)),
        refused("no_program", "/no/such/program".to_owned(), |fault| {
            matches!(fault, StartFault::Spawn(_))
        }),
        refused(
            "true",
            "true".to_owned(),
            |fault| matches!(fault, StartFault::Ended(how) if how.contains("exit status: 0")),
        ),
        refused("shell_that_fails", "sh -c 'echo no device >&2; exit 9'".to_owned(), |fault| {
            let said = ["exit status: 9", "no device"];
            matches!(fault, StartFault::Ended(how) if said.iter().all(|part| how.contains(part)))
        }),
        refused(
            "killed",
            "sh -c 'kill -SEGV $$'".to_owned(),
            |fault| matches!(fault, StartFault::Ended(how) if how.contains("SIGSEGV")),
        ),
        refused(
            "closed_output",
            "sh -c 'exec >&-; sleep 600'".to_owned(),
            |fault| matches!(fault, StartFault::Ended(how) if how.contains("closed its standard output")),
        ),
        refused("silence", "sleep 600".to_owned(), |fault| {
            *fault == StartFault::TimedOut { seconds: SHORT.as_secs_f64() }
        }),
        refused("endless_line", "cat /dev/zero".to_owned(), |fault| {
            matches!(fault, StartFault::TooLong)
        }),
        refused(
            "echo",
            "cat".to_owned(),
            |fault| matches!(fault, StartFault::Hello(HelloError::NotAHello { found, .. }) if found.contains("op")),
        ),
        refused("yes", "yes".to_owned(), |fault| {
            *fault == StartFault::Hello(HelloError::NotJson { found: "y".to_owned() })
        }),
        refused("other_protocol", says(r#"{"protocol": 2, "dialect": "new"}"#), |fault| {
            *fault == StartFault::Hello(HelloError::Protocol { found: "2".to_owned() })
        }),
        Trial::test("refused::unknown_scheme", || {
            unknown_scheme();
            Ok(())
        }),
    ]
}

/// For commands that stay silent. `cat /dev/zero` reaches its limit in a tenth of it.
const SHORT: Duration = Duration::from_secs(5);

fn refuses(command: &str, expected: Expected) {
    let options = Options { start_limit: SHORT, case_limit: SHORT };
    let error = Exec::start(command, &options).map(|_| ()).expect_err("no worker");
    assert!(expected(&error.fault), "{error}");
    assert_eq!(error.command, command);
    let text = error.to_string();
    assert!(text.contains(command) && text.contains(r#"{"protocol": 1"#), "{text}");
}

fn unknown_scheme() {
    for spec in ["python:worker.py", "tiled", ""] {
        let error = open(spec, &Options::default()).map(|_| ()).expect_err("no kernel");
        assert!(matches!(&error, OpenError::Scheme { spec: found } if found == spec), "{error}");
        let text = error.to_string();
        assert!(text.contains("builtin:NAME") && text.contains("exec:COMMAND"), "{text}");
    }
}
