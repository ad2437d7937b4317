//! What a server says of its tables, in the example's notation, and what is said where the two differ.

use std::fmt;

use super::script::BUFFERS;
use crate::client::{BufferTable, Buffers, SlotView};

/// A server that does not do what the example says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{step}: the server differs from the example in {what}\n  example  {expected}\n  server   {found}")]
pub(in crate::commands::demo) struct Deviation {
    /// The example's words for the step.
    pub(super) step: &'static str,
    /// Of what it is: the tables, a batch, an answer.
    pub(super) what: String,
    /// What the example says.
    pub(super) expected: String,
    /// What the server said.
    pub(super) found: String,
}

impl Deviation {
    /// Nothing if they are the same.
    pub(super) fn check(
        step: &'static str,
        what: &str,
        expected: &impl fmt::Display,
        found: &impl fmt::Display,
    ) -> Result<(), Self> {
        let (expected, found) = (expected.to_string(), found.to_string());
        if expected == found {
            return Ok(());
        }
        Err(Self {
            step,
            what: what.to_owned(),
            expected,
            found,
        })
    }
}

/// The first buffers of the run, one a column: `A . g e`, `taken` or `closed`.
pub(super) fn columns(answer: &Buffers) -> [String; BUFFERS] {
    std::array::from_fn(|number| {
        let open = answer.buffers.iter().find(|buffer| buffer.version.0 == number as u64);
        match open {
            Some(buffer) => written(buffer),
            None if (number as u64) < answer.next_buffer.0 => "taken".to_owned(),
            None => "closed".to_owned(),
        }
    })
}

fn written(buffer: &BufferTable) -> String {
    let slots: Vec<String> = buffer.slots.iter().map(symbol).collect();
    slots.join(" ")
}

fn symbol(slot: &SlotView) -> String {
    match slot {
        SlotView::Empty => ".".to_owned(),
        SlotView::Reserved {
            prompt: Some(prompt), ..
        } => prompt.to_lowercase(),
        SlotView::Occupied {
            prompt: Some(prompt), ..
        } => prompt.to_uppercase(),
        SlotView::Reserved { .. } | SlotView::Occupied { .. } | SlotView::Taken { .. } | SlotView::Other => {
            "?".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{BufferId, Version};

    fn answer() -> Buffers {
        let reserved = |prompt: &str| SlotView::Reserved {
            worker: Some("w".to_owned()),
            prompt: Some(prompt.to_owned()),
        };
        let occupied = |prompt: &str| SlotView::Occupied {
            staleness: 0,
            prompt: Some(prompt.to_owned()),
        };
        Buffers {
            policy_version: Version(0),
            next_buffer: BufferId(1),
            buffers: vec![BufferTable {
                version: BufferId(1),
                state: "pending".to_owned(),
                slots: vec![occupied("f"), SlotView::Empty, reserved("b"), reserved("h")],
            }],
        }
    }

    #[test]
    fn a_table_is_written_as_the_protocol_writes_it() {
        assert_eq!(columns(&answer()), ["taken", "F . b h", "closed"]);
    }

    #[test]
    fn a_difference_is_told_with_both_sides() {
        let found = columns(&answer()).join(" | ");
        assert_eq!(Deviation::check("H finishes", "the tables", &found, &found), Ok(()));
        let error = Deviation::check("H finishes", "the tables", &"taken | F G b h | closed", &found).unwrap_err();
        assert_eq!(
            error.to_string(),
            "H finishes: the server differs from the example in the tables
  example  taken | F G b h | closed
  server   taken | F . b h | closed"
        );
    }
}
