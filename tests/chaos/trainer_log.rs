//! The trainer's own account: what its processes wrote, read as one story.

use std::collections::BTreeMap;

use crate::diary::{Entry, Line, Opened, Piece, TrainedEntry};
use crate::history::History;

/// Follows the diary and says what does not fit into itself or into the ledger's history.
pub(crate) fn problems(diary: &[Line], history: &History) -> Vec<String> {
    let mut account = Account {
        history,
        trained: BTreeMap::new(),
        given: BTreeMap::new(),
        at: (0, 0),
        problems: Vec::new(),
    };
    for line in diary {
        match &line.entry {
            Entry::Opened(opened) => account.opened(opened),
            Entry::Piece(piece) => account.piece(piece),
            Entry::Trained(batch) => account.trained(batch.epoch, batch.version, &batch.entries),
            Entry::Published {
                policy_version,
                lineage,
                ..
            } => account.stands_at((*lineage, *policy_version)),
            _ => {}
        }
    }
    account.compare_with_the_end();
    account.problems
}

struct Account<'a> {
    history: &'a History,
    /// The batches that count, as the trainer knows: a rewind abandons those from its version on.
    trained: BTreeMap<u64, Vec<TrainedEntry>>,
    /// What stood at which place of each, as it was first given, in a piece or a whole batch.
    given: BTreeMap<(u64, usize), TrainedEntry>,
    /// The lineage and the policy version that it saw last.
    at: (u64, u64),
    problems: Vec<String>,
}

impl Account<'_> {
    fn opened(&mut self, opened: &Opened) {
        let (lineage, _) = self.at;
        self.stands_at((opened.lineage, opened.policy_version));
        if opened.lineage > lineage {
            self.trained.split_off(&opened.trainer_version);
            self.given.split_off(&(opened.trainer_version, 0));
        }
        if opened
            .resume_from
            .is_some_and(|version| version != opened.trainer_version)
        {
            self.problems.push(format!("the trainer resumed elsewhere: {opened:?}"));
        }
    }

    /// `policy_version` never goes back, except where the lineage rises.
    fn stands_at(&mut self, at: (u64, u64)) {
        if at < self.at {
            self.problems.push(format!(
                "(lineage, policy_version) went back from {:?} to {at:?}",
                self.at
            ));
        }
        self.at = at;
    }

    /// A piece is the part of its batch that the log has there, and the same however often it is given.
    fn piece(&mut self, piece: &Piece) {
        let Piece {
            epoch,
            version,
            offset,
            complete,
            ref entries,
        } = *piece;
        let end = offset + entries.len();
        let is_right = self.history.batch_in(epoch, version).is_some_and(|batch| {
            let is_end = batch.taken_at.is_some() && batch.entries.len() == end;
            batch.entries.get(offset..end) == Some(entries) && (!complete || is_end)
        });
        if !is_right {
            self.problems
                .push(format!("a piece is not what the log has: {piece:?}"));
        }
        self.given(epoch, version, offset, entries);
    }

    fn given(&mut self, epoch: u64, version: u64, offset: usize, entries: &[TrainedEntry]) {
        for (place, entry) in (offset..).zip(entries) {
            let first = self.given.entry((version, place)).or_insert_with(|| entry.clone());
            if first != entry {
                self.problems.push(format!(
                    "epoch {epoch} was given {entry:?} as number {place} of batch {version}, and {first:?} before"
                ));
            }
        }
    }

    fn trained(&mut self, epoch: u64, version: u64, entries: &[TrainedEntry]) {
        match self.history.batch_in(epoch, version) {
            None => self.problems.push(format!(
                "epoch {epoch} trained batch {version}, which is not in the log"
            )),
            Some(batch) if batch.entries != entries => self.problems.push(format!(
                "epoch {epoch} trained batch {version} as {entries:?}; the log has {:?}",
                batch.entries
            )),
            Some(_) => {}
        }
        self.given(epoch, version, 0, entries);
        let before = self.trained.insert(version, entries.to_vec());
        if let Some(before) = before.filter(|before| before != entries) {
            self.problems.push(format!(
                "epoch {epoch} trained batch {version} as {entries:?}, and it was {before:?} before"
            ));
        }
    }

    /// What the ledger holds for trained, the trainer trained. It may have trained more: what a forced resume went past.
    fn compare_with_the_end(&mut self) {
        for batch in self.history.final_batches() {
            let is_past = batch.version < self.history.trainer_version;
            match self.trained.get(&batch.version) {
                Some(entries) if *entries != batch.entries => {
                    self.problems.push(format!(
                        "in the end batch {} is another than was trained",
                        batch.version
                    ));
                }
                None if is_past && self.history.jumps == 0 => {
                    self.problems
                        .push(format!("batch {} was never given to the trainer", batch.version));
                }
                _ => {}
            }
        }
    }
}
