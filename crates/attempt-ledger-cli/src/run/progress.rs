//! What is told on standard error while a run goes on: the three numbers, side by side, as a bar on
//! a terminal, as lines, or as JSON.

use std::io::IsTerminal as _;

use attempt_ledger::{AttemptState, AttemptSummary, Wire};
use attempt_ledger_core::{Escaped, RunId, Slot};
use attempt_ledger_report::Running;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::{args::ProgressArg, out::complain};

/// The progress of a run.
pub(super) struct Progress {
    shape: Shape,
    running: Running,
    ended: usize,
    all: usize,
}

enum Shape {
    Bar(ProgressBar),
    Lines,
    Json,
    None,
}

/// One line of `--progress json`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    Begun {
        run: &'a RunId,
        samples: usize,
        #[serde(flatten)]
        running: &'a Running,
    },
    Ended {
        done: usize,
        samples: usize,
        case: &'a str,
        epoch: u32,
        outcome: &'a str,
        #[serde(flatten)]
        running: &'a Running,
    },
    Said {
        text: &'a str,
    },
    Over {
        done: usize,
        samples: usize,
        #[serde(flatten)]
        running: &'a Running,
    },
}

impl Line<'_> {
    fn tell(&self) {
        // Nothing in it can fail to have a JSON form.
        if let Ok(json) = serde_json::to_string(self) {
            complain(&format!("{json}\n"));
        }
    }
}

impl Progress {
    /// Of `all` samples that are to be run, with what the ledger holds of the run already.
    pub(super) fn start(how: ProgressArg, run: &RunId, all: usize, running: Running) -> Self {
        let shape = match how {
            ProgressArg::None => Shape::None,
            ProgressArg::Json => Shape::Json,
            ProgressArg::Lines => Shape::Lines,
            ProgressArg::Auto if is_dumb() => Shape::Lines,
            ProgressArg::Auto | ProgressArg::Bar => match std::io::stderr().is_terminal() {
                true => Shape::Bar(bar()),
                false => Shape::Lines,
            },
        };
        let progress = Progress { shape, running, ended: 0, all };
        match &progress.shape {
            Shape::Bar(bar) => bar.set_message(progress.line("waiting for the first answer")),
            Shape::Json => Line::Begun { run, samples: all, running: &progress.running }.tell(),
            Shape::Lines | Shape::None => {}
        }
        progress
    }

    /// The call of a sample has ended, with these attempts.
    pub(super) fn ended(&mut self, slot: &Slot, how: &str, attempts: &[AttemptSummary]) {
        self.ended += 1;
        for attempt in attempts {
            if let AttemptState::Closed { verdict, grade, .. } = attempt.state
                && let Some(ordinal) = attempt.ordinal
            {
                self.running.ended(slot, ordinal, verdict, grade);
                if let Some(word) = &attempt.unknown_stop {
                    self.running.unknown_stop(slot, word, &Wire::OpenAiChat.label());
                }
            }
        }
        let Progress { running, ended, all, .. } = self;
        match &self.shape {
            Shape::Bar(bar) => {
                bar.set_message(self.line(&format!("{}: {how}", Escaped(&slot.to_string()))));
            }
            Shape::Lines => {
                let case = slot.to_string();
                complain(&format!("[{ended}/{all}] {}: {how}  |  {running}\n", Escaped(&case)));
            }
            Shape::Json => Line::Ended {
                done: *ended,
                samples: *all,
                case: slot.case.as_str(),
                epoch: slot.epoch,
                outcome: how,
                running,
            }
            .tell(),
            Shape::None => {}
        }
    }

    /// Says something beside.
    pub(super) fn say(&self, text: &str) {
        match &self.shape {
            Shape::Bar(bar) => bar.suspend(|| complain(&format!("{text}\n"))),
            Shape::Json => Line::Said { text }.tell(),
            Shape::Lines | Shape::None => complain(&format!("{text}\n")),
        }
    }

    fn line(&self, last: &str) -> String {
        let width = terminal_size::terminal_size_of(std::io::stderr());
        let width = width.map(|(width, _)| usize::from(width.0)).filter(|width| *width > 0);
        // The last column stays free: some terminals wrap when it is written.
        let width = width.unwrap_or(80).saturating_sub(1);
        line(width, self.ended, self.all, &self.running, last)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let Progress { running, ended, all, .. } = self;
        match &self.shape {
            Shape::Bar(bar) => bar.finish_and_clear(),
            Shape::Json => Line::Over { done: *ended, samples: *all, running }.tell(),
            Shape::Lines | Shape::None => {}
        }
    }
}

/// A terminal that cannot go back to the beginning of a line.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// What fits, the numbers first: in short words where the page is narrow, with a bar and the last
/// case where there is room.
fn line(width: usize, ended: usize, all: usize, running: &Running, last: &str) -> String {
    const BAR: usize = 16;
    const LEAST: usize = 12;
    let long = format!("{ended}/{all}  {running}");
    if len(&long) > width {
        return cut(&format!("{ended}/{all}  {running:#}"), width);
    }
    let filled = (BAR * ended).checked_div(all).unwrap_or(BAR).min(BAR);
    let bar = format!("[{}{}] ", "=".repeat(filled), " ".repeat(BAR - filled));
    let text = if len(&bar) + len(&long) <= width { bar + &long } else { long };
    match width.saturating_sub(len(&text) + 2) {
        0..LEAST => text,
        room => format!("{text}  {}", cut(last, room)),
    }
}

fn len(text: &str) -> usize {
    text.chars().count()
}

fn cut(text: &str, width: usize) -> String {
    if len(text) <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use attempt_ledger_core::{CaseId, Ordinal, Verdict};

    use super::*;

    #[test]
    fn the_numbers_come_first_and_the_rest_where_there_is_room() {
        let slot = Slot::new(RunId::new("r").expect("an id"), CaseId::new("c").expect("an id"));
        let mut running = Running::new([0.0, 1.0]);
        running.ended(&slot, Ordinal::FIRST, Verdict::Ok, Some(0.625));
        let at = |width| line(width, 12, 40, &running, "case-7: ok at ordinal 1");
        assert_eq!(at(20), "12/40  q 0.62 (n 1)…");
        assert_eq!(at(36), "12/40  q 0.62 (n 1)  f 0/1  p 0");
        let numbers = "12/40  quality 0.62 (n 1)  faults 0/1  refused promotions 0";
        assert_eq!(at(59), numbers);
        assert_eq!(
            at(79),
            format!("[====            ] {numbers}").chars().take(79).collect::<String>()
        );
        assert_eq!(at(200), format!("[====            ] {numbers}  case-7: ok at ordinal 1"));
        for width in 0..200 {
            assert!(len(&at(width)) <= width.max(1), "{width}: {}", at(width));
        }
    }
}
