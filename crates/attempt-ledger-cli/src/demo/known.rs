//! case-7 and case-8, whose published numbers are known.

use std::time::Duration;

use attempt_ledger_core::{AttemptRow, Folded, RunId, SlotView};
use attempt_ledger_mock::{CaseKey, Script, Step};
use attempt_ledger_report::Report;
use serde_json::{Value, json};

use super::{Checks, MODEL, Stage, WORDS, call, folded, request, stack};
use crate::{
    failure::Failure,
    log,
    out::{Cell, Out, Style},
    report,
};

/// case-7's first answer is poor, case-8's first attempt stalls.
pub(super) const CASES: [&str; 2] = ["case-7", "case-8"];

/// A quarter of the words.
const POOR: &str = "alpha";

/// The stall of case-8 is one of three, by the seed.
pub(super) fn script(seed: u64) -> [(CaseKey, Script); 2] {
    let stalls = [
        Step::StallMidBody,
        Step::StallBeforeHead,
        Step::TrickleKeepAlives { every: Duration::from_millis(100) },
    ];
    let pick = usize::try_from(seed % 3).unwrap_or_default();
    let stall = stalls.into_iter().nth(pick).unwrap_or(Step::StallMidBody);
    let [seven, eight] = CASES;
    [
        (seven.into(), Script::new([Step::Good.text(POOR), Step::Good.text(WORDS)])),
        (eight.into(), Script::new([stall.text(WORDS), Step::Good.text(WORDS)])),
    ]
}

pub(super) async fn play(
    stage: &Stage,
    run: &RunId,
    checks: &mut Checks,
    out: &mut Out,
) -> Result<(), Failure> {
    let mut cases = CASES;
    fastrand::Rng::with_seed(stage.seed).shuffle(&mut cases);
    for case in cases {
        // A call that ends in a fault has its row all the same.
        let _ = call(stage.client.clone(), request(stage, run, case, MODEL)?).await;
    }
    let known = folded(stage).await?;
    out.heading("Every attempt is a row, and its ordinal is never used again")?;
    let rows: Vec<_> = known.rows.iter().filter(|row| row.run.as_ref() == Some(run)).collect();
    log::table(&rows, out)?;
    writeln!(out)?;
    out.heading("What is published, beside what a scorecard of survivors claims")?;
    beside(&known, run, out)?;
    writeln!(out)?;
    out.heading("The three numbers, never combined")?;
    let numbers = report::of(&known, Some(run))?;
    out.report(&numbers)?;
    check_rows(&known, run, checks);
    check_numbers(&numbers, checks)?;
    check_server(stage, checks);
    writeln!(out)?;
    again(stage, run, checks, out).await
}

fn beside(known: &Folded, run: &RunId, out: &mut Out) -> Result<(), Failure> {
    let rows: Vec<Vec<Cell>> = slots(known, run)
        .into_iter()
        .map(|view| {
            let newest = known
                .attempts(view)
                .filter(|row| row.verdict.is_some_and(attempt_ledger_core::Verdict::is_content));
            let first = known.attempts(view).next();
            vec![
                Cell::new(&view.slot),
                Cell::maybe(first.and_then(|row| row.verdict))
                    .style(Style::of(first.and_then(|row| row.verdict))),
                Cell::new(view.state.score().map_or("none".to_owned(), |s| format!("{s}")))
                    .style(Style::Bold),
                Cell::maybe(
                    newest.last().and_then(AttemptRow::any_grade).map(|g| format!("{g:?}")),
                )
                .style(Style::Dim),
            ]
        })
        .collect();
    out.table(&["case", "first attempt", "frozen", "naive"], &rows, 0)
}

/// The slots of the run, by case.
fn slots<'a>(known: &'a Folded, run: &RunId) -> Vec<&'a SlotView> {
    let mut slots: Vec<_> = known.slots.iter().filter(|view| view.slot.run == *run).collect();
    slots.sort_by(|a, b| a.slot.cmp(&b.slot));
    slots
}

