//! Styled text for a terminal: lines of spans, cut to a width, with or without colours.

use std::fmt::Write as _;

/// How a span looks where colours are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    Plain,
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Magenta,
    Cyan,
}

impl Ink {
    /// The parameter of the terminal's *select graphic rendition* sequence.
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "0",
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Red => "1;31",
            Self::Green => "32",
            Self::Yellow => "33",
            Self::Magenta => "35",
            Self::Cyan => "36",
        }
    }
}

/// A line of text in several inks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Line {
    spans: Vec<(Ink, String)>,
}

impl Line {
    /// A line that begins with `text`.
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self::default().then(Ink::Plain, text)
    }

    /// The line with `text` at its end.
    #[must_use]
    pub(super) fn then(mut self, ink: Ink, text: impl Into<String>) -> Self {
        self.spans.push((ink, text.into()));
        self
    }

    /// The line without its colours.
    pub(super) fn plain(&self) -> String {
        self.spans.iter().map(|(_, text)| text.as_str()).collect()
    }

    /// The line with its colours, and no more than `width` characters of it.
    pub(super) fn coloured(&self, width: usize) -> String {
        let mut line = String::new();
        let mut left = width;
        for (ink, text) in &self.spans {
            let shown: String = text.chars().take(left).collect();
            left -= shown.chars().count();
            if shown.is_empty() {
                continue;
            }
            if *ink == Ink::Plain {
                line.push_str(&shown);
            } else {
                // Writing into a string does not fail.
                let _ = write!(line, "\x1b[{}m{shown}\x1b[0m", ink.code());
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_to_the_width_and_its_colours_end() {
        let line = Line::new("ab").then(Ink::Green, "■■■").then(Ink::Dim, "cd");
        assert_eq!(line.plain(), "ab■■■cd");
        assert_eq!(line.coloured(80), "ab\x1b[32m■■■\x1b[0m\x1b[2mcd\x1b[0m");
        assert_eq!(line.coloured(4), "ab\x1b[32m■■\x1b[0m");
    }
}
