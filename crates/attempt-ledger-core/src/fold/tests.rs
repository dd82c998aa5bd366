use proptest::prelude::*;

use super::*;
use crate::{
    CallId, CaseId, Cause, Decision, Detail, Digest, Durability, Effect, GateKind, Gates,
    GraderAttempts, Label, Limits, Note, Planned, PlannedSlot, RefusedWhy, RetrySettings, Segment,
    Unrecorded,
};

fn id(n: u32) -> AttemptId {
    AttemptId::from_u128(n.into())
}

fn opened(n: u32, case: &str, ordinal: u32) -> Opened {
    Opened {
        attempt: id(n),
        run: RunId::new("r").ok(),
        case: CaseId::new(case).ok(),
        epoch: 1,
        step: 1,
        role: Role::Subject,
        ordinal: Ordinal::new(ordinal),
        cause: Cause::Initial,
        call: Some(CallId::from_u128(7)),
        fixture: None,
        fingerprint: Some(Digest::of(b"request")),
        model: Some("m".into()),
        wire: Label::new("openai-chat"),
        effect: Effect::ReadOnly,
        host: None,
        carrier: Label::new("extension"),
        limits: Limits { total_us: Some(1_000_000), ..Limits::default() },
        session: SessionId::from_u128(u128::from(n % 2)),
    }
}

fn closed(n: u32, verdict: Verdict) -> Closed {
    let remote = if verdict.is_content() { Remote::Answered } else { Remote::Unknown };
    let bare = Closed::bare(id(n), Decision { verdict, remote, detail: Detail::default() });
    Closed { answer_sha256: verdict.is_content().then(|| answer(n)), end_us: 5, ..bare }
}

fn answer(n: u32) -> Digest {
    Digest::of(&n.to_le_bytes())
}

fn grade(n: u32, score: f64) -> Grade {
    Grade {
        attempt: id(n),
        score,
        grader: "g".into(),
        grader_version: "1".into(),
        answer_sha256: answer(n),
        grader_attempts: GraderAttempts::None,
    }
}

fn records(events: impl IntoIterator<Item = Event>) -> Vec<Record> {
    let time = |seq| Timestamp::from_micros(i64::try_from(seq).unwrap_or(0) * 1000);
    (0..).zip(events).map(|(seq, event)| Record { seq, time: time(seq), event }).collect()
}

fn fold(records: &[Record]) -> Result<Folded, FoldError> {
    let mut fold = Fold::new();
    records.iter().try_for_each(|record| fold.push(record))?;
    Ok(fold.finish(Timestamp::default(), &Liveness::All))
}

/// The fault of the last of these events, which must leave the fold as it was.
fn fault(events: impl IntoIterator<Item = Event>) -> FoldFault {
    let mut records = records(events);
    let last = records.pop().expect("an event");
    let mut fold = Fold::new();
    records.iter().for_each(|record| fold.push(record).expect("a ledger up to here"));
    let finish = |fold: &Fold| fold.clone().finish(Timestamp::default(), &Liveness::All);
    let before = finish(&fold);
    let error = fold.push(&last).expect_err("a broken rule");
    assert_eq!(error.seq, last.seq);
    assert_eq!(finish(&fold), before);
    error.fault
}

use Event::{Closed as C, Diagnostic as D, Opened as O, Scored as S};

