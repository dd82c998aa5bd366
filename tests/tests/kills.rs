//! SIGKILL at random moments of a loaded run: nothing that was acknowledged is lost, and no ordinal is
//! given twice.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
};

use attempt_ledger_core::{Fold, Folded, Liveness, Verdict};
use attempt_ledger_mock::{MockServer, Script, Step};
use attempt_ledger_store::file::FileReader;
use attempt_ledger_tests::seed;

const KILLS: usize = 100;

/// What the ledger on disk says, read by another process than the one that wrote it.
fn read(dir: &Path) -> (Folded, bool) {
    let mut reader = FileReader::open(dir).expect("readable");
    let mut fold = Fold::new();
    for record in &mut reader {
        fold.push(&record.expect("whole")).expect("a store keeps the rules");
    }
    let torn = reader.tail().is_some();
    // Its writer is dead: what is open is lost.
    (fold.finish(attempt_ledger_store::now(), &Liveness::Sessions(Default::default())), torn)
}

#[test]
fn a_hundred_kills_lose_nothing_that_was_acknowledged() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("runtime");
    let script = Script::new([
        Step::Good.into(),
        Step::Good.text("a longer answer"),
        Step::ServerError.into(),
        attempt_ledger_mock::Play::from(Step::StallMidBody),
    ])
    .cycle();
    let server = runtime.block_on(MockServer::start(script)).expect("server");
    let dir = tempfile::tempdir().expect("dir");
    let ledger = dir.path().join("ledger");
    let mut told: HashMap<(String, u32), (String, Option<f64>)> = HashMap::new();
    let (mut left_open, mut torn_met) = (0, 0);

    for kill in 0..KILLS {
        let mut child = Command::new(env!("CARGO_BIN_EXE_loaded_run"))
            .arg(&ledger)
            .arg(server.url())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("child");
        // The moment is a number of answers, not a time: any speed of the machine will do.
        let mut lines = BufReader::new(child.stdout.take().expect("pipe")).lines();
        let mut answers: Vec<String> = Vec::new();
        for _ in 0..random.usize(0..60) {
            match lines.next() {
                Some(line) => answers.push(line.expect("line")),
                None => panic!("SEED={seed}: the child ended by itself at kill {kill}"),
            }
        }
        child.kill().expect("killed");
        // Lines that were in the pipe were acknowledged, too.
        answers.extend(lines.map_while(Result::ok));
        child.wait().expect("reaped");
        for line in answers {
            let words: Vec<_> = line.split(' ').collect();
            let [case, ordinal, verdict, grade] = words[..] else { panic!("{line}") };
            let before = told.insert(
                (case.to_owned(), ordinal.parse().expect("number")),
                (verdict.to_owned(), grade.parse().ok()),
            );
            assert_eq!(before, None, "SEED={seed}: {case} was told ordinal {ordinal} twice");
        }
        if !ledger.join("FORMAT").exists() {
            continue;
        }
        let (folded, torn) = read(&ledger);
        torn_met += usize::from(torn);
        left_open += usize::from(folded.rows.iter().any(|row| row.verdict == Some(Verdict::Lost)));

        let mut rows = HashMap::new();
        let mut opened: HashMap<String, u32> = HashMap::new();
        for row in &folded.rows {
            let case = row.case.as_ref().expect("linked").to_string();
            let ordinal = row.ordinal.expect("linked").get();
            *opened.entry(case.clone()).or_default() += 1;
            let before = rows.insert((case, ordinal), row);
            assert!(before.is_none(), "SEED={seed}: an ordinal twice");
        }
        for (case, count) in &opened {
            assert!(rows.contains_key(&(case.clone(), *count)), "SEED={seed}: {case} has a gap");
        }
        for ((case, ordinal), (verdict, grade)) in &told {
            let row = rows.get(&(case.clone(), *ordinal)).unwrap_or_else(|| {
                panic!("SEED={seed}: {case} {ordinal} was acknowledged and is gone")
            });
            assert_eq!(
                row.verdict.map(|v| v.to_string()).as_ref(),
                Some(verdict),
                "SEED={seed}: {case} {ordinal}"
            );
            assert_eq!(row.any_grade(), *grade, "SEED={seed}: {case} {ordinal}");
        }
        // What reached the server had its row before.
        let mut sent: HashMap<String, u32> = HashMap::new();
        for request in server.received() {
            let body = String::from_utf8_lossy(&request.body).into_owned();
            let case = body
                .split("content\":\"")
                .nth(1)
                .and_then(|rest| rest.split('.').next())
                .expect("case");
            *sent.entry(case.to_owned()).or_default() += 1;
        }
        for (case, count) in sent {
            assert!(
                opened.get(&case).copied().unwrap_or(0) >= count,
                "SEED={seed}: {case} was sent {count} times"
            );
        }
        if kill == KILLS / 2 {
            // A torn tail as a power cut leaves it, if no kill has left one.
            let newest = std::fs::read_dir(&ledger)
                .expect("dir")
                .map(|entry| entry.expect("entry").path())
                .filter(|path| path.extension().is_some_and(|e| e == "jsonl"))
                .max()
                .expect("a segment");
            let mut file = std::fs::OpenOptions::new().append(true).open(newest).expect("segment");
            file.write_all(b"{\"v\":1,\"seq\":99,\"ti").expect("torn");
            drop(file);
            let (again, torn) = read(&ledger);
            assert!(torn && again.rows.len() == folded.rows.len());
            torn_met += 1;
        }
    }
    assert!(left_open >= 20, "SEED={seed}: only {left_open} kills left an open attempt");
    assert!(torn_met >= 1);
    assert!(told.len() > 500, "SEED={seed}: {} answers", told.len());
}
