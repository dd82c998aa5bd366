//! Graders in the stack: several on one answer, and those that call a model themselves.

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use attempt_ledger::{
    Attempt, BoxError, CallLayer, Case, ChatTemplate, GateKind, Gates, GradeInput, GraderFn,
    Ledger, LedgerLayer, LedgerRetry, ModelGrader, Role, ScoreLayer, Verdict,
    core::{AttemptRow, Event, GraderAttempts, RefusedWhy},
};
use attempt_ledger_tests::*;
use tokio::time::{Instant, sleep};
use tower::{Service, ServiceExt};

fn over(ledger: &Ledger, score: ScoreLayer, inner: Frames) -> Stack<Frames> {
    let layer = LedgerLayer::new(ledger.clone());
    stack(CallLayer::new(), LedgerRetry::new(), score, layer, inner)
}

/// Gives this grade after a while.
fn gives(name: &str, grade: f64, after: Duration) -> impl attempt_ledger::Grader {
    GraderFn::new(name, "1", move |_: GradeInput| async move {
        sleep(after).await;
        Ok(grade)
    })
}

fn of_role(ledger: &Ledger, role: Role) -> Vec<AttemptRow> {
    folded(ledger).rows.into_iter().filter(|row| row.role == role).collect()
}

fn cites(row: &AttemptRow) -> GraderAttempts {
    row.grade.as_ref().expect("a grade").grader_attempts.clone()
}

fn others(row: &AttemptRow) -> Vec<(&str, f64)> {
    let mut all: Vec<_> = row.other_grades.iter().map(|o| (&*o.grader, o.score)).collect();
    all.sort_by(|a, b| a.0.cmp(b.0));
    all
}

/// What a request of a grader says of its case.
#[derive(Clone, Copy, Debug)]
enum Says {
    Nothing,
    TheSubjects,
    ItsOwn,
    ItsOwnFromATask,
}

/// A grader that calls through the very stack whose answers it grades.
fn through_the_same(says: Says) -> (Ledger, Stack<Frames>) {
    let ledger = Ledger::memory();
    let client: Arc<OnceLock<Stack<Frames>>> = Arc::default();
    let same = client.clone();
    let grader = GraderFn::new("judge", "1", move |input: GradeInput| {
        let client = same.get().expect("set").clone();
        async move {
            let request = match says {
                Says::Nothing => bare(),
                Says::TheSubjects => with_case(Case::new(input.slot.clone())),
                Says::ItsOwn | Says::ItsOwnFromATask => with_case(input.case()),
            };
            let called = async move { client.oneshot(request).await.map(|r| r.status()) };
            let status = match says {
                Says::ItsOwnFromATask => tokio::spawn(called).await??,
                _ => called.await?,
            };
            Ok::<f64, BoxError>(if status == 200 { 0.75 } else { 0.0 })
        }
    });
    let score = ScoreLayer::configure(grader).diagnostics(true).build();
    let inner = Frames::new([
        document("an answer", "stop"),
        document("busy", "stop").status(500),
        document("a judgement", "stop"),
    ]);
    let service = over(&ledger, score, inner);
    assert!(client.set(service.clone()).is_ok());
    (ledger, service)
}

#[tokio::test(start_paused = true)]
async fn a_call_through_the_same_client_is_a_graders() {
    for says in [Says::Nothing, Says::TheSubjects, Says::ItsOwn, Says::ItsOwnFromATask] {
        let (ledger, service) = through_the_same(says);
        service.oneshot(chat("c")).await.expect("answer");
        let subject = of_role(&ledger, Role::Subject);
        assert_eq!(subject.len(), 1, "{says:?}: the subject has its own ordinal alone");
        assert_eq!(subject[0].score, Some(0.75), "{says:?}");
        let graders = of_role(&ledger, Role::Grader);
        let seen: Vec<_> = graders
            .iter()
            .map(|row| (row.case.clone(), row.ordinal.map(|o| o.get()), row.verdict, row.score))
            .collect();
        let case = Some(slot("c").case);
        assert_eq!(
            seen,
            [
                (case.clone(), Some(1), Some(Verdict::ServerError), None),
                (case, Some(2), Some(Verdict::Ok), None),
            ],
            "{says:?}: its retries count in its slot, and nobody grades it"
        );
        let called = graders.iter().map(|row| row.attempt).collect();
        assert_eq!(cites(&subject[0]), GraderAttempts::Cited(called), "{says:?}");
    }
}