#[test]
fn what_breaks_a_rule_is_noticed_and_changes_nothing() {
    let two = || [O(opened(1, "a", 1)), O(opened(2, "a", 2))];
    let ok = || {
        let [one, two] = two();
        [one, two, C(closed(1, Verdict::Ok)), C(closed(2, Verdict::Ok))]
    };
    let after = |events: Vec<Event>, event: Event| fault(events.into_iter().chain([event]));
    let slot = Slot::new(RunId::new("r").expect("id"), CaseId::new("a").expect("id"));

    assert_eq!(after(two().into(), O(opened(1, "b", 1))), FoldFault::OpenedTwice);
    let taken = FoldFault::OrdinalTwice { slot: slot.clone(), ordinal: Ordinal::FIRST };
    assert_eq!(after(two().into(), O(opened(3, "a", 1))), taken);
    let half = Opened { ordinal: None, ..opened(3, "a", 3) };
    assert_eq!(after(two().into(), O(half)), FoldFault::HalfLinked);
    let with =
        |n, fixture: &[u8]| Opened { fixture: Some(Digest::of(fixture)), ..opened(n, "a", n) };
    assert_eq!(
        fault([O(opened(1, "a", 1)), O(with(2, b"x")), O(with(3, b"y"))]),
        FoldFault::FixtureChanged { slot }
    );
    for (event, kind) in [
        (C(closed(9, Verdict::Ok)), "closed"),
        (S(grade(9, 1.0)), "scored"),
        (D(grade(9, 1.0)), "diagnostic"),
        (Event::Note(Note { attempt: id(9), text: "?".into() }), "note"),
    ] {
        assert_eq!(after(two().into(), event), FoldFault::UnknownAttempt { kind });
    }
    assert_eq!(after(ok().into(), C(closed(1, Verdict::Deadline))), FoldFault::ClosedTwice);
    assert_eq!(after(two().into(), S(grade(1, 1.0))), FoldFault::GradedOpen);
    assert_eq!(after(ok().into(), S(grade(2, 1.0))), FoldFault::Promotion);
    assert_eq!(after(ok().into(), D(grade(1, 1.0))), FoldFault::DiagnosticOfFirst);
    assert_eq!(after(ok().into(), S(grade(1, f64::NAN))), FoldFault::GradeNotFinite);
    let other = Grade { answer_sha256: answer(2), ..grade(1, 1.0) };
    assert_eq!(after(ok().into(), S(other)), FoldFault::GradedOtherAnswer);
    let scored = ok().into_iter().chain([S(grade(1, 0.0))]);
    assert_eq!(after(scored.collect(), S(grade(1, 1.0))), FoldFault::ScoredTwice);
    let fault_first = vec![O(opened(1, "a", 1)), C(closed(1, Verdict::Deadline))];
    let why = FoldFault::GradedNoContent { verdict: Verdict::Deadline };
    assert_eq!(after(fault_first, S(grade(1, 1.0))), why);
    let grader = Opened { role: Role::Grader, ..opened(1, "a", 1) };
    let unlinked = Opened { run: None, case: None, ordinal: None, ..opened(1, "a", 1) };
    for (opened, why) in [(grader, FoldFault::GradedGrader), (unlinked, FoldFault::GradedUnlinked)]
    {
        for grade in [S(grade(1, 1.0)), D(grade(1, 1.0))] {
            let events = vec![O(opened.clone()), C(closed(1, Verdict::Ok))];
            assert_eq!(after(events, grade), why);
        }
    }
}

#[test]
fn of_several_diagnostics_the_first_stands() {
    let events =
        [O(opened(2, "a", 2)), C(closed(2, Verdict::Ok)), D(grade(2, 0.25)), D(grade(2, 1.0))];
    let folded = fold(&records(events)).expect("a ledger");
    assert_eq!((folded.rows[0].diagnostic, folded.rows[0].score), (Some(0.25), None));
}

/// The score is ordinal one's grade or nothing, though a later attempt was graded before it.
#[test]
fn a_slot_publishes_its_first_attempt_or_nothing() {
    let folded = fold(&records([
        O(opened(2, "a", 2)),
        O(opened(1, "a", 1)),
        C(closed(2, Verdict::Ok)),
        D(grade(2, 1.0)),
        C(closed(1, Verdict::Empty)),
        S(grade(1, 0.25)),
        O(opened(3, "b", 1)),
        C(closed(3, Verdict::Deadline)),
        O(opened(4, "b", 2)),
        C(closed(4, Verdict::Ok)),
        D(grade(4, 1.0)),
        O(opened(5, "c", 1)),
        O(opened(6, "d", 2)),
    ]))
    .expect("a ledger");
    let states: Vec<_> = folded.slots.iter().map(|s| (s.slot.case.as_str(), s.state)).collect();
    assert_eq!(
        states,
        [
            ("a", SlotState::Frozen(0.25)),
            ("b", SlotState::Ended(Verdict::Deadline)),
            ("c", SlotState::Open),
            ("d", SlotState::Missing),
        ]
    );
    let scores: Vec<_> = folded.slots.iter().map(|s| s.state.score()).collect();
    assert_eq!(scores, [Some(0.25), None, None, None]);
    let ordinals = |slot: &SlotView| folded.attempts(slot).map(|r| r.ordinal).collect::<Vec<_>>();
    assert_eq!(ordinals(&folded.slots[0]), [Ordinal::new(1), Ordinal::new(2)]);
    let frozen: Vec<_> = folded.rows.iter().map(|r| (r.frozen, r.score, r.diagnostic)).collect();
    assert_eq!(frozen[..2], [(false, None, Some(1.0)), (true, Some(0.25), None)]);
}

