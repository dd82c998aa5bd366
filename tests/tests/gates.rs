//! What the retry policy sees of a stream: all that came before its first content.

use attempt_ledger::{
    Attempt, AttemptState, CallLayer, Clocks, ErrorKind, GateKind, Gates, Ledger, LedgerLayer,
    LedgerRetry, ScoreLayer, Verdict,
};
use attempt_ledger_core::{Clock, Remote, Staller};
use attempt_ledger_tests::*;
use http_body_util::BodyExt;
use std::io;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

const ROLE: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
const DELTA: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n";
const TOOL: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]}}]}\n\n";
const REFUSAL: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"refusal\":\"no\"}}]}\n\n";
const FINISH: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const ERROR: &str = "data: {\"error\":{\"message\":\"overloaded\",\"type\":\"server_error\",\"code\":\"overloaded\"}}\n\n";
const GARBAGE: &str = "data: {\"choices\":[{\n\n";
const PING: &str = ": keep-alive\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn whole_answer() -> Head {
    sse(vec![ROLE.into(), DELTA.into(), FINISH.into(), DONE.into()])
}

/// A stack whose streams are held as they are unless told otherwise.
fn default_stack(
    ledger: &Ledger,
    script: impl IntoIterator<Item = Head>,
) -> (Frames, Stack<Frames>) {
    let inner = Frames::new(script);
    let layer = LedgerLayer::new(ledger.clone()).clocks(Clocks::default().idle(s(5)).total(s(60)));
    let call = CallLayer::new().attempts(2);
    (inner.clone(), stack(call, LedgerRetry::new(), ScoreLayer::none(), layer, inner))
}

