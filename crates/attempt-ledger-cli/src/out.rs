//! Standard output: one way out for all text, which escapes what a terminal would obey.

use std::{
    fmt::{self, Write as _},
    io::{self, BufWriter, IsTerminal as _, Write},
};

use clap::ValueEnum;

use crate::failure::Failure;

/// When colours are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless the variable NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How a piece of text looks where colours are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Bold,
    Dim,
    Good,
    Bad,
    Odd,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Good => "32",
            Style::Bad => "31",
            Style::Odd => "33",
        }
    }

    /// The look of a verdict: content, a fault of availability, or neither.
    pub(crate) fn of(verdict: Option<attempt_ledger_core::Verdict>) -> Self {
        match verdict {
            Some(v) if v.is_content() => Style::Good,
            Some(v) if v.is_fault() => Style::Bad,
            _ => Style::Odd,
        }
    }
}

/// Standard output. What is written passes through [`Clean`]; the only bytes below 0x20 that come
/// out are line feeds, and the colours that this type itself adds.
pub(crate) struct Out {
    sink: BufWriter<io::Stdout>,
    color: bool,
    terminal: bool,
    width: usize,
}

/// The width of what is no terminal.
const PAGE: usize = 100;

impl Out {
    pub(crate) fn stdout(color: Color) -> Self {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let color = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => terminal && !set("NO_COLOR") && !dumb,
        };
        let width = terminal_size::terminal_size_of(&stdout)
            .map(|(width, _)| usize::from(width.0))
            .filter(|&width| width > 0);
        let sink = BufWriter::with_capacity(64 * 1024, stdout);
        Out { sink, color, terminal, width: width.unwrap_or(PAGE) }
    }

    /// Makes `write!(out, ...)` do.
    pub(crate) fn write_fmt(&mut self, args: fmt::Arguments<'_>) -> Result<(), Failure> {
        let mut clean = Clean { sink: &mut self.sink, failed: Ok(()) };
        let _ = clean.write_fmt(args);
        Ok(clean.failed?)
    }

    /// Writes `text` in a style.
    pub(crate) fn painted(&mut self, style: Style, text: &str) -> Result<(), Failure> {
        if !self.color || style == Style::Plain {
            return write!(self, "{text}");
        }
        self.sink.write_all(format!("\x1b[{}m", style.code()).as_bytes())?;
        write!(self, "{text}")?;
        Ok(self.sink.write_all(b"\x1b[0m")?)
    }

    /// A line that stands above what follows.
    pub(crate) fn heading(&mut self, text: &str) -> Result<(), Failure> {
        self.painted(Style::Bold, text)?;
        writeln!(self)
    }

    /// A report's text, which brings its own colours and has escaped what is not its own.
    pub(crate) fn report(&mut self, report: &attempt_ledger_report::Report) -> Result<(), Failure> {
        let text = report.to_text(self.width, self.color);
        if self.color {
            return Ok(self.sink.write_all(text.as_bytes())?);
        }
        write!(self, "{text}")
    }

    /// Text of this program's own alone, as it is: nothing of anybody else may be in it.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.sink.write_all(bytes)?)
    }

    /// Hands over what was written so far.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.sink.flush()?)
    }

    /// Writes a table. On a terminal the column `narrow` gives way when the page is too small.
    pub(crate) fn table(
        &mut self,
        head: &[&str],
        rows: &[Vec<Cell>],
        narrow: usize,
    ) -> Result<(), Failure> {
        let mut widths: Vec<usize> = head.iter().map(|title| title.len()).collect();
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        let all: usize = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        if self.terminal
            && all > self.width
            && let Some(width) = widths.get_mut(narrow)
        {
            *width = width.saturating_sub(all - self.width).max(8);
        }
        let titles: Vec<Cell> = head.iter().map(|t| Cell::new(*t).style(Style::Dim)).collect();
        for row in std::iter::once(&titles).chain(rows) {
            // Padding goes before a cell, so that no line ends in it.
            let mut pad = 0;
            for (cell, &width) in row.iter().zip(&widths) {
                let text = shortened(&cell.text, width);
                if !text.is_empty() {
                    write!(self, "{:pad$}", "")?;
                    self.painted(cell.style, &text)?;
                    pad = 0;
                }
                pad += width.saturating_sub(text.chars().count()) + 2;
            }
            writeln!(self)?;
        }
        Ok(())
    }
}

fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// One cell of a table: escaped, so that it stays on its line.
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn new(text: impl fmt::Display) -> Self {
        let text = attempt_ledger_core::Escaped(&text.to_string()).to_string();
        Cell { text, style: Style::Plain }
    }

    /// What there is, or a dash.
    pub(crate) fn maybe(text: Option<impl fmt::Display>) -> Self {
        text.map_or_else(|| Cell::new("-").style(Style::Dim), Cell::new)
    }

    pub(crate) fn style(self, style: Style) -> Self {
        Cell { style, ..self }
    }
}

/// Writes text with all that could move a cursor, hide or reorder text as `\uXXXX`: the form that
/// JSON reads back, since such characters can stand in its strings only. Line feeds pass.
struct Clean<'a, W> {
    sink: &'a mut W,
    failed: io::Result<()>,
}

impl<W: Write> fmt::Write for Clean<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let written = write_clean(self.sink, text);
        self.failed = written;
        if self.failed.is_err() { Err(fmt::Error) } else { Ok(()) }
    }
}

fn write_clean(sink: &mut impl Write, text: &str) -> io::Result<()> {
    let mut rest = text;
    while let Some((at, c)) = rest.char_indices().find(|&(_, c)| is_unprintable(c)) {
        let (before, after) = rest.split_at(at);
        write!(sink, "{before}\\u{:04x}", u32::from(c))?;
        rest = after.get(c.len_utf8()..).unwrap_or_default();
    }
    sink.write_all(rest.as_bytes())
}

fn is_unprintable(c: char) -> bool {
    c != '\n'
        && (c.is_control()
            || matches!(
                c,
                '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}' | '\u{feff}'
            ))
}

/// Writes to standard error. A closed one is nobody to tell.
pub(crate) fn complain(text: &str) {
    let _ = write_clean(&mut io::stderr().lock(), text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_line_feeds_of_all_controls_come_out() {
        let all: String = (0..=0x2fff).chain([0xfeff]).filter_map(char::from_u32).collect();
        let mut sink = Vec::new();
        write_clean(&mut sink, &all).expect("a vector");
        assert!(sink.iter().all(|&b| b == b'\n' || b >= 0x20));
        let text = String::from_utf8(sink).expect("text");
        assert!(!text.chars().any(is_unprintable));
        assert!(text.starts_with("\\u0000\\u0001") && text.contains("\\u202e"));
    }

    #[test]
    fn json_reads_the_same_text_back() {
        let json = serde_json::to_string("a\u{9b}b\u{202e}\u{7f}\n").expect("json");
        let mut sink = Vec::new();
        write_clean(&mut sink, &json).expect("a vector");
        let back: String = serde_json::from_slice(&sink).expect("json");
        assert_eq!(back, "a\u{9b}b\u{202e}\u{7f}\n");
    }

    #[test]
    fn what_does_not_fit_says_so() {
        assert_eq!(shortened("naïve 你好", 8), "naïve 你好");
        assert_eq!(shortened("naïve 你好", 7), "naïve …");
    }
}
