//! Answers that are kept by choice: which, when, and what happens where they cannot be.

use std::{
    fs::File,
    io,
    path::Path,
    sync::{Arc, Mutex, mpsc},
};

use attempt_ledger::{
    BoxError, CallLayer, Case, Clocks, GradeInput, GraderFn, Ledger, LedgerLayer, LedgerRetry,
    Role, ScoreLayer, Verdict,
};
use attempt_ledger_core::{AttemptRow, Digest};
use attempt_ledger_store::{
    Archive,
    file::{Io, IoFile, IoRead},
    testing::{Call, Fault, TestIo},
};
use attempt_ledger_tests::*;
use http::Request;
use http_body_util::BodyExt as _;
use tower::ServiceExt;

fn archive() -> (tempfile::TempDir, Archive) {
    let room = tempfile::tempdir().expect("a directory");
    let archive = Archive::open(room.path().join("archive")).expect("opens");
    (room, archive)
}

fn call(
    ledger: &Ledger,
    archive: &Archive,
    score: ScoreLayer,
    retry: LedgerRetry,
    heads: impl IntoIterator<Item = Head>,
) -> Stack<Frames> {
    let layer = LedgerLayer::new(ledger.clone()).archive(archive.clone());
    stack(CallLayer::new().attempts(3), retry, score, layer, Frames::new(heads))
}

async fn whole(service: Stack<Frames>, request: Request<Body>) -> Result<String, BoxError> {
    Ok(text(service.oneshot(request).await?.into_body()).await?)
}

/// The text that is kept of a row's answer.
fn kept(archive: &Archive, row: &AttemptRow) -> Option<String> {
    Some(archive.get(&row.answer_sha256?).expect("sound")?.text)
}

fn files(archive: &Archive) -> usize {
    std::fs::read_dir(archive.dir()).expect("lists").count()
}

#[tokio::test(start_paused = true)]
async fn every_ordinal_that_is_content_is_kept_and_faults_and_graders_are_not() {
    let (_room, archive) = archive();
    let ledger = Ledger::memory();
    let heads = [
        document("hel", "stop"),
        Head { status: Ok(500), ..document("not an answer", "stop") },
        document("hello", "stop"),
    ];
    let retry = LedgerRetry::new().grade_below(0.5);
    let service = call(&ledger, &archive, score(), retry.clone(), heads);
    whole(service, chat("c")).await.expect("answered");
    let all = rows(&ledger, "c");
    let texts: Vec<_> = all.iter().map(|row| kept(&archive, row)).collect();
    assert_eq!(texts, [Some("hel".to_owned()), None, Some("hello".to_owned())]);
    assert_eq!(all[0].score, Some(0.25));
    assert_eq!(files(&archive), 2);

    let grader = Case::new(slot("g").role(Role::Grader));
    let service = call(&ledger, &archive, score(), retry, [document("1.0", "stop")]);
    whole(service, with_case(grader)).await.expect("answered");
    assert_eq!(rows(&ledger, "g")[0].verdict, Some(Verdict::Ok));
    assert_eq!(files(&archive), 2);
    assert!(archive.failures().is_none());
}

/// It is there when the grader is asked, and stays when there is no grade.
#[tokio::test(start_paused = true)]
async fn an_answer_is_kept_before_it_is_graded_and_without_a_grader() {
    let (_room, archive) = archive();
    let ledger = Ledger::memory();
    let seen = archive.clone();
    let grader = GraderFn::new("looks", "1", move |input: GradeInput| {
        let found = seen.get(&attempt_ledger_core::answer_sha256(&input.content));
        async move {
            assert_eq!(found.expect("sound"), Some(input.content));
            Err::<f64, BoxError>("no grade".into())
        }
    });
    for (case, score) in [("a", ScoreLayer::new(grader)), ("b", ScoreLayer::none())] {
        let heads = [document(case, "stop")];
        let service = call(&ledger, &archive, score, LedgerRetry::new(), heads);
        whole(service, chat(case)).await.expect("answered");
        assert_eq!(kept(&archive, &rows(&ledger, case)[0]).as_deref(), Some(case));
    }
}

/// The answer of a reader who left at the done marker is kept, and then graded.
#[tokio::test(start_paused = true)]
async fn a_dropped_body_leaves_its_answer_and_its_grade() {
    for delay in [ms(0), ms(50)] {
        let (_room, archive) = archive();
        let ledger = slow_ledger(delay, FailAt::Never);
        let events = [
            "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
        ];
        let mut steps: Vec<Step> = events.into_iter().map(Step::from).collect();
        steps.push(Step::Stall);
        let service = call(&ledger, &archive, score(), LedgerRetry::new(), [sse(steps)]);
        let mut body = service.oneshot(chat("c")).await.expect("a head").into_body();
        for _ in 0..2 {
            body.frame().await.expect("a frame").expect("data");
        }
        drop(body);
        let row = loop {
            tokio::time::sleep(ms(1)).await;
            let row = rows(&ledger, "c").remove(0);
            if row.score.is_some() {
                break row;
            }
        };
        assert_eq!(kept(&archive, &row).as_deref(), Some("hello"));
        assert!(archive.failures().is_none());
    }
}

