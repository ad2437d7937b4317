//! A rollout worker that is a process of its own, to be killed: this test program once more.

use std::env;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::clients::ids;
use crate::support::{Client, Run};

/// Set for the worker itself: what it is to do, as JSON.
const ORDERS: &str = "FAULTS_WORKER_ORDERS";
/// How the worker begins the line in which it says what it was granted.
const GRANTED: &str = "granted ";

/// A process that reserves, says what it was granted, and sends one waiting heartbeat after another. It never finishes
/// anything. Dropping it kills it.
pub(crate) struct WorkerProcess {
    process: Child,
    /// What it was granted.
    pub(crate) granted: Vec<String>,
}

impl WorkerProcess {
    /// Starts one, and waits until it holds something.
    pub(crate) async fn start(run: &Run, reserve: &Value) -> Self {
        let mut worker = Self::order(run, reserve);
        let mut lines = BufReader::new(worker.process.stdout.take().expect("a pipe")).lines();
        while let Some(line) = lines.next_line().await.expect("the worker's output is text") {
            // The test runner's words may stand before the worker's own.
            if let Some((_, granted)) = line.split_once(GRANTED) {
                worker.granted = serde_json::from_str(granted).expect("ids");
                return worker;
            }
        }
        panic!("the worker ended before it was granted anything");
    }

    /// Starts one, which may have to wait for what it reserves.
    pub(crate) fn order(run: &Run, reserve: &Value) -> Self {
        let orders = json!({ "url": run.client().url(), "run": run.path(""), "reserve": reserve });
        let process = Command::new(env::current_exe().expect("the path of this program"))
            .args(["--exact", "worker_process::is_a_worker", "--ignored", "--nocapture"])
            .env(ORDERS, orders.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("this program runs once more");
        Self {
            process,
            granted: Vec::new(),
        }
    }

    /// SIGKILL.
    pub(crate) async fn kill(mut self) {
        self.process.kill().await.expect("the worker can be killed");
    }
}

#[tokio::test]
#[ignore = "not a test: the process that the tests kill"]
async fn is_a_worker() {
    let Ok(orders) = env::var(ORDERS) else { return };
    let orders: Value = serde_json::from_str(&orders).expect("orders");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let client = Client::new(&text(&orders["url"]));
    let (run, reserve) = (text(&orders["run"]), &orders["reserve"]);

    let answer = client.post(&format!("{run}/reservations"), reserve.clone()).await.ok();
    println!("{GRANTED}{}", json!(ids(&answer["granted"])));
    let heartbeat = format!("{run}/workers/{}/heartbeat", text(&reserve["worker"]));
    loop {
        let beat = json!({ "session": reserve["session"], "wait_ms": 60_000 });
        client.post(&heartbeat, beat).await.ok();
    }
}
