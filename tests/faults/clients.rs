//! Clients as the contract wants them: what may be tried again they try again.

use hyper::Method;
use serde_json::Value;

use crate::support::{Response, Run, wait_for};

/// Sends a call until it is answered, whatever hangs up or is unavailable meanwhile; the body of the success.
pub(crate) async fn insist(run: &Run, path: &str, body: Value) -> Value {
    let path = run.path(path);
    wait_for(&path, async || {
        match run.client().attempt(Method::POST, &path, Some(body.clone())).await {
            Ok(answer) if answer.status == 503 => {
                assert_unavailable(answer);
                None
            }
            Ok(answer) => Some(answer.ok()),
            Err(_) => None,
        }
    })
    .await
}

/// That the answer says that the database is not available, and when to try again.
#[track_caller]
pub(crate) fn assert_unavailable(answer: Response) {
    assert_eq!(answer.header("retry-after"), Some("1"), "{answer:#?}");
    answer.problem(503, "database_unavailable");
}

/// The ids in a list of entries.
#[track_caller]
pub(crate) fn ids(entries: &Value) -> Vec<String> {
    let entries = entries.as_array().unwrap_or_else(|| panic!("not a list: {entries}"));
    let id = |entry: &Value| entry["id"].as_str().expect("an entry has an id").to_owned();
    entries.iter().map(id).collect()
}
