//! A trainer process that takes its batches in pieces, and says each time how many entries it has.

use serde_json::json;

use super::{Trainer, number};
use crate::caller::Answer;
use crate::diary::{Entry, Piece, Trained, TrainedEntry};

/// Once in so many pieces it asks for one again that it has.
const REPETITIONS: u64 = 8;

impl Trainer {
    /// The batch of this version, put together; `None` when the run is finished.
    pub(super) async fn stream(&self, version: u64, piece_size: Option<u64>) -> Option<Trained> {
        let mut entries: Vec<TrainedEntry> = Vec::new();
        let mut redelivered = true;
        loop {
            let epoch = self.epoch.get();
            // It stays the same, whether a piece came or the call is repeated.
            let mut call = json!({ "epoch": epoch, "wait_ms": 500, "stream": true, "from_offset": entries.len() });
            if let Some(size) = piece_size {
                call["min_entries"] = size.into();
                call["max_entries"] = size.into();
            }
            if self.chance.once_in(2) {
                call["version"] = version.into();
            }
            let mut answer = match self.caller.post("batches/next", &call).await {
                Answer::Done(answer) => answer,
                Answer::Refused { code, body } => {
                    self.refused("stream", &code, body, &[]);
                    return None;
                }
            };
            let batch = answer["batch"].take();
            if batch.is_null() {
                if answer["finished"] == true {
                    return None;
                }
                continue;
            }
            if number(&batch["version"]) != version || batch["offset"] != entries.len() {
                self.unexpected("stream", batch);
                return None;
            }
            if self.chance.once_in(REPETITIONS) {
                self.repeat_stream(&call, &batch).await;
            }
            let piece = Piece {
                epoch,
                version,
                offset: entries.len(),
                complete: batch["complete"] == true,
                entries: TrainedEntry::shown(&batch),
            };
            self.diary.write(Entry::Piece(piece.clone()));
            entries.extend(piece.entries);
            redelivered &= batch["redelivered"] == true;
            if piece.complete {
                return Some(Trained {
                    epoch,
                    version,
                    redelivered,
                    replayed: batch["replayed"] == true,
                    entries,
                });
            }
            self.may_die("two pieces");
        }
    }

    async fn repeat_stream(&self, call: &serde_json::Value, first: &serde_json::Value) {
        self.caller.change_server();
        let alike = match self.caller.post("batches/next", call).await {
            Answer::Done(again) => {
                let same = |field: &str| again["batch"][field] == first[field];
                same("version") && same("offset") && same("complete") && same("trajectories")
            }
            Answer::Refused { code, body } => return self.refused("stream", &code, body, &[]),
        };
        self.diary.write(Entry::Repeated {
            call: "stream".to_owned(),
            alike,
        });
    }
}
