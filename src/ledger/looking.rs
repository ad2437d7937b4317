//! Looking at the tables: buffers with their slots, and trajectories.

use std::collections::HashMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::members::Which;
use super::names::WorkerName;
use super::state::{BufferCounts, State};
use super::trajectories::{EntryRecord, Surroundings, Trajectory, TrajectoryState};
use super::{Ledger, LedgerError, Refusal, RunName, Seen, call::NoArgs, error::refused};
use crate::protocol::{BufferId, Lineage, Place, RunConfig, Slot, TrajectoryId, Version};
use crate::store::script;

/// How many records one read fetches.
const PAGE: usize = 500;
/// The most slots that one page of a list by state looks into.
const MOST_SLOTS_LOOKED_INTO: usize = 5_000;

/// The slot tables.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Buffers {
    /// `V`: the latest published policy version.
    pub policy_version: Version,
    /// The lineage of the weights.
    pub lineage: Lineage,
    /// `H`: the first buffer that is not taken.
    pub next_buffer: BufferId,
    /// `T`: the version that the trainer stands at.
    pub trainer_version: Version,
    /// The open buffers.
    pub buffers: Vec<Buffer>,
}

/// One open buffer.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Buffer {
    /// Its counts.
    #[serde(flatten)]
    pub counts: BufferCounts,
    /// Its slots, front to rear, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<Vec<SlotShown>>,
}

/// One slot.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
pub enum SlotShown {
    /// Nobody is in it.
    Empty {
        /// `empty`
        state: EmptySlot,
    },
    /// Somebody is.
    Filled(Box<Trajectory>),
}

/// The state of a slot that nobody is in.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EmptySlot {
    /// Nobody is in it.
    Empty,
}

/// A page of trajectories.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct TrajectoryPage {
    /// The trajectories.
    pub trajectories: Vec<Trajectory>,
    /// The `after` of the next page; null at the end.
    pub next: Option<String>,
}

#[derive(Deserialize)]
struct SlotsBody {
    config: RunConfig,
    state: State,
    occupied: Vec<Vec<TrajectoryId>>,
    reserved: Vec<ReservedSlot>,
}

#[derive(Deserialize)]
struct ReservedSlot {
    id: TrajectoryId,
    buffer: BufferId,
    slot: Slot,
}

#[derive(Serialize)]
struct EntryArgs {
    id: TrajectoryId,
}

#[derive(Deserialize)]
struct EntryBody {
    next_buffer: BufferId,
    streamed: u32,
    max_staleness: u64,
    entry: Option<EntryRecord>,
    place: Option<Place>,
    taken_at_ms: Option<u64>,
}

#[derive(Serialize)]
struct HeldArgs<'a> {
    worker: Option<&'a WorkerName>,
    after: Option<TrajectoryId>,
    limit: usize,
}

#[derive(Deserialize)]
struct HeldBody {
    entries: Vec<HeldEntry>,
    next: Option<TrajectoryId>,
}

#[derive(Deserialize)]
struct HeldEntry {
    id: TrajectoryId,
    entry: EntryRecord,
    place: Place,
}

impl Ledger {
    /// The counts of the open buffers.
    pub async fn buffers(&self, run: &RunName) -> Result<Seen<Buffers>, LedgerError> {
        Ok(self.view_run(run).await?.map(|view| {
            let counts = view.state.buffers(&view.config);
            tables(
                &view.state,
                counts
                    .into_iter()
                    .map(|counts| Buffer { counts, slots: None })
                    .collect(),
            )
        }))
    }

