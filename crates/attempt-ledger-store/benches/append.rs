//! Appending rows, against the floor and against others, alternating in one run.
//!
//! `cargo bench -p attempt-ledger-store`; `ROUNDS` (7) and `ROUND_MS` (300) are heard. Absolute times
//! of a shared machine mean little: read the ratios, which are of medians over the rounds.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a benchmark")]

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use attempt_ledger_core::{CallId, CaseId, Cause, Digest, Durability, Label, Limits, RunId, Slot};
use attempt_ledger_store::{
    Ledger, OpenRequest,
    file::{FileOptions, FileReader, Io, IoFile, IoRead, RealIo},
};
use tokio::{
    runtime::Runtime,
    sync::{mpsc, oneshot},
    time::Instant,
};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// An opening as the middleware makes it; its row has some 700 bytes with its frame.
fn request(caller: usize) -> OpenRequest {
    let case = CaseId::new(format!("case-{caller}")).expect("id");
    let mut request = OpenRequest::new(&Slot::new(RunId::new("run-1").expect("id"), case));
    request.cause = Cause::Retry;
    request.call = Some(CallId::from_u128(0x0123_4567_89ab_cdef << 32));
    request.fingerprint = Some(Digest::of(b"request"));
    request.model = Some("model-2026-11".into());
    request.wire = Label::new("openai-chat");
    request.host = Some("api.example.com:443".into());
    request.carrier = Label::new("extension");
    request.limits =
        Limits { idle_us: Some(60_000_000), total_us: Some(600_000_000), ..Limits::default() };
    request
}

/// The operating system, with its syncs counted.
#[derive(Clone, Debug, Default)]
struct CountIo(Arc<AtomicU64>);

#[derive(Debug)]
struct CountFile(Box<dyn IoFile>, Arc<AtomicU64>);

impl IoFile for CountFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }
    fn sync_data(&mut self) -> io::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.sync_data()
    }
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }
}

impl Io for CountIo {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        RealIo.create_dir(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealIo.list(dir)
    }
    fn open_lock(&self, file: &Path) -> io::Result<File> {
        RealIo.open_lock(file)
    }
    fn is_at(&self, open: &File, path: &Path) -> io::Result<bool> {
        RealIo.is_at(open, path)
    }
    fn open_read(&self, file: &Path) -> io::Result<Box<dyn IoRead>> {
        RealIo.open_read(file)
    }
    fn open_read_direct(&self, file: &Path) -> io::Result<Box<dyn IoRead>> {
        RealIo.open_read_direct(file)
    }
    fn create_new(&self, file: &Path) -> io::Result<Box<dyn IoFile>> {
        Ok(Box::new(CountFile(RealIo.create_new(file)?, Arc::clone(&self.0))))
    }
    fn open_append(&self, file: &Path) -> io::Result<Box<dyn IoFile>> {
        Ok(Box::new(CountFile(RealIo.open_append(file)?, Arc::clone(&self.0))))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealIo.rename(from, to)
    }
    fn remove(&self, file: &Path) -> io::Result<()> {
        RealIo.remove(file)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealIo.sync_dir(dir)
    }
    fn network_fs(&self, dir: &Path) -> io::Result<Option<&'static str>> {
        RealIo.network_fs(dir)
    }
}

type Waiting = (Vec<u8>, oneshot::Sender<()>);

/// The floor: the same bytes, gathered the same way, with nothing decided, framed or kept.
fn raw(path: &Path) -> mpsc::UnboundedSender<Waiting> {
    let (sender, mut queue) = mpsc::unbounded_channel::<Waiting>();
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("opens");
    thread::spawn(move || {
        let (mut items, mut bytes) = (Vec::new(), Vec::new());
        while queue.blocking_recv_many(&mut items, 2_048) > 0 {
            bytes.clear();
            items.iter().for_each(|(row, _): &Waiting| bytes.extend_from_slice(row));
            file.write_all(&bytes).expect("written");
            file.sync_data().expect("synced");
            items.drain(..).for_each(|(_, answer)| answer.send(()).unwrap_or_default());
        }
    });
    sender
}

