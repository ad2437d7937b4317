//! Child processes that end when their parent does, for the commands that bring their own server or workers.

mod local_server;
mod scratch_dir;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};

pub(super) use local_server::{LocalServer, LocalServerError};
pub(super) use scratch_dir::ScratchDir;

/// How long the last lines of a process that has ended may take to arrive.
const LAST_LINES_TIMEOUT: Duration = Duration::from_millis(500);

/// What a child process did.
#[derive(Debug)]
pub(super) struct Notice {
    /// The name it was started under.
    pub(super) process: String,
    /// Its process id: two processes may bear one name, one after the other.
    pub(super) pid: u32,
    /// What it did.
    pub(super) what: Happened,
}

/// What a child process may do.
#[derive(Debug)]
pub(super) enum Happened {
    /// It wrote a line on its standard output.
    Line(String),
    /// It ended, for whatever reason.
    Ended(ExitStatus),
}

/// A running child process: this program again, with other arguments. Dropping it kills it, with all its own children.
///
/// It leads a process group of its own, so that Ctrl-C reaches the parent only, which then ends its children in order. Its
/// standard input is a pipe that nobody writes to: it closes when the parent dies, however that happens.
#[derive(Debug)]
pub(super) struct Process {
    pid: u32,
    log: PathBuf,
    orders: mpsc::UnboundedSender<Order>,
}

/// What the keeper of a child is told to do.
#[derive(Debug)]
enum Order {
    /// A signal that does not end it, and say when it is sent.
    Signal(Signal, oneshot::Sender<()>),
    /// SIGKILL, and say when it is gone.
    Kill(oneshot::Sender<()>),
    /// SIGTERM, then SIGKILL to its whole group when it takes longer than this; and say when it is gone.
    Terminate(Duration, oneshot::Sender<()>),
}

impl Process {
    /// Starts this program with `arguments`. Its standard error goes to the file `log`, its lines and its end to `notices`.
    pub(super) fn start<I, S>(
        name: &str,
        arguments: I,
        log: &Path,
        notices: mpsc::UnboundedSender<Notice>,
    ) -> io::Result<Self>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = Command::new(std::env::current_exe()?);
        // Every flag can also be said in the environment. What is said there to this command is not meant for its children.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"BERTH_")) {
            command.env_remove(name);
        }
        let mut child = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::options().create(true).append(true).open(log)?)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let pid = child
            .id()
            .ok_or_else(|| io::Error::other("the process ended at once"))?;
        let stdout = child
            .stdout
            .take()
            .ok_or_else(|| io::Error::other("no pipe for standard output"))?;
        let (orders, received) = mpsc::unbounded_channel();
        let keeper = Keeper {
            name: name.to_owned(),
            pid,
            stdin: child.stdin.take(),
            child,
            lines: BufReader::new(stdout).lines(),
            notices,
        };
        tokio::spawn(keeper.keep(received));
        Ok(Self {
            pid,
            log: log.to_owned(),
            orders,
        })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Where its standard error goes.
    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    /// Stops it with SIGSTOP: it does nothing until it is [`resume`](Self::resume)d or ended.
    pub(super) async fn pause(&self) {
        self.signal(Signal::STOP).await;
    }

    /// Lets it go on with SIGCONT.
    pub(super) async fn resume(&self) {
        self.signal(Signal::CONT).await;
    }

    async fn signal(&self, signal: Signal) {
        let (sent, is_sent) = oneshot::channel();
        if self.orders.send(Order::Signal(signal, sent)).is_ok() {
            let _ = is_sent.await;
        }
    }

    /// Kills it with SIGKILL, which it can't notice, and returns once it is gone.
    pub(super) async fn kill(self) {
        let (gone, is_gone) = oneshot::channel();
        // When the order or its answer can't be delivered, the keeper has ended, and so has the process.
        if self.orders.send(Order::Kill(gone)).is_ok() {
            let _ = is_gone.await;
        }
    }

    /// Asks it to end, makes sure of it after `grace`, and returns once it is gone.
    pub(super) async fn terminate(self, grace: Duration) {
        let (gone, is_gone) = oneshot::channel();
        if self.orders.send(Order::Terminate(grace, gone)).is_ok() {
            let _ = is_gone.await;
        }
    }
}

/// The task that owns a child: it alone signals it, and only until it has been waited for, so that no signal can reach
/// another process that was given the same id.
struct Keeper {
    name: String,
    pid: u32,
    /// Held open; see [`Process`].
    #[expect(dead_code, reason = "kept for the moment at which it closes")]
    stdin: Option<ChildStdin>,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    notices: mpsc::UnboundedSender<Notice>,
}

