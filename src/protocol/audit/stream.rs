//! What the protocol has for pieces of a batch, and for the end of a run.

use super::finding::PieceTold;
use super::run::{Run, version};
use super::{BatchReport, Fault, Report};
use crate::protocol::tables::{Misfit, Stream, StreamRequest, Take};
use crate::protocol::{BufferId, Effect, Event, Version};

impl Run {
    /// The piece that the event tells must be the one that follows on what was taken.
    pub(super) fn expected_of_stream(&mut self, event: &Event) -> Result<Vec<Effect>, Fault> {
        let logged = piece(event)?;
        self.refuse_out_of_turn(logged.version)?;
        let request = StreamRequest {
            from: self.model.streamed(),
            min_entries: logged.entries.max(1),
            max_entries: logged.entries.max(1),
        };
        let (expected, effects) = match self.model.stream(request, Some(self.trainer())) {
            Ok(Stream::Piece(piece)) => {
                let expected = PieceTold {
                    version: piece.version,
                    offset: piece.offset,
                    entries: piece.entries.len(),
                    is_final: piece.is_final,
                };
                (Some(expected), piece.effects)
            }
            _ => (None, Vec::new()),
        };
        if expected == Some(logged) {
            Ok(effects)
        } else {
            Err(Fault::Piece { logged, expected })
        }
    }

    /// Only what begins a drain, changes or ends it is a step.
    pub(super) fn expected_of_drain(&mut self, event: &Event) -> Result<Vec<Effect>, Fault> {
        let drain = event.drain.ok_or(Fault::Missing("drain"))?;
        if self.model.drain(drain.then(|| event.queue.unwrap_or_default())) {
            Ok(Vec::new())
        } else {
            Err(Fault::DrainRepeated)
        }
    }

    /// Entries are discarded as `drained` where a Take finds them left over, and the run is to end without a batch of them.
    pub(super) fn expected_of_drained(&mut self, event: &Event) -> Result<Vec<Effect>, Fault> {
        match self.model.take(Some(self.trainer()))? {
            Take::Drained { ids, effects } if ids == event.ids => Ok(effects),
            _ => Err(Fault::NotDrained),
        }
    }

    /// Some of buffer `H` was taken, if the event tells of it; if not, or of another, that was told, and nothing has happened.
    pub(super) fn streamed(
        &mut self,
        event: &Event,
        report: &mut Report,
        faults: &mut Vec<Fault>,
    ) -> Result<(), Misfit> {
        let Ok(PieceTold {
            version,
            entries,
            is_final,
            ..
        }) = piece(event)
        else {
            return Ok(());
        };
        if self.logged.next_buffer() != BufferId(version.0) {
            return Ok(());
        }
        report.pieces += 1;
        if let Some(batch) = self.logged.replay_stream(entries, is_final)? {
            self.check_batch(version, &batch, is_final, faults);
            report.takes += 1;
            report.batches.push(BatchReport::of(version, &batch));
        }
        Ok(())
    }
}

fn piece(event: &Event) -> Result<PieceTold, Fault> {
    let number = |field: Option<u64>, name| {
        let number = field.ok_or(Fault::Missing(name))?;
        Ok::<_, Fault>(usize::try_from(number).unwrap_or(usize::MAX))
    };
    Ok(PieceTold {
        version: version(event)?,
        offset: number(event.offset, "offset")?,
        entries: number(event.entries, "entries")?,
        is_final: event.is_final,
    })
}

impl std::fmt::Display for PieceTold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            version: Version(version),
            offset,
            entries,
            is_final,
        } = self;
        let last = if *is_final { ", the last of the run" } else { "" };
        write!(
            f,
            "{entries} entries of batch {version} behind the first {offset}{last}"
        )
    }
}
