//! `log`: attempts and events.

use attempt_ledger_core::{AttemptRow, Escaped, Verdict};

use crate::{
    args,
    failure::{Exit, Failure},
    ledger, lookup,
    out::{Cell, Out, Style},
    report::json,
};

pub(crate) fn log(args: &args::Log, out: &mut Out) -> Result<Exit, Failure> {
    if args.events {
        let mut reader = ledger::reader(&args.dir)?;
        let live = reader.live_session().map_err(Failure::of_reading)?.is_some();
        while let Some(line) = reader.next_line() {
            writeln!(out, "{}", String::from_utf8_lossy(line?))?;
        }
        ledger::tell(&ledger::gaps(&reader, live));
        return Ok(Exit::Fine);
    }
    let folded = ledger::read(&args.dir)?.told();
    if let Some(run) = &args.run {
        lookup::known_run(&folded, run)?;
    }
    if let Some(case) = &args.case {
        lookup::known_case(&folded, args.run.as_ref(), case)?;
    }
    let wanted = |row: &&AttemptRow| {
        args.run.as_ref().is_none_or(|run| row.run.as_ref() == Some(run))
            && args.case.as_ref().is_none_or(|case| row.case.as_ref() == Some(case))
    };
    let rows: Vec<&AttemptRow> = folded.rows.iter().filter(wanted).collect();
    if args.json {
        for row in rows {
            writeln!(out, "{}", json(row)?)?;
        }
        return Ok(Exit::Fine);
    }
    if rows.is_empty() {
        writeln!(out, "no attempt of this sort is in the ledger")?;
        return Ok(Exit::Fine);
    }
    table(&rows, out)?;
    Ok(Exit::Fine)
}

/// The attempts as a table, with the remarks beneath.
pub(crate) fn table(rows: &[&AttemptRow], out: &mut Out) -> Result<(), Failure> {
    const HEAD: [&str; 10] =
        ["seq", "run", "case", "ordinal", "cause", "verdict", "detail", "remote", "grade", "took"];
    let cells: Vec<Vec<Cell>> = rows.iter().map(|row| cells(row)).collect();
    out.table(&HEAD, &cells, 2)?;
    for row in rows.iter().filter(|row| !row.notes.is_empty()) {
        for note in &row.notes {
            writeln!(out, "note on {}: {}", row.attempt, Escaped(note))?;
        }
    }
    Ok(())
}

fn cells(row: &AttemptRow) -> Vec<Cell> {
    let grade = match (row.score, row.diagnostic) {
        (Some(score), _) => Cell::new(format_args!("{score} frozen")).style(Style::Bold),
        (None, Some(diagnostic)) => Cell::new(format_args!("({diagnostic})")).style(Style::Dim),
        (None, None) => Cell::maybe(None::<&str>),
    };
    vec![
        Cell::new(row.seq),
        Cell::maybe(row.run.as_ref()),
        Cell::maybe(row.slot()),
        Cell::maybe(row.ordinal),
        Cell::new(row.cause.as_str()),
        Cell::new(row.verdict.map_or("open", |v| v.as_str())).style(Style::of(row.verdict)),
        Cell::maybe(detail(row)),
        Cell::maybe(row.remote),
        grade,
        Cell::maybe(row.end_us.map(took)),
    ]
}

/// The most telling particulars: the clock, what failed in transport, the provider's code, the check
/// that failed, what a background run is fetched by, or the status and stop word.
fn detail(row: &AttemptRow) -> Option<String> {
    let detail = &row.detail;
    let mut words = Vec::new();
    words.extend(row.status.filter(|s| !(200..300).contains(s)).map(|s| s.to_string()));
    words.extend(detail.clock.map(|clock| clock.to_string()));
    words.extend(detail.kind.map(|kind| kind.to_string()));
    words.extend(detail.by.map(|by| by.to_string()));
    words.extend(detail.code.as_ref().map(ToString::to_string));
    words.extend(detail.check.as_ref().map(|check| format!("check {check}")));
    let awaited = row.response_id.as_ref().filter(|_| row.verdict == Some(Verdict::Pending));
    words.extend(awaited.map(ToString::to_string));
    words.extend(row.finish_reason.as_ref().map(ToString::to_string));
    (!words.is_empty()).then(|| words.join(" "))
}

fn took(us: u64) -> String {
    match us {
        0..10_000 => format!("{}.{} ms", us / 1_000, us % 1_000 / 100),
        10_000..10_000_000 => format!("{} ms", us / 1_000),
        _ => format!("{} s", us / 1_000_000),
    }
}
