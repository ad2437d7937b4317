//! Everything dies, again and again, and nothing that was acknowledged is lost.
//!
//! A private Redis, two servers on it, four workers and a trainer, all of them processes, meet a seeded schedule of
//! SIGKILL, SIGSTOP and cut connections. The clients repeat what was not answered and write down what was. Then
//! everything is let finish, and what they wrote is held against the ledger's event log and its state.
//!
//! A third of the seeds plays single trajectories, a third hands their prompts out of the queue, and a third plays groups with
//! the queue, whose members are reported one by one and adopted by survivors. Whatever is played, some trainer processes take
//! whole batches and others stream them in pieces.
//!
//! `BERTH_CHAOS_SECONDS` and `BERTH_CHAOS_SEED` say for how long and with which schedule. The seed fixes what is done to
//! whom and when, and what each process draws; how the processes meet is up to the machine. `BERTH_CHAOS_KEEP` keeps the
//! diaries of a run that passed.

#[path = "../support/mod.rs"]
mod support;

mod caller;
mod chance;
mod checks;
mod diary;
mod faults;
mod figures;
mod history;
mod orders;
mod planted;
mod prompts;
mod rehearsal;
mod stage;
mod trainer;
mod trainer_log;
mod worker;

use rehearsal::Rehearsal;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_was_acknowledged_is_lost_whatever_dies() {
    let rehearsal = Rehearsal::from_environment();
    let play = stage::Stage::set(&rehearsal).await.play(&rehearsal).await;
    checks::check(&play, &rehearsal);
    rehearsal.passed();
}
