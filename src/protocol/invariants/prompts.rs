//! *The prompt queue*: every prompt that was fed is in exactly one state, and the counts add up.

use super::Violation;
use crate::protocol::tables::{EntryState, PromptQueue, SlotTables};
use crate::protocol::{Attempt, TrajectoryId};

pub(super) fn check(tables: &SlotTables, violations: &mut Vec<Violation>) {
    let Some(queue) = tables.prompt_queue() else {
        return;
    };
    let is_alive = |id: TrajectoryId| {
        let entry = tables.entry(id);
        entry.is_some_and(|entry| !matches!(entry.state, EntryState::Discarded { .. }))
    };
    let alive = tables.entries().map(|(id, _)| id).filter(|id| is_alive(*id));
    let without = alive.filter(|id| !has_prompt(queue, *id));
    violations.extend(without.map(|id| Violation::WithoutPrompt { id }));

    for (position, prompt) in queue.prompts() {
        if prompt.is_handed_out() && !prompt.entry.is_some_and(is_alive) {
            violations.push(Violation::PromptLost { position });
        }
        let attempt = prompt.attempt;
        let most = queue.max_attempts();
        if attempt < Attempt(1) || attempt > most {
            violations.push(Violation::Attempts {
                position,
                attempt,
                most,
            });
        }
    }

    let counted = tables.prompt_counts().sum();
    let fed = queue.fed();
    if counted != fed {
        violations.push(Violation::PromptCounts { fed, counted });
    }
}

/// Whether the prompt that the entry was handed out with is its own, and no other entry's since.
fn has_prompt(queue: &PromptQueue, id: TrajectoryId) -> bool {
    let handed_out = queue.of_entry(id);
    handed_out.is_some_and(|(_, prompt)| prompt.is_handed_out() && prompt.entry == Some(id))
}