    /// The open buffers with who is in which slot, at one moment.
    pub async fn slots(&self, run: &RunName) -> Result<Seen<Buffers>, LedgerError> {
        let Seen { seq, value } = self.call::<SlotsBody>(&script::VIEW_SLOTS, run, &NoArgs {}).await?;
        let SlotsBody {
            config,
            state,
            occupied,
            reserved,
        } = value;
        let ids = occupied
            .iter()
            .flatten()
            .copied()
            .chain(reserved.iter().map(|slot| slot.id))
            .collect();
        let mut records = self.all_records(run, ids).await?;
        let mut shown = |id: TrajectoryId, at: Place, as_state: TrajectoryState| {
            let around = Surroundings {
                max_staleness: config.max_staleness,
                next_buffer: state.next_buffer,
                streamed: state.streamed,
                reserved_at: Some(at),
                taken_at_ms: None,
            };
            // An entry that was forgotten since, with the whole of its run, leaves its slot to look empty.
            records.remove(&id).map_or(
                SlotShown::Empty {
                    state: EmptySlot::Empty,
                },
                |record| {
                    // Its record may be of a moment later than the tables.
                    SlotShown::Filled(Box::new(Trajectory {
                        state: as_state,
                        ..record.shown(id, around)
                    }))
                },
            )
        };
        let buffers = state.buffers(&config).into_iter().zip(occupied).map(|(counts, ids)| {
            let size = config.slots_per_buffer as usize;
            let mut slots = vec![
                SlotShown::Empty {
                    state: EmptySlot::Empty
                };
                size
            ];
            for (number, id) in (0..).zip(ids) {
                slots[number as usize] = shown(
                    id,
                    Place {
                        buffer: counts.version,
                        slot: Slot(number),
                    },
                    if counts.version == state.next_buffer && number < state.streamed {
                        TrajectoryState::Taken
                    } else {
                        TrajectoryState::Occupied
                    },
                );
            }
            for each in reserved.iter().filter(|each| each.buffer == counts.version) {
                let at = Place {
                    buffer: each.buffer,
                    slot: each.slot,
                };
                slots[each.slot.0 as usize] = shown(each.id, at, TrajectoryState::Reserved);
            }
            Buffer {
                counts,
                slots: Some(slots),
            }
        });
        Ok(Seen {
            seq,
            value: tables(&state, buffers.collect()),
        })
    }

    async fn all_records(
        &self,
        run: &RunName,
        ids: Vec<TrajectoryId>,
    ) -> Result<HashMap<TrajectoryId, EntryRecord>, LedgerError> {
        let mut records = HashMap::with_capacity(ids.len());
        for page in ids.chunks(PAGE) {
            let found = self.entry_records(run, page.to_vec()).await?;
            records.extend(found.into_iter().filter_map(|(id, record)| Some((id, record?))));
        }
        Ok(records)
    }

    /// One trajectory.
    pub async fn trajectory(&self, run: &RunName, id: TrajectoryId) -> Result<Seen<Trajectory>, LedgerError> {
        let seen = self
            .call::<EntryBody>(&script::VIEW_ENTRY, run, &EntryArgs { id })
            .await?;
        let around = Surroundings {
            max_staleness: seen.value.max_staleness,
            next_buffer: seen.value.next_buffer,
            streamed: seen.value.streamed,
            reserved_at: seen.value.place,
            taken_at_ms: seen.value.taken_at_ms,
        };
        match seen.value.entry {
            Some(entry) => {
                let mut shown = entry.shown(id, around);
                self.read_members(run, std::slice::from_mut(&mut shown), Which::Known)
                    .await?;
                Ok(Seen {
                    seq: seen.seq,
                    value: shown,
                })
            }
            None => Err(refused(
                &Seen {
                    seq: seen.seq,
                    value: (),
                },
                Refusal::UnknownTrajectory,
            )),
        }
    }