/// From another task nothing tells whose call it is: it is refused, and the answer stays ungraded.
#[tokio::test(start_paused = true)]
async fn a_call_from_another_task_needs_the_case() {
    let ledger = Ledger::memory();
    let judge = over(&ledger, ScoreLayer::none(), Frames::new([document("x", "stop")]));
    let grader = GraderFn::new("judge", "1", move |_: GradeInput| {
        let judge = judge.clone();
        async move {
            tokio::spawn(judge.oneshot(bare())).await??;
            Ok::<f64, BoxError>(1.0)
        }
    });
    let inner = Frames::new([document("hello", "stop")]);
    over(&ledger, ScoreLayer::new(grader), inner).oneshot(chat("c")).await.expect("answer");
    assert!(of_role(&ledger, Role::Grader).is_empty());
    assert_eq!(rows(&ledger, "c")[0].score, None);
}

/// What another ledger or run holds, or none, cannot be cited.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_cited_is_unknown() {
    let (ledger, elsewhere) = (Ledger::memory(), Ledger::memory());
    for (at, run) in [(&elsewhere, "r"), (&ledger, "other")] {
        let judge = over(at, ScoreLayer::none(), Frames::new([document("x", "stop")]));
        let grader = GraderFn::new("judge", "1", move |mut input: GradeInput| {
            let judge = judge.clone();
            async move {
                input.slot.run = attempt_ledger::RunId::new(run)?;
                judge.oneshot(with_case(Case::new(input.slot))).await?;
                Ok::<f64, BoxError>(1.0)
            }
        });
        let inner = Frames::new([document("hello", "stop")]);
        over(&ledger, ScoreLayer::new(grader), inner).oneshot(chat(run)).await.expect("answer");
        let row = of_role(&ledger, Role::Subject).pop().expect("row");
        assert_eq!((row.score, cites(&row)), (Some(1.0), GraderAttempts::Unknown));
    }
}

fn judge<S>(service: S) -> impl attempt_ledger::Grader
where
    S: Service<http::Request<Body>, Response: Send, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
    ModelGrader<S, Ask, Read>: attempt_ledger::Grader,
{
    let ask: Ask = |input| {
        let url = "http://model.test/v1/chat/completions";
        ChatTemplate::new(url, "judge", "How good? {answer}")?.request(input)
    };
    let read: Read = |text| text.parse().ok();
    ModelGrader::new("model", "1", service, ask, read)
}

type Ask = fn(&GradeInput) -> Result<http::Request<Body>, BoxError>;
type Read = fn(&str) -> Option<f64>;

#[tokio::test(start_paused = true)]
async fn a_model_grades_and_is_cited() {
    for (said, grade) in [
        (document("0.5", "stop"), Some(0.5)),
        (document("no number", "stop"), None),
        (document("0.5", "length"), None),
        (document("0.5", "content_filter"), None),
        (document("0.5", "stop").status(400), None),
        (sse(vec!["data: {\"choices\":[{\"delta\":{\"content\":\"0.5\"}}]}\n\n".into()]), None),
    ] {
        let ledger = Ledger::memory();
        let model = over(&ledger, ScoreLayer::none(), Frames::new([said.clone()]));
        let score = ScoreLayer::new(judge(model));
        let subject = over(&ledger, score, Frames::new([document("hello", "stop")]));
        let response = subject.oneshot(chat("c")).await.expect("answer");
        assert_eq!(Attempt::of(&response).and_then(Attempt::grade), grade, "{said:?}");
        let called = of_role(&ledger, Role::Grader);
        assert!(!called.is_empty());
        let row = of_role(&ledger, Role::Subject).pop().expect("row");
        if grade.is_some() {
            assert_eq!(cites(&row), GraderAttempts::Cited(vec![called[0].attempt]));
        }
    }
    // A service that records nothing.
    let ledger = Ledger::memory();
    let score = ScoreLayer::new(judge(Frames::new([document("1", "stop")])));
    over(&ledger, score, Frames::new([document("hello", "stop")]))
        .oneshot(chat("c"))
        .await
        .expect("answer");
    assert_eq!(cites(&rows(&ledger, "c")[0]), GraderAttempts::Unknown);
}

