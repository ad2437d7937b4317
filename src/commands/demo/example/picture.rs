//! The example as it is drawn: the tables, and beside them a row for each trajectory. Pure text; nothing is asked here.

use super::script::{Act, BUFFERS, STEPS, TRAJECTORIES, admission_of, finish_of};
use crate::commands::demo::ink::{Ink, Line};

/// How wide a trajectory's bar is, in characters.
const BAR: usize = 20;
/// How wide the part with the tables is.
const LEFT: usize = 26;
/// How wide a buffer is in the table that is written.
const COLUMN: usize = 10;

/// Everything that the block shows.
#[derive(Debug)]
pub(super) struct View<'a> {
    /// How many steps are over, with the part of the one that is awaited.
    pub(super) steps: f64,
    /// The tables, as the server told them.
    pub(super) columns: &'a [String; BUFFERS],
    /// Those who have asked for a place in vain.
    pub(super) blocked: &'a str,
    /// What the trainer does.
    pub(super) trainer: &'a str,
}

/// The head of the written table.
pub(super) fn head() -> Line {
    let buffers: Vec<String> = (0..BUFFERS)
        .map(|number| format!("{:<COLUMN$}", format!("buffer {number}")))
        .collect();
    Line::default().then(Ink::Bold, format!("  {}", buffers.concat().trim_end()))
}

/// A row of the written table, for a step that went as in the example.
pub(super) fn row(title: &str, columns: &[String; BUFFERS]) -> Line {
    let buffers: Vec<String> = columns.iter().map(|column| format!("{column:<COLUMN$}")).collect();
    Line::new(format!("  {}", buffers.concat()))
        .then(Ink::Green, "✓ ")
        .then(Ink::Plain, title)
}

/// The block.
pub(super) fn block(view: &View) -> Vec<Line> {
    let mut left = vec![String::new(); 2];
    left.extend((0..BUFFERS).map(|number| format!("buffer {number}   {}", view.columns[number])));
    left.extend([String::new(), format!("trainer    {}", view.trainer)]);
    left.extend([
        String::new(),
        ".  empty".to_owned(),
        "a  generating".to_owned(),
        "A  finished".to_owned(),
    ]);
    let rows = TRAJECTORIES.chars().enumerate().map(|(number, letter)| {
        let left = left.get(number + 1).map_or("", String::as_str);
        trajectory(Line::new(format!("  {left:<LEFT$}")), letter, view)
    });
    std::iter::once(Line::default()).chain(rows).collect()
}

/// The row of a trajectory: how far it has come, and where its place is.
fn trajectory(line: Line, letter: char, view: &View) -> Line {
    let (Some((admitted, version)), Some(finishes)) = (admission_of(letter), finish_of(letter)) else {
        return line;
    };
    let capital = letter.to_ascii_uppercase();
    match place_of(letter, view.columns) {
        Some((buffer, slot, true)) => line
            .then(Ink::Green, format!("{capital} {} ", "█".repeat(BAR)))
            .then(Ink::Plain, format!("finished    buffer {buffer}, slot {slot}")),
        Some((buffer, slot, false)) => {
            let filled = filled(view.steps, admitted, finishes);
            line.then(Ink::Cyan, format!("{letter} {}", "█".repeat(filled)))
                .then(Ink::Dim, "░".repeat(BAR - filled))
                .then(Ink::Plain, format!(" version {version}   buffer {buffer}, slot {slot}"))
        }
        None if view.blocked.contains(letter) => line
            .then(Ink::Dim, format!("{letter} {} ", "·".repeat(BAR)))
            .then(Ink::Yellow, "blocked by the bound"),
        None => line.then(
            Ink::Dim,
            match batch_of(letter, view.columns) {
                Some(batch) => format!("{capital} {} batch {batch}", "█".repeat(BAR)),
                None => format!("{letter} {}", "·".repeat(BAR)),
            },
        ),
    }
}

/// How much of its bar a trajectory has filled. One that is not finished never fills it all.
#[expect(clippy::cast_precision_loss, reason = "the steps of the example are few")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the bar")]
fn filled(steps: f64, admitted: usize, finishes: usize) -> usize {
    // It is admitted at the end of its step, and finishes at the end of another.
    let share = (steps - (admitted + 1) as f64) / (finishes - admitted) as f64;
    ((share * BAR as f64) as usize).min(BAR - 1)
}

/// Buffer and slot of a trajectory, and whether it has finished.
fn place_of(letter: char, columns: &[String; BUFFERS]) -> Option<(usize, usize, bool)> {
    columns.iter().enumerate().find_map(|(buffer, column)| {
        let slots: Vec<&str> = column.split(' ').collect();
        let slot = slots
            .iter()
            .position(|symbol| symbol.len() == 1 && symbol.eq_ignore_ascii_case(&letter.to_string()))?;
        Some((buffer, slot, slots[slot].chars().all(char::is_uppercase)))
    })
}

/// The batch that a trajectory is in, when that was taken.
fn batch_of(letter: char, columns: &[String; BUFFERS]) -> Option<u64> {
    STEPS.iter().flat_map(|step| step.acts).find_map(|act| match act {
        Act::Take { version, prompts } if prompts.contains(letter) => {
            let column = columns.get(usize::try_from(*version).ok()?)?;
            (column == "taken").then_some(*version)
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(steps: f64, columns: [&str; BUFFERS], blocked: &str) -> String {
        let view = View {
            steps,
            columns: &columns.map(str::to_owned),
            blocked,
            trainer: "trains on 0",
        };
        block(&view).iter().map(|line| line.plain() + "\n").collect()
    }

    #[test]
    fn each_trajectory_has_a_row_beside_the_buffers() {
        assert_eq!(
            written(5.5, ["taken", "g h b f", "closed"], "i"),
            "
                            A ████████████████████ batch 0
  buffer 0   taken          b █████████░░░░░░░░░░░ version 0   buffer 1, slot 2
  buffer 1   g h b f        C ████████████████████ batch 0
  buffer 2   closed         D ████████████████████ batch 0
                            E ████████████████████ batch 0
  trainer    trains on 0    f ██████████████████░░ version 0   buffer 1, slot 3
                            g █████████████████░░░ version 0   buffer 1, slot 0
  .  empty                  h ████████░░░░░░░░░░░░ version 0   buffer 1, slot 1
  a  generating             i ···················· blocked by the bound
  A  finished               j ····················
                            k ····················
                            l ····················
"
        );
    }

    #[test]
    fn a_step_that_went_as_in_the_example_is_a_row_of_its_table() {
        let columns = ["taken", "F G H b", "J k l i"].map(str::to_owned);
        assert_eq!(
            [head().plain(), row("H finishes", &columns).plain()],
            [
                "  buffer 0  buffer 1  buffer 2",
                "  taken     F G H b   J k l i   ✓ H finishes",
            ]
        );
    }
}
