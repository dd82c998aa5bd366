//! The published numbers, against answers that are known.

#![allow(clippy::expect_used, reason = "a test may stop")]

mod support;

use attempt_ledger_core::{
    Durability, Effect, Event, Folded, GraderInfo, Label, Opened, Role, RunEvent, Unrecorded,
    Verdict,
};
use attempt_ledger_report::{MeanOf, Options, Report, ReportError};
use serde_json::{Value, json};
use support::{attempt, fold, of, opened, planned, run, run_id};

fn report(folded: &Folded) -> Report {
    Report::of(folded, None, &Options::default()).expect("a report")
}

fn json_of(report: &Report) -> Value {
    serde_json::to_value(report).expect("JSON")
}

fn near(got: &Value, want: f64) {
    let got = got.as_f64().unwrap_or(f64::NAN);
    assert!((got - want).abs() < 5e-5, "{got} is not {want}");
}

fn case_7() -> Vec<Event> {
    let mut events = attempt(1, "r", "case-7", 1, Verdict::Ok, Some(0.25));
    events.extend(attempt(2, "r", "case-7", 2, Verdict::Ok, Some(1.0)));
    events
}

fn case_8() -> Vec<Event> {
    let mut events = attempt(3, "r", "case-8", 1, Verdict::Deadline, None);
    events.extend(attempt(4, "r", "case-8", 2, Verdict::Ok, Some(1.0)));
    events
}

#[test]
fn a_better_second_answer_is_not_published() {
    let json = json_of(&report(&fold(case_7())));
    assert_eq!(json["quality"]["mean"], 0.25);
    assert_eq!(json["naive"], json!({"mean": 1.0, "n": 1, "distance": 0.75}));
    assert_eq!(json["refused_promotions"], json!({"attempts": 1, "slots": 1}));
    assert_eq!(json["availability"]["faults"], 0);
}

#[test]
fn an_answer_after_a_deadline_publishes_nothing() {
    let report = report(&fold(case_8()));
    let json = json_of(&report);
    assert_eq!(report.quality.estimate(), None);
    assert_eq!(json["quality"]["mean"], Value::Null);
    assert_eq!(json["quality"]["bounds"], json!([0.0, 1.0]));
    assert_eq!(json["naive"], json!({"mean": 1.0, "n": 1, "distance": null}));
    assert_eq!(json["availability"]["faults"], 1);
    assert_eq!(json["availability"]["by_verdict"]["deadline"], 1);
    assert_eq!(json["recovered"], 1);
    let text = report.to_text(80, false);
    assert!(text.contains("no attempt is graded yet") && !text.contains("NaN"), "{text}");
}

#[test]
fn both_together() {
    let events = [Event::Run(run("r"))].into_iter().chain(case_7()).chain(case_8());
    let report = report(&fold(events));
    let json = json_of(&report);
    let quality = json!({
        "mean": 0.25, "n": 1, "planned": 2, "coverage": 0.5, "se": null, "interval": null,
        "bounds": [0.125, 0.625],
    });
    assert_eq!(json["quality"], quality);
    assert_eq!(json["refused_promotions"], json!({"attempts": 2, "slots": 2}));
    let availability = &json["availability"];
    assert_eq!((&availability["faults"], &availability["attempts"]), (&json!(1), &json!(4)));
    assert_eq!(availability["rate"], 0.25);
    let first = &availability["first"];
    assert_eq!(
        (&first["available"], &first["n"], &first["share"]),
        (&json!(1), &json!(2), &json!(0.5))
    );
    near(&first["interval"][0], 0.0945);
    near(&first["interval"][1], 0.9055);
    assert_eq!(json["naive"], json!({"mean": 1.0, "n": 2, "distance": 0.75}));
    assert_eq!(json["mean_by_verdict"], json!({"ok": {"mean": 0.25, "n": 1}}));
    assert_eq!(json["unknown_remote"], json!({"attempts": 1, "repeated_with_writes": 0}));
    assert_eq!(json["total_us"], json!({"p50": 2000, "p95": 4000, "p99": 4000}));
    assert_eq!(json["first_content_us"], json!({"p50": 200, "p95": 400, "p99": 400}));

    let text = report.to_text(80, false);
    println!("{text}");
    let want = "\
run r

First-attempt quality    Availability faults         Refused promotions
0.250                    25.0%                       2
no interval: one score   1 of 4 attempts             in 2 slots
1 of 2 (50.0%)           1 deadline
bounds 0.125 to 0.625    first available: 1 of 2
                         50.0%, 95%: 9.5% to 90.5%

coverage 50.0% of at least 95.0%: FAIL
naive last-success mean (not published): 1.000 of 2 slots, distance +0.750
";
    assert!(text.starts_with(want), "{text}");
    assert_eq!(report.to_string(), text);
    for width in [40, 80, 120] {
        let text = report.to_text(width, false);
        assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
    }
}

