//! The report's JSON and text, against a short count of the same events in another way.

#![allow(clippy::expect_used, reason = "a test may stop")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use attempt_ledger_core::{CaseId, Event, Label, Opened, Ordinal, Role, RunId, Slot, Verdict};
use attempt_ledger_report::{Options, Report, Running};
use proptest::prelude::*;
use serde_json::Value;
use support::{fold, of, opened, planned, run};

/// One attempt as the other count sees it.
#[derive(Clone, Debug)]
struct Seen {
    case: usize,
    epoch: u32,
    ordinal: u32,
    grader: bool,
    /// `None` while it is open.
    verdict: Option<Verdict>,
    grade: Option<f64>,
    /// Its stop word, where that is no known one.
    word: Option<&'static str>,
    /// Retries that a gateway says it made.
    retries: Option<u32>,
}

const WORDS: [&str; 3] = ["eos_v2", "cut", "zap"];

const CASES: [&str; 3] = ["a", "b", "c"];

fn ledger() -> impl Strategy<Value = (Vec<Seen>, usize)> {
    let verdict = prop::option::weighted(0.9, prop::sample::select(Verdict::ALL));
    let one = (
        0..3_usize,
        1..3_u32,
        prop::bool::weighted(0.1),
        verdict,
        prop::option::weighted(0.8, 0..5_u8),
        (
            prop::option::weighted(0.3, prop::sample::select(&WORDS)),
            prop::option::weighted(0.3, 0..3_u32),
        ),
    );
    (prop::collection::vec(one, 0..24), 0..4_usize).prop_map(|(attempts, planned)| {
        let mut ordinals = BTreeMap::new();
        let seen = attempts.into_iter().map(
            |(case, epoch, grader, verdict, quarters, (word, retries))| {
                let ordinal = ordinals.entry((case, epoch, grader)).or_insert(0);
                *ordinal += 1;
                let is_graded = verdict.is_some_and(Verdict::is_content) && !grader;
                let grade = quarters.filter(|_| is_graded).map(|q| f64::from(q) / 4.0);
                let (word, retries) =
                    (word.filter(|_| verdict.is_some()), retries.filter(|_| verdict.is_some()));
                Seen { case, epoch, ordinal: *ordinal, grader, verdict, grade, word, retries }
            },
        );
        (seen.collect(), planned)
    })
}

fn events(seen: &[Seen], plan: usize) -> Vec<Event> {
    let slots: Vec<_> = CASES.iter().take(plan).map(|case| (*case, 1)).collect();
    let mut events = vec![Event::Run(run("r")), planned("r", &slots)];
    for (n, attempt) in (1..).zip(seen) {
        let opened = Opened {
            epoch: attempt.epoch,
            role: if attempt.grader { Role::Grader } else { Role::Subject },
            ..opened(n, "r", CASES[attempt.case], attempt.ordinal)
        };
        match attempt.verdict {
            Some(verdict) => {
                let mut ended = of(opened, verdict, attempt.grade);
                if let Some(Event::Closed(closed)) = ended.get_mut(1) {
                    closed.upstream_retries = attempt.retries;
                    // Known words are not listed.
                    closed.finish_reason = Some(Label::new(attempt.word.unwrap_or("stop")));
                    closed.detail.unknown_stop = attempt.word.is_some();
                }
                events.extend(ended);
            }
            None => events.push(Event::Opened(opened)),
        }
    }
    events
}

fn same(got: &Value, want: Option<f64>) -> bool {
    match (got.as_f64(), want) {
        (Some(got), Some(want)) => (got - want).abs() < 1e-9,
        (None, None) => got.is_null(),
        _ => false,
    }
}

