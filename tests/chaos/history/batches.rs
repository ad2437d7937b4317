//! The batches of a run, as its log has them taken: whole, or piece by piece.

use berth::protocol::{Event, EventType, Place, TrajectoryId};

use super::{History, State};
use crate::diary::TrainedEntry;
use crate::rehearsal::Config;

/// A batch, or as much of one as was streamed, and when it was one.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) version: u64,
    pub(crate) entries: Vec<TrainedEntry>,
    began_at: u64,
    /// When the last of it was taken.
    pub(crate) taken_at: Option<u64>,
    /// When a rewind took it apart.
    pub(super) abandoned_at: Option<u64>,
}

impl History {
    /// The batch of this version that the trainer session of this epoch could be given.
    pub(crate) fn batch_in(&self, epoch: u64, version: u64) -> Option<&Batch> {
        let (opened, over) = *self.epochs.get(&epoch)?;
        let stood = |batch: &&Batch| batch.began_at < over && batch.abandoned_at.is_none_or(|at| at > opened);
        self.batches.iter().filter(|batch| batch.version == version).find(stood)
    }

    /// The batches that stand in the end.
    pub(crate) fn final_batches(&self) -> impl Iterator<Item = &Batch> {
        self.batches.iter().filter(|batch| batch.abandoned_at.is_none())
    }

    /// Whether what occupies the place was given to the trainer, in a batch or a piece of one.
    pub(crate) fn is_taken(&self, place: Place) -> bool {
        let is_streamed =
            |batch: &Batch| batch.version == place.buffer.0 && (place.slot.0 as usize) < batch.entries.len();
        place.buffer.0 < self.next_buffer || self.open_batch().is_some_and(|at| is_streamed(&self.batches[at]))
    }

    /// The batch that was streamed in part only.
    fn open_batch(&self) -> Option<usize> {
        let at = self.batches.len().checked_sub(1)?;
        let batch = &self.batches[at];
        let is_open = batch.version == self.next_buffer && batch.taken_at.is_none() && batch.abandoned_at.is_none();
        is_open.then_some(at)
    }

    /// A whole batch, what a partly streamed one still lacked, or a piece.
    pub(super) fn take(&mut self, event: &Event, version: u64, config: Config) {
        if (version, version) != (self.policy_version, self.next_buffer) {
            self.wrong(event, "takes a batch that is not the next");
        }
        let at = self.open_batch().unwrap_or_else(|| {
            self.batches.push(Batch {
                version,
                entries: Vec::new(),
                began_at: event.seq,
                taken_at: None,
                abandoned_at: None,
            });
            self.batches.len() - 1
        });
        let offset = self.batches[at].entries.len() as u64;
        let is_piece = event.event_type == EventType::Stream;
        if is_piece && event.offset != Some(offset) {
            self.wrong(event, &format!("takes a piece that does not begin at {offset}"));
        }
        let slot = |slot: u64| Place::new(version, u32::try_from(slot).expect("a slot"));
        let end = is_piece.then(|| offset + event.entries.unwrap_or(0));
        let places = slot(offset)..end.map_or(Place::new(version, u32::MAX), slot);
        let ids: Vec<_> = self.slots.range(places).map(|(_, id)| *id).collect();
        if end.is_some_and(|end| offset + ids.len() as u64 != end) {
            self.wrong(event, "takes a piece that is not there");
        }
        for id in ids {
            if !matches!(self.stories[&id].state, State::Occupied(_)) {
                self.wrong(event, &format!("leaves the reservation {id} behind"));
                continue;
            }
            let entry = self.as_trained(id);
            self.batches[at].entries.push(entry);
        }
        let taken = self.batches[at].entries.len();
        if event.is_final {
            self.end(event, taken, config);
        } else if taken > config.batch_size || !is_piece && taken < config.batch_size {
            self.wrong(event, &format!("takes {taken} entries"));
        }
        if taken >= config.batch_size || !is_piece || event.is_final {
            self.batches[at].taken_at = Some(event.seq);
            self.next_buffer = version + 1;
        }
    }

    /// A last batch holds all that a drained run has left over.
    fn end(&mut self, event: &Event, taken: usize, config: Config) {
        let rest: Vec<_> = self
            .stories
            .iter()
            .filter(|(_, story)| match story.state {
                State::Reserved(_) => true,
                State::Occupied(place) => !story.pruned && place.buffer.0 >= self.next_buffer,
                State::Discarded => false,
            })
            .collect();
        if !self.is_draining || rest.len() != taken || !(1..config.batch_size).contains(&taken) {
            let what = format!(
                "takes {taken} as the last ones (draining: {}): {rest:?}",
                self.is_draining
            );
            self.wrong(event, &what);
        }
    }

    fn as_trained(&self, id: TrajectoryId) -> TrainedEntry {
        let story = &self.stories[&id];
        TrainedEntry {
            id,
            version: story.version,
            prompt: story.position.and_then(|position| self.queue.name(position)),
            members: story.complete_members(),
        }
    }
}
