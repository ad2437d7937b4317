//! Waiting for a condition instead of for a time.

use std::{panic::Location, time::Duration};

use tokio::time::{MissedTickBehavior, interval, timeout};

/// Far above what anything here takes on a slow, busy machine: reaching it means that the condition never comes.
const LIMIT: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(10);

/// Returns once `condition` holds; panics, naming `what` was awaited and where, when it does not come to hold.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    wait_for(what, async move || condition().await.then_some(()))
}

/// Like [`eventually`], for a condition that yields something when it holds.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let held = timeout(LIMIT, async {
            loop {
                ticks.tick().await;
                if let Some(value) = condition().await {
                    return value;
                }
            }
        });
        held.await
            .unwrap_or_else(|_| panic!("waited {LIMIT:?} in vain at {caller}: {what}"))
    }
}
