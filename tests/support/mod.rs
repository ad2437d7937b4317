//! The harness of the behaviour tests: a database, real server processes, an HTTP client that speaks the contract,
//! and a proxy that misbehaves on demand.
//!
//! Every test starts what it needs for itself and shares nothing, so tests run side by side in any number. Nothing
//! here waits for a fixed time: see [`eventually`].

#![allow(dead_code, unused_imports, reason = "each test crate uses its part of the harness")]

mod database;
mod http;
mod ledger;
mod local_redis;
mod not_run;
mod process;
mod proxy;
mod run;
mod server;
mod trainer;
mod wait;

pub(crate) use self::{
    database::Database,
    http::{Client, Response},
    ledger::Ledger,
    local_redis::{DataCopy, LocalRedis},
    not_run::say_not_run,
    process::{lives, signal},
    proxy::{Proxy, Traffic},
    run::{Run, draw},
    server::{TestServer, berth},
    trainer::{Trainer, delivery, resume},
    wait::{eventually, wait_for},
};
