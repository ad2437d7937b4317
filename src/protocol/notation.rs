//! Slot tables written as the protocol writes them, for tests: `.` empty, a small letter reserved, a capital occupied.
//!
//! `0: A . g e | 1: d c b f` are buffers 0 and 1. Entry `a` has the id that [`id`] makes of its letter.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::tables::{Generated, Member, MemberEnd, SlotState, SlotTables};
use super::{Effect, Lineage, Place, Reward, RunConfig, TrajectoryId, Version, Weights};

/// `B`, `S`, `η`, and nothing else out of the ordinary.
pub(super) fn config(batch_size: u32, slots_per_buffer: u32, max_staleness: u64) -> RunConfig {
    RunConfig {
        slots_per_buffer,
        ..RunConfig::new(batch_size, max_staleness)
    }
}

/// The same for groups of `size` members out of `candidates`.
pub(super) fn of_groups(size: u32, candidates: u32, config: RunConfig) -> RunConfig {
    RunConfig {
        group_size: size,
        group_candidates: candidates,
        ..config
    }
}

/// A member that finished under weights of lineage 0, without a reward.
pub(super) fn complete(index: u32, version: u64) -> Member {
    Member {
        index,
        end: MemberEnd::Complete {
            generated: Generated::by(weights(version)),
            reward: None,
        },
    }
}

/// A member of version 0 with this reward.
pub(super) fn rewarded(index: u32, reward: f64) -> Member {
    Member {
        index,
        end: MemberEnd::Complete {
            generated: Generated::by(weights(0)),
            reward: Some(Reward(reward)),
        },
    }
}

/// A member that failed.
pub(super) fn failed(index: u32) -> Member {
    Member {
        index,
        end: MemberEnd::Failed,
    }
}

/// The id of the entry with this letter, small or capital.
pub(super) fn id(letter: char) -> TrajectoryId {
    TrajectoryId(Uuid::from_u128(letter.to_ascii_lowercase() as u128))
}

/// The ids of the entries with these letters.
pub(super) fn ids(letters: &str) -> Vec<TrajectoryId> {
    letters.chars().map(id).collect()
}

/// Weights of lineage 0.
pub(super) fn weights(version: u64) -> Weights {
    weights_of(version, 0)
}

/// Weights of a version and a lineage.
pub(super) fn weights_of(version: u64, lineage: u64) -> Weights {
    Weights {
        version: Version(version),
        lineage: Lineage(lineage),
    }
}

/// The letter of an entry.
pub(super) fn letter(id: TrajectoryId) -> char {
    u32::try_from(id.0.as_u128())
        .ok()
        .and_then(char::from_u32)
        .unwrap_or('?')
}

/// The open buffers in notation; an empty text when none is open.
pub(super) fn written(tables: &SlotTables) -> String {
    let buffers = tables.buffers();
    let written = buffers.iter().map(|view| {
        let slots: Vec<String> = view.slots.iter().map(|slot| symbol(*slot).to_string()).collect();
        format!("{}: {}", view.buffer, slots.join(" "))
    });
    written.collect::<Vec<_>>().join(" | ")
}

fn symbol(slot: SlotState) -> char {
    match slot {
        SlotState::Empty => '.',
        SlotState::Reserved { id, .. } => letter(id),
        SlotState::Occupied { id, .. } => letter(id).to_ascii_uppercase(),
    }
}

/// Tables that stand as written, legal or not, with `H` at the first buffer and `V` at the last less η. An entry is of
/// the version that `versions` gives to its small letter, else of version 0.
pub(super) fn tables(mut config: RunConfig, written: &str, versions: &[(&str, u64)]) -> SlotTables {
    let version_of: BTreeMap<char, u64> = versions
        .iter()
        .flat_map(|(letters, version)| letters.chars().map(|letter| (letter, *version)))
        .collect();
    let buffers: Vec<(u64, Vec<char>)> = written.split(" | ").map(buffer).collect();
    let last = buffers.last().expect("a buffer").0;
    let first = buffers[0].0;
    let policy_version = last - config.max_staleness;
    config.initial_version = policy_version.min(first);
    let mut tables = SlotTables::new(config);
    if first > policy_version {
        tables.replay_take().expect("the trainer is idle");
    }
    for (buffer, slots) in buffers {
        for (slot, symbol) in slots.into_iter().enumerate().filter(|(_, symbol)| *symbol != '.') {
            let id = id(symbol);
            let version = version_of.get(&symbol.to_ascii_lowercase()).copied().unwrap_or(0);
            let to = Place::new(buffer, u32::try_from(slot).expect("a slot"));
            let mut effects = vec![Effect::Reserved {
                id,
                version: Version(version),
                to,
            }];
            if symbol.is_ascii_uppercase() {
                effects.push(Effect::Occupied { id, from: to, to });
            }
            tables.replay(&effects).expect("a table as written");
        }
    }
    tables
}

fn buffer(written: &str) -> (u64, Vec<char>) {
    let (number, slots) = written.split_once(':').expect("a buffer's number");
    let slots = slots.chars().filter(|symbol| *symbol != ' ').collect();
    (number.trim().parse().expect("a number"), slots)
}

/// Effects in short: `a: reserved 1.3`, `f: 0.2 moved 1.3`, `a: 1.3 occupied 0.0`, `a: 0.1 surplus`.
pub(super) fn shorthand(effects: &[Effect]) -> Vec<String> {
    let place = |place: &Place| format!("{}.{}", place.buffer, place.slot);
    let short = |effect: &Effect| {
        let change = match effect {
            Effect::Reserved { to, .. } => format!("reserved {}", place(to)),
            Effect::Moved { from, to, .. } => format!("{} moved {}", place(from), place(to)),
            Effect::Occupied { from, to, .. } => format!("{} occupied {}", place(from), place(to)),
            Effect::Promoted { from, to, .. } => format!("{} promoted {}", place(from), place(to)),
            Effect::Discarded { reason, from, .. } => format!("{} {reason}", place(from)),
            Effect::Pruned { .. } => "pruned".to_owned(),
            Effect::Replaced { from, to, .. } => format!("{} replaced {}", place(from), place(to)),
            Effect::Member { index, failed, .. } => format!("{index} {}", if *failed { "failed" } else { "finished" }),
            Effect::Continued { version, .. } => format!("under {version}"),
            Effect::Orphaned { .. } => "orphaned".to_owned(),
            Effect::Adopted { .. } => "adopted".to_owned(),
            Effect::Prompt {
                position,
                state,
                attempt,
                ..
            } => format!("prompt {position} {state} {attempt}"),
        };
        format!("{}: {change}", letter(effect.id()))
    };
    effects.iter().map(short).collect()
}
