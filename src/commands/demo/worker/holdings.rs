//! What a rollout process is generating.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use tokio::task::AbortHandle;

use crate::client::Cancelled;
use crate::protocol::TrajectoryId;

/// The members of an entry that are being generated, each with the handle that stops it. A single trajectory is its only
/// member.
type Members = BTreeMap<u32, AbortHandle>;

/// Each entry that the process has not finished with.
#[derive(Default)]
pub(super) struct Holdings {
    generating: Mutex<HashMap<TrajectoryId, Members>>,
}

impl Holdings {
    /// Every entry, in no particular order.
    pub(super) fn ids(&self) -> Vec<TrajectoryId> {
        self.locked(|generating| generating.keys().copied().collect())
    }

    /// Lists the members whose tasks `start` spawns. The lock is held meanwhile: a task that ends at once is not taken off
    /// the list before it is on it.
    pub(super) fn add(&self, id: TrajectoryId, start: impl FnOnce() -> Members) {
        self.locked(|generating| generating.entry(id).or_default().extend(start()));
    }

    /// Takes a member that has ended off the list, and its entry with the last one.
    pub(super) fn remove(&self, id: TrajectoryId, index: u32) {
        self.locked(|generating| {
            let Some(members) = generating.get_mut(&id) else { return };
            members.remove(&index);
            if members.is_empty() {
                generating.remove(&id);
            }
        });
    }

    /// Stops what was cancelled, and returns how many members that were.
    pub(super) fn stop(&self, cancelled: &Cancelled) -> u64 {
        let is_meant = |index: u32| match &cancelled.members {
            Some(members) => members.contains(&index),
            None => true,
        };
        self.locked(|generating| {
            let Some(members) = generating.remove(&cancelled.id) else {
                return 0;
            };
            let (stopped, left): (Members, Members) = members.into_iter().partition(|(index, _)| is_meant(*index));
            stopped.values().for_each(AbortHandle::abort);
            if !left.is_empty() {
                generating.insert(cancelled.id, left);
            }
            stopped.len() as u64
        })
    }

    fn locked<T>(&self, use_it: impl FnOnce(&mut HashMap<TrajectoryId, Members>) -> T) -> T {
        use_it(&mut self.generating.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn holding(members: &[u32]) -> (Holdings, TrajectoryId) {
        let (holdings, id) = (Holdings::default(), TrajectoryId(Uuid::from_u128(1)));
        let start = |index: &u32| (*index, tokio::spawn(std::future::pending::<()>()).abort_handle());
        holdings.add(id, || members.iter().map(start).collect());
        (holdings, id)
    }

    fn cancelled(id: TrajectoryId, members: Option<Vec<u32>>) -> Cancelled {
        Cancelled {
            id,
            reason: "timed_out".to_owned(),
            members,
        }
    }

    #[tokio::test]
    async fn an_entry_is_held_until_its_last_member_has_ended() {
        let (holdings, id) = holding(&[0, 3]);
        holdings.remove(id, 3);
        assert_eq!(holdings.ids(), [id]);
        holdings.remove(id, 0);
        assert_eq!(holdings.ids(), []);
    }

    #[tokio::test]
    async fn only_what_was_cancelled_is_stopped() {
        let (holdings, id) = holding(&[0, 1, 2]);
        assert_eq!(holdings.stop(&cancelled(id, Some(vec![1, 5]))), 1);
        assert_eq!(holdings.ids(), [id]);
        assert_eq!(holdings.stop(&cancelled(id, None)), 2);
        assert_eq!(holdings.stop(&cancelled(id, None)), 0);
        assert_eq!(holdings.ids(), []);
    }
}