#[tokio::test]
async fn a_template_is_filled_once() {
    let input = |text: &str| {
        let content = attempt_ledger::Content { text: text.into(), ..Default::default() };
        let id = attempt_ledger::core::AttemptId::from_u128(1);
        GradeInput::new(content, Verdict::Ok, slot("c"), id, None)
    };
    let url = "http://model.test/v1/chat/completions";
    let template = ChatTemplate::new(url, "judge", "{\"{case}\"} {answer} is {expected}?")
        .expect("template")
        .param("temperature", 0);
    assert!(template.request(&input("x")).is_err(), "nothing is expected of it");
    let template = template.expected([(slot("c").case, "42".into())].into());
    let request = template.request(&input("{expected} \u{1f600}\"")).expect("request");
    let body = text(request.into_body()).await.expect("body");
    let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(
        body,
        serde_json::json!({
            "model": "judge", "temperature": 0,
            "messages": [{"role": "user", "content": "{\"c\"} {expected} \u{1f600}\" is 42?"}],
        })
    );
    assert!(ChatTemplate::new("/path", "m", "{answer}").is_err());
    assert!(ChatTemplate::new(url, "m", "{ answer }").is_err());
}

#[tokio::test(start_paused = true)]
async fn graders_of_one_answer_run_at_once_and_apart() {
    let ledger = Ledger::memory();
    let panics = GraderFn::new("panics", "1", |_: GradeInput| async move {
        if true {
            panic!("in a grader");
        }
        Ok(0.0)
    });
    let fails =
        GraderFn::new("fails", "1", |_: GradeInput| async move { Err::<f64, _>("no".into()) });
    let score = ScoreLayer::configure(gives("published", 0.5, s(10)))
        .also(gives("strict", 0.0, s(10)))
        .and_then(|b| b.also(panics))
        .and_then(|b| b.also(fails))
        .and_then(|b| b.also(gives("slow", 1.0, s(31))))
        .and_then(|b| b.also(gives("nan", f64::NAN, s(1))))
        .and_then(|b| b.also(gives("beyond", 1.5, s(1))))
        .and_then(|b| b.also(gives("edge", 1.0, s(29))))
        .expect("names differ")
        .build();
    let began = Instant::now();
    let inner = Frames::new([document("hello", "stop")]);
    let response = over(&ledger, score, inner).oneshot(chat("c")).await.expect("answer");
    let took = began.elapsed();
    assert!(took >= s(30) && took < s(31), "all at once, within one limit: {took:?}");
    assert_eq!(Attempt::of(&response).and_then(Attempt::grade), Some(0.5), "the published one's");
    let row = rows(&ledger, "c").remove(0);
    assert_eq!((row.score, row.frozen), (Some(0.5), true));
    assert_eq!(others(&row), [("edge", 1.0), ("strict", 0.0)]);
    let refused = folded(&ledger).refused;
    let mut why: Vec<_> = refused.iter().map(|r| (&*r.grader, r.why, r.score)).collect();
    why.sort_by(|a, b| a.0.cmp(b.0));
    assert_eq!(
        why,
        [("beyond", RefusedWhy::OutOfRange, Some(1.5)), ("nan", RefusedWhy::NotFinite, None)]
    );
}

/// A grade beside freezes nothing, and where the published grader fails it does not stand for it.
#[tokio::test(start_paused = true)]
async fn another_graders_grade_is_never_the_score() {
    let panics = |_: GradeInput| async move {
        if true {
            panic!("in a grader");
        }
        Ok(0.0)
    };
    let published: [attempt_ledger::BoxGrader; 3] = [
        attempt_ledger::BoxGrader::new(GraderFn::new("published", "1", panics)),
        attempt_ledger::BoxGrader::new(gives("published", 1.0, s(60))),
        attempt_ledger::BoxGrader::new(gives("published", f64::INFINITY, s(1))),
    ];
    for published in published {
        let ledger = Ledger::memory();
        let score = ScoreLayer::configure(published).also(gives("other", 1.0, s(1))).expect("name");
        let inner = Frames::new([document("hello", "stop")]);
        let service = over(&ledger, score.build(), inner);
        let response = service.oneshot(chat("c")).await.expect("answer");
        assert_eq!(Attempt::of(&response).and_then(Attempt::grade), None);
        let row = rows(&ledger, "c").remove(0);
        assert_eq!((row.score, row.frozen), (None, false));
        assert_eq!(others(&row), [("other", 1.0)]);
        assert_eq!(ledger.slot(&slot("c")).and_then(|state| state.frozen), None);
    }
}

