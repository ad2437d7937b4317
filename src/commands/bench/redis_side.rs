//! What the scripts cost inside a Redis that is ours to ask: its `SLOWLOG`, once for the slow ones and once for all.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError, cmd};
use serde::Serialize;

use super::figures::percentile;
use crate::store::script;

/// From which execution time on a script counts as slow, in microseconds.
const SLOW_MICROS: u64 = 1_000;
/// How many commands Redis remembers. A script is one of them, and so is each command in it.
const LENGTH: u64 = 20_000;

/// How long Redis may take to answer: a full list is megabytes, and the library's own limit is half a second.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// One entry of `SLOWLOG GET`: number, time, microseconds, the command's words, client address, client name.
type Entry = (u64, u64, u64, Vec<Vec<u8>>, String, String);

/// A Redis that can be asked what its scripts cost.
pub(super) struct RedisSide {
    connection: MultiplexedConnection,
}

/// How long the calls of one script took inside Redis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ScriptTimes {
    /// Its name.
    pub(super) script: String,
    /// How many calls were looked at.
    pub(super) calls: usize,
    /// Half of them took at most this long, in microseconds.
    pub(super) p50_micros: u64,
    /// 99 of 100 took at most this long, in microseconds.
    pub(super) p99_micros: u64,
    /// The longest, in microseconds.
    pub(super) max_micros: u64,
}

/// The scripts that were slow while everything was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct SlowScripts {
    /// From which execution time on a call is listed, in microseconds.
    pub(super) threshold_micros: u64,
    /// Of each script, the calls that took longer than that; the slowest first.
    pub(super) scripts: Vec<ScriptTimes>,
}

impl RedisSide {
    /// Connects to the Redis at `url`.
    pub(super) async fn connect(url: &str) -> Result<Self, RedisError> {
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER_TIMEOUT));
        let connection = Client::open(url)?
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        Ok(Self { connection })
    }

    /// Begins to note slow scripts.
    pub(super) async fn note_slow(&mut self) -> Result<(), RedisError> {
        self.note_slower_than(SLOW_MICROS).await
    }

    /// Begins to note every script. This slows Redis down.
    pub(super) async fn note_all(&mut self) -> Result<(), RedisError> {
        self.note_slower_than(0).await
    }

    async fn note_slower_than(&mut self, micros: u64) -> Result<(), RedisError> {
        for (name, value) in [("slowlog-max-len", LENGTH), ("slowlog-log-slower-than", micros)] {
            cmd("CONFIG")
                .arg("SET")
                .arg(name)
                .arg(value)
                .exec_async(&mut self.connection)
                .await?;
        }
        cmd("SLOWLOG").arg("RESET").exec_async(&mut self.connection).await
    }

    /// The slow scripts that were noted.
    pub(super) async fn slow_scripts(&mut self) -> Result<SlowScripts, RedisError> {
        Ok(SlowScripts {
            threshold_micros: SLOW_MICROS,
            scripts: self.noted().await?,
        })
    }

    /// The scripts that were noted, of each the latest calls; the slowest first.
    pub(super) async fn noted(&mut self) -> Result<Vec<ScriptTimes>, RedisError> {
        let entries: Vec<Entry> = cmd("SLOWLOG")
            .arg("GET")
            .arg(LENGTH)
            .query_async(&mut self.connection)
            .await?;
        Ok(summed_up(&entries))
    }
}

fn summed_up(entries: &[Entry]) -> Vec<ScriptTimes> {
    let names: BTreeMap<&str, &str> = script::all()
        .into_iter()
        .map(|script| (script.hash(), script.name()))
        .collect();
    let mut by_script: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    for (_, _, micros, words, ..) in entries {
        if let Some(hash) = script_hash(words) {
            let name = names.get(hash.as_str()).map_or(hash, |name| (*name).to_owned());
            by_script.entry(name).or_default().push(Duration::from_micros(*micros));
        }
    }
    let mut all: Vec<ScriptTimes> = by_script
        .into_iter()
        .map(|(script, times)| ScriptTimes::of(script, times))
        .collect();
    all.sort_by_key(|times| std::cmp::Reverse(times.max_micros));
    all
}

/// The hash in a call of a script; `None` for the commands that a script makes, which are listed too.
fn script_hash(words: &[Vec<u8>]) -> Option<String> {
    let [command, hash, ..] = words else { return None };
    let is_script = command.eq_ignore_ascii_case(b"EVALSHA");
    is_script.then(|| String::from_utf8_lossy(hash).into_owned())
}

impl ScriptTimes {
    fn of(script: String, mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let micros = |percent| u64::try_from(percentile(&times, percent).as_micros()).unwrap_or(u64::MAX);
        Self {
            script,
            calls: times.len(),
            p50_micros: micros(50),
            p99_micros: micros(99),
            max_micros: micros(100),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(micros: u64, words: &[&str]) -> Entry {
        let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        (0, 0, micros, words, String::new(), String::new())
    }

    #[test]
    fn calls_are_summed_up_by_script_and_other_commands_left_out() {
        let occupy = script::OCCUPY.hash();
        let entries = [
            entry(1_100, &["EVALSHA", occupy, "1", "key"]),
            entry(2_500, &["HSET", "key", "field", "value"]),
            entry(1_700, &["evalsha", occupy, "1", "key"]),
            entry(1_900, &["EVALSHA", "0123", "1"]),
            entry(1_200, &["PING"]),
        ];
        let times = |script: &str, calls, p50_micros, p99_micros, max_micros| ScriptTimes {
            script: script.to_owned(),
            calls,
            p50_micros,
            p99_micros,
            max_micros,
        };
        assert_eq!(
            summed_up(&entries),
            [
                times("0123", 1, 1_900, 1_900, 1_900),
                times("occupy", 2, 1_100, 1_700, 1_700)
            ]
        );
    }
}