#[test]
fn the_naive_mean_is_struck_through_on_a_terminal_only() {
    let report = report(&fold(case_7()));
    assert!(report.to_text(80, true).contains("\x1b[9m1.000\x1b[29m"));
    assert!(!report.to_text(80, false).contains('\x1b'));
}

#[test]
fn a_narrow_page_has_the_numbers_one_below_the_other() {
    let text = report(&fold(case_7())).to_text(40, false);
    assert!(text.contains("First-attempt quality\n  0.250\n"), "{text}");
    assert!(text.contains("Refused promotions\n  1\n  in 1 slot\n"), "{text}");
}

/// Two cases, two samples each: 1 and 1, 0 and 1. Mean 3/4, sums of residuals 1/2 and -1/2,
/// error sqrt(1/2)/4, one degree of freedom.
#[test]
fn samples_of_a_case_are_clustered() {
    let mut events = Vec::new();
    for (n, (case, epoch, score)) in
        (1..).zip([("a", 1, 1.0), ("a", 2, 1.0), ("b", 1, 0.0), ("b", 2, 1.0)])
    {
        let opened = Opened { epoch, ..opened(n, "r", case, 1) };
        events.extend(of(opened, Verdict::Ok, Some(score)));
    }
    let json = json_of(&report(&fold(events)));
    assert_eq!(json["quality"]["mean"], 0.75);
    near(&json["quality"]["se"], 0.176_777);
    near(&json["quality"]["interval"][0], 0.75 - 12.706_205 * 0.176_777);
    assert_eq!(json["quality"]["planned"], 4);
}

#[test]
fn what_is_planned_counts_even_when_nothing_was_sent() {
    let plan = planned("r", &[("case-7", 1), ("case-7", 2), ("case-9", 1), ("case-9", 1)]);
    let folded = fold([plan].into_iter().chain(case_7()));
    let quality = report(&folded).quality;
    assert_eq!((quality.n(), quality.planned()), (1, 3));
    assert_eq!(quality.bounds(), Some([0.25 / 3.0, 2.25 / 3.0]));

    let idle = report(&fold([planned("r", &[])].into_iter().chain([Event::Run(run("r"))])));
    assert_eq!((idle.quality.coverage(), idle.quality.bounds()), (None, None));
    let text = idle.to_text(80, false);
    for sentence in [
        "no attempt is graded yet",
        "no attempt has ended yet",
        "there is no coverage: FAIL",
        "no slot has content",
    ] {
        assert!(text.contains(sentence), "{sentence} in {text}");
    }
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}

#[test]
fn bounds_are_of_the_graders_range() {
    let graders = vec![GraderInfo { name: "g".into(), version: "1".into(), low: -1.0, high: 3.0 }];
    let settings = Event::Run(RunEvent { graders, ..run("r") });
    let folded = fold([settings].into_iter().chain(case_7()).chain(case_8()));
    assert_eq!(report(&folded).quality.bounds(), Some([-0.375, 1.625]));
}

#[test]
fn a_missing_grade_leaves_the_naive_mean_out_and_its_n_in() {
    let mut events = case_7();
    events.extend(attempt(5, "r", "case-9", 1, Verdict::Refused, None));
    let json = json_of(&report(&fold(events)));
    assert_eq!(json["naive"], json!({"mean": null, "n": 2, "distance": null}));
}

#[test]
fn the_floor_is_met_when_it_is_reached() {
    for (coverage_floor, met) in [(0.0, true), (0.5, true), (0.500_001, false)] {
        let folded = fold(case_7().into_iter().chain(case_8()));
        let report = Report::of(&folded, None, &Options { coverage_floor }).expect("a report");
        assert_eq!(report.coverage_floor.met, met, "{coverage_floor}");
        let mark = if met { ": PASS" } else { ": FAIL" };
        assert!(report.to_text(80, false).contains(mark));
    }
}

