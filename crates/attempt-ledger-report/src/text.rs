//! A report as text.

use std::fmt::{self, Write as _};

use attempt_ledger_core::{Escaped, Verdict};

use crate::{Percentiles, Quality, Report, report::attempts, stats::as_f64};

const BETWEEN: usize = 3;

impl fmt::Display for Report {
    /// The text for 80 columns, without colour.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(80, false))
    }
}

impl Report {
    /// The report as text for a page of `width` columns.
    ///
    /// The three numbers stand side by side where there is room, else one below the other. With `color` terminal sequences mark what counts, and the naive mean is struck
    /// through; without, it is put in words.
    pub fn to_text(&self, width: usize, color: bool) -> String {
        let style = Style { color };
        let mut out = String::new();
        let _ = writeln!(out, "run {}", Escaped(self.run.as_str()));
        if let Some(graded) = self.graded.as_ref().filter(|graded| is_narrowed(graded)) {
            let words: Vec<_> = graded.iter().map(|v| v.as_str()).collect();
            let _ = writeln!(out, "graded: {} only", words.join(", "));
        }
        out.push('\n');
        let blocks = [
            ("First-attempt quality", self.quality_lines()),
            ("Availability faults", self.availability_lines()),
            ("Refused promotions", self.promotion_lines()),
        ];
        let widths = blocks.each_ref().map(|(title, lines)| {
            lines.iter().map(|line| line.chars().count()).max().unwrap_or(0).max(title.len())
        });
        if widths.iter().sum::<usize>() + 2 * BETWEEN <= width {
            side_by_side(&mut out, &blocks, widths, style);
        } else {
            for (title, lines) in &blocks {
                let _ = writeln!(out, "{}", style.bold(title));
                for line in lines {
                    let mut wrapped = String::new();
                    wrap(&mut wrapped, line, width.saturating_sub(2));
                    wrapped.lines().for_each(|line| {
                        let _ = writeln!(out, "  {line}");
                    });
                }
            }
        }
        out.push('\n');
        let mut rest = String::new();
        self.floor_line(&mut rest, style);
        self.naive_line(&mut rest, style);
        self.rest(&mut rest);
        for warning in &self.warnings {
            let _ = writeln!(rest, "{} {}", style.warn("warning:"), Escaped(warning));
        }
        rest.lines().for_each(|line| wrap(&mut out, line, width));
        out
    }

    fn quality_lines(&self) -> Vec<String> {
        let quality = &self.quality;
        let mut lines = match quality.estimate() {
            None if self.missing.no_grader => vec!["not graded: no grader is set".to_owned()],
            None => vec!["no attempt is graded yet".to_owned()],
            Some(estimate) => {
                let mean = number(estimate.mean);
                match (estimate.interval, estimate.se) {
                    (Some([low, high]), Some(se)) => vec![
                        mean,
                        format!("95%: {} to {}", number(low), number(high)),
                        format!("standard error {}", number(se)),
                    ],
                    _ if estimate.n < 2 => vec![mean, "no interval: one score".to_owned()],
                    _ => vec![mean, "no interval: one case".to_owned()],
                }
            }
        };
        lines.push(coverage(quality));
        if let Some([low, high]) = quality.bounds() {
            lines.push(format!("bounds {} to {}", number(low), number(high)));
        }
        lines
    }

    fn availability_lines(&self) -> Vec<String> {
        let found = &self.availability;
        let mut lines = match found.rate {
            None => match self.ended_outside() {
                None => vec!["no attempt has ended yet".to_owned()],
                Some(outside) => vec!["no attempt counts here".to_owned(), outside],
            },
            Some(rate) => {
                vec![percent(rate), format!("{} of {}", found.faults, attempts(found.attempts))]
            }
        };
        for (verdict, n) in found.by_verdict.iter().filter(|(v, n)| v.is_fault() && **n > 0) {
            lines.push(format!("{n} {verdict}"));
        }
        if let (Some(share), Some([low, high])) = (found.first.share, found.first.interval) {
            let (available, n) = (found.first.available, found.first.n);
            lines.push(format!("first available: {available} of {n}"));
            lines.push(format!("{}, 95%: {} to {}", percent(share), percent(low), percent(high)));
        }
        lines
    }

