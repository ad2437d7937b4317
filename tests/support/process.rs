//! Signals to other processes, by the system's `kill`: the standard library sends none but SIGKILL, and only to a
//! child.

use std::process::Command;

/// Sends `name` (`KILL`, `TERM`, `STOP`, `CONT`, …) to a process that must exist.
#[track_caller]
pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .status()
        .expect("the program `kill` runs");
    assert!(status.success(), "no process {pid} to send {name} to");
}

/// Whether there is such a process, and it has not ended: one that nobody waited for yet is still listed.
pub(crate) fn lives(pid: u32) -> bool {
    let ps = Command::new("ps")
        .args(["-o", "stat=", "-p", &pid.to_string()])
        .output()
        .expect("the program `ps` runs");
    let state = String::from_utf8_lossy(&ps.stdout);
    !state.trim().is_empty() && !state.trim().starts_with('Z')
}