impl Keeper {
    async fn keep(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut has_lines = true;
        loop {
            tokio::select! {
                line = self.lines.next_line(), if has_lines => match line {
                    Ok(Some(line)) => self.tell(Happened::Line(line)),
                    Ok(None) | Err(_) => has_lines = false,
                },
                ended = self.child.wait() => {
                    self.tell_last_lines().await;
                    if let Ok(status) = ended {
                        self.tell(Happened::Ended(status));
                    }
                    return;
                }
                order = orders.recv() => {
                    if let Some(Order::Signal(signal, sent)) = order {
                        self.signal(signal);
                        let _ = sent.send(());
                        continue;
                    }
                    let gone = self.obey(order).await;
                    self.tell_last_lines().await;
                    if let Ok(Some(status)) = self.child.try_wait() {
                        self.tell(Happened::Ended(status));
                    }
                    if let Some(gone) = gone {
                        let _ = gone.send(());
                    }
                    return;
                }
            }
        }
    }

    /// Ends the child as ordered, or at once when its [`Process`] was dropped.
    async fn obey(&mut self, order: Option<Order>) -> Option<oneshot::Sender<()>> {
        match order {
            None | Some(Order::Signal(..)) => {
                self.kill_group();
                let _ = self.child.wait().await;
                None
            }
            Some(Order::Kill(gone)) => {
                let _ = self.child.kill().await;
                Some(gone)
            }
            Some(Order::Terminate(grace, gone)) => {
                self.signal(Signal::TERM);
                if tokio::time::timeout(grace, self.child.wait()).await.is_err() {
                    self.kill_group();
                    let _ = self.child.wait().await;
                }
                Some(gone)
            }
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.unreaped_pid() {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    fn kill_group(&self) {
        if let Some(pid) = self.unreaped_pid() {
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }

    fn unreaped_pid(&self) -> Option<Pid> {
        self.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
    }

    /// Passes on what the child wrote before it ended. A grandchild may hold the pipe open, hence the limit.
    async fn tell_last_lines(&mut self) {
        while let Ok(Ok(Some(line))) = tokio::time::timeout(LAST_LINES_TIMEOUT, self.lines.next_line()).await {
            self.tell(Happened::Line(line));
        }
    }

    fn tell(&self, what: Happened) {
        // A parent that no longer listens is about to end.
        let _ = self.notices.send(Notice {
            process: self.name.clone(),
            pid: self.pid,
            what,
        });
    }
}

/// Returns when this process's parent has died, which closes the pipe that [`Process`] holds to its standard input.
pub(super) async fn parent_died() {
    let (died, has_died) = oneshot::channel();
    // A thread of its own: a blocking task of the runtime that still reads would keep this process from ending.
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = died.send(());
    });
    let _ = has_died.await;
}

/// Returns at the first SIGINT, SIGTERM or SIGHUP.
pub(super) async fn interrupted() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}

/// The last lines of a log file, each after a line break, so that they can follow a sentence; nothing of an empty one.
pub(super) fn tail(log: &Path, lines: usize) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    let last = &all[all.len().saturating_sub(lines)..];
    last.iter().flat_map(|line| ["\n", line]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test program as a child, which says its tests and ends.
    fn start(arguments: &[&str]) -> (Process, mpsc::UnboundedReceiver<Notice>, ScratchDir) {
        let directory = ScratchDir::new("berth-test").unwrap();
        let (sender, notices) = mpsc::unbounded_channel();
        let process = Process::start("child", arguments, &directory.path().join("child.log"), sender).unwrap();
        (process, notices, directory)
    }

    #[tokio::test]
    async fn a_child_is_heard_line_by_line_until_it_ends() {
        let (process, mut notices, _directory) = start(&["--list", "--exact", "a_test_that_does_not_exist"]);
        let mut lines = Vec::new();
        let status = loop {
            let notice = notices.recv().await.unwrap();
            assert_eq!((notice.process.as_str(), notice.pid), ("child", process.pid()));
            match notice.what {
                Happened::Line(line) => lines.push(line),
                Happened::Ended(status) => break status,
            }
        };
        assert!(status.success());
        assert_eq!(lines.last().map(String::as_str), Some("0 tests, 0 benchmarks"));
    }

    #[tokio::test]
    async fn what_a_child_says_of_its_failure_is_in_its_log() {
        let (process, mut notices, _directory) = start(&["--no-such-flag"]);
        let ended = async {
            loop {
                if let Some(Notice {
                    what: Happened::Ended(status),
                    ..
                }) = notices.recv().await
                {
                    return status;
                }
            }
        };
        assert!(!ended.await.success());
        assert!(
            tail(process.log(), 3).contains("no-such-flag"),
            "{}",
            tail(process.log(), 3)
        );
    }

    #[test]
    fn a_scratch_directory_is_removed_with_all_it_holds() {
        let directory = ScratchDir::new("berth-test").unwrap();
        let path = directory.path().to_owned();
        std::fs::write(path.join("file"), "text").unwrap();
        drop(directory);
        assert!(!path.exists());
    }
}
