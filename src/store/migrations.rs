//! The ladder of key layouts: numbered steps that bring a run's keys from any older layout to the current one.

use std::sync::LazyLock;

use super::keys::RunKeys;
use super::script::Script;
use super::{Store, StoreError};

/// One step of the ladder: it brings a run from the layout before it to its own, in one script, and may be sent twice.
pub struct Migration {
    /// The layout that a run has after this step.
    pub layout: u32,
    /// The script that does it.
    pub script: Script,
}

/// All steps, in order. The last one's layout is the current one.
pub static LADDER: LazyLock<Vec<Migration>> = LazyLock::new(|| {
    vec![
        Migration {
            layout: 1,
            script: Script::new(
                "0001_first_layout",
                include_str!("../../migrations/0001_first_layout.lua"),
            ),
        },
        Migration {
            layout: 2,
            script: Script::new(
                "0002_trainer_sessions",
                include_str!("../../migrations/0002_trainer_sessions.lua"),
            ),
        },
        Migration {
            layout: 3,
            script: Script::new(
                "0003_groups_and_prompts",
                include_str!("../../migrations/0003_groups_and_prompts.lua"),
            ),
        },
    ]
});

/// The layout that this program reads and writes.
pub const CURRENT: u32 = 3;

/// Brings a run from layout `found` to the top of the ladder, one step after another.
///
/// Two servers may climb at once: a step that finds its layout reached changes nothing.
pub async fn climb(store: &Store, keys: &RunKeys, ladder: &[Migration], found: u32) -> Result<(), StoreError> {
    for step in ladder.iter().filter(|step| step.layout > found) {
        let reached: u32 = store.run_plain(&step.script, keys).await?;
        tracing::debug!(
            step = step.script.name(),
            found,
            reached,
            "a run's keys were brought to the current layout"
        );
    }
    Ok(())
}
