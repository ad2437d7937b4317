//! Where the demo is shown: on a terminal, lines that scroll by above a block that is drawn anew; elsewhere, lines.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use super::ink::{Ink, Line};

/// Standard output, for as long as the demo runs.
#[derive(Debug)]
pub(super) struct Screen {
    started_at: Instant,
    kind: Kind,
    /// What is drawn below the lines at this moment.
    block: Vec<Line>,
}

/// What standard output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A terminal that can be drawn on.
    Live,
    /// Anything else: a file, a pipe, a terminal that understands no sequences.
    Plain,
}

impl Screen {
    /// The process's standard output.
    pub(super) fn stdout() -> Self {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let kind = if std::io::stdout().is_terminal() && !is_dumb {
            Kind::Live
        } else {
            Kind::Plain
        };
        let screen = Self {
            started_at: Instant::now(),
            kind,
            block: Vec::new(),
        };
        write(if kind == Kind::Live { HIDE_CURSOR } else { "" });
        screen
    }

    /// Whether a block can be drawn.
    pub(super) fn is_live(&self) -> bool {
        self.kind == Kind::Live
    }

    /// How long the demo has been running.
    pub(super) fn elapsed(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Adds a line that tells what `who` did, with the time.
    pub(super) fn say(&mut self, who: &str, ink: Ink, what: &str) {
        let line = Line::default()
            .then(Ink::Dim, format!("{:>6.1} s  ", self.elapsed().as_secs_f64()))
            .then(Ink::Plain, format!("{who:<10} "))
            .then(ink, what);
        self.add(&line);
    }

    /// Adds a line.
    pub(super) fn add(&mut self, line: &Line) {
        let frame = match self.kind {
            Kind::Plain => format!("{}\n", line.plain()),
            // A line above the block may be longer than the terminal is wide: it is never erased.
            Kind::Live => format!("{}{}\n{}", self.erased(), shown(line, usize::MAX), drawn(&self.block)),
        };
        write(&frame);
    }

    /// Adds several.
    pub(super) fn add_all(&mut self, lines: impl IntoIterator<Item = Line>) {
        for line in lines {
            self.add(&line);
        }
    }

    /// Draws `block` in place of the one before. Nothing happens where nothing can be drawn.
    pub(super) fn draw(&mut self, block: Vec<Line>) {
        if !self.is_live() {
            return;
        }
        let height = usize::from(size().1);
        let mut block = block;
        // What has left the screen can't be erased any more.
        block.truncate(height.saturating_sub(1));
        let frame = format!("{}{}", self.erased(), drawn(&block));
        write(&frame);
        self.block = block;
    }

    /// Erases the block for good.
    pub(super) fn clear(&mut self) {
        self.draw(Vec::new());
    }

    fn erased(&self) -> String {
        match self.block.len() {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\r\x1b[J"),
        }
    }
}

/// The characters in a line of the terminal.
pub(super) fn width() -> usize {
    usize::from(size().0)
}

/// The terminal's columns and rows.
fn size() -> (u16, u16) {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        _ => (80, 24),
    }
}

/// A whole frame in one write, so that no half of it is seen.
fn write(frame: &str) {
    let mut stdout = std::io::stdout().lock();
    // A reader that has gone away does not stop the job: it is still to be cleaned up.
    let _ = stdout.write_all(frame.as_bytes()).and_then(|()| stdout.flush());
}

fn drawn(block: &[Line]) -> String {
    let width = width();
    block
        .iter()
        .flat_map(|line| [shown(line, width), "\n".to_owned()])
        .collect()
}

fn shown(line: &Line, width: usize) -> String {
    let is_coloured = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if is_coloured {
        line.coloured(width)
    } else {
        line.plain().chars().take(width).collect()
    }
}

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";

impl Drop for Screen {
    fn drop(&mut self) {
        if self.is_live() {
            write(SHOW_CURSOR);
        }
    }
}
