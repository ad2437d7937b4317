//! A worker or trainer as a process of its own: this test program once more, with its orders in the environment.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::{env, io, thread};

use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::rehearsal::Kind;

/// Set for the process itself.
const ORDERS: &str = "CHAOS_ORDERS";

/// What a process is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Orders {
    /// The two servers, each behind its proxy.
    pub(crate) servers: [String; 2],
    /// `/v1/runs/{run}`.
    pub(crate) run: String,
    /// Its name, which its successors share.
    pub(crate) name: String,
    /// Its token, which they do not.
    pub(crate) session: String,
    pub(crate) seed: u64,
    pub(crate) kind: Kind,
    pub(crate) lease_ms: u64,
    pub(crate) diary: PathBuf,
    /// The trainer's.
    pub(crate) checkpoint: PathBuf,
}

impl Orders {
    /// Starts the process: a test that is none. It is killed when the value is dropped, and told to finish when its
    /// standard input is closed, as it is when this process dies.
    pub(crate) fn start(&self, test: &str, errors: &Path) -> Child {
        let errors = std::fs::File::options().create(true).append(true).open(errors);
        Command::new(env::current_exe().expect("the path of this program"))
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(ORDERS, serde_json::to_string(self).expect("orders"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(errors.expect("a file for its errors"))
            .kill_on_drop(true)
            .spawn()
            .expect("this program runs once more")
    }

    /// Those of this process; `None` in the test run itself.
    pub(crate) fn received() -> Option<Self> {
        let orders = env::var(ORDERS).ok()?;
        Some(serde_json::from_str(&orders).expect("orders"))
    }
}

/// Becomes true when the process is to finish what it does.
pub(crate) fn told_to_finish() -> watch::Receiver<bool> {
    let (tell, told) = watch::channel(false);
    // A thread of its own: the runtime would wait for a reading task at its end.
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = tell.send(true);
    });
    told
}
