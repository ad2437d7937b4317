//! What a process was told was done, in a file of its own, line by line, each written before the next call.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use berth::protocol::TrajectoryId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A file that only grows. What was written is there also when the process was killed: the system keeps it.
pub(crate) struct Diary(File);

/// One line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Line {
    /// In Unix milliseconds of this machine.
    pub(crate) at_ms: u64,
    #[serde(flatten)]
    pub(crate) entry: Entry,
}

/// What is written down.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum Entry {
    /// A worker was granted entries.
    Granted {
        request: String,
        lineage: u64,
        entries: Vec<Grant>,
    },
    /// A member of a group was reported.
    Member(Member),
    /// An entry was occupied.
    Occupied { id: TrajectoryId, late: bool },
    /// An entry was discarded.
    Discarded { id: TrajectoryId, reason: String },
    /// A call was refused, for a reason that may be.
    Refused {
        call: String,
        id: Option<TrajectoryId>,
        code: String,
    },
    /// A call that had been answered was sent once more: whether it was answered alike.
    Repeated { call: String, alike: bool },
    /// A call was not answered, or could not be, and is sent again.
    Retried { call: String, why: String },
    /// The trainer opened a session.
    Opened(Opened),
    /// The trainer was given a piece of a batch.
    Piece(Piece),
    /// The trainer was given a batch, or the last piece of it.
    Trained(Trained),
    /// The trainer published.
    Published {
        epoch: u64,
        version: u64,
        policy_version: u64,
        lineage: u64,
    },
    /// A page of prompts was fed.
    Fed { offset: u64, count: u64, fed: u64 },
    /// The trainer saved a checkpoint.
    Saved { version: u64 },
    /// The ledger heard of it.
    Covered { version: u64 },
    /// The trainer kills itself, between what.
    Dies { between: String },
    /// Something that may never be.
    Unexpected { call: String, answer: Value },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Grant {
    pub(crate) id: TrajectoryId,
    pub(crate) version: u64,
    /// Of the queue.
    pub(crate) prompt: Option<String>,
    pub(crate) adopted: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) id: TrajectoryId,
    pub(crate) index: u32,
    pub(crate) failed: bool,
    /// Whether the ledger said that it counts.
    pub(crate) counted: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Opened {
    pub(crate) resume_from: Option<u64>,
    pub(crate) mode: String,
    pub(crate) force: bool,
    pub(crate) epoch: u64,
    pub(crate) trainer_version: u64,
    pub(crate) policy_version: u64,
    pub(crate) lineage: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Trained {
    pub(crate) epoch: u64,
    pub(crate) version: u64,
    pub(crate) redelivered: bool,
    pub(crate) replayed: bool,
    pub(crate) entries: Vec<TrainedEntry>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Piece {
    pub(crate) epoch: u64,
    pub(crate) version: u64,
    /// How many entries of the batch the trainer had before.
    pub(crate) offset: usize,
    pub(crate) complete: bool,
    pub(crate) entries: Vec<TrainedEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrainedEntry {
    pub(crate) id: TrajectoryId,
    pub(crate) version: u64,
    /// Of the queue.
    pub(crate) prompt: Option<String>,
    /// The complete members of a group.
    pub(crate) members: Vec<u32>,
}

impl TrainedEntry {
    /// Those that an answer shows, of a batch or a piece of one.
    pub(crate) fn shown(batch: &Value) -> Vec<Self> {
        let entries = batch["trajectories"].as_array().into_iter().flatten();
        entries.map(Self::of).collect()
    }

    /// What is not as a worker reported it is no entry at all.
    fn of(entry: &Value) -> Self {
        let known = || {
            let id = entry["id"].as_str()?.parse().ok()?;
            let is_whole = entry["members"].is_array() || entry["payload"] == payload(id, None);
            let members = entry["members"].as_array().into_iter().flatten();
            let indexes = members.map(|member| {
                let index = u32::try_from(member["index"].as_u64()?).ok()?;
                (member["payload"] == payload(id, Some(index))).then_some(index)
            });
            is_whole.then_some(())?;
            Some(Self {
                id,
                version: entry["version"].as_u64()?,
                prompt: entry["prompt"].as_str().map(str::to_owned),
                members: indexes.collect::<Option<_>>()?,
            })
        };
        known().unwrap_or_else(|| panic!("not an entry of a batch: {entry}"))
    }
}

impl Diary {
    pub(crate) fn open(path: &Path) -> Self {
        let file = File::options().create(true).append(true).open(path);
        Self(file.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    pub(crate) fn write(&self, entry: Entry) {
        let line = Line { at_ms: now_ms(), entry };
        let mut text = serde_json::to_string(&line).expect("a line of JSON");
        text.push('\n');
        (&self.0).write_all(text.as_bytes()).expect("the diary takes a line");
    }

    /// What is wrong, for whoever looks for the reason of a failure.
    pub(crate) fn unexpected(&self, call: &str, answer: Value) {
        self.write(Entry::Unexpected {
            call: call.to_owned(),
            answer,
        });
    }
}

/// The lines of a diary. The last one may be half written: its author was killed.
pub(crate) fn read(path: &Path) -> Vec<Line> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let line = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{}: {error}: {line}", path.display()));
    whole.lines().map(line).collect()
}

/// Where the tokens of an entry are, or those of one of its members.
pub(crate) fn payload(id: TrajectoryId, member: Option<u32>) -> String {
    let member = member.map_or(String::new(), |index| format!("-{index}"));
    format!("file:///dev/shm/{id}{member}")
}

pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    u64::try_from(now.as_millis()).expect("a time in this era")
}
