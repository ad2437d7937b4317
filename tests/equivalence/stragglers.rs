//! What a sweep discards because somebody waits for it for too long: by its age, or because it holds the trainer up.

use berth::ledger::runs::ConfigChanges;
use berth::protocol::tables::{BlockedBy, EntryState, Take};
use berth::protocol::{EventType, Place, Reason, RunConfig, TrajectoryId};

use crate::twins::{Twins, effects_of};

/// Longer than any of these tests.
const HOUR_MS: u64 = 3_600_000;
/// At the next sweep.
const AT_ONCE: Option<u64> = Some(0);

impl Twins {
    /// A sweep finds everything older than it may be, and discards it whatever its lease, and if nobody holds it.
    pub(crate) async fn time_out(&mut self) {
        let mut held = (0..3).flat_map(|worker| self.held_by(worker)).collect::<Vec<_>>();
        held.extend(self.model.orphans().map(|(id, _)| id));
        // Leases are not to end first.
        self.configure_times(HOUR_MS, AT_ONCE, None).await;
        while self.ledger.sweep(&self.run, &[]).await.expect("a sweep").more {}
        self.lost(&[EventType::Expire; 3], &held, &Reason::TimedOut).await;
        self.configure_times(1, None, None).await;
    }

    /// The trainer asks for the next batch, and if it has to wait, the next sweep finds that it has done so for long enough.
    pub(crate) async fn hold_up(&mut self) {
        let asked = self.model.clone().take(self.epoch(0));
        let waits = matches!(asked, Ok(Take::NotReady { finished: false, .. }));
        self.take(0).await;
        self.configure_times(HOUR_MS, None, AT_ONCE).await;
        let is_held_up = waits && self.is_held_up();
        self.ledger.sweep(&self.run, &[]).await.expect("a sweep");
        let (prunes, given_up): (Vec<_>, Vec<_>) = self
            .new_events()
            .await
            .into_iter()
            .partition(|event| event.event_type == EventType::Prune);
        if let Some(event) = given_up.first() {
            assert!(is_held_up, "nothing holds the trainer up");
            assert_eq!(event.reason, Some(Reason::StuckTimeout));
            let first = self.reserved_in_next();
            let mut effects = Vec::new();
            for (turn, id) in event.ids.iter().enumerate() {
                let expected = self.reserved_in_next();
                // The oldest, of which the model does not know which it is.
                let is_oldest = first.is_none() && turn == 0;
                assert!(is_oldest || Some(*id) == expected && !self.is_next_ready());
                effects.extend(self.give_up(*id, &Reason::StuckTimeout));
                self.holders.remove(id);
            }
            assert_eq!(effects_of(event), effects);
            let is_through = first.is_none() && event.ids.len() == 1 || self.is_next_ready();
            assert!(is_through || self.reserved_in_next().is_none());
        } else {
            assert!(!is_held_up || self.model.reserved() == 0, "the trainer is held up");
        }
        assert!(given_up.len() <= 1);
        for prune in prunes {
            self.prune(&effects_of(&prune));
        }
        self.configure_times(1, None, None).await;
    }

    /// Whether buffer H is stuck, or is pending and nobody can be admitted, and is what the trainer waits for.
    fn is_held_up(&self) -> bool {
        let version = self.model.policy_version();
        let is_next = self.model.trainer_version() == version && self.model.next_buffer().0 == version.0;
        if !is_next || self.is_next_ready() {
            return false;
        }
        let asked = self
            .model
            .clone()
            .reserve(self.model.weights(), &[TrajectoryId::generate()]);
        let blocked_by = asked.expect("the latest weights").blocked_by;
        let is_stuck = self.model.buffers()[0].empty() == 0;
        is_stuck
            || matches!(
                blocked_by,
                Some(BlockedBy::Draining | BlockedBy::Concurrency | BlockedBy::Prompts)
            )
    }

    fn is_next_ready(&self) -> bool {
        let ready = self.model.config().batch_size as usize;
        self.model.buffers().first().is_none_or(|next| next.occupied() == ready)
    }

    /// The front-most reservation of buffer H.
    fn reserved_in_next(&self) -> Option<TrajectoryId> {
        let next = self.model.next_buffer();
        let reserved = self.model.entries().filter_map(|(id, entry)| match entry.state {
            EntryState::Reserved { place } if place.buffer == next => Some((place, id)),
            _ => None,
        });
        reserved.min_by_key(|(place, _): &(Place, _)| *place).map(|(_, id)| id)
    }

    async fn configure_times(
        &mut self,
        lease_ms: u64,
        reservation_timeout_ms: Option<u64>,
        stuck_timeout_ms: Option<u64>,
    ) {
        let config = RunConfig {
            lease_ms,
            reservation_timeout_ms,
            stuck_timeout_ms,
            ..self.model.config().clone()
        };
        let changes = ConfigChanges {
            lease_ms: Some(lease_ms),
            reservation_timeout_ms,
            stuck_timeout_ms,
            ..ConfigChanges::default()
        };
        let timeouts = [
            ("reservation_timeout_ms", reservation_timeout_ms),
            ("stuck_timeout_ms", stuck_timeout_ms),
        ];
        let cleared: Vec<_> = timeouts
            .iter()
            .filter(|(_, ms)| ms.is_none())
            .map(|(name, _)| *name)
            .collect();
        self.ledger
            .configure_run(&self.run, &changes, &cleared)
            .await
            .expect("these may change");
        self.model.set_config(config).expect("these may change");
        assert_eq!(self.new_events().await.len(), 1);
    }
}
