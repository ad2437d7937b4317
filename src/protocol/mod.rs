//! The Reserve-Occupy protocol as pure values and a pure state machine: the reference that the Lua scripts, the
//! simulator and the auditor are held to.
//!
//! Nothing here does I/O, reads a clock or is asynchronous, and nothing here imports another module of this crate.

pub mod audit;
pub mod config;
pub mod effect;
pub mod event;
pub mod ids;
pub mod invariants;
#[cfg(test)]
mod notation;
pub mod prompt;
pub mod reason;
pub mod tables;

pub use config::{FinalBatch, PromptOrder, RunConfig};
pub use effect::{Effect, LoggedEffect};
pub use event::{DrainQueue, Event, EventType, FedPrompt, ResumeMode};
pub use ids::{Attempt, BufferId, Epoch, FeedPosition, Lineage, Place, Reward, Slot, TrajectoryId, Version, Weights};
pub use prompt::{PromptCounts, PromptState};
pub use reason::Reason;