fn check_rows(known: &Folded, run: &RunId, checks: &mut Checks) {
    let rows = slots(known, run).into_iter().flat_map(|view| known.attempts(view));
    let found: Value = rows
        .map(|row| json!([row.case, row.ordinal, row.verdict, row.score, row.diagnostic]))
        .collect();
    let due = json!([
        ["case-7", 1, "ok", 0.25, null],
        ["case-7", 2, "ok", null, 1.0],
        ["case-8", 1, "deadline", null, null],
        ["case-8", 2, "ok", null, 1.0],
    ]);
    checks.same("the attempts of the two cases", found, due);
}

/// Numbers to four digits, as they are known.
fn rounded(value: &Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) => json!((float * 10_000.0).round() / 10_000.0),
            None => value.clone(),
        },
        Value::Array(all) => all.iter().map(rounded).collect(),
        other => other.clone(),
    }
}

fn check_numbers(numbers: &Report, checks: &mut Checks) -> Result<(), Failure> {
    let found = serde_json::to_value(numbers)
        .map_err(|error| Failure::ledger("the report has no JSON form").because(error))?;
    for (pointer, due) in [
        ("/quality/mean", json!(0.25)),
        ("/quality/n", json!(1.0)),
        ("/quality/planned", json!(2.0)),
        ("/quality/coverage", json!(0.5)),
        ("/quality/interval", Value::Null),
        ("/quality/bounds", json!([0.125, 0.625])),
        ("/availability/faults", json!(1.0)),
        ("/availability/attempts", json!(4.0)),
        ("/availability/rate", json!(0.25)),
        ("/availability/first/available", json!(1.0)),
        ("/availability/first/n", json!(2.0)),
        ("/availability/first/interval", json!([0.0945, 0.9055])),
        ("/refused_promotions/attempts", json!(2.0)),
        ("/refused_promotions/slots", json!(2.0)),
        ("/naive/mean", json!(1.0)),
        ("/naive/n", json!(2.0)),
        ("/naive/distance", json!(0.75)),
    ] {
        let found = found.pointer(pointer).map(rounded);
        checks.same(format_args!("the number {pointer}"), found, Some(due));
    }
    Ok(())
}

fn check_server(stage: &Stage, checks: &mut Checks) {
    for case in CASES {
        checks.same(format_args!("requests of {case} at the server"), received(stage, case), 2);
    }
}

/// The requests of a case that the server read.
pub(super) fn received(stage: &Stage, case: &str) -> usize {
    stage.server.received().iter().filter(|r| r.case.as_deref() == Some(case)).count()
}

/// case-7 once more, with skipping: the same request, and one to another model.
async fn again(
    stage: &Stage,
    run: &RunId,
    checks: &mut Checks,
    out: &mut Out,
) -> Result<(), Failure> {
    let [case, _] = CASES;
    let skipping = stack(&stage.ledger, true)?;
    let before = stage.server.requests();
    let same = call(skipping.clone(), request(stage, run, case, MODEL)?).await;
    let sent = stage.server.requests().saturating_sub(before);
    let skipped = same.as_ref().is_err_and(attempt_ledger::Error::is_finished);
    out.heading("case-7 again")?;
    let how = if skipped { "skipped, it is finished" } else { "sent" };
    writeln!(out, "the same request: {how}; requests at the server: {sent}")?;
    checks.same("the same request again is skipped", skipped, true);
    checks.same("requests at the server for it", sent, 0);

    let before = stage.server.requests();
    let other = call(skipping, request(stage, run, case, "another-model")?).await;
    let sent = stage.server.requests().saturating_sub(before);
    let finished = other.as_ref().is_err_and(attempt_ledger::Error::is_finished);
    let how = if finished { "skipped" } else { "a miss, so it was sent" };
    writeln!(out, "another model: {how}; requests at the server: {sent}")?;
    writeln!(out, "(the numbers above were taken before it)")?;
    writeln!(out)?;
    out.flush()?;
    checks.same("another model is a miss", finished, false);
    checks.same("requests at the server for another model", sent, 1);
    let after = folded(stage).await?;
    let frozen = slots(&after, run).first().and_then(|view| view.state.score());
    checks.same("what case-7 is frozen at, after all", frozen, Some(0.25));
    Ok(())
}
