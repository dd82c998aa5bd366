//! What the caller sees through the stack is what the server sent.

use attempt_ledger::{CallLayer, GateKind, Gates, Ledger, LedgerLayer, LedgerRetry, ScoreLayer};
use attempt_ledger_tests::*;
use bytes::Bytes;
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use tower::ServiceExt;

fn through(gate: GateKind, head: Head, score: ScoreLayer) -> Stack<Frames> {
    let layer = LedgerLayer::new(Ledger::memory()).gates(Gates { plain: gate, stream: gate });
    stack(CallLayer::new().attempts(1), LedgerRetry::new(), score, layer, Frames::new([head]))
}

/// Each frame with the size hint and the end flag before it.
async fn observe<B>(mut body: B) -> Vec<String>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Debug,
{
    let state = |body: &B| format!("{:?} end {}", body.size_hint(), body.is_end_stream());
    let mut frames = Vec::new();
    loop {
        let before = state(&body);
        match body.frame().await {
            Some(Ok(frame)) => frames.push(format!("{before} {}", show(&frame))),
            Some(Err(_)) => frames.push("error".into()),
            None => break,
        }
    }
    frames
}

fn show(frame: &Frame<Bytes>) -> String {
    match (frame.data_ref(), frame.trailers_ref()) {
        (Some(data), _) => format!("data {data:?}"),
        (_, Some(map)) => format!("trailers {map:?}"),
        _ => "neither".into(),
    }
}

fn random_head(random: &mut fastrand::Rng) -> Head {
    let content_type = random
        .choice(["application/json", "text/event-stream", "text/plain", "image/png"])
        .expect("one");
    let status = *random.choice(&[200, 200, 200, 201, 204, 301, 400, 429, 500, 503]).expect("one");
    let mut body = Vec::new();
    for _ in 0..random.usize(0..8) {
        body.push(match random.u32(0..5) {
            0 => Step::Wait(ms(random.u64(0..50))),
            1 => "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n".into(),
            2 => "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
                .into(),
            3 => "data: [DONE]\n\n".into(),
            _ => Step::Data((0..random.usize(0..3000)).map(|_| random.u8(..)).collect()),
        });
    }
    if random.bool() {
        let mut map = http::HeaderMap::new();
        map.insert("x-checksum", http::HeaderValue::from_static("1"));
        body.push(Step::Trailers(map));
    }
    let head = Head {
        after: ms(5),
        status: Ok(status),
        headers: vec![("content-type", content_type.into())],
        body,
    };
    head.header("x-request-id", "abc").header("set-cookie", "a=b").header("set-cookie", "c=d")
}

#[tokio::test(start_paused = true)]
async fn a_thousand_generated_responses_pass_unchanged() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..1_000 {
        let head = random_head(&mut random);
        let plain = Frames::new([head.clone()]).oneshot(chat("c")).await.expect("response");
        let (parts, body) = plain.into_parts();
        let frames = observe(body).await;
        let graded = if random.bool() { score() } else { ScoreLayer::none() };
        for gate in [GateKind::Whole, GateKind::Head] {
            let response = through(gate, head.clone(), graded.clone())
                .oneshot(chat("c"))
                .await
                .expect("response");
            let (seen, body) = response.into_parts();
            assert_eq!(
                (seen.status, &seen.headers, seen.version),
                (parts.status, &parts.headers, parts.version)
            );
            let through = observe(body).await;
            assert_eq!(through, frames, "SEED={seed} round {round} {gate:?}: {head:?}");
        }
    }
}

/// `size_hint` counts what is held, and the end is not claimed while it is.
#[tokio::test(start_paused = true)]
async fn what_is_held_is_counted() {
    let head = document("hello", "stop");
    let response = through(GateKind::Whole, head, ScoreLayer::none())
        .oneshot(chat("c"))
        .await
        .expect("response");
    let body = response.into_body();
    assert!(!body.is_end_stream());
    let exact = body.size_hint().exact().expect("exact");
    assert_eq!(body.collect().await.expect("body").to_bytes().len() as u64, exact);
}

#[tokio::test(start_paused = true)]
async fn a_whole_gate_opens_at_its_bound_and_says_so() {
    let ledger = Ledger::memory();
    let big = "x".repeat(1_000);
    let head = document("", "").body(vec![big.as_str().into(); 50]);
    let layer = LedgerLayer::new(ledger.clone()).whole_bound(10_000);
    let service =
        stack(CallLayer::new(), LedgerRetry::new(), ScoreLayer::none(), layer, Frames::new([head]));
    let response = service.oneshot(chat("c")).await.expect("response");
    assert_eq!(verdicts(&ledger, "c"), ["-"], "the gate opened before the end");
    assert_eq!(text(response.into_body()).await.expect("body").len(), 50_000);
    let row = &rows(&ledger, "c")[0];
    assert!(row.detail.gate_overflow);
}
