//! The Reserve-Occupy protocol as pure values and a pure state machine: the reference that the Lua scripts, the
//! simulator and the auditor are held to.
//!
//! Nothing here does I/O, reads a clock or is asynchronous, and nothing here imports another module of this crate.

pub mod audit;
pub mod config;
pub mod event;
pub mod ids;
pub mod invariants;
#[cfg(test)]
mod notation;
pub mod reason;
pub mod tables;

pub use config::RunConfig;
pub use event::{Effect, Event, EventType, LoggedEffect, ResumeMode};
pub use ids::{BufferId, Epoch, Lineage, Place, Slot, TrajectoryId, Version, Weights};
pub use reason::Reason;