#[test]
fn the_graders_own_calls_and_other_runs_stay_out() {
    let mut events = vec![Event::Run(run("other")), Event::Run(run("r"))];
    events.extend(case_7());
    events.extend(of(
        Opened { role: Role::Grader, ..opened(10, "r", "case-7", 1) },
        Verdict::Ok,
        None,
    ));
    events.extend(attempt(11, "other", "case-7", 1, Verdict::ServerError, None));
    events.extend(attempt(12, "other", "case-9", 1, Verdict::Ok, Some(1.0)));
    let graders = Opened { role: Role::Grader, ..opened(13, "graders", "case-7", 1) };
    events.extend(of(graders, Verdict::Ok, None));
    let folded = fold(events);
    let newest = report(&folded);
    assert_eq!(newest.run, run_id("r"), "the run whose event is newest");
    let json = json_of(&newest);
    assert_eq!(json["availability"]["attempts"], 2);
    assert_eq!(json["other_runs"], json!([{"run": "other", "cases": 1}]));

    let other = Report::of(&folded, Some(&run_id("other")), &Options::default()).expect("a report");
    assert_eq!((other.availability.faults, other.quality.n()), (1, 1));
    let error =
        Report::of(&folded, Some(&run_id("x")), &Options::default()).expect_err("no such run");
    assert_eq!(error.to_string(), "this ledger has no run x; it has graders, other, r");
    assert_eq!(Report::of(&fold([]), None, &Options::default()), Err(ReportError::NoRun));
}

#[test]
fn what_stands_beside_the_numbers() {
    let writes =
        |n, case, ordinal| Opened { effect: Effect::Writes, ..opened(n, "r", case, ordinal) };
    let unlinked = Opened { run: None, case: None, ordinal: None, ..opened(20, "r", "x", 1) };
    let drifted = Opened {
        fingerprint: Some(attempt_ledger_core::Digest::of(b"other")),
        ..writes(2, "a", 2)
    };
    let settings = RunEvent { durability: Durability::Written, ..run("r") };
    let mut events = vec![Event::Run(settings)];
    events.extend(of(writes(1, "a", 1), Verdict::Deadline, None));
    events.extend(of(drifted, Verdict::Rejected, None));
    events.extend(of(writes(3, "b", 1), Verdict::Abandoned, None));
    events.push(Event::Opened(opened(4, "r", "c", 1)));
    events.extend(of(unlinked, Verdict::Ok, None));
    events.push(Event::Unrecorded(Unrecorded { run: None, count: 2 }));
    events.push(Event::Unrecorded(Unrecorded { run: Some(run_id("r")), count: 3 }));
    events.push(Event::Unrecorded(Unrecorded { run: Some(run_id("q")), count: 7 }));
    let report = report(&fold(events));
    let json = json_of(&report);
    assert_eq!(json["unknown_remote"], json!({"attempts": 3, "repeated_with_writes": 1}));
    for (name, count) in [
        ("drift", 1),
        ("unlinked", 1),
        ("unrecorded", 5),
        ("open", 1),
        ("lost", 0),
        ("abandoned", 1),
        ("rejected", 1),
        ("recovered", 0),
    ] {
        assert_eq!(json[name], count, "{name}");
    }
    assert_eq!(json["availability"]["first"]["n"], 1);
    let warned = |word: &str| report.warnings.iter().filter(|w| w.contains(word)).count();
    for word in [
        "durability `written`",
        "not final",
        "without a case",
        "could not be recorded",
        "another request",
        "was repeated",
        "below the floor",
    ] {
        assert_eq!(warned(word), 1, "{word}: {:?}", report.warnings);
    }
}

#[test]
fn a_call_is_recovered_when_it_ended_in_content_after_a_fault() {
    use Verdict::{Abandoned, Empty, Ok, Rejected, ServerError};
    for (verdicts, want) in [
        (&[Ok][..], 0),
        (&[ServerError, Ok], 1),
        (&[ServerError, ServerError, Ok], 1),
        (&[ServerError, Ok, Abandoned], 1),
        (&[Ok, ServerError], 0),
        (&[Ok, ServerError, Ok], 1),
        (&[Rejected, Ok], 0),
        (&[ServerError, Empty, ServerError], 0),
        (&[ServerError, Abandoned], 0),
    ] {
        let events = (1..).zip(verdicts).flat_map(|(n, &v)| attempt(n, "r", "a", n, v, None));
        assert_eq!(report(&fold(events)).recovered, want, "{verdicts:?}");
    }
}

