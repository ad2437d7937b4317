//! The Lua scripts, put together from `lua/`.
//!
//! A script is a file with a first line that tells Redis what it may do, and lines `--@include NAME` in whose place the file
//! `lua/prelude/NAME.lua` is put.

use std::sync::LazyLock;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisResult, ServerErrorKind};

use super::keys::{PARTS, RunKeys};

/// A script that is ready to be sent. Redis knows it by its hash; the text is sent where the hash is not known, as after a
/// restart or a fail-over.
pub struct Script {
    name: &'static str,
    text: String,
    hash: String,
    writes: bool,
}

const PRELUDE: &[(&str, &str)] = &[
    ("run", include_str!("../../lua/prelude/run.lua")),
    ("sessions", include_str!("../../lua/prelude/sessions.lua")),
    ("tables", include_str!("../../lua/prelude/tables.lua")),
    ("entries", include_str!("../../lua/prelude/entries.lua")),
    ("moves", include_str!("../../lua/prelude/moves.lua")),
    ("figures", include_str!("../../lua/prelude/figures.lua")),
    ("refusals", include_str!("../../lua/prelude/refusals.lua")),
    ("prompts", include_str!("../../lua/prelude/prompts.lua")),
    ("discarding", include_str!("../../lua/prelude/discarding.lua")),
    ("finishing", include_str!("../../lua/prelude/finishing.lua")),
    ("weights", include_str!("../../lua/prelude/weights.lua")),
    ("batches", include_str!("../../lua/prelude/batches.lua")),
    ("trainer", include_str!("../../lua/prelude/trainer.lua")),
    ("taking", include_str!("../../lua/prelude/taking.lua")),
    ("stragglers", include_str!("../../lua/prelude/stragglers.lua")),
    ("segments", include_str!("../../lua/prelude/segments.lua")),
    ("groups", include_str!("../../lua/prelude/groups.lua")),
    ("replacing", include_str!("../../lua/prelude/replacing.lua")),
];

fn with_includes(source: &str) -> String {
    let mut text = String::with_capacity(source.len() * 4);
    for line in source.lines() {
        let included = line
            .strip_prefix("--@include ")
            .and_then(|name| PRELUDE.iter().find(|(known, _)| *known == name));
        text.push_str(included.map_or(line, |(_, part)| part));
        text.push('\n');
    }
    text
}

impl Script {
    /// A script from its source, with the includes put in.
    pub fn new(name: &'static str, source: &str) -> Self {
        let text = with_includes(source);
        Self {
            name,
            hash: redis::Script::new(&text).get_hash().to_owned(),
            text,
            writes: !source.lines().next().is_some_and(|first| first.contains("no-writes")),
        }
    }

    /// What the script is called: its file without the ending.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The hash that Redis knows it by.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Whether it may write: its first line does not promise the opposite.
    pub fn may_write(&self) -> bool {
        self.writes
    }

    /// Runs the script on a run's keys. Where its hash is not known, nothing has run yet, and its text and the call go in one
    /// command: scripts that are flushed meanwhile cannot come between.
    pub(crate) async fn invoke<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
        keys: &RunKeys,
        packed_args: &[u8],
    ) -> RedisResult<T> {
        let by_hash = command("EVALSHA", &self.hash, keys, packed_args);
        match by_hash.query_async(connection).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                command("EVAL", &self.text, keys, packed_args)
                    .query_async(connection)
                    .await
            }
            reply => reply,
        }
    }
}

fn command(name: &str, script: &str, keys: &RunKeys, packed_args: &[u8]) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(PARTS.len());
    for key in keys.all() {
        command.arg(key);
    }
    command.arg(packed_args);
    command
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $file:literal;)*) => {
        $($(#[$doc])* pub static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new($file, include_str!(concat!("../../lua/", $file, ".lua"))));)*

        /// Every script.
        pub fn all() -> Vec<&'static Script> {
            vec![$(&*$name),*]
        }
    };
}