#[test]
fn what_was_never_closed_is_open_while_its_writer_lives() {
    let at = Timestamp::from_micros;
    let mut fold = Fold::new();
    let unbounded = Opened { limits: Limits::default(), ..opened(3, "c", 1) };
    let shorter =
        Limits { total_us: Some(1_000_000), budget_us: Some(500_000), ..Limits::default() };
    let budget = Opened { limits: shorter, ..opened(4, "d", 1) };
    let events = [O(opened(1, "a", 1)), O(opened(2, "b", 1)), O(unbounded), O(budget)];
    for record in records(events) {
        fold.push(&Record { time: at(0), ..record }).expect("a ledger");
    }
    let lost = |now, liveness: &Liveness| {
        let rows = fold.clone().finish(at(now), liveness).rows;
        for row in &rows {
            let want = row.verdict.map(|_| Remote::Unknown);
            assert_eq!(row.remote, want, "a lost attempt may have run");
        }
        rows.iter().map(|row| row.verdict == Some(Verdict::Lost)).collect::<Vec<_>>()
    };
    assert_eq!(lost(i64::MAX, &Liveness::All), [false; 4]);
    let odd = Liveness::Sessions([SessionId::from_u128(1)].into());
    assert_eq!(lost(0, &odd), [false, true, false, true]);
    assert_eq!(lost(60_500_000, &Liveness::Deadline), [false; 4]);
    assert_eq!(lost(61_000_000, &Liveness::Deadline), [false, false, false, true]);
    assert_eq!(lost(61_000_001, &Liveness::Deadline), [true, true, false, true]);

    // A close that comes late all the same is what counts.
    let late = Record { seq: 9, time: at(i64::MAX), event: C(closed(1, Verdict::Ok)) };
    fold.push(&late).expect("a late close");
    let rows = fold.finish(at(i64::MAX), &Liveness::Deadline).rows;
    assert_eq!((rows[0].verdict, rows[0].remote), (Some(Verdict::Ok), Some(Remote::Answered)));
}

#[test]
fn a_row_prints_these_names_in_this_order() {
    let folded = fold(&records([O(opened(1, "a", 1))])).expect("a ledger");
    let json = serde_json::to_string(&folded.rows[0]).expect("JSON");
    let fingerprint = Digest::of(b"request").short();
    let want = format!(
        "{{\"seq\":0,\"diagnostic\":null,\"fingerprint\":\"{fingerprint}\",\"model\":\"m\",\
         \"effect\":\"read_only\",\"attempt\":\"{:032x}\",\"run\":\"r\",\"case\":\"a\",\"epoch\":1,\
         \"step\":1,\"role\":\"subject\",\"ordinal\":1,\"cause\":\"initial\",\"call\":\"{:032x}\",\
         \"verdict\":null,\"detail\":{{}},\"remote\":null,\"status\":null,\"finish_reason\":null,\
         \"score\":null,\"frozen\":false,\"content_sha256\":null,\"answer_sha256\":null,\
         \"content_chars\":null,\"tool_calls\":null,\"usage\":{{\"input\":null,\"output\":null}},\
         \"retry_after_ms\":null,\"events\":null,\"bytes\":null,\"head_us\":null,\
         \"first_content_us\":null,\"end_us\":null,\"notes\":[],\"other_grades\":[],\
         \"wire\":\"openai-chat\",\"reasoning_chars\":null,\"response_id\":null,\
         \"request_id\":null,\"upstream_retries\":null}}",
        1, 7
    );
    assert_eq!(json, want);
}