#[test]
fn json_names_and_their_order() {
    let report = report(&fold([Event::Run(run("r"))].into_iter().chain(case_7())));
    let text = serde_json::to_string(&report).expect("JSON");
    let names =
        |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    let json = json_of(&report);
    let mut all: Vec<String> = Vec::new();
    for name in [
        "run",
        "quality",
        "availability",
        "refused_promotions",
        "naive",
        "mean_by_verdict",
        "recovered",
        "unknown_remote",
        "drift",
        "unlinked",
        "unrecorded",
        "open",
        "lost",
        "abandoned",
        "rejected",
        "first_content_us",
        "total_us",
        "other_runs",
        "warnings",
        "graded",
        "grader",
        "coverage_floor",
        "upstream_retries",
    ] {
        assert!(json.get(name).is_some(), "{name}");
        all.push(name.into());
    }
    assert_eq!(names(&json).len(), all.len());
    let places: Vec<_> = all.iter().map(|name| text.rfind(&format!("\"{name}\":"))).collect();
    assert!(places.is_sorted(), "{text}");
    assert_eq!(json["availability"]["by_verdict"].as_object().map(serde_json::Map::len), Some(19));
}

#[test]
fn a_narrowed_grading_is_named() {
    let settings = RunEvent { graded: vec![Verdict::Ok], ..run("r") };
    let report = report(&fold([Event::Run(settings)].into_iter().chain(case_7())));
    assert!(report.to_text(80, false).contains("graded: ok only"));
    assert_eq!(report.mean_by_verdict[&Verdict::Ok], MeanOf { mean: 0.25, n: 1 });
    assert!(report.warnings.iter().all(|w| !w.contains("durability")), "{:?}", report.warnings);
}

/// The warnings of a run whose scores are these: case, epoch and score.
fn doubts(range: [f64; 2], scores: &[(&str, u32, f64)]) -> Vec<String> {
    let [low, high] = range;
    let graders = vec![GraderInfo { name: "g".into(), version: "1".into(), low, high }];
    let mut events = vec![Event::Run(RunEvent { graders, ..run("r") })];
    for (n, &(case, epoch, score)) in (1..).zip(scores) {
        events.extend(of(Opened { epoch, ..opened(n, "r", case, 1) }, Verdict::Ok, Some(score)));
    }
    let report = report(&fold(events));
    let text = report.to_text(400, false);
    assert!(report.warnings.iter().all(|w| text.contains(&format!("warning: {w}"))), "{text}");
    assert_eq!(json_of(&report)["warnings"], json!(report.warnings));
    report.warnings
}

