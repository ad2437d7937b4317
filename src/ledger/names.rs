//! Names as clients may choose them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use thiserror::Error;
use utoipa::ToSchema;

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what}: {rule}")]
pub struct NameError {
    what: &'static str,
    rule: &'static str,
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $lengths:expr, $allowed:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ToSchema)]
        #[serde(transparent)]
        #[schema(value_type = String)]
        pub struct $name(String);

        impl $name {
            /// The name itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let allowed: fn(&str) -> bool = $allowed;
                if !$lengths.contains(&text.len()) || !allowed(text) {
                    return Err(NameError { what: $what, rule: $rule });
                }
                Ok(Self(text.to_owned()))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

fn only(text: &str, others: &str) -> bool {
    text.chars()
        .all(|char| char.is_ascii_alphanumeric() || others.contains(char))
}

name! {
    /// The name of a run.
    RunName, "run", "1 to 64 of A-Z a-z 0-9 . _ -, not starting with a dot", 1..=64,
    |text| !text.starts_with('.') && only(text, "._-")
}

name! {
    /// The name of a worker: a rollout process, across its restarts.
    WorkerName, "worker", "1 to 128 of A-Z a-z 0-9 . _ : @ -", 1..=128,
    |text| only(text, "._:@-")
}

name! {
    /// The name of a trainer, across its restarts.
    TrainerName, "trainer", "1 to 128 of A-Z a-z 0-9 . _ : @ -", 1..=128,
    |text| only(text, "._:@-")
}

name! {
    /// The token of a worker's or trainer's session, new at each start of its process.
    SessionToken, "session", "1 to 128 characters, none of them a control character", 1..=128,
    |text| !text.chars().any(char::is_control)
}

name! {
    /// The id that makes a repeated Reserve the same one.
    RequestId, "request_id", "1 to 128 characters, none of them a control character", 1..=128,
    |text| !text.chars().any(char::is_control)
}

name! {
    /// A client's name for what is generated from; echoed wherever the entry is shown.
    Prompt, "prompt", "at most 512 bytes", 0..=512,
    |_| true
}

name! {
    /// A client's reason for a discard.
    ClientReason, "reason", "1 to 64 of a-z _, and none of those that the ledger itself uses", 1..=64,
    |text| {
        text.chars().all(|char| char.is_ascii_lowercase() || char == '_')
            && !crate::protocol::reason::LEDGER_REASONS.contains(&text)
    }
}

/// Who calls: a worker and, if it says one, its session's token. Without a token it is the worker's current session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Caller {
    /// The worker.
    pub worker: WorkerName,
    /// Its session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionToken>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_name_has_one_to_64_safe_characters_and_does_not_start_with_a_dot() {
        for good in ["a", "grpo-7b", "A.b_c-9", &"x".repeat(64)] {
            assert!(good.parse::<RunName>().is_ok(), "{good}");
        }
        for bad in ["", ".a", "a b", "a/b", "ä", "a{b}", &"x".repeat(65)] {
            assert!(bad.parse::<RunName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_client_may_not_use_a_reason_of_the_ledger() {
        assert!("filtered".parse::<ClientReason>().is_ok());
        for bad in ["lease_expired", "zero_variance", "Filtered", "no gradient", ""] {
            assert!(bad.parse::<ClientReason>().is_err(), "{bad}");
        }
    }
}