proptest! {
    #[test]
    fn json_and_text_say_what_was_counted((seen, plan) in ledger()) {
        let report = Report::of(&fold(events(&seen, plan)), None, &Options::default()).expect("a report");
        let json = serde_json::to_value(&report).expect("JSON");
        let text = report.to_text(200, false);

        let subject: Vec<&Seen> = seen.iter().filter(|s| !s.grader).collect();
        let is = |s: &Seen, of: fn(Verdict) -> bool| s.verdict.is_some_and(of);
        let content = |s: &Seen| is(s, Verdict::is_content);
        let faults = subject.iter().filter(|s| is(s, Verdict::is_fault)).count();
        let attempts = faults + subject.iter().filter(|s| content(s)).count();
        prop_assert_eq!(&json["availability"]["faults"], faults);
        prop_assert_eq!(&json["availability"]["attempts"], attempts);
        for &verdict in Verdict::ALL {
            let n = subject.iter().filter(|s| s.verdict == Some(verdict)).count();
            prop_assert_eq!(&json["availability"]["by_verdict"][verdict.as_str()], n);
        }

        let scores: Vec<f64> = subject.iter().filter(|s| s.ordinal == 1).filter_map(|s| s.grade).collect();
        let n = scores.len() as f64;
        let mean = (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / n);
        let mut slots: BTreeSet<_> = subject.iter().map(|s| (s.case, s.epoch)).collect();
        slots.extend((0..plan.min(3)).map(|case| (case, 1)));
        let all = slots.len() as f64;
        prop_assert!(same(&json["quality"]["mean"], mean), "{}", json);
        prop_assert_eq!(&json["quality"]["n"], scores.len());
        prop_assert_eq!(&json["quality"]["planned"], slots.len());
        let share = (all > 0.0).then(|| n / all);
        prop_assert!(same(&json["quality"]["coverage"], share), "{}", json);
        let sum: f64 = scores.iter().sum();
        let low = share.map(|_| sum / all);
        prop_assert!(same(&json["quality"]["bounds"][0], low), "{}", json);
        prop_assert!(same(&json["quality"]["bounds"][1], low.map(|low| low + (all - n) / all)), "{}", json);
        if let Some([low, high]) = report.quality.bounds() {
            let inside = mean.is_none_or(|m| low - 1e-9 <= m && m <= high + 1e-9);
            prop_assert!(inside && low >= -1e-9 && high <= 1.0 + 1e-9);
        }

        let later: Vec<_> = subject.iter().filter(|s| s.ordinal > 1 && content(s)).collect();
        let of_slots: BTreeSet<_> = later.iter().map(|s| (s.case, s.epoch)).collect();
        prop_assert_eq!(&json["refused_promotions"]["attempts"], later.len());
        prop_assert_eq!(&json["refused_promotions"]["slots"], of_slots.len());

        let retried = subject.iter().filter_map(|s| s.retries).filter(|n| *n > 0);
        let retries: u32 = retried.clone().sum();
        prop_assert_eq!(&json["upstream_retries"]["attempts"], retried.count());
        prop_assert_eq!(&json["upstream_retries"]["retries"], retries);
        prop_assert_eq!(text.contains("\nretried upstream: "), retries > 0);
        let mut words: Vec<_> = WORDS
            .iter()
            .map(|word| (subject.iter().filter(|s| s.word == Some(*word)).count(), *word))
            .filter(|(n, _)| *n > 0)
            .collect();
        words.sort_by(|(n, a), (m, b)| m.cmp(n).then(a.cmp(b)));
        let listed: Vec<_> = words
            .iter()
            .map(|(n, word)| serde_json::json!({"word": word, "wire": "plain", "attempts": n}))
            .collect();
        let want = if listed.is_empty() { Value::Null } else { Value::Array(listed) };
        prop_assert_eq!(&json["unknown_stop_words"], &want);
        let shown: Vec<_> = words.iter().map(|(n, word)| format!("{word} {n} (plain)")).collect();
        let shown = format!("\nunknown stop words: {}\n", shown.join(", "));
        prop_assert_eq!(text.contains(&shown), !words.is_empty(), "{}", text);

        // Later entries replace earlier ones: the last content of each slot remains.
        let last: BTreeMap<_, _> =
            subject.iter().filter(|s| content(s)).map(|s| ((s.case, s.epoch), s.grade)).collect();
        let grades: Option<Vec<f64>> = last.values().copied().collect();
        let naive = grades.filter(|g| !g.is_empty()).map(|g| g.iter().sum::<f64>() / g.len() as f64);
        prop_assert!(same(&json["naive"]["mean"], naive), "{}", json);
        prop_assert_eq!(&json["naive"]["n"], last.len());
        let distance = naive.zip(mean).map(|(naive, mean)| naive - mean);
        prop_assert!(same(&json["naive"]["distance"], distance), "{}", json);

        let lines: Vec<&str> = text.lines().collect();
        let titles = lines.iter().position(|l| l.starts_with("First-attempt quality")).expect("titles");
        let column = |title: &str| lines[titles].find(title).expect("a title");
        let (second, third) = (column("Availability faults"), column("Refused promotions"));
        let first_line = lines[titles + 1];
        let cell = |from: usize, to: usize| first_line.get(from..to).expect("a cell").trim();
        let shown = mean.map_or("no attempt is graded yet".to_owned(), |m| format!("{m:.3}"));
        prop_assert_eq!(cell(0, second), shown);
        let rate = json["availability"]["rate"].as_f64();
        let none = match subject.iter().any(|s| s.verdict.is_some()) {
            true => "no attempt counts here",
            false => "no attempt has ended yet",
        };
        let shown = rate.map_or(none.to_owned(), |r| format!("{:.1}%", r * 100.0));
        prop_assert_eq!(cell(second, third), shown);
        prop_assert_eq!(cell(third, first_line.len()), later.len().to_string());
        let missing = |line: &&&str| line.contains("NaN") || line.contains("inf") || line.ends_with(' ');
        prop_assert_eq!(lines.iter().find(missing), None);
    }
}