    /// The attempts that ended, and are neither content nor a fault.
    fn ended_outside(&self) -> Option<String> {
        let by_verdict = self.availability.by_verdict.iter();
        let outside: Vec<_> =
            by_verdict.filter(|(v, n)| !v.is_content() && !v.is_fault() && **n > 0).collect();
        let all: u64 = outside.iter().map(|(_, n)| **n).sum();
        let words: Vec<_> = outside.iter().map(|(verdict, n)| format!("{verdict} {n}")).collect();
        (all > 0).then(|| format!("{all} ended outside this rate: {}", words.join(", ")))
    }

    /// What stands in place of times: none were taken, for a reason that fits.
    fn no_times(&self, of_first_content: bool) -> String {
        let found = &self.availability;
        let why = if found.attempts == 0 && self.ended_outside().is_none() {
            return "none yet".to_owned();
        } else if found.attempts == 0 {
            "no attempt counts here"
        } else if of_first_content && self.missing.documents > 0 {
            "the answers came as documents, not as streams"
        } else if of_first_content {
            "no answer had content"
        } else {
            "no attempt has a time"
        };
        format!("not measured: {why}")
    }

    fn promotion_lines(&self) -> Vec<String> {
        let refused = &self.refused_promotions;
        let slots = match refused.slots {
            1 => "in 1 slot".to_owned(),
            n => format!("in {n} slots"),
        };
        vec![refused.attempts.to_string(), slots]
    }

    fn floor_line(&self, out: &mut String, style: Style) {
        let floor = &self.coverage_floor;
        let mark = if floor.met { style.good("PASS") } else { style.bad("FAIL") };
        let _ = match self.quality.coverage() {
            Some(coverage) => writeln!(
                out,
                "coverage {} of at least {}: {mark}",
                percent(coverage),
                percent(floor.least)
            ),
            None => {
                writeln!(out, "no slot is planned or opened yet, so there is no coverage: {mark}")
            }
        };
    }

    fn naive_line(&self, out: &mut String, style: Style) {
        let slots = |n| format!("{n} slot{}", if n == 1 { "" } else { "s" });
        let n = self.naive.n();
        let _ = match self.naive.claimed() {
            Some((mean, n)) => {
                let claim = style.struck(&number(mean));
                let distance = match self.naive.distance() {
                    Some(distance) => format!("distance {distance:+.3}"),
                    None => "no first-attempt mean".to_owned(),
                };
                writeln!(
                    out,
                    "naive last-success mean (not published): {claim} of {}, {distance}",
                    slots(n)
                )
            }
            None if n == 0 => writeln!(out, "no naive last-success mean: no slot has content"),
            None => writeln!(
                out,
                "no naive last-success mean: of {} with content some have no grade",
                slots(n)
            ),
        };
    }

    fn rest(&self, out: &mut String) {
        let mut line = |name: &str, text: String| {
            let _ = writeln!(out, "{name}: {text}");
        };
        if !self.mean_by_verdict.is_empty() {
            let means = self.mean_by_verdict.iter();
            let text: Vec<_> =
                means.map(|(v, m)| format!("{v} {} ({})", number(m.mean), m.n)).collect();
            line("mean by verdict", text.join(", "));
        }
        let ended = self.availability.by_verdict.iter().filter(|(_, n)| **n > 0);
        let ended: Vec<_> = ended.map(|(verdict, n)| format!("{verdict} {n}")).collect();
        if !ended.is_empty() {
            line("attempts by verdict", ended.join(", "));
        }
        if let Some(grader) = &self.grader {
            line("grader", format!("{} {}", Escaped(&grader.name), Escaped(&grader.version)));
        }
        if !self.graders.is_empty() {
            let means = self.graders.iter();
            let text: Vec<_> = means
                .map(|(name, m)| format!("{} {} ({})", Escaped(name), number(m.mean), m.n))
                .collect();
            line("other graders of first attempts (not published)", text.join(", "));
        }
        if !self.checks.is_empty() {
            let checks = self.checks.iter();
            let text: Vec<_> = checks
                .map(|check| format!("{} {}", Escaped(&check.name), Escaped(&check.version)))
                .collect();
            line("checks", text.join(", "));
        }
        line("recovered calls", self.recovered.to_string());
        let unknown = &self.unknown_remote;
        line(
            "remote state unknown",
            format!(
                "{}, {} repeated with writes",
                attempts(unknown.attempts),
                unknown.repeated_with_writes
            ),
        );
        let upstream = &self.upstream_retries;
        if upstream.attempts > 0 {
            let retries = match upstream.retries {
                1 => "1 retry".to_owned(),
                n => format!("{n} retries"),
            };
            line("retried upstream", format!("{}, {retries}", attempts(upstream.attempts)));
        }
        if !self.unknown_stop_words.is_empty() {
            let words = self.unknown_stop_words.iter();
            let mut text: Vec<_> =
                words.map(|w| format!("{} {} ({})", w.word, w.attempts, w.wire)).collect();
            if self.missing.words > 0 {
                text.push(format!("and {} more", self.missing.words));
            }
            line("unknown stop words", text.join(", "));
        }
        let counts = [
            ("drift", self.drift),
            ("unlinked", self.unlinked),
            ("unrecorded", self.unrecorded),
            ("open", self.open),
            ("lost", self.lost),
            ("abandoned", self.abandoned),
            ("rejected", self.rejected),
        ];
        let counts: Vec<_> = counts.iter().map(|(name, n)| format!("{name} {n}")).collect();
        line("beside the numbers", counts.join(", "));
        let times = |found, first| percentiles(found).unwrap_or_else(|| self.no_times(first));
        line("time to first content", times(&self.first_content_us, true));
        line("time to the end", times(&self.total_us, false));
        if !self.other_runs.is_empty() {
            let runs = self.other_runs.iter();
            let text: Vec<_> = runs
                .map(|other| format!("{} ({})", Escaped(other.run.as_str()), cases(other.cases)))
                .collect();
            line("other runs of these cases in this ledger", text.join(", "));
        }
    }
}

