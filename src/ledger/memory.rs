//! What this server has seen of each run, to know whether the database lost writes (protocol, *Sequence*).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::protocol::{Epoch, Lineage};
use crate::store::Generation;

/// Where a run stood when a script answered.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct At {
    pub(super) seq: u64,
    mark: String,
    epoch: Epoch,
    lineage: Lineage,
    /// Whether the script looked for the mark that it was told, and did not find another one.
    #[serde(default)]
    compared: bool,
}

/// The furthest that this server has seen a run, as a script is told of it.
#[derive(Debug, Serialize)]
pub(super) struct Acked {
    seq: u64,
    epoch: Epoch,
    lineage: Lineage,
    /// The mark of the event of that `seq`, where the script is to look whether it is still there.
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<String>,
}

/// The furthest that this server has seen each run. A restart forgets it: then clients remember, by the header `berth-seq`.
#[derive(Default)]
pub(super) struct Memory {
    runs: Mutex<HashMap<String, Seen>>,
}

struct Seen {
    at: At,
    /// The connection on which it was last seen that this event is there.
    on: Generation,
}

impl Memory {
    /// What a script is to be told. On a connection on which this was not asked yet it compares the mark: the database behind it may
    /// be another, or the same one restored from a copy, in which newer writes have overtaken the numbers of those it lost.
    pub(super) fn of(&self, run: &str, on: Generation) -> Option<Acked> {
        let runs = self.lock();
        let seen = runs.get(run)?;
        Some(Acked {
            seq: seen.at.seq,
            epoch: seen.at.epoch,
            lineage: seen.at.lineage,
            mark: (seen.on != on).then(|| seen.at.mark.clone()),
        })
    }

    /// Takes down where a run stood in the answer of a script that was told `acked`, on a connection. Answers may come in another
    /// order than they were given. A script that was to compare the mark and did not (it only reads, or it found another one)
    /// may have seen another history: what it saw is not taken down, however high it is.
    pub(super) fn note(&self, run: &str, acked: Option<&Acked>, at: &At, on: Generation) {
        let mut runs = self.lock();
        let is_same_history = at.compared || acked.is_none_or(|acked| acked.mark.is_none());
        match runs.get_mut(run) {
            Some(seen) if at.seq > seen.at.seq => {
                if is_same_history {
                    *seen = Seen { at: at.clone(), on };
                }
            }
            Some(seen) => {
                if at.compared && acked.is_some_and(|acked| acked.seq == seen.at.seq) {
                    seen.on = on;
                }
            }
            None => {
                runs.insert(run.to_owned(), Seen { at: at.clone(), on });
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Seen>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seq: u64, mark: &str) -> At {
        At {
            seq,
            mark: mark.to_owned(),
            epoch: Epoch(0),
            lineage: Lineage(0),
            compared: false,
        }
    }

    fn told(memory: &Memory, on: Generation) -> (u64, Option<String>) {
        let acked = memory.of("run", on).expect("it was seen");
        (acked.seq, acked.mark)
    }

    #[test]
    fn the_mark_is_asked_for_once_on_each_connection() {
        let memory = Memory::default();
        memory.note("run", None, &at(7, "x"), 1);
        assert_eq!(told(&memory, 1), (7, None));
        assert_eq!(told(&memory, 2), (7, Some("x".to_owned())));
        let acked = memory.of("run", 2);
        let compared = At {
            compared: true,
            ..at(7, "x")
        };
        memory.note("run", acked.as_ref(), &compared, 2);
        assert_eq!(told(&memory, 2), (7, None));
    }

    #[test]
    fn what_was_seen_on_a_new_connection_counts_once_the_mark_was_compared() {
        let memory = Memory::default();
        memory.note("run", None, &at(7, "x"), 1);
        let acked = memory.of("run", 2);

        memory.note("run", acked.as_ref(), &at(9, "of another history"), 2);
        assert_eq!(told(&memory, 2), (7, Some("x".to_owned())));

        let compared = At {
            compared: true,
            ..at(9, "z")
        };
        memory.note("run", acked.as_ref(), &compared, 2);
        assert_eq!(told(&memory, 2), (9, None));
    }

    #[test]
    fn an_answer_that_comes_late_takes_nothing_back() {
        let memory = Memory::default();
        memory.note("run", None, &at(7, "x"), 1);
        memory.note("run", None, &at(6, "w"), 1);
        assert_eq!(told(&memory, 2), (7, Some("x".to_owned())));
        memory.note("run", None, &at(8, "y"), 2);
        assert_eq!(told(&memory, 2), (8, None));
    }
}
