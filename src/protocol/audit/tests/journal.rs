//! A good log, written by the model.

use crate::protocol::notation::{id, ids, weights_of};
use crate::protocol::tables::{Behind, Delivery, Resume, SlotTables, Stream, StreamRequest, Take, Wish};
use crate::protocol::{
    DrainQueue, Effect, Epoch, Event, EventType, FedPrompt, Lineage, LoggedEffect, Reason, RunConfig, TrajectoryId,
    Version,
};

/// A run that writes its log.
pub(super) struct Journal {
    pub(super) tables: SlotTables,
    pub(super) events: Vec<Event>,
}

impl Journal {
    pub(super) fn new(config: RunConfig) -> Self {
        let mut journal = Self {
            tables: SlotTables::new(config.clone()),
            events: Vec::new(),
        };
        journal.event(EventType::RunCreated, &[]).config = Some(config);
        journal
    }

    /// A run that goes on from a deleted one.
    pub(super) fn continued(config: RunConfig, epoch: u64, lineage: u64) -> Self {
        let (epoch, lineage) = (Epoch(epoch), Lineage(lineage));
        let mut journal = Self {
            tables: SlotTables::continued(config.clone(), epoch, lineage),
            events: Vec::new(),
        };
        let event = journal.event(EventType::RunCreated, &[]);
        event.config = Some(config);
        event.epoch = Some(epoch);
        event.lineage = Some(lineage);
        journal
    }

    /// Reserves under a version of the current lineage.
    pub(super) fn reserve(&mut self, version: u64, letters: &str) {
        let lineage = self.tables.lineage();
        let weights = weights_of(version, lineage.0);
        let reserved = self.tables.reserve(weights, &ids(letters)).expect("a reserve");
        assert_eq!(reserved.blocked_by, None);
        let event = self.event(EventType::Reserve, &reserved.effects);
        event.version = Some(Version(version));
        event.lineage = (lineage > Lineage(0)).then_some(lineage);
        event.ids = ids(letters);
    }

    pub(super) fn occupy(&mut self, letters: &str) {
        for letter in letters.chars() {
            let occupied = self.tables.occupy(id(letter)).expect("an occupy");
            let event = self.event(EventType::Occupy, &occupied.effects);
            event.ids = vec![id(letter)];
            event.late = occupied.late;
        }
    }

    /// Feeds a prompt for each of the letters.
    pub(super) fn feed(&mut self, letters: &str) {
        let prompt = |letter: char| FedPrompt {
            id: letter.to_string(),
            expected_tokens: None,
        };
        let prompts: Vec<_> = letters.chars().map(prompt).collect();
        let fed = self.tables.feed(None, &prompts).expect("a queue");
        let event = self.event(EventType::Feed, &[]);
        event.fed = Some(fed);
        event.prompts = prompts;
    }

    /// Discards the entries in one event of this kind.
    pub(super) fn discard(&mut self, event_type: EventType, letters: &str, reason: &str) {
        self.discard_with(event_type, letters, reason, Wish::ByReason);
    }

    /// The same, with a wish for their prompts.
    pub(super) fn discard_with(&mut self, event_type: EventType, letters: &str, reason: &str, wish: Wish) {
        let reason = Reason::from(reason);
        let mut effects = Vec::new();
        for letter in letters.chars() {
            let discarded = self.tables.discard_with(id(letter), reason.clone(), wish);
            let discarded = discarded.expect("a discard");
            effects.extend(discarded.effects);
        }
        let event = self.event(event_type, &effects);
        event.ids = ids(letters);
        event.reason = Some(reason);
        event.requeue = wish == Wish::Requeue;
    }

    /// The next batch, or one that is given again.
    pub(super) fn take(&mut self) {
        let Ok(Take::Taken {
            version,
            effects,
            replayed,
            is_final,
            entries,
            delivery,
            ..
        }) = self.tables.take(Some(self.tables.epoch()))
        else {
            panic!("the next buffer is not ready");
        };
        let event_type = match delivery {
            Delivery::Taken => EventType::Take,
            Delivery::Delivered => EventType::Deliver,
            Delivery::Repeated => panic!("it was given before"),
        };
        let event = self.event(event_type, &effects);
        event.version = Some(version);
        event.replayed = replayed;
        if event_type == EventType::Take {
            event.is_final = is_final;
            event.entries = is_final.then_some(entries.len() as u64);
        }
    }

