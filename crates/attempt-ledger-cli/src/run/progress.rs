//! What is told on standard error while a run goes on: a bar on a terminal, lines elsewhere.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::out::complain;

/// The progress of a run.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    ended: u64,
    all: u64,
}

impl Progress {
    pub(super) fn start(all: usize) -> Self {
        let all = u64::try_from(all).unwrap_or(u64::MAX);
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(all), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_message("waiting for the first answer");
            bar
        });
        Progress { bar, ended: 0, all }
    }

    /// A case has ended.
    pub(super) fn ended(&mut self, case: &str, how: &str) {
        self.ended += 1;
        let text = format!("{}: {how}", attempt_ledger_core::Escaped(case));
        match &self.bar {
            Some(bar) => {
                bar.set_message(text);
                bar.inc(1);
            }
            None => complain(&format!("[{}/{}] {text}\n", self.ended, self.all)),
        }
    }

    /// Says something beside.
    pub(super) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| complain(&format!("{text}\n"))),
            None => complain(&format!("{text}\n")),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