scripts! {
    /// Takes back a grant that reached nobody.
    ABANDON = "abandon";
    /// Lets go of batches that a checkpoint covers.
    CHECKPOINT = "checkpoint";
    /// Makes the caller's session the holder of a reservation.
    CLAIM = "claim";
    /// Changes a run's configuration.
    CONFIGURE = "configure";
    /// Creates a run.
    CREATE = "create";
    /// Deletes a run.
    DELETE = "delete";
    /// Gives up or filters an entry.
    DISCARD = "discard";
    /// Begins, or calls off, the end of a run.
    DRAIN = "drain";
    /// Adds prompts to the queue.
    FEED = "feed";
    /// Renews a lease and tells what was cancelled.
    HEARTBEAT = "heartbeat";
    /// Finishes or fails a member of a group.
    MEMBER = "member";
    /// Finishes entries.
    OCCUPY = "occupy";
    /// Opens a worker's session.
    OPEN_SESSION = "open_session";
    /// Publishes a version.
    PUBLISH = "publish";
    /// Admits entries.
    RESERVE = "reserve";
    /// Opens a trainer session.
    RESUME = "resume";
    /// Records that generation goes on under a newer version.
    SEGMENT = "segment";
    /// Takes a piece of the next batch.
    STREAM = "stream";
    /// Does one step of what is due.
    SWEEP = "sweep";
    /// Takes the next batch.
    TAKE = "take";
    /// Bounds the event log.
    TRIM = "trim";
    /// Shows what became of the entries, by length.
    VIEW_DISTRIBUTION = "view_distribution";
    /// Shows one entry.
    VIEW_ENTRY = "view_entry";
    /// Shows what the trainer waits for.
    VIEW_EXPLAIN = "view_explain";
    /// Shows what a worker holds.
    VIEW_HELD = "view_held";
    /// Shows prompts.
    VIEW_PROMPTS = "view_prompts";
    /// Shows a run.
    VIEW_RUN = "view_run";
    /// Shows the slot tables.
    VIEW_SLOTS = "view_slots";
    /// Shows the workers.
    VIEW_WORKERS = "view_workers";
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn an_include_is_replaced_by_the_prelude_and_the_first_line_stays_first() {
        let text = with_includes("#!lua flags=no-writes\n--@include run\nreturn 1");
        assert!(text.starts_with("#!lua flags=no-writes\n"));
        assert!(text.contains("function run.open("));
        assert!(text.ends_with("return 1\n"));
    }

    #[test]
    fn views_write_nothing_and_transitions_may() {
        for script in all() {
            assert_eq!(
                script.may_write(),
                !script.name().starts_with("view_"),
                "{}",
                script.name()
            );
        }
    }

    /// Redis would find out only when it comes to the line, after the script has written.
    #[test]
    fn no_script_calls_what_it_does_not_include() {
        let library = library();
        for script in lua_sources() {
            let included = with_includes(&script);
            let mut pending = vec![script.as_str()];
            let mut met = BTreeSet::new();
            while let Some(text) = pending.pop() {
                for (name, body) in &library {
                    if text.contains(&format!("{name}(")) && met.insert(name) {
                        let is_there = included.contains(&format!("function {name}("));
                        assert!(is_there, "{name} is called, and not included by\n{script}");
                        pending.push(body);
                    }
                }
            }
        }
    }

    /// The functions of the prelude by name: each is followed by the rest of its own text, up to the next one.
    fn library() -> BTreeMap<String, String> {
        let mut library = BTreeMap::new();
        for source in sources_in("lua/prelude") {
            for function in source.split("\nfunction ").skip(1) {
                let name = function.split('(').next().unwrap_or_default();
                library.insert(name.to_owned(), function.to_owned());
            }
        }
        library
    }

    fn lua_sources() -> Vec<String> {
        sources_in("lua")
    }

    fn sources_in(folder: &str) -> Vec<String> {
        std::fs::read_dir(format!("{}/{folder}", env!("CARGO_MANIFEST_DIR")))
            .expect("the scripts' folder")
            .filter_map(|entry| std::fs::read_to_string(entry.expect("a file of it").path()).ok())
            .collect()
    }

    #[test]
    fn no_script_is_left_with_an_include_that_was_not_found() {
        assert_eq!(all().len(), 29);
        let sources = lua_sources();
        assert_eq!(
            sources.len(),
            all().len(),
            "every file of lua/ is a script that is known here"
        );
        for source in sources {
            assert!(source.starts_with("#!lua"), "{source}");
            assert!(!with_includes(&source).contains("--@include"), "{source}");
        }
    }
}