    /// All that has finished behind the first `from` entries of the next batch, or at most so many.
    pub(super) fn stream(&mut self, from: usize, most: usize) {
        let request = StreamRequest {
            from,
            min_entries: 1,
            max_entries: most,
        };
        let Ok(Stream::Piece(piece)) = self.tables.stream(request, Some(self.tables.epoch())) else {
            panic!("there is no piece");
        };
        let event_type = match piece.delivery {
            Delivery::Taken => EventType::Stream,
            Delivery::Delivered => EventType::Deliver,
            Delivery::Repeated => return,
        };
        let event = self.event(event_type, &piece.effects);
        event.version = Some(piece.version);
        event.offset = Some(piece.offset as u64);
        event.replayed = piece.replayed;
        if event_type == EventType::Stream {
            event.entries = Some(piece.entries.len() as u64);
            event.is_final = piece.is_final;
        }
    }

    /// Drains the run, or ends that.
    pub(super) fn drain(&mut self, draining: Option<DrainQueue>) {
        assert!(self.tables.drain(draining));
        let event = self.event(EventType::Drain, &[]);
        event.drain = Some(draining.is_some());
        event.queue = draining;
    }

    /// A Take that finds entries left over.
    pub(super) fn discard_the_rest(&mut self) {
        let Ok(Take::Drained { ids, effects }) = self.tables.take(Some(self.tables.epoch())) else {
            panic!("nothing is left over");
        };
        let event = self.event(EventType::Discard, &effects);
        event.ids = ids;
        event.reason = Some(Reason::Drained);
    }

    /// Opens a trainer session.
    pub(super) fn resume(&mut self, resume: Resume) {
        let resumed = self.tables.resume(&resume).expect("a resume");
        let event = self.event(EventType::TrainerOpened, &resumed.effects);
        event.resumed_from = Some(resumed.resumed_from);
        event.mode = Some(resume.mode);
        event.force = resume.force;
        event.behind = resume.behind.is_some();
        event.epoch = Some(resumed.epoch);
        event.lineage = (resumed.lineage > Lineage(0)).then_some(resumed.lineage);
        event.policy_version = Some(resumed.policy_version);
    }

    /// Opens a trainer session of a run that lost writes, of which these were seen; `seq` rises above `seq`.
    pub(super) fn resume_behind(&mut self, mut resume: Resume, epoch: u64, lineage: u64, seq: u64) {
        resume.behind = Some(Behind {
            epoch: Epoch(epoch),
            lineage: Lineage(lineage),
        });
        let before = self.seq();
        self.resume(resume);
        self.last().raised_from = Some(before);
        self.last().seq = seq + 1;
    }

    pub(super) fn checkpoint(&mut self, version: u64) {
        let epoch = Some(self.tables.epoch());
        let checkpointed = self.tables.checkpoint(Version(version), epoch).expect("a checkpoint");
        assert!(checkpointed.changed);
        self.event(EventType::Checkpoint, &[]).version = Some(Version(version));
    }

    pub(super) fn publish(&mut self, version: u64) {
        let epoch = Some(self.tables.epoch());
        self.tables.publish(Version(version), epoch).expect("a publish");
        self.event(EventType::Publish, &[]).version = Some(Version(version));
    }

    pub(super) fn prune(&mut self, version: u64, letters: &str) {
        let prune = |id: TrajectoryId| self.tables.prune(id).expect("a batch that is not kept");
        let effects: Vec<Effect> = ids(letters).into_iter().map(prune).collect();
        self.event(EventType::Prune, &effects).version = Some(Version(version));
    }

    pub(super) fn change(&mut self, config: RunConfig) {
        self.tables.set_config(config.clone()).expect("a change");
        self.event(EventType::RunChanged, &[]).config = Some(config);
    }

    /// Logs a step with these effects, right or wrong; the journal's own tables do not follow it.
    pub(super) fn event(&mut self, event_type: EventType, effects: &[Effect]) -> &mut Event {
        let logged = |effect: &Effect| LoggedEffect::from(effect.clone());
        let event = Event {
            effects: effects.iter().map(logged).collect(),
            ..Event::new(self.seq() + 1, event_type)
        };
        self.events.push(event);
        self.events.last_mut().expect("it was just logged")
    }

    fn seq(&self) -> u64 {
        self.events.last().map_or(0, |event| event.seq)
    }

    /// The last event, to be spoilt.
    pub(super) fn last(&mut self) -> &mut Event {
        self.events.last_mut().expect("an event")
    }
}
