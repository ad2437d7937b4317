//! What is done to whom, and for how long: drawn from the seed.

use std::time::Duration;

use crate::chance::Chance;

/// The workers.
pub(crate) const WORKERS: usize = 4;
/// Between the beginnings of two faults, in milliseconds.
const BETWEEN: std::ops::RangeInclusive<u64> = 50..=550;

/// Who suffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// A worker, or the trainer, by its place on the stage.
    Actor(usize),
    /// One of the two servers.
    Server(usize),
    Redis,
    /// The line to one of the servers.
    Line(usize),
}

/// The trainer's place behind those of the workers.
pub(crate) const TRAINER: Target = Target::Actor(WORKERS);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// SIGKILL, and a restart at the end.
    Kill,
    /// SIGSTOP, and SIGCONT at the end.
    Stop,
    /// Requests pass, and answers are lost.
    DropAnswers,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) target: Target,
    pub(crate) act: Act,
    /// For the figures.
    pub(crate) kind: &'static str,
    pub(crate) lasts: Duration,
}

impl Fault {
    /// The next one. Those that stop everybody are rarer than those that stop one.
    pub(crate) fn draw(chance: &Chance, lease_ms: u64) -> Self {
        let worker = Target::Actor(usize::try_from(chance.between(0..=3)).expect("a small number"));
        let side = usize::from(chance.once_in(2));
        let (server, line) = (Target::Server(side), Target::Line(side));
        let (target, act, kind, lasts) = match chance.between(1..=20) {
            1..=3 => (worker, Act::Kill, "worker killed", 20..=1_500),
            4 => (worker, Act::Stop, "worker stopped", 50..=700),
            5..=6 => (
                worker,
                Act::Stop,
                "worker stopped past its lease",
                lease_ms + 300..=lease_ms * 2 + 500,
            ),
            7..=9 => (TRAINER, Act::Kill, "trainer killed", 10..=600),
            10 => (TRAINER, Act::Stop, "trainer stopped", 50..=1_500),
            11..=12 => (server, Act::Kill, "server killed", 10..=800),
            13..=14 => (server, Act::Stop, "server stopped", 50..=2_000),
            15 => (Target::Redis, Act::Kill, "redis killed", 10..=800),
            16 => (Target::Redis, Act::Stop, "redis stopped", 50..=1_200),
            _ => (line, Act::DropAnswers, "answers dropped", 10..=400),
        };
        let lasts = chance.millis(lasts);
        Self {
            target,
            act,
            kind,
            lasts,
        }
    }

    /// How long until the next.
    pub(crate) fn gap(chance: &Chance) -> Duration {
        chance.millis(BETWEEN)
    }
}
