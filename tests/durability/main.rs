//! What the database must be worth: its settings are judged on every connection, and writes may wait for its replicas.
//!
//! Every test here needs a Redis of special settings, and so a local one, whatever `BERTH_TEST_DATABASE` says.

#[path = "../support/mod.rs"]
mod support;

mod refusals;
mod replicas;
mod verdicts;