/// The policy asks for a better grade by the published one alone.
#[tokio::test(start_paused = true)]
async fn no_policy_sees_another_graders_grade() {
    for (published, other, calls) in [(1.0, 0.0, 1), (0.0, 1.0, 3)] {
        let ledger = Ledger::memory();
        let score = ScoreLayer::configure(gives("published", published, s(1)))
            .diagnostics(true)
            .also(gives("other", other, s(2)))
            .expect("name")
            .build();
        let inner = Frames::new([document("hello", "stop")]);
        let retry = LedgerRetry::new().grade_below(0.5);
        let layer = LedgerLayer::new(ledger.clone());
        let service = stack(CallLayer::new(), retry, score, layer, inner.clone());
        service.oneshot(chat("c")).await.expect("answer");
        assert_eq!(inner.calls(), calls);
        // Every ordinal's content is graded beside, as diagnostics are.
        let rows = rows(&ledger, "c");
        assert!(rows.iter().all(|row| others(row) == [("other", other)]));
        assert_eq!(rows.iter().filter(|row| row.score.is_some()).count(), 1);
    }
}

/// Without diagnostics later content is graded by nobody.
#[tokio::test(start_paused = true)]
async fn later_ordinals_are_graded_only_when_asked_for() {
    let ledger = Ledger::memory();
    let score = ScoreLayer::configure(gives("published", 1.0, s(0)))
        .also(gives("other", 1.0, s(0)))
        .expect("name")
        .build();
    let mut service = over(&ledger, score, Frames::new([document("hello", "stop")]));
    for _ in 0..2 {
        service.ready().await.expect("ready").call(chat("c")).await.expect("answer");
    }
    let rows = rows(&ledger, "c");
    assert_eq!(others(&rows[0]), [("other", 1.0)]);
    assert!(rows[1].other_grades.is_empty() && rows[1].diagnostic.is_none());
}

/// Under each gate the end of the stream waits for all graders; a reader that leaves cancels none.
#[tokio::test(start_paused = true)]
async fn streams_wait_for_all_and_a_drop_cancels_none() {
    let answer = || {
        sse(vec![
            "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}\n\n".into(),
            "data: [DONE]\n\n".into(),
        ])
    };
    for stream in [GateKind::Whole, GateKind::FirstContent, GateKind::Head] {
        for stays in [true, false] {
            let ledger = Ledger::memory();
            let order: Arc<Mutex<Vec<&str>>> = Arc::default();
            let noted = order.clone();
            let slow = GraderFn::new("slow", "1", move |_: GradeInput| {
                let noted = noted.clone();
                async move {
                    sleep(s(9)).await;
                    noted.lock().expect("order").push("graded");
                    Ok(0.5)
                }
            });
            let score =
                ScoreLayer::configure(gives("published", 1.0, s(3))).also(slow).expect("name");
            let gates = Gates { plain: GateKind::Whole, stream };
            let layer = LedgerLayer::new(ledger.clone()).gates(gates);
            let inner = Frames::new([answer()]);
            let service = stack(CallLayer::new(), LedgerRetry::new(), score.build(), layer, inner);
            let mut body = service.oneshot(chat("c")).await.expect("answer").into_body();
            if stays {
                text(body).await.expect("whole");
                order.lock().expect("order").push("ended");
                assert_eq!(*order.lock().expect("order"), ["graded", "ended"], "{stream:?}");
            } else {
                let _ = http_body_util::BodyExt::frame(&mut body).await;
                drop(body);
                sleep(s(10)).await;
            }
            let row = rows(&ledger, "c").remove(0);
            assert_eq!(
                (row.verdict, row.score),
                (Some(Verdict::Ok), Some(1.0)),
                "{stream:?} {stays}"
            );
            assert_eq!(others(&row), [("slow", 0.5)], "{stream:?} {stays}");
        }
    }
}

/// One row a grader, and no more.
#[tokio::test(start_paused = true)]
async fn each_grader_appends_once() {
    let ledger = Ledger::memory();
    let score = ScoreLayer::configure(gives("published", 1.0, s(0)))
        .also(gives("other", 1.0, s(0)))
        .expect("name")
        .build();
    over(&ledger, score, Frames::new([document("hello", "stop")]))
        .oneshot(chat("c"))
        .await
        .expect("answer");
    let records = ledger.records().expect("records");
    let count = |kind: &str| records.iter().filter(|r| r.event.kind() == kind).count();
    assert_eq!((count("scored"), count("also_graded"), count("grade_refused")), (1, 1, 0));
    assert!(
        records.iter().any(|r| matches!(&r.event, Event::AlsoGraded(g) if g.grader == "other"))
    );
}
