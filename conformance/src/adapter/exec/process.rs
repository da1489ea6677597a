//! A child process that answers lines with lines, and never holds up its parent.
//!
//! Three threads stand between the pipes and the caller, so that neither a process that does not
//! read, nor one that does not write, nor one that fills its standard error can block it. They end
//! with their pipes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::text::{EXPLANATION_CHARS, explain};

/// Longest line that is read: answers take less than one hundredth of it.
pub(super) const MAX_LINE_BYTES: usize = 1 << 20;

/// How much of the end of standard error is kept for messages; no more characters than are shown.
const STDERR_TAIL_BYTES: usize = EXPLANATION_CHARS;

/// How often to look whether a silent process still exists.
const POLL: Duration = Duration::from_millis(20);

/// How long a process may take to end after its standard input has ended, and its last words to
/// arrive after it has.
const GRACE: Duration = Duration::from_secs(1);

/// A child process at the head of a process group of its own, so that what it starts ends with it.
pub(super) struct Process {
    child: Child,
    requests: Option<Sender<String>>,
    lines: Receiver<Line>,
    last_words: Receiver<Vec<u8>>,
    reaped: bool,
}

/// Why there is no line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// The process ended, or closed its standard output; how, and what it last said.
    Ended(String),
    /// It said nothing within the limit.
    TimedOut,
    /// It said more than [`MAX_LINE_BYTES`] without a line's end.
    TooLong,
}

enum Line {
    Text(String),
    TooLong,
}

impl Process {
    /// Starts the program `words[0]` with the rest as its arguments; no shell comes between.
    pub(super) fn start(words: &[String]) -> io::Result<Self> {
        let (program, arguments) =
            words.split_first().ok_or_else(|| io::Error::other("there is no program to start"))?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let pipe = "the pipe was asked for";
        let (stdin, stdout, stderr) = (
            child.stdin.take().expect(pipe),
            child.stdout.take().expect(pipe),
            child.stderr.take().expect(pipe),
        );
        let (requests, to_write) = channel();
        // One request at a time: a worker that chatters waits, and fills no memory.
        let (read, lines) = sync_channel(1);
        let (said, last_words) = sync_channel(1);
        spawn(move || write_lines(stdin, &to_write));
        spawn(move || read_lines(stdout, &read));
        spawn(move || said.send(read_tail(stderr)));
        Ok(Self { child, requests: Some(requests), lines, last_words, reaped: false })
    }

    /// Sends a line and waits for one.
    pub(super) fn ask(&mut self, request: String, limit: Duration) -> Result<String, Silence> {
        if let Some(requests) = &self.requests {
            // Where the process is gone, the wait below finds out how.
            let _ = requests.send(request);
        }
        let start = Instant::now();
        loop {
            let left = limit.saturating_sub(start.elapsed());
            // Seen before the wait, so that an answer given just before the end still counts.
            let ended = self.has_ended();
            match self.lines.recv_timeout(if ended { GRACE } else { POLL.min(left) }) {
                Ok(Line::Text(text)) => return Ok(text),
                Ok(Line::TooLong) => return Err(Silence::TooLong),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
                Err(RecvTimeoutError::Timeout) if ended => return Err(self.ended()),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Err(Silence::TimedOut),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Kills the process and all that it started.
    pub(super) fn kill(self) {
        self.kill_group();
    }

    fn ended(&mut self) -> Silence {
        let closed = !self.ends_within(GRACE);
        self.kill_group();
        let how = match self.reap() {
            _ if closed => "it closed its standard output".to_owned(),
            Ok(status) => status.to_string(),
            Err(error) => format!("its exit status is lost: {error}"),
        };
        let tail = self.last_words.recv_timeout(GRACE).unwrap_or_default();
        let tail = explain(String::from_utf8_lossy(&tail).trim());
        Silence::Ended(match tail.as_str() {
            "" => format!("{how}; nothing on standard error"),
            tail => format!("{how}; the end of its standard error: {tail}"),
        })
    }

    fn ends_within(&self, limit: Duration) -> bool {
        let start = Instant::now();
        while !self.has_ended() {
            if start.elapsed() >= limit {
                return false;
            }
            sleep(POLL);
        }
        true
    }

    /// Whether the process has ended. Looking does not reap it, so that its id, which is its group's
    /// too, can not yet be another's.
    fn has_ended(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // An error means that there is no such child any more.
        !matches!(waitid(WaitId::Pid(self.pid()), look), Ok(None))
    }

    fn kill_group(&self) {
        if !self.reaped {
            // Fails where all are gone already; then there is nothing to do.
            let _ = kill_process_group(self.pid(), Signal::KILL);
        }
    }

    fn reap(&mut self) -> io::Result<ExitStatus> {
        self.reaped = true;
        self.child.wait()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    /// Ends the process's standard input, which asks it to end, and makes sure that it does.
    fn drop(&mut self) {
        self.requests = None;
        self.ends_within(GRACE);
        self.kill_group();
        // A killed process ends at once, and how is of no interest here.
        let _ = self.reap();
    }
}

fn write_lines(mut stdin: ChildStdin, lines: &Receiver<String>) {
    while let Ok(line) = lines.recv() {
        if stdin.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdin.flush()).is_err() {
            return;
        }
    }
}

fn read_lines(stdout: ChildStdout, lines: &SyncSender<Line>) {
    let mut stdout = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        let limited = (&mut stdout).take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line);
        let message = match limited {
            Ok(0) | Err(_) => return,
            Ok(_) if line.len() > MAX_LINE_BYTES => Line::TooLong,
            Ok(_) => Line::Text(String::from_utf8_lossy(&line).trim_end().to_owned()),
        };
        let last = matches!(message, Line::TooLong);
        if lines.send(message).is_err() || last {
            return;
        }
    }
}

fn read_tail(mut stderr: ChildStderr) -> Vec<u8> {
    let mut tail = Tail(Vec::new());
    // What came before a failure to read is still of use.
    let _ = io::copy(&mut stderr, &mut tail);
    tail.0
}

/// Keeps the last [`STDERR_TAIL_BYTES`] of what is written to it.
struct Tail(Vec<u8>);

impl Write for Tail {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        self.0.drain(..self.0.len().saturating_sub(STDERR_TAIL_BYTES));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