/// SQLite as a careful user has it: WAL, FULL, one transaction a batch, ordinals by a slot table.
fn sqlite(path: &Path) -> mpsc::UnboundedSender<Waiting> {
    let (sender, mut queue) = mpsc::unbounded_channel::<Waiting>();
    let mut db = rusqlite::Connection::open(path).expect("opens");
    db.pragma_update(None, "journal_mode", "wal").expect("wal");
    db.pragma_update(None, "synchronous", "full").expect("full");
    db.execute_batch("CREATE TABLE rows (seq INTEGER PRIMARY KEY, row TEXT NOT NULL) STRICT")
        .expect("made");
    thread::spawn(move || {
        let mut items: Vec<Waiting> = Vec::new();
        while queue.blocking_recv_many(&mut items, 2_048) > 0 {
            let batch = db.transaction().expect("begun");
            let mut insert =
                batch.prepare_cached("INSERT INTO rows (row) VALUES (?1)").expect("prepared");
            for (row, _) in &items {
                insert.execute([str::from_utf8(row).expect("text")]).expect("inserted");
            }
            drop(insert);
            batch.commit().expect("committed");
            items.drain(..).for_each(|(_, answer)| answer.send(()).unwrap_or_default());
        }
    });
    sender
}

#[derive(Clone, Copy, Debug, Default)]
struct Round {
    rows_per_s: f64,
    p50_us: f64,
    p99_us: f64,
    rows_per_sync: f64,
}

/// Lets `callers` tasks do `one` again and again for a while.
fn race<F, Fut>(tokio: &Runtime, callers: usize, one: F) -> Round
where
    F: Fn(usize) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = ()> + Send,
{
    let time = Duration::from_millis(setting("ROUND_MS", 300));
    tokio.block_on(async {
        let start = Instant::now();
        let tasks: Vec<_> = (0..callers)
            .map(|caller| {
                let one = one.clone();
                tokio::spawn(async move {
                    let mut took = Vec::new();
                    while start.elapsed() < time {
                        let begun = Instant::now();
                        one(caller).await;
                        took.push(begun.elapsed().as_nanos() as f64 / 1e3);
                    }
                    took
                })
            })
            .collect();
        let mut took = Vec::new();
        for task in tasks {
            took.extend(task.await.expect("runs"));
        }
        let rows_per_s = took.len() as f64 / start.elapsed().as_secs_f64();
        took.sort_by(f64::total_cmp);
        let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
        Round { rows_per_s, p50_us: at(0.5), p99_us: at(0.99), rows_per_sync: 0.0 }
    })
}

async fn send(queue: &mpsc::UnboundedSender<Waiting>, row: &[u8]) {
    let (answer, ack) = oneshot::channel();
    queue.send((row.to_vec(), answer)).expect("queued");
    ack.await.expect("answered");
}

fn ledger_round(tokio: &Runtime, callers: usize, ledger: &Ledger) -> Round {
    let ledger = ledger.clone();
    let requests: Arc<Vec<_>> = Arc::new((0..callers).map(request).collect());
    race(tokio, callers, move |caller| {
        let (ledger, requests) = (ledger.clone(), Arc::clone(&requests));
        async move { drop(ledger.open(requests[caller].clone()).await.expect("opened")) }
    })
}

fn median(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    let mut values: Vec<_> = rounds.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    // `cargo test` runs benchmarks too, to see that they start.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let rounds = setting("ROUNDS", 7);
    let room = tempfile::tempdir().expect("a directory");
    let row = sample_row(&tokio, room.path());
    println!("rows of {} bytes; {rounds} rounds of {} ms", row.len(), setting("ROUND_MS", 300));
    framing(&row, room.path());
    for callers in [1, 8, 64, 512] {
        let mut results: BTreeMap<&str, Vec<Round>> = BTreeMap::new();
        for n in 0..rounds {
            let dir = |what: &str| room.path().join(format!("{what}-{callers}-{n}"));
            let mut note = |what, round| results.entry(what).or_default().push(round);

            let io = CountIo::default();
            let options = FileOptions::new(dir("synced")).io(Arc::new(io.clone()));
            let ledger = options.open().expect("opens");
            let before = io.0.load(Ordering::Relaxed);
            let mut round = ledger_round(&tokio, callers, &ledger);
            let syncs = io.0.load(Ordering::Relaxed) - before;
            let rows = ledger.records().expect("reads").len() - 2;
            round.rows_per_sync = rows as f64 / syncs as f64;
            note("file synced", round);
            drop(ledger);

            let queue = raw(&dir("raw"));
            let shared: Arc<[u8]> = row.clone().into();
            let round = race(&tokio, callers, move |_| {
                let (queue, row) = (queue.clone(), Arc::clone(&shared));
                async move { send(&queue, &row).await }
            });
            note("raw group commit", round);

            let queue = sqlite(&dir("sqlite"));
            let shared: Arc<[u8]> = row.clone().into();
            let round = race(&tokio, callers, move |_| {
                let (queue, row) = (queue.clone(), Arc::clone(&shared));
                async move { send(&queue, &row).await }
            });
            note("sqlite wal full", round);

            let options = FileOptions::new(dir("written")).durability(Durability::Written);
            note("file written", ledger_round(&tokio, callers, &options.open().expect("opens")));
            note("memory", ledger_round(&tokio, callers, &Ledger::memory()));
            if callers == 1 {
                note("bare write + sync", bare(&dir("bare"), &row));
            }
        }
        println!("\n{callers} callers: rows/s, p50 us, p99 us, rows a sync");
        for (what, rounds) in &results {
            println!(
                "  {what:18} {:>9.0} {:>9.1} {:>9.1} {:>7.1}",
                median(rounds, |r| r.rows_per_s),
                median(rounds, |r| r.p50_us),
                median(rounds, |r| r.p99_us),
                median(rounds, |r| r.rows_per_sync),
            );
        }
        let speed = |what: &str| median(&results[what], |r| r.rows_per_s);
        println!(
            "  file synced is {:.2} x raw group commit, {:.2} x sqlite",
            speed("file synced") / speed("raw group commit"),
            speed("file synced") / speed("sqlite wal full"),
        );
        if let Some(bare) = results.get("bare write + sync") {
            let p50 = |rounds: &[Round]| median(rounds, |r| r.p50_us);
            println!(
                "  file synced p50 is {:.2} x bare write + sync",
                p50(&results["file synced"]) / p50(bare)
            );
        }
    }
}

