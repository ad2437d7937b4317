//! Berth: a Redis-backed ledger that bounds the staleness of asynchronous RL post-training, whatever dies.
//!
//! Imports run one way: [`commands`] and [`http`] use [`waiting`] and [`ledger`], the ledger uses [`store`], and [`protocol`]
//! stands beside them and uses none. `docs/architecture.md` says what each part is for.

pub mod client;
pub mod commands;
pub mod http;
pub mod ledger;
pub mod protocol;
pub mod store;
pub mod waiting;