#[test]
fn the_rest_of_a_ledger_is_kept_beside_the_rows() {
    let run = RunId::new("r").expect("id");
    let planned = |epoch| {
        Event::Planned(Planned {
            run: run.clone(),
            slots: vec![PlannedSlot { case: CaseId::new("a").expect("id"), epoch, step: 1 }],
        })
    };
    let unlinked = Opened { run: None, case: None, ordinal: None, ..opened(1, "a", 1) };
    let why = RefusedWhy::LaterOrdinal;
    let refused = GradeRefused { attempt: id(9), why, score: Some(1.0), grader: "g".into() };
    let folded = fold(&records([
        Event::Segment(Segment {
            version: 1,
            ledger: "l".into(),
            previous: None,
            previous_len: 0,
            ignored_len: 0,
            ignored_sha256: None,
            previous_hash: Digest::of(b""),
            key_check: None,
        }),
        planned(1),
        planned(2),
        planned(1),
        O(unlinked),
        Event::Note(Note { attempt: id(1), text: "first".into() }),
        Event::Note(Note { attempt: id(1), text: "second".into() }),
        Event::Unrecorded(Unrecorded { run: Some(run.clone()), count: 2 }),
        Event::Unrecorded(Unrecorded { run: Some(run.clone()), count: 3 }),
        Event::Unrecorded(Unrecorded { run: None, count: u64::MAX }),
        Event::Unrecorded(Unrecorded { run: None, count: 1 }),
        Event::GradeRefused(refused.clone()),
    ]))
    .expect("a ledger");
    assert_eq!(folded.planned.len(), 2, "a slot that was planned twice is one slot");
    assert_eq!((folded.slots.len(), folded.rows.len()), (0, 1));
    assert_eq!(folded.rows[0].slot(), None);
    assert_eq!(folded.rows[0].notes, ["first", "second"]);
    assert_eq!(folded.unrecorded, [(Some(run), 5), (None, u64::MAX)].into());
    assert_eq!(folded.refused, [refused]);
}

fn settings(run: &str, tool_version: &str) -> Event {
    Event::Run(RunEvent {
        run: RunId::new(run).expect("id"),
        tool_version: tool_version.into(),
        durability: Durability::Synced,
        limits: Limits::default(),
        gates: Gates { plain: GateKind::Whole, stream: GateKind::Head },
        graded: vec![Verdict::Ok],
        retry: RetrySettings {
            attempts: 3,
            budget_us: 1,
            retry_on: Vec::new(),
            grade_below: None,
            policy: None,
            effect: None,
        },
        graders: Vec::new(),
        checks: Vec::new(),
        target: None,
    })
}

/// A run that is gone on with states its settings again.
#[test]
fn the_newest_settings_of_a_run_hold() {
    let events = [settings("a", "1"), settings("b", "2"), settings("a", "3")];
    let folded = fold(&records(events)).expect("a ledger");
    let version = |seen: Option<&RunSeen>| seen.map(|seen| seen.event.tool_version.clone());
    assert_eq!(version(folded.newest_run()), Some("3".into()));
    let of = |run| version(folded.run(&RunId::new(run).expect("id")));
    assert_eq!([of("a"), of("b"), of("c")], [Some("3".into()), Some("2".into()), None]);
    let other = fold(&records([settings("a", "1"), settings("b", "2")])).expect("a ledger");
    assert_eq!(version(other.newest_run()), Some("2".into()));
}

/// What was sent is known at the close where the body was streamed.
#[test]
fn a_streamed_bodys_fingerprint_comes_with_the_close() {
    let sent = Some(Digest::of(b"sent"));
    let opened = Opened { fingerprint: None, ..opened(1, "a", 1) };
    let ended = Closed { fingerprint: sent, ..closed(1, Verdict::Ok) };
    let folded = fold(&records([O(opened), C(ended)])).expect("a ledger");
    assert_eq!(folded.rows[0].fingerprint, sent);
}

