//! What became of groups whose worker died, as the event log tells it (*Adoption*).

use std::collections::HashMap;

use crate::protocol::{Effect, Event, TrajectoryId};

/// The groups that are generated at some moment of the log, and what was adopted up to it.
#[derive(Debug, Default, Clone)]
pub(super) struct Groups {
    generating: HashMap<TrajectoryId, Group>,
    /// How many were adopted.
    pub(super) adopted: u64,
    /// How many members of them were complete.
    pub(super) members_saved: u64,
}

#[derive(Debug, Default, Clone)]
struct Group {
    /// The worker that holds it, or did last.
    worker: String,
    is_orphan: bool,
    /// How many of its members are complete.
    complete: u64,
    adopted: Option<Adoption>,
}

/// What a worker holds. The more members are complete, the more there is to save.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Held {
    /// How many members of it are complete.
    pub(super) members: u64,
    /// How many entries it is: groups, or single trajectories.
    pub(super) entries: u64,
}

#[derive(Debug, Clone)]
struct Adoption {
    from: String,
    members: u64,
}

/// What happened to a group beside the usual.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// Its worker is gone.
    Orphaned {
        /// How many members are complete.
        members: u64,
    },
    /// Another worker goes on with it.
    Adopted {
        /// Who began it.
        from: String,
        /// Who goes on.
        by: String,
        /// How many members were complete.
        members: u64,
    },
    /// An adopted one is finished.
    Finished {
        /// Who began it.
        from: String,
        /// Who finished it.
        by: String,
        /// How many members were complete when it was adopted.
        members: u64,
        /// How many there are in all.
        of: u64,
    },
}

impl Groups {
    /// Takes in the next event of the log.
    pub(super) fn apply(&mut self, event: &Event) -> Vec<Fate> {
        let worker = event.worker.as_deref().unwrap_or_default();
        let effects = event.effects.iter().map(|logged| &logged.effect);
        effects.filter_map(|effect| self.apply_one(effect, worker)).collect()
    }

    fn apply_one(&mut self, effect: &Effect, worker: &str) -> Option<Fate> {
        match effect {
            Effect::Reserved { id, .. } => {
                let group = self.generating.entry(*id).or_default();
                worker.clone_into(&mut group.worker);
                None
            }
            Effect::Member { id, failed: false, .. } => {
                self.generating.get_mut(id)?.complete += 1;
                None
            }
            Effect::Orphaned { id } => {
                let group = self.generating.get_mut(id)?;
                group.is_orphan = true;
                Some(Fate::Orphaned {
                    members: group.complete,
                })
            }
            Effect::Adopted { id } => {
                let group = self.generating.get_mut(id)?;
                let from = std::mem::replace(&mut group.worker, worker.to_owned());
                group.is_orphan = false;
                group.adopted = Some(Adoption {
                    from: from.clone(),
                    members: group.complete,
                });
                self.adopted += 1;
                self.members_saved += group.complete;
                Some(Fate::Adopted {
                    from,
                    by: worker.to_owned(),
                    members: group.complete,
                })
            }
            Effect::Occupied { id, .. } => {
                let group = self.generating.remove(id)?;
                let adoption = group.adopted?;
                Some(Fate::Finished {
                    from: adoption.from,
                    by: group.worker,
                    members: adoption.members,
                    of: group.complete,
                })
            }
            Effect::Discarded { id, .. } => {
                self.generating.remove(id);
                None
            }
            _ => None,
        }
    }

    /// What a worker holds, as far as the log was read.
    pub(super) fn held_by(&self, worker: &str) -> Held {
        let groups = self.generating.values();
        let held = groups.filter(|group| group.worker == worker && !group.is_orphan);
        held.fold(Held::default(), |held, group| Held {
            members: held.members + group.complete,
            entries: held.entries + 1,
        })
    }

    /// Whether a group that this worker held waits for another one.
    pub(super) fn has_orphans_of(&self, worker: &str) -> bool {
        self.generating
            .values()
            .any(|group| group.is_orphan && group.worker == worker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{EventType, LoggedEffect, Place, Version};

    fn id(letter: char) -> TrajectoryId {
        TrajectoryId(uuid::Uuid::from_u128(letter as u128))
    }

    fn event(worker: &str, effects: Vec<Effect>) -> Event {
        let logged = |effect| LoggedEffect {
            effect,
            prompt: None,
            payload: None,
            payloads: Vec::new(),
        };
        Event {
            worker: Some(worker.to_owned()),
            effects: effects.into_iter().map(logged).collect(),
            ..Event::new(1, EventType::Reserve)
        }
    }

    fn member(index: u32, failed: bool) -> Effect {
        Effect::Member {
            id: id('a'),
            index,
            failed,
            version: None,
            newest: None,
            reward: None,
        }
    }

    #[test]
    fn a_group_is_followed_from_the_death_of_its_worker_to_its_end() {
        let mut groups = Groups::default();
        let place = Place::new(1, 0);
        let reserved = Effect::Reserved {
            id: id('a'),
            version: Version(0),
            to: place,
        };
        groups.apply(&event("rollout-1", vec![reserved]));
        groups.apply(&event(
            "rollout-1",
            vec![member(0, false), member(1, false), member(2, true)],
        ));
        let (members, entries) = (2, 1);
        assert_eq!(groups.held_by("rollout-1"), Held { members, entries });

        let died = groups.apply(&event("rollout-1", vec![Effect::Orphaned { id: id('a') }]));
        assert_eq!(died, [Fate::Orphaned { members: 2 }]);
        assert!(groups.has_orphans_of("rollout-1"));

        let adopted = groups.apply(&event("rollout-2", vec![Effect::Adopted { id: id('a') }]));
        let [from, by] = ["rollout-1", "rollout-2"].map(str::to_owned);
        let of = 3;
        assert_eq!(
            adopted,
            [Fate::Adopted {
                from: from.clone(),
                by: by.clone(),
                members
            }]
        );
        let occupied = Effect::Occupied {
            id: id('a'),
            from: place,
            to: Place::new(0, 0),
        };
        let finished = groups.apply(&event("rollout-2", vec![member(3, false), occupied]));
        assert_eq!(finished, [Fate::Finished { from, by, members, of }]);
        assert_eq!((groups.adopted, groups.members_saved), (1, 2));
    }
}
