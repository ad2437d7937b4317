//! The explanation in words, for whoever is woken by it.

use std::fmt;

use super::admission::{Admission, AdmissionBlock, newest};
use super::freeing::{self, FreedBy};
use super::length::Length;
use super::view::View;
use super::{WaitingOn, WorkersOfVersion};
use crate::ledger::state::BufferCounts;
use crate::protocol::FinalBatch;
use crate::protocol::tables::BufferState;

/// A Reserve waits a minute at most: when none has come for longer, nobody asks.
const RESERVES_WAIT_MS: u64 = 60_000;

pub(super) fn of(view: &View, admission: &Admission, workers: &[WorkersOfVersion], waiting_on: &[WaitingOn]) -> String {
    let teller = Teller {
        view,
        admission,
        workers,
        waiting_on,
    };
    teller.tell()
}

struct Teller<'a> {
    view: &'a View,
    admission: &'a Admission,
    workers: &'a [WorkersOfVersion],
    waiting_on: &'a [WaitingOn],
}

impl Teller<'_> {
    fn tell(&self) -> String {
        let view = self.view;
        let (version, next) = (view.state.policy_version, view.state.next_buffer);
        if view.is_finished() {
            return format!("The run is finished: version {version} is its last, and every process may exit.");
        }
        if view.is_replaying() {
            let at = view.state.trainer_version;
            let last = version.0.saturating_sub(1);
            return format!(
                "The trainer trains again what is kept: it stands at version {at}, and batches {at} to {last} are there for \
                 it. Nothing is waited for."
            );
        }
        if view.is_training() {
            return self.training();
        }
        if view.is_takeable() {
            return format!("Buffer {next} is ready to be taken. {}", self.why_not_taken());
        }
        if view.is_drained() {
            return self.last_batch();
        }
        let not_waiting = if view.waits_since().is_some() {
            String::new()
        } else {
            format!("{} ", self.why_not_taken())
        };
        match view.next() {
            Some(buffer) if buffer.state == BufferState::Stuck => {
                let of_many = format!("{} are still out, for the longest {{}}", buffer.reserved);
                let still_out = self.longest("{}, is still out", &of_many);
                let said = sentences([still_out, self.freed(self.waiting_on, buffer.reserved)]);
                format!("{not_waiting}{}. {said}", self.filled(&buffer))
            }
            Some(buffer) => format!("{not_waiting}{}", self.pending(&buffer)),
            None => format!("{not_waiting}No buffer is open."),
        }
    }

    fn training(&self) -> String {
        let view = self.view;
        let (version, trainer) = (view.state.policy_version, view.state.trainer());
        let had_for = trainer.since_at_ms.map_or_else(String::new, |since| {
            format!(" for {}", Length(view.now_ms.saturating_sub(since)))
        });
        let quiet = trainer.last_call_at_ms.map_or_else(String::new, |last| {
            format!("; its last call was {} ago", Length(view.now_ms.saturating_sub(last)))
        });
        let after = view.next().map_or_else(
            || "No buffer is open until then".to_owned(),
            |buffer| self.filled(&buffer),
        );
        format!(
            "The trainer has had batch {version}{had_for}, and has not published version {}{quiet}. {after}.",
            version.0 + 1
        )
    }

    /// Why a trainer that could take, or wait, does not.
    fn why_not_taken(&self) -> String {
        let trainer = self.view.state.trainer();
        match trainer.last_call_at_ms {
            None => "No trainer has ever called.".to_owned(),
            Some(last) => {
                let ago = Length(self.view.now_ms.saturating_sub(last));
                format!("The trainer does not ask for a batch; its last call was {ago} ago.")
            }
        }
    }

    fn last_batch(&self) -> String {
        let view = self.view;
        let left = view.next().map_or(0, |buffer| buffer.occupied);
        let batch = view.state.next_buffer;
        let trainer = if view.waits_since().is_some() {
            String::new()
        } else {
            format!(" {}", self.why_not_taken())
        };
        if left == 0 {
            return format!("The run is draining, and nothing is left of it.{trainer}");
        }
        let becomes = match view.config.final_batch {
            FinalBatch::Discard if view.streamed == 0 => "is discarded when the trainer asks for a batch",
            _ => "is the last batch, and can be taken",
        };
        let entries = Count(left.into(), "entry", "entries");
        format!(
            "The run is draining, and nothing more will come: buffer {batch} with its {entries} {becomes}.{trainer}"
        )
    }

    fn filled(&self, buffer: &BufferCounts) -> String {
        let needed = self.view.config.batch_size;
        let taken = match self.view.streamed {
            0 => String::new(),
            streamed => format!(", {streamed} of them taken"),
        };
        format!("Buffer {} has {} of {needed}{taken}", buffer.version, buffer.occupied)
    }

    fn pending(&self, buffer: &BufferCounts) -> String {
        let empty = Count(buffer.empty.into(), "slot is empty", "slots are empty");
        let out = match buffer.reserved {
            0 => format!(", and {empty}"),
            reserved => {
                let out = Count(reserved.into(), "is still out", "are still out");
                format!(", {out} and {empty}")
            }
        };
        let head = format!("{}{out}: {}.", self.filled(buffer), self.why_empty());
        let further_back = self.further_back(buffer);
        let is_blocked = self.admission.blocked_by.is_some_and(AdmissionBlock::is_of_everybody);
        if !is_blocked && self.is_asked_for() {
            return sentences([head, further_back]);
        }
        if self.waiting_on.is_empty() {
            let (oldest, freed) = self.oldest_of_all();
            return sentences([head, further_back, oldest, freed]);
        }
        let longest = self.longest("It is {}", "The longest of them is {}");
        let freed = self.freed(self.waiting_on, buffer.reserved);
        sentences([head, longest, freed, further_back])
    }

    /// Reservations of later buffers: a finished entry takes the earliest place.
    fn further_back(&self, buffer: &BufferCounts) -> String {
        let more = if buffer.reserved == 0 { "" } else { " more" };
        match self.admission.reserved - u64::from(buffer.reserved) {
            0 => String::new(),
            1 => format!("1{more} is still out with a place in a later buffer, and comes here if it finishes."),
            many => format!("{many}{more} are still out with places in later buffers, and come here as they finish."),
        }
    }

    /// With no reservation in the buffer, the oldest of all is the one that may have hung.
    fn oldest_of_all(&self) -> (String, String) {
        let Some(oldest) = &self.view.oldest else {
            return (String::new(), String::new());
        };
        let oldest = oldest.shown(freeing::of(self.view, self.admission, oldest));
        let said = format!("The oldest reservation of all is {}.", self.holder(&oldest));
        (said, self.freed(&[oldest], 1))
    }

    /// Whether some worker has asked for a place of late.
    fn is_asked_for(&self) -> bool {
        let last = self.view.last_reserve_at_ms;
        let is_recent = last.is_some_and(|last| self.view.now_ms.saturating_sub(last) <= RESERVES_WAIT_MS);
        is_recent && !self.workers.is_empty()
    }

    /// Why nobody takes the empty slots.
    fn why_empty(&self) -> String {
        let view = self.view;
        match self.admission.blocked_by {
            Some(AdmissionBlock::Draining) => "the run is draining, and admits nothing more".to_owned(),
            Some(AdmissionBlock::Concurrency) => {
                let (generating, most) = (view.generating, view.config.max_concurrency.unwrap_or(0));
                format!("{generating} trajectories are being generated, and max_concurrency is {most}")
            }
            Some(AdmissionBlock::Prompts) => "no prompt is queued".to_owned(),
            Some(AdmissionBlock::Staleness) => {
                let oldest = view.state.next_buffer.0.saturating_sub(view.config.max_staleness);
                let latest = view.state.policy_version;
                let newest = newest(self.workers).map_or_else(|| "-".to_owned(), |version| version.to_string());
                format!(
                    "it admits no weights below version {oldest}, the newest that a worker has are {newest}, and version \
                     {latest} is published"
                )
            }
            None => self.why_unasked(),
        }
    }

    /// Why nobody takes slots that could be had.
    fn why_unasked(&self) -> String {
        let workers: u64 = self.workers.iter().map(|group| group.workers).sum();
        if workers == 0 {
            return "no worker has a lease".to_owned();
        }
        let workers = Count(workers, "worker is there", "workers are there");
        match self.view.last_reserve_at_ms {
            None => format!("{workers}, and none has ever asked for a place"),
            Some(last) => {
                let ago = Length(self.view.now_ms.saturating_sub(last));
                if self.is_asked_for() {
                    format!("they can be had, and the last Reserve was {ago} ago")
                } else {
                    format!("{workers}, and none has asked for a place for {ago}")
                }
            }
        }
    }

    /// Of those that are waited for the one, or the longest, behind the words for either.
    fn longest(&self, one: &str, of_many: &str) -> String {
        let Some(longest) = self.waiting_on.iter().min_by_key(|waiting| waiting.reserved_at_ms) else {
            return String::new();
        };
        let words = if self.view.reserved_in_next() == 1 {
            one
        } else {
            of_many
        };
        let heartbeat = longest.heartbeat_at_ms.map_or_else(String::new, |at| {
            let old = Length(self.view.now_ms.saturating_sub(at));
            format!("; its heartbeat is {old} old")
        });
        let said = words.replace("{}", &self.holder(longest));
        format!("{said}{heartbeat}.")
    }

    fn holder(&self, waiting: &WaitingOn) -> String {
        let id = waiting.id;
        let ago = Length(self.view.now_ms.saturating_sub(waiting.reserved_at_ms));
        if let Some(worker) = &waiting.worker {
            return format!("{id} on {worker}, reserved {ago} ago");
        }
        let members = Count(waiting.members_complete.unwrap_or(0).into(), "member", "members");
        format!("{id}, which waits to be adopted with {members} complete, reserved {ago} ago")
    }

    /// When the first of so many is freed and by what, or why nothing frees any.
    fn freed(&self, waiting_on: &[WaitingOn], of: u32) -> String {
        let is_one = of == 1;
        let firsts = waiting_on
            .iter()
            .filter_map(|waiting| Some((waiting.frees_at_ms?, waiting.freed_by?)));
        let Some((at_ms, by)) = firsts.min() else {
            let them = if is_one { "it" } else { "them" };
            return format!("Nothing will free {them}: {}.", self.why_nothing_frees());
        };
        let (by, what) = match (by, is_one) {
            (FreedBy::Lease, true) => ("Its lease", "it"),
            (FreedBy::Lease, false) => ("A lease", "the first of them"),
            (FreedBy::ReservationTimeout, true) => ("reservation_timeout_ms", "it"),
            (FreedBy::ReservationTimeout, false) => ("reservation_timeout_ms", "the first of them"),
            (FreedBy::StuckTimeout, true) => ("stuck_timeout_ms", "it"),
            (FreedBy::StuckTimeout, false) => ("stuck_timeout_ms", "them"),
        };
        match at_ms.saturating_sub(self.view.now_ms) {
            0 => format!("{by} frees {what} now."),
            left => format!("{by} will free {what} in {}.", Length(left)),
        }
    }

    /// The setting that would.
    fn why_nothing_frees(&self) -> String {
        let view = self.view;
        if view.config.stuck_timeout_ms.is_none() {
            return "stuck_timeout_ms is not set".to_owned();
        }
        if !freeing::is_few_enough(view) {
            let most = view.config.stuck_max_reserved.unwrap_or(0);
            return format!("stuck_timeout_ms counts only while at most {most} are out (stuck_max_reserved)");
        }
        if view.waits_since().is_none() {
            return "stuck_timeout_ms counts only while the trainer asks for the batch".to_owned();
        }
        "stuck_timeout_ms counts only while the buffer is stuck, or nothing can be admitted".to_owned()
    }
}

fn sentences<const N: usize>(all: [String; N]) -> String {
    let said: Vec<_> = all.into_iter().filter(|sentence| !sentence.is_empty()).collect();
    said.join(" ")
}

/// So many of something.
struct Count(u64, &'static str, &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, one, many) = self;
        write!(f, "{count} {}", if *count == 1 { one } else { many })
    }
}