/// Appends a line, broken between words where it is longer than `width`; what follows is indented.
fn wrap(out: &mut String, line: &str, width: usize) {
    const INDENT: &str = "  ";
    let mut column = 0;
    for word in line.split(' ') {
        let long = word.chars().count();
        if column > 0 && column + 1 + long > width {
            out.push('\n');
            out.push_str(INDENT);
            column = INDENT.len();
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += long;
    }
    out.push('\n');
}

fn is_narrowed(graded: &[Verdict]) -> bool {
    Verdict::ALL.iter().any(|v| v.is_content() && !graded.contains(v))
}

fn coverage(quality: &Quality) -> String {
    match quality.coverage() {
        Some(share) => format!("{} of {} ({})", quality.n(), quality.planned(), percent(share)),
        None => "no slot is planned yet".to_owned(),
    }
}

fn cases(n: u64) -> String {
    format!("{n} case{}", if n == 1 { "" } else { "s" })
}

fn number(x: f64) -> String {
    format!("{x:.3}")
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

fn percentiles(found: &Percentiles) -> Option<String> {
    let (p50, p95, p99) = (found.p50?, found.p95?, found.p99?);
    Some(format!("p50 {}, p95 {}, p99 {}", time(p50), time(p95), time(p99)))
}

fn time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.1} ms", as_f64(us) / 1e3),
        _ => format!("{:.2} s", as_f64(us) / 1e6),
    }
}

fn side_by_side(
    out: &mut String,
    blocks: &[(&str, Vec<String>); 3],
    widths: [usize; 3],
    style: Style,
) {
    let mut row = |cells: [&str; 3], mark: fn(Style, &str) -> String| {
        let mut line = String::new();
        for (i, (cell, width)) in cells.iter().zip(widths).enumerate() {
            let last = cells.iter().skip(i + 1).all(|cell| cell.is_empty());
            if !cell.is_empty() {
                line.push_str(&mark(style, cell));
            }
            if last {
                break;
            }
            line.push_str(&" ".repeat(width.saturating_sub(cell.chars().count()) + BETWEEN));
        }
        let _ = writeln!(out, "{line}");
    };
    row(blocks.each_ref().map(|(title, _)| *title), Style::bold);
    let height = blocks.iter().map(|(_, lines)| lines.len()).max().unwrap_or(0);
    for i in 0..height {
        let cells = blocks.each_ref().map(|(_, lines)| lines.get(i).map_or("", String::as_str));
        row(cells, |_, cell| cell.to_owned());
    }
}

#[derive(Clone, Copy)]
struct Style {
    color: bool,
}

impl Style {
    fn mark(self, on: u8, off: u8, text: &str) -> String {
        if self.color { format!("\x1b[{on}m{text}\x1b[{off}m") } else { text.to_owned() }
    }

    fn bold(self, text: &str) -> String {
        self.mark(1, 22, text)
    }

    fn struck(self, text: &str) -> String {
        self.mark(9, 29, text)
    }

    fn good(self, text: &str) -> String {
        self.mark(32, 39, text)
    }

    fn bad(self, text: &str) -> String {
        self.mark(31, 39, text)
    }

    fn warn(self, text: &str) -> String {
        self.mark(33, 39, text)
    }
}