    /// A page of the reservations of a worker's current session, or of all workers.
    pub async fn held(
        &self,
        run: &RunName,
        worker: Option<&WorkerName>,
        after: Option<TrajectoryId>,
        limit: usize,
    ) -> Result<Seen<TrajectoryPage>, LedgerError> {
        let view = self.view_run(run).await?.value;
        let seen = self
            .call::<HeldBody>(&script::VIEW_HELD, run, &HeldArgs { worker, after, limit })
            .await?;
        let trajectories = seen.value.entries.into_iter().map(|held| {
            let around = Surroundings {
                max_staleness: view.config.max_staleness,
                next_buffer: view.state.next_buffer,
                streamed: view.state.streamed,
                reserved_at: Some(held.place),
                taken_at_ms: None,
            };
            held.entry.shown(held.id, around)
        });
        let mut trajectories: Vec<_> = trajectories.collect();
        self.read_members(run, &mut trajectories, Which::Known).await?;
        let next = seen.value.next.map(|id| id.to_string());
        Ok(Seen {
            seq: seen.seq,
            value: TrajectoryPage { trajectories, next },
        })
    }

    /// A page of finished entries in slot order: of the open buffers, or of the batches, and pieces of one, that are kept. A page may
    /// be short, and even empty, when others' entries lie between.
    pub async fn finished(
        &self,
        run: &RunName,
        which: FinishedWhere,
        worker: Option<&WorkerName>,
        after: Option<Place>,
        limit: usize,
    ) -> Result<Seen<TrajectoryPage>, LedgerError> {
        let view = self.view_run(run).await?;
        let (state, config) = (&view.value.state, &view.value.config);
        let ranges: Vec<(BufferId, Range<u32>)> = match which {
            FinishedWhere::OpenBuffers => {
                let first = |buffer| if buffer == state.next_buffer { state.streamed } else { 0 };
                let buffers = state.buffers(config).into_iter();
                buffers
                    .map(|each| (each.version, first(each.version)..each.occupied))
                    .collect()
            }
            FinishedWhere::KeptBatches => state
                .kept_batches_from(0)
                .map(|batch| (batch, 0..config.batch_size))
                .chain([(state.next_buffer, 0..state.streamed)])
                .collect(),
        };
        let places = ranges
            .into_iter()
            .flat_map(|(buffer, slots)| slots.map(move |slot| Place::new(buffer.0, slot)));
        let mut places = places
            .filter(|place| after.is_none_or(|after| *place > after))
            .take(MOST_SLOTS_LOOKED_INTO)
            .peekable();
        let around = Surroundings {
            max_staleness: config.max_staleness,
            next_buffer: state.next_buffer,
            streamed: state.streamed,
            reserved_at: None,
            taken_at_ms: None,
        };
        let mut trajectories = Vec::new();
        let mut last = None;
        while trajectories.len() < limit && places.peek().is_some() {
            let page: Vec<Place> = places.by_ref().take(limit - trajectories.len()).collect();
            let slots = page
                .iter()
                .map(|place| format!("{}:{}", place.buffer, place.slot.0))
                .collect();
            let ids = self.ids_in_slots(run, slots).await?;
            let records = self.entry_records(run, ids).await?;
            let shown = records.into_iter().filter_map(|(id, record)| {
                let record = record?;
                worker
                    .is_none_or(|worker| record.is_of(worker.as_str()))
                    .then(|| record.shown(id, around))
            });
            trajectories.extend(shown);
            last = page.last().copied();
        }
        self.read_members(run, &mut trajectories, Which::Complete).await?;
        let is_more = trajectories.len() >= limit || places.peek().is_some();
        let next = last
            .filter(|_| is_more)
            .map(|place| format!("{}:{}", place.buffer, place.slot.0));
        Ok(Seen {
            seq: view.seq,
            value: TrajectoryPage { trajectories, next },
        })
    }
}

/// Which finished entries to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishedWhere {
    /// Those that wait to be trained.
    OpenBuffers,
    /// Those of the batches that are kept.
    KeptBatches,
}

fn tables(state: &State, buffers: Vec<Buffer>) -> Buffers {
    Buffers {
        policy_version: state.policy_version,
        lineage: state.lineage,
        next_buffer: state.next_buffer,
        trainer_version: state.trainer_version,
        buffers,
    }
}