proptest! {
    /// To the last digit, whatever was in the ledger before and in which order the rest ended.
    #[test]
    fn what_is_counted_on_the_way_is_the_report_in_the_end(
        (seen, plan) in ledger(),
        before in 0..24_usize,
        backwards in any::<bool>(),
    ) {
        let (before, rest) = seen.split_at(before.min(seen.len()));
        let name = RunId::new("r").expect("an id");
        let mut running = Running::of(&fold(events(before, plan)), &name, [0.0, 1.0]);
        let mut rest: Vec<&Seen> = rest.iter().collect();
        if backwards {
            rest.reverse();
        }
        for attempt in rest {
            let case = CaseId::new(CASES[attempt.case]).expect("an id");
            let role = if attempt.grader { Role::Grader } else { Role::Subject };
            let slot = Slot::new(name.clone(), case).epoch(attempt.epoch).role(role);
            running.plan(slot.clone());
            let ordinal = Ordinal::new(attempt.ordinal).expect("from one on");
            if let Some(verdict) = attempt.verdict {
                running.ended(&slot, ordinal, verdict, attempt.grade);
                if let Some(word) = attempt.word {
                    running.unknown_stop(&slot, &Label::new(word), &Label::new("plain"));
                }
            }
        }
        let report = Report::of(&fold(events(&seen, plan)), None, &Options::default());
        let report = serde_json::to_value(report.expect("a report")).expect("JSON");
        let running = serde_json::to_value(running).expect("JSON");
        prop_assert_eq!(running.get("unknown_stop_words"), report.get("unknown_stop_words"));
        for (number, fields) in [
            ("quality", &["mean", "n", "planned", "coverage", "bounds"][..]),
            ("availability", &["faults", "attempts"]),
            ("refused_promotions", &["attempts", "slots"]),
        ] {
            for field in fields {
                prop_assert_eq!(&running[number][field], &report[number][field], "{} {}", number, field);
            }
        }
    }
}