#[tokio::test(start_paused = true)]
async fn a_fault_before_the_first_content_is_retried() {
    let early: [(&str, Vec<Step>, Verdict); 6] = [
        ("error event", vec![ROLE.into(), ERROR.into(), DONE.into()], Verdict::ProviderError),
        ("error, then silence", vec![ERROR.into(), Step::Stall], Verdict::ProviderError),
        ("unreadable event", vec![ROLE.into(), GARBAGE.into(), DELTA.into()], Verdict::Malformed),
        ("cut", vec![ROLE.into(), Step::Fail(io::ErrorKind::UnexpectedEof)], Verdict::Transport),
        ("silence", vec![ROLE.into(), PING.into(), Step::Stall], Verdict::Deadline),
        ("ends with nothing", vec![ROLE.into()], Verdict::Unterminated),
    ];
    for (name, body, verdict) in early {
        let ledger = Ledger::memory();
        let (inner, service) = default_stack(&ledger, [sse(body), whole_answer()]);
        let response = service.oneshot(chat("c")).await.expect("the second attempt's");
        // What can be no answer any more is not waited for.
        let end = if verdict == Verdict::Deadline { 5_010_000 } else { 10_000 };
        assert_eq!(rows(&ledger, "c")[0].end_us, Some(end), "{name}");
        assert_eq!(Attempt::of(&response).expect("attempt").state(), AttemptState::Streaming);
        let read = text(response.into_body()).await.expect("whole");
        assert_eq!(read, [ROLE, DELTA, FINISH, DONE].concat(), "{name}");
        assert_eq!(verdicts(&ledger, "c"), [verdict.as_str(), "ok"], "{name}");
        assert_eq!(inner.calls(), 2, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_after_the_first_content_is_recorded_and_surfaces() {
    for (name, fault, verdict) in [
        ("error event", ERROR, Verdict::ProviderError),
        ("unreadable event", GARBAGE, Verdict::Malformed),
        ("clean end", "", Verdict::Unterminated),
    ] {
        let ledger = Ledger::memory();
        let mut body = vec![ROLE.into(), DELTA.into(), Step::Wait(s(1))];
        if !fault.is_empty() {
            body.push(fault.into());
        }
        let (inner, service) = default_stack(&ledger, [sse(body), whole_answer()]);
        let response = service.oneshot(chat("c")).await.expect("the head and the first content");
        // In-band faults are the model's bytes: they pass as they came.
        let read = text(response.into_body()).await.expect("no error of ours");
        assert_eq!(read, [ROLE, DELTA, fault].concat(), "{name}");
        assert_eq!((verdicts(&ledger, "c"), inner.calls()), (vec![verdict.as_str()], 1), "{name}");
    }
    for (step, kind) in [
        (Step::Fail(io::ErrorKind::ConnectionReset), Verdict::Transport),
        (Step::Stall, Verdict::Deadline),
    ] {
        let ledger = Ledger::memory();
        let body = vec![DELTA.into(), Step::Wait(s(1)), step];
        let (inner, service) = default_stack(&ledger, [sse(body), whole_answer()]);
        let mut body = service.oneshot(chat("c")).await.expect("a head").into_body();
        let first = body.frame().await.expect("frame").expect("data").into_data().expect("data");
        assert_eq!(first, DELTA);
        let error = body.frame().await.expect("an end").expect_err("which the reader sees");
        assert_eq!(error.attempt().and_then(Attempt::verdict), Some(kind));
        assert_eq!((verdicts(&ledger, "c"), inner.calls()), (vec![kind.as_str()], 1));
    }
}

#[tokio::test(start_paused = true)]
async fn the_gate_opens_at_text_a_tool_call_or_a_refusal() {
    for first in [DELTA, TOOL, REFUSAL] {
        let ledger = Ledger::memory();
        let body =
            vec![ROLE.into(), Step::Wait(s(1)), first.into(), Step::Wait(s(2)), FINISH.into()];
        let (_, service) = default_stack(&ledger, [sse(body)]);
        let started = Instant::now();
        let response = service.oneshot(chat("c")).await.expect("a head");
        assert_eq!(started.elapsed(), s(1) + ms(10), "{first}");
        assert_eq!(Attempt::of(&response).expect("attempt").state(), AttemptState::Streaming);
        let read = text(response.into_body()).await.expect("whole");
        assert_eq!(read, [ROLE, first, FINISH].concat());
    }
}

const ELEMENT: &str = "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"x\"}]}}]}";
const LAST: &str = "{\"candidates\":[{\"finishReason\":\"STOP\"}]}";
const FAILED: &str = "{\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\"}}";

/// Gemini's answer to a request for a stream, under the media type of a document.
fn gemini(body: Vec<Step>) -> Head {
    Head { headers: vec![("content-type", "application/json".into())], ..sse(body) }
}

/// The chat request, sent where Gemini is served.
macro_rules! ask_gemini {
    ($action:expr) => {{
        let mut request = chat("c");
        let path = format!("http://model.test/v1beta/models/g:{}", $action);
        *request.uri_mut() = path.parse().expect("a path");
        request
    }};
}

/// A list that is delivered piecewise is a stream, although its media type is a document's.
#[tokio::test(start_paused = true)]
async fn a_list_of_events_is_held_until_its_first_content() {
    let whole =
        vec!["[".into(), ELEMENT.into(), Step::Wait(s(3)), ",".into(), LAST.into(), "]".into()];
    let ledger = Ledger::memory();
    let early = vec!["[".into(), FAILED.into(), Step::Stall];
    let (inner, service) = default_stack(&ledger, [gemini(early), gemini(whole)]);
    let response =
        service.oneshot(ask_gemini!("streamGenerateContent")).await.expect("the second's");
    assert_eq!(Attempt::of(&response).expect("attempt").state(), AttemptState::Streaming);
    let read = text(response.into_body()).await.expect("whole");
    assert_eq!(read, format!("[{ELEMENT},{LAST}]"));
    assert_eq!(verdicts(&ledger, "c"), ["provider_error", "ok"]);
    assert_eq!(inner.calls(), 2);
}

/// Where a stream was asked for and a document came, the document's gate and clocks hold.
#[tokio::test(start_paused = true)]
async fn a_document_in_a_lists_place_is_seen_whole() {
    let padded = format!("{}\"pad\":\"{}\",", "{", "x".repeat(300 << 10));
    for (action, last, verdict) in [
        ("streamGenerateContent", &ELEMENT[1..], "ok"),
        ("streamGenerateContent", &FAILED[1..], "provider_error"),
        ("generateContent", &ELEMENT[1..], "ok"),
    ] {
        let ledger = Ledger::memory();
        let body = vec![padded.as_str().into(), Step::Wait(s(4)), last.into()];
        let inner = Frames::new([gemini(body)]);
        let clocks = Clocks::default().idle(s(5)).total(s(60)).progress(s(2)).first_content(s(3));
        let layer = LedgerLayer::new(ledger.clone()).clocks(clocks);
        let call = CallLayer::new().attempts(1);
        let service = stack(call, LedgerRetry::new(), ScoreLayer::none(), layer, inner);
        let start = Instant::now();
        if let Ok(response) = service.oneshot(ask_gemini!(action)).await {
            assert!(start.elapsed() >= s(4), "{action} {last}: held until its end");
            text(response.into_body()).await.expect("whole");
        }
        assert_eq!(verdicts(&ledger, "c"), [verdict], "{action} {last}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_content_is_seen_whole() {
    let ledger = Ledger::memory();
    let empty = sse(vec![ROLE.into(), FINISH.into(), Step::Wait(s(1)), DONE.into()]);
    let inner = Frames::new([empty, whole_answer()]);
    let service = stack(
        CallLayer::new(),
        LedgerRetry::new().retry_on([Verdict::Empty]),
        ScoreLayer::none(),
        LedgerLayer::new(ledger.clone()),
        inner.clone(),
    );
    let response = service.oneshot(chat("c")).await.expect("the second");
    text(response.into_body()).await.expect("whole");
    assert_eq!(verdicts(&ledger, "c"), ["empty", "ok"]);
}

#[tokio::test(start_paused = true)]
async fn the_gate_holds_no_more_than_its_bound() {
    let ledger = Ledger::memory();
    // Events of the protocol without any content, twice the bound of them.
    let mut body: Vec<Step> = vec![ROLE.into(); 2 * (256 << 10) / ROLE.len()];
    body.extend([DELTA.into(), FINISH.into(), DONE.into()]);
    let (_, service) = default_stack(&ledger, [sse(body.clone())]);
    let response = service.oneshot(chat("c")).await.expect("a head");
    assert_eq!(Attempt::of(&response).expect("attempt").state(), AttemptState::Streaming);
    let read = text(response.into_body()).await.expect("whole");
    assert_eq!(read.len(), (body.len() - 3) * ROLE.len() + [DELTA, FINISH, DONE].concat().len());
    let row = &rows(&ledger, "c")[0];
    assert_eq!((row.verdict, row.detail.gate_overflow), (Some(Verdict::Ok), true));
    // Below the bound nothing is noted.
    let (_, service) = default_stack(&ledger, [whole_answer()]);
    text(service.oneshot(chat("d")).await.expect("a head").into_body()).await.expect("whole");
    assert!(!rows(&ledger, "d")[0].detail.gate_overflow);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_read_is_not_held() {
    let ledger = Ledger::memory();
    let head =
        sse(vec!["???".into(), Step::Wait(s(2)), "???".into()]).header("content-encoding", "x-own");
    let (_, service) = default_stack(&ledger, [head]);
    let started = Instant::now();
    let response = service.oneshot(chat("c")).await.expect("a head");
    assert_eq!(started.elapsed(), ms(10));
    text(response.into_body()).await.expect("whole");
    assert_eq!(verdicts(&ledger, "c"), ["uninspected"]);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_at_the_done_marker_leaves_an_ok_row() {
    for gate in [GateKind::FirstContent, GateKind::Head] {
        let ledger = Ledger::memory();
        let inner = Frames::new([sse(vec![DELTA.into(), FINISH.into(), DONE.into(), Step::Stall])]);
        let layer = LedgerLayer::new(ledger.clone()).gates(Gates { plain: gate, stream: gate });
        let service = stack(CallLayer::new(), LedgerRetry::new(), ScoreLayer::none(), layer, inner);
        let mut body = service.oneshot(chat("c")).await.expect("a head").into_body();
        let mut seen = String::new();
        while !seen.contains("[DONE]") {
            let frame =
                body.frame().await.expect("frame").expect("data").into_data().expect("data");
            seen.push_str(std::str::from_utf8(&frame).expect("text"));
        }
        drop(body);
        let row = &rows(&ledger, "c")[0];
        assert_eq!((row.verdict, row.detail.after_stop), (Some(Verdict::Ok), None), "{gate:?}");
    }
}

/// Runs one attempt to its end; how long it took, how it ended, and its row.
async fn one(
    clocks: Clocks,
    gate: GateKind,
    head: Head,
    pause: std::time::Duration,
) -> (std::time::Duration, Option<ErrorKind>, attempt_ledger_core::AttemptRow) {
    let ledger = Ledger::memory();
    let layer =
        LedgerLayer::new(ledger.clone()).clocks(clocks).gates(Gates { plain: gate, stream: gate });
    let service = stack(
        CallLayer::new().attempts(1),
        LedgerRetry::new(),
        ScoreLayer::none(),
        layer,
        Frames::new([head]),
    );
    let started = Instant::now();
    let mut error = None;
    match service.oneshot(chat("c")).await {
        Err(failed) => error = Some(failed),
        Ok(response) => {
            let mut body = response.into_body();
            while let Some(frame) = body.frame().await {
                match frame {
                    Ok(_) => sleep(pause).await,
                    Err(failed) => error = Some(failed),
                }
            }
        }
    }
    (started.elapsed(), error.map(|e| e.kind().clone()), rows(&ledger, "c").remove(0))
}

fn every(pause: std::time::Duration, what: &str, times: usize) -> Vec<Step> {
    (0..times).flat_map(|_| [Step::Wait(pause), what.into()]).collect()
}

const NO_PAUSE: std::time::Duration = std::time::Duration::ZERO;

#[tokio::test(start_paused = true)]
async fn keep_alives_do_not_feed_the_progress_clock() {
    let clocks = || Clocks::default().idle(s(5)).progress(s(20)).total(s(600));
    let pings = |mut before: Vec<Step>| {
        before.extend(every(s(1), PING, 500));
        sse(before)
    };
    for gate in [GateKind::Whole, GateKind::FirstContent, GateKind::Head] {
        let (took, error, row) = one(clocks(), gate, pings(vec![]), NO_PAUSE).await;
        assert_eq!(took, s(20) + ms(10), "{gate:?}");
        assert!(
            matches!(error, Some(ErrorKind::Deadline { clock: Clock::Progress, .. })),
            "{error:?}"
        );
        assert_eq!((row.verdict, row.remote), (Some(Verdict::Deadline), Some(Remote::Unknown)));
        assert_eq!(row.detail.clock, Some(Clock::Progress));
        assert_eq!(
            (row.detail.limit_us, row.detail.stalled),
            (Some(20_000_000), Some(Staller::Upstream))
        );
        // From the last event on.
        let late = pings(vec![Step::Wait(s(4)), DELTA.into()]);
        let (took, ..) = one(clocks(), gate, late, NO_PAUSE).await;
        assert_eq!(took, s(4 + 20) + ms(10), "{gate:?}");
        // Events feed it, however small.
        let alive =
            sse([every(s(4), ROLE, 20), vec![DELTA.into(), FINISH.into(), DONE.into()]].concat());
        let (_, error, row) = one(clocks(), gate, alive, NO_PAUSE).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(row.verdict, Some(Verdict::Ok));
    }
    // A document has no events: only its bytes count.
    let slow = document("hello", "stop").body(every(s(4), " ", 20));
    let (_, error, _) = one(clocks(), GateKind::Whole, slow, NO_PAUSE).await;
    assert!(error.is_none(), "{error:?}");
}

/// Where an event could not be read nothing more is, and nothing tells what the upstream does.
#[tokio::test(start_paused = true)]
async fn the_clocks_of_events_end_where_nothing_more_is_decoded() {
    let clocks = Clocks::default().idle(s(5)).progress(s(10)).first_content(s(10)).total(s(600));
    for before in [vec![], vec![DELTA.into()]] {
        for fault in [GARBAGE, ERROR] {
            let body = [before.clone(), vec![fault.into()], every(s(1), DELTA, 30)].concat();
            let (took, error, row) = one(clocks, GateKind::Head, sse(body), NO_PAUSE).await;
            assert!(error.is_none(), "{fault}: {error:?}");
            assert_eq!((took, row.detail.clock), (s(30) + ms(10), None), "{fault}");
        }
    }
    // The answer is longer than what a check is given.
    let long = format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n",
        "x".repeat(9 << 20)
    );
    let body = [vec![long.as_str().into(); 2], every(s(1), DELTA, 30)].concat();
    let ledger = Ledger::memory();
    let layer =
        LedgerLayer::new(ledger.clone()).clocks(clocks).check(attempt_ledger::NonEmpty::new());
    let service = stack(
        CallLayer::new(),
        LedgerRetry::new(),
        ScoreLayer::none(),
        layer,
        Frames::new([sse(body)]),
    );
    text(service.oneshot(chat("c")).await.expect("a head").into_body()).await.expect("whole");
    assert_eq!(verdicts(&ledger, "c"), ["uninspected"]);
}

#[tokio::test(start_paused = true)]
async fn the_first_content_is_awaited_so_long() {
    let clocks = || Clocks::default().idle(s(60)).first_content(s(10)).total(s(600));
    let slow = |first: &str, at| {
        sse([every(s(1), ROLE, at), vec![first.into()], every(s(1), DELTA, 20)].concat())
    };
    for gate in [GateKind::Whole, GateKind::FirstContent, GateKind::Head] {
        let (took, error, row) = one(clocks(), gate, slow(DELTA, 30), NO_PAUSE).await;
        assert_eq!(took, s(10), "{gate:?}");
        assert!(
            matches!(error, Some(ErrorKind::Deadline { clock: Clock::FirstContent, .. })),
            "{error:?}"
        );
        assert_eq!(
            (row.verdict, row.detail.clock),
            (Some(Verdict::Deadline), Some(Clock::FirstContent))
        );
        for first in [DELTA, TOOL, REFUSAL] {
            let (_, error, _) = one(clocks(), gate, slow(first, 9), NO_PAUSE).await;
            assert!(error.is_none(), "{gate:?} {first}: {error:?}");
        }
        // Ready at the very moment: too late all the same.
        let (took, error, _) = one(clocks(), gate, slow(DELTA, 10).after(NO_PAUSE), NO_PAUSE).await;
        assert_eq!(took, s(10));
        assert!(
            matches!(error, Some(ErrorKind::Deadline { clock: Clock::FirstContent, .. })),
            "{error:?}"
        );
        // It runs from the request on, the head included.
        let (took, error, row) = one(clocks(), gate, whole_answer().after(s(30)), NO_PAUSE).await;
        assert_eq!(took, s(10));
        assert!(
            matches!(error, Some(ErrorKind::Deadline { clock: Clock::FirstContent, .. })),
            "{error:?}"
        );
        assert_eq!(row.detail.stalled, Some(Staller::Upstream));
    }
    // Of a document the first byte counts, since its content shows at its end only.
    let late = document("hello", "stop").body([vec![" ".into()], every(s(3), " ", 5)].concat());
    let (_, error, _) = one(clocks(), GateKind::Whole, late, NO_PAUSE).await;
    assert!(error.is_none(), "{error:?}");
}

/// The reader takes a minute a frame: neither clock of the upstream runs meanwhile, and the row says
/// who took the total.
#[tokio::test(start_paused = true)]
async fn a_slow_reader_is_not_the_upstream() {
    let clocks = Clocks::default().idle(s(5)).progress(s(5)).first_content(s(10)).total(s(300));
    let body = || [vec![ROLE.into(), ROLE.into()], every(s(1), DELTA, 100)].concat();
    let (took, error, row) = one(clocks, GateKind::Head, sse(body()), s(60)).await;
    assert!(took >= s(300), "{took:?}");
    assert!(error.is_some());
    assert!(matches!(row.detail.clock, Some(Clock::Total)), "{:?}", row.detail);
    assert_eq!(row.detail.stalled, Some(Staller::Reader));
    assert!(row.detail.reader_us >= Some(240_000_000), "{:?}", row.detail.reader_us);
    // The reader takes a minute, comes back, and then the upstream stalls: a minute of 100 seconds.
    let clocks = Clocks::default().idle(s(300)).total(s(100));
    let (took, _, row) =
        one(clocks, GateKind::Head, sse(vec![DELTA.into(), Step::Stall]), s(60)).await;
    assert_eq!(took, s(100));
    assert_eq!((row.verdict, row.detail.stalled), (Some(Verdict::Deadline), Some(Staller::Reader)));
    assert_eq!(row.detail.reader_us, Some(60_000_000));
    // The upstream trickles, and the reader takes each frame at once.
    let clocks = Clocks::default().idle(s(5)).total(s(30));
    let (took, _, row) = one(clocks, GateKind::Head, sse(every(s(1), DELTA, 100)), NO_PAUSE).await;
    assert_eq!(took, s(30));
    assert_eq!(
        (row.verdict, row.detail.stalled),
        (Some(Verdict::Deadline), Some(Staller::Upstream))
    );
    assert_eq!(row.detail.reader_us, None);
}
