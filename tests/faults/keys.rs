//! Every key of a run, byte by byte.

use std::collections::BTreeMap;

use berth::store::keys::{PARTS, RunKeys};
use redis::aio::MultiplexedConnection;

/// The parts of a run and what `DUMP` says of the key of each: `None` where there is none.
pub(crate) type Dumps = BTreeMap<&'static str, Option<Vec<u8>>>;

/// Lets Redis keep every hash as a list, as it keeps small ones: what a table of fields dumps changes when it is only looked at.
pub(crate) async fn keep_dumps_alike(connection: &mut MultiplexedConnection) {
    for setting in ["hash-max-listpack-entries", "hash-max-listpack-value"] {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg(setting).arg(1_000_000);
        let _: () = set.query_async(connection).await.expect("a setting");
    }
}

/// All keys of a run as they are now.
pub(crate) async fn dumps(connection: &mut MultiplexedConnection, keys: &RunKeys) -> Dumps {
    let mut dumps = Dumps::new();
    for part in PARTS {
        let dump = redis::cmd("DUMP")
            .arg(keys.part(part))
            .query_async(connection)
            .await
            .expect("a dump");
        dumps.insert(part, dump);
    }
    dumps
}

/// The parts whose keys differ.
pub(crate) fn differing(before: &Dumps, after: &Dumps) -> Vec<&'static str> {
    PARTS.into_iter().filter(|part| before[part] != after[part]).collect()
}