/// Attempts with their events, in order within each attempt.
fn attempts() -> impl Strategy<Value = Vec<Vec<Event>>> {
    let verdict = prop::sample::select(Verdict::ALL);
    let one = (0..4_u32, verdict, any::<bool>(), any::<bool>(), 0..8_u32);
    prop::collection::vec(one, 0..12).prop_map(|attempts| {
        let mut next = [1; 4];
        let mut lives = Vec::new();
        for (n, (case, verdict, is_closed, is_graded, tenths)) in (0..).zip(attempts) {
            let ordinal = next[case as usize];
            next[case as usize] += 1;
            let mut life = vec![O(opened(n, &format!("case-{case}"), ordinal))];
            if is_closed {
                life.push(C(closed(n, verdict)));
                if is_graded && verdict.is_content() {
                    let grade = grade(n, f64::from(tenths) / 10.0);
                    life.push(if ordinal == 1 { S(grade) } else { D(grade) });
                }
                life.push(Event::Note(Note { attempt: id(n), text: "n".into() }));
            }
            lives.push(life);
        }
        lives
    })
}

/// The lives' records, the next always taken from the life that `picks` names.
fn interleave(lives: &[Vec<Record>], picks: &[usize]) -> Vec<Record> {
    let mut rest: Vec<_> = lives.iter().map(|life| life.iter()).collect();
    let mut out = Vec::new();
    for turn in picks.iter().copied().chain(0..) {
        rest.retain(|life| life.len() > 0);
        let Some(len) = std::num::NonZero::new(rest.len()) else { break };
        out.extend(rest[turn % len].next().cloned());
    }
    out
}

proptest! {
    #[test]
    fn any_interleaving_gives_the_same_rows(lives in attempts(), picks: Vec<usize>) {
        let mut seq = 0;
        let numbered: Vec<Vec<Record>> = lives.into_iter().map(|life| {
            life.into_iter().map(|event| {
                seq += 1;
                Record { seq, time: Timestamp::default(), event }
            }).collect()
        }).collect();
        let straight = fold(&numbered.concat()).expect("a ledger");
        let mixed = fold(&interleave(&numbered, &picks)).expect("a ledger");
        prop_assert_eq!(straight, mixed);
    }

    /// Whatever events come, in whatever order, against the rule said in another way.
    #[test]
    fn nothing_but_the_first_grade_of_ordinal_one_is_published(
        events in prop::collection::vec((0..4_u32, 0..4_u8, prop::sample::select(Verdict::ALL), 0..9_u32), 0..40)
    ) {
        let mut fold = Fold::new();
        // Attempts 0 and 1 are the first and second of one slot, 2 and 3 of another.
        let (mut open, mut ended, mut score) = ([false; 4], [None; 4], [None; 4]);
        for (seq, (n, what, verdict, tenths)) in (0..).zip(events) {
            let i = n as usize;
            let points = f64::from(tenths);
            let event = match what {
                0 => { open[i] = true; O(opened(n, &format!("case-{}", n / 2), n % 2 + 1)) }
                1 => {
                    if open[i] && ended[i].is_none() { ended[i] = Some(verdict); }
                    C(closed(n, verdict))
                }
                2 => {
                    if n % 2 == 0 && ended[i].is_some_and(Verdict::is_content) && score[i].is_none() {
                        score[i] = Some(points);
                    }
                    S(grade(n, points))
                }
                _ => D(grade(n, points)),
            };
            let _ = fold.push(&Record { seq, time: Timestamp::default(), event });
        }
        let folded = fold.finish(Timestamp::default(), &Liveness::All);
        for slot in &folded.slots {
            let first = if slot.slot.case.as_str() == "case-0" { 0 } else { 2 };
            prop_assert_eq!(slot.state.score(), score[first]);
        }
        let published = folded.slots.iter().filter(|s| s.state.score().is_some()).count();
        prop_assert_eq!(published, score.iter().flatten().count());
    }
}