#[test]
fn an_interval_that_says_less_than_it_seems_to_is_told() {
    let equal = "scores are equal: the interval has no width and says nothing of how sure this is";
    let means = "the means of all 2 cases are equal: the interval has no width and says nothing of how sure this is";
    let beyond = "the interval goes beyond the grader's range";
    let unit = [0.0, 1.0];
    type Given<'a> = ([f64; 2], &'a [(&'a str, u32, f64)], Vec<String>);
    let table: [Given<'_>; 9] = [
        (unit, &[("a", 1, 1.0), ("b", 1, 1.0), ("c", 1, 1.0)], vec![format!("all 3 {equal}")]),
        (unit, &[("a", 1, 0.0), ("b", 1, 0.0)], vec![format!("all 2 {equal}")]),
        // A mean that cannot be written exactly is no width, and not beyond the range.
        (
            [0.0, 0.1],
            &[("a", 1, 0.1), ("b", 1, 0.1), ("c", 1, 0.1)],
            vec![format!("all 3 {equal}")],
        ),
        // t is 12.7 for two scores: 0.5 +- 6.35.
        (
            unit,
            &[("a", 1, 0.0), ("b", 1, 1.0)],
            vec![format!("{beyond} (0 to 1): n = 2 is small for it")],
        ),
        ([-10.0, 10.0], &[("a", 1, 0.0), ("b", 1, 1.0)], vec![]),
        // Clustered: each case has the mean 1/2, though no two scores of it are equal.
        (unit, &[("a", 1, 0.0), ("a", 2, 1.0), ("b", 1, 0.4), ("b", 2, 0.6)], vec![means.into()]),
        (
            unit,
            &[("a", 1, 1.0), ("a", 2, 1.0), ("b", 1, 0.0), ("b", 2, 1.0)],
            vec![format!("{beyond} (0 to 1): 2 cases are few for it")],
        ),
        // No interval, nothing to doubt.
        (unit, &[("a", 1, 1.0)], vec![]),
        (unit, &[("a", 1, 1.0), ("a", 2, 1.0)], vec![]),
    ];
    for (range, scores, want) in table {
        assert_eq!(doubts(range, scores), want, "{scores:?}");
    }
}

#[test]
fn what_ended_outside_the_rate_is_said_and_not_taken_for_nothing() {
    use Verdict::{Abandoned, Empty, Ok, Rejected, ServerError};
    let text = |verdicts: &[Verdict]| {
        let events = (1..).zip(verdicts).flat_map(|(n, &v)| attempt(n, "r", "a", n, v, None));
        report(&fold([Event::Run(run("r"))].into_iter().chain(events))).to_text(80, false)
    };
    let rejected = text(&[Rejected; 3]);
    for said in [
        "no attempt counts here",
        "3 ended outside this rate: rejected 3",
        "time to first content: not measured: no attempt counts here",
        "time to the end: not measured: no attempt counts here",
    ] {
        assert!(rejected.contains(said), "{said} in {rejected}");
    }
    assert!(!rejected.contains("has ended yet"), "{rejected}");
    let both = text(&[Rejected, Abandoned]);
    assert!(both.contains("2 ended outside this rate: rejected 1, abandoned 1"), "{both}");
    assert!(!text(&[Rejected, Ok]).contains("no attempt counts here"));
    let nothing = text(&[]);
    assert!(nothing.contains("no attempt has ended yet"), "{nothing}");
    assert!(nothing.contains("time to the end: none yet"), "{nothing}");

    // Documents have no first content of their own; of streams `events` is known.
    let times = |verdict, events: Option<u64>, first_content_us| {
        let attempt = attempt(1, "r", "a", 1, verdict, None).into_iter().map(|event| match event {
            Event::Closed(closed) => {
                Event::Closed(attempt_ledger_core::Closed { events, first_content_us, ..closed })
            }
            event => event,
        });
        report(&fold([Event::Run(run("r"))].into_iter().chain(attempt))).to_text(80, false)
    };
    let said = "time to first content: not measured: the answers came as documents";
    assert!(times(Ok, None, None).contains(said));
    let said = "time to first content: not measured: no answer had content";
    assert!(times(Empty, Some(2), None).contains(said));
    assert!(times(ServerError, None, None).contains(said));
    assert!(times(Ok, Some(2), Some(5)).contains("time to first content: p50 5 us"));
}

#[test]
fn a_run_without_a_grader_does_not_wait_for_grades() {
    let settings = Event::Run(RunEvent { graders: vec![], ..run("r") });
    let ended = attempt(1, "r", "a", 1, Verdict::Ok, None);
    let text = report(&fold([settings].into_iter().chain(ended))).to_text(80, false);
    assert!(text.contains("not graded: no grader is set") && !text.contains("yet"), "{text}");
}

/// No server makes the list grow without end.
#[test]
fn the_list_of_unknown_stop_words_is_bounded_and_says_so() {
    let mut events = Vec::new();
    for n in 1..=20 {
        let mut ended = attempt(n, "r", &format!("case-{n}"), 1, Verdict::Ok, None);
        if let Some(Event::Closed(closed)) = ended.get_mut(1) {
            closed.finish_reason = Some(Label::new(&format!("word-{:02}", n.max(2))));
            closed.detail.unknown_stop = true;
        }
        events.extend(ended);
    }
    let report = report(&fold(events));
    let words: Vec<_> =
        report.unknown_stop_words.iter().map(|w| (w.word.as_str(), w.attempts)).collect();
    assert_eq!(words.len(), 16);
    assert_eq!((words[0], words[1], words[15]), (("word-02", 2), ("word-03", 1), ("word-17", 1)));
    let text = report.to_text(80, false);
    assert!(text.contains("unknown stop words: word-02 2 (plain), word-03 1 (plain),"), "{text}");
    assert!(text.contains("and 3 more\n"), "{text}");
}