/// A row that is not recorded has no answer in the archive, and that is not the archive's failure.
#[tokio::test(start_paused = true)]
async fn what_is_not_recorded_is_not_kept() {
    for drop_early in [false, true] {
        let (_room, archive) = archive();
        let ledger = slow_ledger(ms(50), FailAt::Kind("closed", 1));
        let heads = [document("hello", "stop")];
        let service = call(&ledger, &archive, score(), LedgerRetry::new(), heads);
        if drop_early {
            // The head and the body come after 10 ms, and the closing is never acknowledged.
            let gone = tokio::time::timeout(ms(20), whole(service, chat("c"))).await;
            assert!(gone.is_err() || gone.is_ok_and(|done| done.is_err()));
        } else {
            whole(service, chat("c")).await.expect_err("a ledger error");
        }
        tokio::time::sleep(s(60)).await;
        assert_eq!(files(&archive), 0);
        assert!(archive.failures().is_none(), "{:?}", archive.failures());
    }
}

#[tokio::test(start_paused = true)]
async fn an_archive_that_fails_fails_no_call_and_is_told() {
    let room = tempfile::tempdir().expect("a directory");
    let io = TestIo::new();
    let archive = Archive::open_with(Arc::new(io.clone()), room.path().join("archive"));
    let archive = archive.expect("opens");
    let ledger = Ledger::memory();
    io.fail(Some(Call::Create), 1, Fault::Errno(28), true);
    for case in ["a", "b"] {
        let heads = [document("hello", "stop")];
        let service = call(&ledger, &archive, score(), LedgerRetry::new(), heads);
        whole(service, chat(case)).await.expect("answered");
        assert!(rows(&ledger, case)[0].score.is_some());
    }
    let failures = archive.failures().expect("counted");
    assert_eq!(failures.count, 2);
    let answer = rows(&ledger, "a")[0].answer_sha256.map(|answer: Digest| answer.hex());
    assert!(failures.last.to_string().contains(&answer.expect("content")), "{}", failures.last);
}

/// A disk that hangs holds a call for as long as an acknowledgement may take, and its grade for none
/// longer; a reader who leaves meanwhile does not lose the grade.
#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_delays_a_call_by_a_bound() {
    for leaves in [false, true] {
        let room = tempfile::tempdir().expect("a directory");
        let (hung, reached, release) = Hung::new();
        let archive = Archive::open_with(Arc::new(hung), room.path().join("archive"));
        let archive = archive.expect("opens");
        let ledger = Ledger::memory();
        let clocks = Clocks::default();
        let layer = LedgerLayer::new(ledger.clone()).archive(archive.clone()).clocks(clocks);
        let inner = Frames::new([document("hello", "stop")]);
        let service = stack(CallLayer::new(), LedgerRetry::new(), score(), layer, inner);
        let call = tokio::spawn(async move {
            let response = service.oneshot(chat("c")).await.expect("answered");
            text(response.into_body()).await
        });
        reached.await.expect("it is being written");
        assert!(!call.is_finished());
        if leaves {
            call.abort();
        } else {
            // tokio's clock stands still while a thread of its pool works.
            tokio::time::advance(s(10)).await;
        }
        while rows(&ledger, "c")[0].score.is_none() {
            tokio::time::advance(ms(100)).await;
        }
        assert_eq!(files(&archive), 0);
        if !leaves {
            assert!(call.await.expect("ended").expect("read").contains("hello"));
        }
        release.send(()).expect("it waits");
        while kept(&archive, &rows(&ledger, "c")[0]).is_none() {
            tokio::task::yield_now().await;
        }
    }
}

/// A file system that hangs when a file is made.
#[derive(Debug)]
struct Hung {
    inner: TestIo,
    reached: Mutex<Option<tokio::sync::oneshot::Sender<()>>>,
    release: Mutex<mpsc::Receiver<()>>,
}

impl Hung {
    fn new() -> (Self, tokio::sync::oneshot::Receiver<()>, mpsc::Sender<()>) {
        let (reached, is_reached) = tokio::sync::oneshot::channel();
        let (release, is_released) = mpsc::channel();
        let hung = Hung {
            inner: TestIo::new(),
            reached: Mutex::new(Some(reached)),
            release: Mutex::new(is_released),
        };
        (hung, is_reached, release)
    }
}

impl Io for Hung {
    fn create_new(&self, file: &Path) -> io::Result<Box<dyn IoFile>> {
        if let Some(reached) = self.reached.lock().expect("sound").take() {
            let _ = reached.send(());
            let _ = self.release.lock().expect("sound").recv();
        }
        self.inner.create_new(file)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn open_lock(&self, file: &Path) -> io::Result<File> {
        self.inner.open_lock(file)
    }

    fn is_at(&self, open: &File, path: &Path) -> io::Result<bool> {
        self.inner.is_at(open, path)
    }

    fn open_read(&self, file: &Path) -> io::Result<Box<dyn IoRead>> {
        self.inner.open_read(file)
    }

    fn open_read_direct(&self, file: &Path) -> io::Result<Box<dyn IoRead>> {
        self.inner.open_read_direct(file)
    }

    fn open_append(&self, file: &Path) -> io::Result<Box<dyn IoFile>> {
        self.inner.open_append(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, file: &Path) -> io::Result<()> {
        self.inner.remove(file)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn network_fs(&self, dir: &Path) -> io::Result<Option<&'static str>> {
        self.inner.network_fs(dir)
    }
}
