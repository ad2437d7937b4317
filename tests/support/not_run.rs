//! Tests that need what this machine does not have say so, and do not pass in silence.

use std::{io::Write, thread};

/// Says that the test which calls it does not run, and why. Past the test runner's capture, which would hide it:
/// `eprintln!` is captured, the stream itself is not.
pub(crate) fn say_not_run(why: &str) {
    let test = thread::current().name().unwrap_or("a test").to_owned();
    std::io::stderr()
        .write_all(format!("NOT RUN: {test}: {why}\n").as_bytes())
        .expect("standard error takes a line");
}
