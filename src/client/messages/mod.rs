//! The bodies of the calls that Berth's own processes make: what they send, and of the answers what they use.
//!
//! Answers may carry more than is listed here, which is ignored; requests say only what is meant.

mod looking;
mod rollout;
mod training;

pub use looking::{BufferTable, Buffers, EventPage, RunSettings, RunStatus, SlotView, WorkerView, Workers};
pub use rollout::{
    Cancelled, Finish, Grant, Heartbeat, HeartbeatAnswer, MemberAnswer, MemberReport, Occupied, Reserve, Reserved,
};
pub use training::{
    BatchEntry, BatchMember, Checkpointed, LatestVersion, NextBatch, OpenTrainerSession, Piece, Published, TakenBatch,
    TrainerSession,
};

/// For fields that are left out where they say nothing.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}
