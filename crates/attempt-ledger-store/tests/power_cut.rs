//! The power fails at a random moment: of each file what was synced is left, of what was written
//! since a random part, and of new names the first few. `ROUNDS` (12) and `SEED` are heard.
#![allow(clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::DirBuilderExt as _,
    path::Path,
    sync::Arc,
};

use attempt_ledger_core::{Event, Fold, Ordinal, Record, Verdict};
use attempt_ledger_store::{
    file::FileOptions,
    testing::{Op, TestIo},
};
use common::*;
use tokio::task::JoinSet;

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n.max(1) as u64).expect("fits")
    }
}

/// A file of the disk's, under the name it was made with.
#[derive(Default)]
struct Made {
    bytes: Vec<u8>,
    synced: usize,
}

/// What a disk may hold, and what was acknowledged, after some of the calls.
#[derive(Default)]
struct Disk {
    files: BTreeMap<String, Made>,
    /// Names as last synced, and the name their file was made with.
    names: BTreeMap<String, String>,
    /// Changes of names since.
    pending: Vec<Op>,
    made_as: BTreeMap<String, String>,
    told: BTreeSet<String>,
}

impl Disk {
    fn after(ops: &[Op]) -> Self {
        let mut disk = Disk::default();
        for op in ops {
            disk.apply(op);
        }
        disk
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Create(name) => {
                self.files.insert(name.clone(), Made::default());
                self.pending.push(op.clone());
            }
            Op::Write { file, bytes } => self.file(file).bytes.extend(bytes),
            Op::Sync(file) => {
                let file = self.file(file);
                file.synced = file.bytes.len();
            }
            Op::Rename { from, to } => {
                self.made_as.insert(to.clone(), from.clone());
                self.pending.push(op.clone());
            }
            Op::Remove(_) => self.pending.push(op.clone()),
            Op::SyncDir(name) if name == "ledger" => self.keep_names(usize::MAX),
            Op::Mark(told) => {
                self.told.insert(told.clone());
            }
            _ => {}
        }
    }

    fn file(&mut self, name: &str) -> &mut Made {
        let made_as = self.made_as.get(name).map_or(name, String::as_str);
        self.files.get_mut(made_as).expect("a file that was made")
    }

    fn keep_names(&mut self, count: usize) {
        let count = count.min(self.pending.len());
        for op in self.pending.drain(..count) {
            match op {
                Op::Create(name) => {
                    self.names.insert(name.clone(), name);
                }
                Op::Rename { from, to } => {
                    let file = self.names.remove(&from).expect("in order");
                    self.names.insert(to, file);
                }
                Op::Remove(name) => {
                    self.names.remove(&name);
                }
                _ => {}
            }
        }
    }

    /// Makes `dir` as the power cut may have left it.
    fn leave(&mut self, dir: &Path, rng: &mut Rng) {
        self.keep_names(rng.below(self.pending.len() + 1));
        fs::DirBuilder::new().mode(0o700).create(dir).expect("made");
        let (cut, holes) = (rng.below(2) == 0, rng.below(2) == 0);
        for (name, made_as) in &self.names {
            let Made { bytes, synced } = &self.files[made_as];
            let mut bytes = bytes.clone();
            if cut {
                bytes.truncate(synced + rng.below(bytes.len() - synced + 1));
            }
            if holes {
                lose(&mut bytes, *synced, [512, 4_096][rng.below(2)], rng);
            }
            fs::write(dir.join(name), bytes).expect("written");
        }
    }
}

/// Zeros a third of the blocks that were not synced.
fn lose(bytes: &mut [u8], synced: usize, block: usize, rng: &mut Rng) {
    for at in (synced / block * block..bytes.len()).step_by(block) {
        if rng.below(3) == 0 {
            let end = bytes.len().min(at + block);
            bytes[at.max(synced)..end].fill(0);
        }
    }
}

/// Tasks on two slots, so that batches hold many rows; twice, in small segments.
async fn run(options: &FileOptions, io: &TestIo, rng: &mut Rng) {
    for _ in 0..2 {
        let ledger = options.clone().open().expect("opens");
        let mut tasks = JoinSet::new();
        for task in 0..1 + rng.below(24) {
            let (ledger, io, times) = (ledger.clone(), io.clone(), 1 + rng.below(3));
            tasks.spawn(async move {
                let case = ["a", "b"][task % 2];
                for _ in 0..times {
                    let (mut right, ordinal) = ledger.open(request(case)).await.expect("opened");
                    let id = right.attempt();
                    io.mark(&format!("opened {id}"));
                    right.close(closed(id, Verdict::Ok)).await.expect("closed");
                    if ordinal.is_some_and(Ordinal::is_first) {
                        right.score(grade(id, 0.5)).await.expect("scored");
                        io.mark(&format!("scored {id}"));
                    }
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("runs");
        }
    }
}

fn told(record: &Record) -> Option<String> {
    match &record.event {
        Event::Opened(opened) => Some(format!("opened {}", opened.attempt)),
        Event::Scored(grade) => Some(format!("scored {}", grade.attempt)),
        _ => None,
    }
}

/// The ledger opens, goes on, reads whole, has all that was acknowledged as synced, and uses no
/// ordinal twice.
async fn holds(dir: &Path, disk: &Disk, what: &str) {
    let ledger = FileOptions::new(dir).open().unwrap_or_else(|e| panic!("{what}: {e}"));
    for case in ["a", "b"] {
        drop(ledger.open(request(case)).await.expect("opened"));
    }
    drop(ledger);
    let records = read_clean(dir);
    let mut fold = Fold::new();
    for record in &records {
        fold.push(record).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
    let there: BTreeSet<_> = records.iter().filter_map(told).collect();
    let lost: Vec<_> = disk.told.difference(&there).collect();
    assert!(lost.is_empty(), "{what}: {lost:?}");
    for case in ["a", "b"] {
        assert!(ordinals(&records, case).is_sorted_by(|a, b| a < b), "{what}");
    }
    drop(FileOptions::new(dir).open().unwrap_or_else(|e| panic!("{what}, again: {e}")));
    read_clean(dir);
}

/// Whatever a power cut leaves is gone on from, and what was acknowledged as synced is in it.
#[tokio::test]
async fn nothing_acknowledged_is_lost_by_a_power_cut() {
    let setting = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let rounds: u64 = setting("ROUNDS").unwrap_or(12);
    let seed: u64 = setting("SEED").unwrap_or(u64::from(std::process::id()));
    println!("SEED={seed}");
    let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    for round in 0..rounds {
        let room = Room::new();
        let io = TestIo::new();
        io.skip_syncs();
        let bytes = 1_500 + rng.below(6_000) as u64;
        let options = FileOptions::new(room.dir()).segment_bytes(bytes).io(Arc::new(io.clone()));
        run(&options, &io, &mut rng).await;
        let ops = io.ops();
        for _ in 0..12 {
            let cut = rng.below(ops.len() + 1);
            let mut disk = Disk::after(&ops[..cut]);
            let left = Room::new();
            disk.leave(&left.dir(), &mut rng);
            let what = format!("SEED={seed}, round {round}, cut after {cut} calls");
            holds(&left.dir(), &disk, &what).await;
        }
    }
}
