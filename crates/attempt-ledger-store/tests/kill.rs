//! A writer is killed at a random moment, again and again: nothing it acknowledged is gone.
//! `KILLS` (20) and `SEED` are heard.
#![allow(clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
};

use attempt_ledger_core::Verdict;
use common::*;

const DIR: &str = "ATTEMPT_LEDGER_KILL_DIR";

/// The writer: prints each ordinal once it is acknowledged as synced. Not a test of its own.
#[test]
fn writer() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let tokio = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    tokio.block_on(async {
        let ledger = attempt_ledger_store::file::FileOptions::new(dir)
            .segment_bytes(20_000)
            .open()
            .expect("opens without repair");
        let one = || async {
            loop {
                let (mut right, ordinal) = ledger.open(request("a")).await.expect("opened");
                let mut out = std::io::stdout().lock();
                writeln!(out, "ordinal {}", ordinal.expect("linked")).expect("told");
                out.flush().expect("told");
                drop(out);
                right.close(closed(right.attempt(), Verdict::Ok)).await.expect("closed");
            }
        };
        tokio::join!(one(), one(), one(), one());
    });
}

#[test]
fn nothing_acknowledged_is_lost_by_a_kill() {
    let setting = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let kills: u64 = setting("KILLS").unwrap_or(20);
    let seed: u64 = setting("SEED").unwrap_or(u64::from(std::process::id()));
    println!("SEED={seed}");
    let room = Room::new();
    let mut told = Vec::new();
    for kill in 0..kills {
        let mut writer = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "writer", "--nocapture"])
            .env(DIR, room.dir())
            .stdout(Stdio::piped())
            .spawn()
            .expect("spawned");
        // Killed after so many acknowledgements, which takes a varying time: no clock is needed.
        let after = 1 + (seed.wrapping_add(kill).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 59);
        let mut lines = BufReader::new(writer.stdout.take().expect("piped")).lines();
        let mut ordinal = || {
            let line = lines.by_ref().map_while(Result::ok).find(|l| l.contains("ordinal "))?;
            line.rsplit_once("ordinal ")?.1.parse::<u32>().ok()
        };
        for _ in 0..after {
            told.push(ordinal().expect("the writer opens without repair, and goes on"));
        }
        writer.kill().expect("killed");
        while let Some(ordinal) = ordinal() {
            told.push(ordinal);
        }
        writer.wait().expect("gone");
        let (records, tail) = read(&room.dir());
        tail.expect("no damage");
        let rows = ordinals(&records, "a");
        assert!(rows.is_sorted_by(|a, b| a < b), "SEED={seed}");
        let last = rows.last().copied().unwrap_or(0);
        let skipped = last as usize - rows.len();
        assert_eq!(skipped, 0, "SEED={seed}: ordinals have no gaps");
        assert!(told.iter().all(|ordinal| *ordinal <= last), "SEED={seed}");
    }
    told.sort_unstable();
    assert!(told.windows(2).all(|pair| pair[0] < pair[1]), "SEED={seed}: an ordinal twice");
}
