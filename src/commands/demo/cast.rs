//! The demo's processes: who plays, who is replaced, and that all are gone at the end.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;

use super::plan::{Plan, RUN};
use crate::commands::processes::{LocalServer, LocalServerError, Notice, Process, ScratchDir};

/// How long a worker or a trainer may take to end when asked to.
const GRACE: Duration = Duration::from_secs(2);
/// The trainer's name.
pub(super) const TRAINER: &str = "trainer";

/// The running processes.
#[derive(Debug)]
pub(super) struct Cast {
    server: LocalServer,
    workers: BTreeMap<String, Process>,
    trainer: Option<Process>,
    /// How many rollout processes were started so far; each draws from a seed of its own.
    workers_started: u64,
    notices: mpsc::UnboundedSender<Notice>,
    /// Dropped last: the processes write into it.
    directory: ScratchDir,
}

impl Cast {
    /// Starts the server, and nobody else yet. What the others will do goes to `notices`.
    pub(super) fn with_server(notices: mpsc::UnboundedSender<Notice>) -> io::Result<Self> {
        let directory = ScratchDir::new("berth-demo")?;
        let server = LocalServer::start(directory.path())?;
        Ok(Self {
            server,
            workers: BTreeMap::new(),
            trainer: None,
            workers_started: 0,
            notices,
            directory,
        })
    }

    pub(super) fn server(&self) -> &LocalServer {
        &self.server
    }

    /// Waits until the server can be called.
    pub(super) async fn server_ready(&mut self) -> Result<(), LocalServerError> {
        self.server.ready().await
    }

    /// Returns only when the server has ended without being asked to.
    pub(super) async fn server_failed(&mut self) -> LocalServerError {
        self.server.failed().await
    }

    /// Starts a worker and returns its process id.
    pub(super) fn start_worker(&mut self, name: &str, plan: &Plan) -> io::Result<u32> {
        let seed = plan.seed.wrapping_mul(1_000_003).wrapping_add(self.workers_started);
        self.workers_started += 1;
        let mut arguments = self.common_arguments("demo-worker", plan);
        for (flag, value) in [
            ("--worker", name.to_owned()),
            ("--concurrency", plan.concurrency.to_string()),
            ("--seed", seed.to_string()),
        ] {
            arguments.extend([flag.into(), value.into()]);
        }
        // A process that takes the place of another does not hang.
        if self.workers_started <= plan.workers && name == plan.straggler() {
            arguments.extend(["--hang-at".into(), plan.hangs_at().to_string().into()]);
        }
        if let Some(file) = &plan.lengths_file {
            arguments.extend(["--lengths".into(), file.into()]);
        }
        let process = self.start(name, arguments)?;
        let pid = process.pid();
        self.workers.insert(name.to_owned(), process);
        Ok(pid)
    }

    /// Starts the trainer and returns its process id.
    pub(super) fn start_trainer(&mut self, plan: &Plan) -> io::Result<u32> {
        let mut arguments = self.common_arguments("demo-trainer", plan);
        arguments.extend([
            "--last-version".into(),
            plan.batches.to_string().into(),
            "--checkpoint".into(),
            self.directory.path().join("checkpoint.json").into(),
        ]);
        if plan.stream {
            arguments.push("--stream".into());
        }
        let process = self.start(TRAINER, arguments)?;
        let pid = process.pid();
        self.trainer = Some(process);
        Ok(pid)
    }

    fn common_arguments(&self, command: &str, plan: &Plan) -> Vec<OsString> {
        [
            command,
            "--url",
            self.server.url(),
            "--run",
            RUN,
            "--speed",
            &plan.pace.speed().to_string(),
        ]
        .map(OsString::from)
        .to_vec()
    }

    fn start(&self, name: &str, arguments: Vec<OsString>) -> io::Result<Process> {
        Process::start(name, arguments, &self.log_of(name), self.notices.clone())
    }

    /// Where a process's standard error goes.
    pub(super) fn log_of(&self, name: &str) -> PathBuf {
        self.directory.path().join(format!("{name}.log"))
    }

    /// Whether `pid` is meant to be running: it was not killed or stopped by the demo itself.
    pub(super) fn includes(&self, pid: u32) -> bool {
        self.workers
            .values()
            .chain(&self.trainer)
            .any(|process| process.pid() == pid)
    }

    /// Whether `pid` is the running trainer's.
    pub(super) fn is_trainer(&self, pid: u32) -> bool {
        self.trainer.as_ref().is_some_and(|trainer| trainer.pid() == pid)
    }

    /// Stops a worker with SIGSTOP, if it runs.
    pub(super) async fn pause_worker(&self, name: &str) {
        if let Some(process) = self.workers.get(name) {
            process.pause().await;
        }
    }

    /// Lets a worker that was stopped go on.
    pub(super) async fn resume_worker(&self, name: &str) {
        if let Some(process) = self.workers.get(name) {
            process.resume().await;
        }
    }

    /// Kills a worker with SIGKILL; returns its process id, or `None` if it does not run.
    pub(super) async fn kill_worker(&mut self, name: &str) -> Option<u32> {
        let process = self.workers.remove(name)?;
        let pid = process.pid();
        process.kill().await;
        Some(pid)
    }

    /// Kills the trainer with SIGKILL; returns its process id, or `None` if it does not run.
    pub(super) async fn kill_trainer(&mut self) -> Option<u32> {
        let process = self.trainer.take()?;
        let pid = process.pid();
        process.kill().await;
        Some(pid)
    }

    /// Stops the workers and the trainer; the server stays, to be asked what happened.
    pub(super) async fn stop_players(&mut self) {
        let workers = std::mem::take(&mut self.workers).into_values();
        for process in workers.chain(self.trainer.take()) {
            process.terminate(GRACE).await;
        }
    }

    /// Stops everything, and removes what it wrote.
    pub(super) async fn stop(mut self) {
        self.stop_players().await;
        self.server.stop().await;
    }
}