/// One thread, no queue.
fn bare(path: &Path, row: &[u8]) -> Round {
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("opens");
    let (start, time) = (Instant::now(), Duration::from_millis(setting("ROUND_MS", 300)));
    let mut took = Vec::new();
    while start.elapsed() < time {
        let begun = Instant::now();
        file.write_all(row).expect("written");
        file.sync_data().expect("synced");
        took.push(begun.elapsed().as_nanos() as f64 / 1e3);
    }
    let rows_per_s = took.len() as f64 / start.elapsed().as_secs_f64();
    took.sort_by(f64::total_cmp);
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    Round { rows_per_s, p50_us: at(0.5), p99_us: at(0.99), rows_per_sync: 1.0 }
}

/// A row as the file store writes it, with its newline.
fn sample_row(tokio: &Runtime, room: &Path) -> Vec<u8> {
    let dir = room.join("sample");
    let ledger = FileOptions::new(&dir).open().expect("opens");
    drop(tokio.block_on(ledger.open(request(7))).expect("opened"));
    drop(ledger);
    let mut reader = FileReader::open(&dir).expect("opens");
    let mut row = Vec::new();
    while let Some(line) = reader.next_line() {
        row = line.expect("whole").to_vec();
    }
    row.push(b'\n');
    row
}

/// What a row costs the writer without any disk, and a reader.
fn framing(row: &[u8], room: &Path) {
    let dir = room.join("framing");
    let tokio = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let options = FileOptions::new(&dir).durability(Durability::Written);
    let ledger = options.open().expect("opens");
    let count = 200_000_u32;
    let begun = Instant::now();
    tokio.block_on(async {
        for _ in 0..count / 1_000 {
            let mut openings: Vec<_> = (0..1_000).map(|n| ledger.open(request(n))).collect();
            for opening in &mut openings {
                drop(opening.await.expect("opened"));
            }
        }
    });
    drop(ledger);
    let took = begun.elapsed() / count;
    println!("appending, caller and writer together, {} ns a row", took.as_nanos());
    let begun = Instant::now();
    let mut reader = FileReader::open(&dir).expect("opens");
    while let Some(line) = reader.next_line() {
        line.expect("whole");
    }
    let checked = begun.elapsed();
    let begun = Instant::now();
    let records = FileReader::open(&dir).expect("opens").count() as f64;
    let decoded = begun.elapsed();
    let mb = records * row.len() as f64 / 1e6;
    println!(
        "checking a row {:.0} ns ({:.0} MB/s), with decoding {:.0} ns",
        checked.as_nanos() as f64 / records,
        mb / checked.as_secs_f64(),
        decoded.as_nanos() as f64 / records,
    );
    let begun = Instant::now();
    drop(FileOptions::new(&dir).open().expect("opens"));
    println!("opening for writing {:.0} ns a row", begun.elapsed().as_nanos() as f64 / records);
}
