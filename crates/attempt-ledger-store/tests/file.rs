//! What holds of a ledger in files: reopening, torn tails, damage, rotation, locks.
#![allow(clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use std::{
    fs,
    io::Write as _,
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink},
    path::Path,
    sync::Arc,
};

use attempt_ledger_core::{Event, Ordinal, Verdict};
use attempt_ledger_store::{
    Ledger, StoreError,
    file::{DamageKind, FileOptions, FileReader, OpenError, TailKind},
    testing::{Op, TestIo},
};
use common::*;

/// A ledger of a few rows of every common kind, in one segment.
async fn small(dir: &Path) {
    let ledger = open_file(dir);
    let mut right = attempt(&ledger, "a", Verdict::Ok).await;
    right.score(grade(right.attempt(), 0.25)).await.expect("scored");
    drop(attempt(&ledger, "a", Verdict::Deadline).await);
    drop(ledger.open(request("b")).await.expect("opened"));
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("made");
    for entry in fs::read_dir(from).expect("lists") {
        let path = entry.expect("entry").path();
        fs::copy(&path, to.join(path.file_name().expect("name"))).expect("copied");
    }
}

fn append_raw(dir: &Path, bytes: &[u8]) {
    let path = segments(dir).pop().expect("a segment");
    let mut file = fs::OpenOptions::new().append(true).open(path).expect("opens");
    file.write_all(bytes).expect("written");
}

fn damage_of(result: Result<Ledger, OpenError>) -> attempt_ledger_store::file::Damage {
    match result {
        Err(OpenError::Damaged(damage)) => damage,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened"),
    }
}

#[tokio::test]
async fn reopening_goes_on_where_the_last_writer_was() {
    let room = Room::new();
    small(&room.dir()).await;
    let ledger = open_file(&room.dir());
    let state = ledger.slot(&slot("a")).expect("known");
    assert_eq!((state.last.get(), state.frozen), (2, Some(0.25)));
    assert_eq!(state.first_verdict, Some(Verdict::Ok));
    assert_eq!(state.newest_closed.map(|c| c.1), Some(Verdict::Deadline));
    assert_eq!(ledger.slot(&slot("b")).expect("known").open, 0, "its writer is gone: it is lost");
    let (_right, ordinal) = ledger.open(request("a")).await.expect("opened");
    assert_eq!(ordinal.map(Ordinal::get), Some(3));
    let refused = ledger.score(grade(state.first, 1.0)).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "frozen for good");
    drop((_right, ledger));
    let records = read_clean(&room.dir());
    assert_eq!(
        kinds(&records),
        [
            "segment",
            "session",
            "opened",
            "closed",
            "scored",
            "opened",
            "closed",
            "opened",
            "session",
            "opened",
            "grade_refused"
        ]
    );
    assert!(records.iter().map(|r| r.seq).eq(0..11));
}

#[tokio::test]
async fn a_line_is_json_with_the_frame_last() {
    let room = Room::new();
    small(&room.dir()).await;
    let text = fs::read_to_string(&segments(&room.dir())[0]).expect("reads");
    assert!(text.ends_with('\n'));
    for (n, line) in text.lines().enumerate() {
        assert!(line.starts_with(&format!("{{\"v\":1,\"seq\":{n},\"time\":\"20")), "{line}");
        let value: serde_json::Value = serde_json::from_str(line).expect("json");
        assert_eq!(value["seq"], n);
        assert!(value["kind"].is_string());
        let (h, c) = (value["h"].as_str().expect("h"), value["c"].as_str().expect("c"));
        assert!(line.ends_with(&format!(",\"h\":\"{h}\",\"c\":\"{c}\"}}")));
        assert_eq!((h.len(), c.len()), (64, 8));
    }
    let mut reader = FileReader::open(room.dir()).expect("opens");
    for line in text.lines() {
        assert_eq!(reader.next_line().expect("a row").expect("whole"), line.as_bytes());
    }
    assert!(reader.next_line().is_none());
    let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o777;
    assert_eq!(mode(&room.dir()), 0o700);
    for name in ["FORMAT", "lock", "000000000000.jsonl"] {
        assert_eq!(mode(&room.dir().join(name)), 0o600, "{name}");
    }
}

/// Every prefix of a ledger opens with exactly the rows that are whole in it.
#[tokio::test]
async fn every_truncation_keeps_exactly_the_whole_rows() {
    let room = Room::new();
    small(&room.dir()).await;
    let whole = fs::read(&segments(&room.dir())[0]).expect("reads");
    let header = whole.iter().position(|&b| b == b'\n').expect("a line") + 1;
    let ends: Vec<_> =
        whole.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at).collect();
    let records = read_clean(&room.dir());
    for cut in header..=whole.len() {
        let dir = room.dir().with_extension("cut");
        copy(&room.dir(), &dir);
        fs::write(&segments(&dir)[0], &whole[..cut]).expect("written");
        // A row is whole with or without its newline.
        let rows = ends.iter().filter(|&&end| end <= cut).count();
        let (seen, tail) = read(&dir);
        let tail = tail.expect("no damage").kind;
        assert_eq!(seen, records[..rows], "cut at {cut}");
        let expected = match cut {
            _ if ends.contains(&cut) => TailKind::Unterminated,
            _ if ends.contains(&(cut - 1)) => TailKind::Clean,
            _ => TailKind::Torn,
        };
        assert_eq!(tail, expected, "cut at {cut}");
        // Opening syncs, so only around line ends and at every 16th cut.
        if tail != TailKind::Torn || cut % 16 == 0 {
            let ledger = open_file(&dir);
            drop(ledger.open(request("b")).await.expect("opened"));
            drop(ledger);
            let again: Vec<_> = read_clean(&dir);
            assert_eq!(again[..rows], records[..rows]);
            let added = if tail == TailKind::Torn {
                assert_eq!(segments(&dir).len(), 2, "set aside, not cut off");
                assert!(fs::read(&segments(&dir)[0]).expect("reads") == whole[..cut]);
                ["segment", "session", "opened"].as_slice()
            } else {
                assert_eq!(segments(&dir).len(), 1);
                ["session", "opened"].as_slice()
            };
            assert_eq!(kinds(&again[rows..]), added);
        }
        fs::remove_dir_all(&dir).expect("removed");
    }
}

#[tokio::test]
async fn every_flipped_bit_is_detected() {
    let room = Room::new();
    small(&room.dir()).await;
    // Two segments, the first with bytes set aside.
    append_raw(&room.dir(), b"{\"v\":1,\"seq\":8,\"ti");
    drop(open_file(&room.dir()));
    let mut flips = 0;
    for path in [segments(&room.dir()), vec![room.dir().join("FORMAT")]].concat() {
        let whole = fs::read(&path).expect("reads");
        let file = fs::OpenOptions::new().write(true).open(&path).expect("opens");
        for (at, &byte) in whole.iter().enumerate() {
            for bit in 0..8 {
                file.write_all_at(&[byte ^ 1 << bit], at as u64).expect("written");
                let detected = match FileReader::open(room.dir()) {
                    Err(OpenError::Damaged(_) | OpenError::NewerFormat { .. }) => true,
                    Err(other) => panic!("{other}"),
                    Ok(mut reader) => {
                        while reader.next_line().is_some_and(|line| line.is_ok()) {}
                        reader.tail().is_none()
                    }
                };
                assert!(detected, "{}: bit {bit} of byte {at}", path.display());
                flips += 1;
            }
            file.write_all_at(&[byte], at as u64).expect("written");
        }
    }
    assert!(flips > 20_000);
    assert_eq!(read_clean(&room.dir()).len(), 10);
}

#[tokio::test]
async fn every_mangled_line_is_detected() {
    let room = Room::new();
    small(&room.dir()).await;
    let path = &segments(&room.dir())[0];
    let whole = fs::read(path).expect("reads");
    let lines: Vec<&[u8]> = whole.split_inclusive(|&b| b == b'\n').collect();
    let last = lines.len() - 1;
    let mut mangled: Vec<(String, Vec<u8>)> = Vec::new();
    for n in 0..lines.len() {
        let mut with = |what: &str, lines: &[&[u8]]| {
            mangled.push((format!("{what} {n}"), lines.concat()));
        };
        if n < last {
            let mut removed = lines.clone();
            removed.remove(n);
            with("removed", &removed);
            let mut swapped = lines.clone();
            swapped.swap(n, n + 1);
            with("swapped", &swapped);
        }
        let mut doubled = lines.clone();
        doubled.insert(n, lines[n]);
        with("doubled", &doubled);
        let blank = lines[n].to_ascii_uppercase();
        let mut upper = lines.clone();
        upper[n] = &blank;
        with("upper case", &upper);
        let row = &lines[n][..lines[n].len() - 1];
        for (what, ending) in [("crlf", &b"\r\n"[..]), ("space", b" \n"), ("empty line", b"\n\n")] {
            let longer = [row, ending].concat();
            let mut changed = lines.clone();
            changed[n] = &longer;
            with(what, &changed);
        }
        let shorter = [&row[..row.len() - 1], b"\n"].concat();
        let mut changed = lines.clone();
        changed[n] = &shorter;
        with("shorter", &changed);
    }
    mangled.push(("bom".into(), [b"\xEF\xBB\xBF", &whole[..]].concat()));
    mangled.push(("more".into(), [&whole[..], b"x\n"].concat()));
    mangled
        .push(("crlf file".into(), String::from_utf8_lossy(&whole).replace('\n', "\r\n").into()));
    for at in (0..whole.len()).step_by(512) {
        let mut zeros = whole.clone();
        let end = whole.len().min(at + 512);
        zeros[at..end].fill(0);
        mangled.push((format!("zeros at {at}"), zeros));
    }
    for (what, bytes) in mangled {
        fs::write(path, bytes).expect("written");
        let (_, tail) = read(&room.dir());
        let fine = tail.is_ok_and(|tail| tail.kind == TailKind::Clean);
        assert!(!fine, "{what}");
    }
}

#[tokio::test]
async fn damage_names_its_place_and_stops_the_writer() {
    let room = Room::new();
    small(&room.dir()).await;
    let path = &segments(&room.dir())[0];
    let whole = fs::read(path).expect("reads");
    let third = whole.split_inclusive(|&b| b == b'\n').take(2).map(<[u8]>::len).sum::<usize>();
    let mut bytes = whole.clone();
    bytes[third + 40] ^= 1;
    fs::write(path, &bytes).expect("written");
    let damage = damage_of(FileOptions::new(room.dir()).open());
    assert!(matches!(damage.kind, DamageKind::Checksum));
    assert_eq!((&*damage.file, damage.offset, damage.seq), (&**path, third as u64, 2));
    assert!(damage.to_string().contains("damaged at byte"), "{damage}");
    assert_eq!(fs::read(path).expect("reads"), bytes, "nothing was written");

    // The flip of the last newline would hide a whole row as torn, but for the rule on rows.
    let mut bytes = whole.clone();
    *bytes.last_mut().expect("a byte") ^= 1;
    fs::write(path, &bytes).expect("written");
    assert!(matches!(damage_of(FileOptions::new(room.dir()).open()).kind, DamageKind::AfterRow));
}

#[tokio::test]
async fn a_tail_of_zeros_is_torn_and_a_hole_is_a_hole() {
    let room = Room::new();
    small(&room.dir()).await;
    let rows = read_clean(&room.dir()).len();
    append_raw(&room.dir(), &[&b"{\"v\":1,\"se"[..], &[0; 5_000]].concat());
    let tail = read(&room.dir()).1.expect("no damage");
    assert_eq!((tail.kind, tail.ignored_len), (TailKind::Torn, 5_010));
    drop(open_file(&room.dir()));
    assert_eq!(read_clean(&room.dir()).len(), rows + 2);

    // Zeros that end within a sector are no page that was never written.
    let odd = Room::new();
    copy(&room.dir(), &odd.dir());
    let len = fs::metadata(segments(&odd.dir()).pop().expect("a segment")).expect("there").len();
    append_raw(&odd.dir(), &[&vec![0; 1024 - len as usize % 512 + 7][..], b"x\n"].concat());
    assert!(read(&odd.dir()).1.is_err());

    // Zeros to the end of a sector, and a whole row of a later ordinal beyond them.
    let beyond = Room::new();
    copy(&room.dir(), &beyond.dir());
    let ledger = open_file(&beyond.dir());
    for _ in 0..3 {
        drop(ledger.open(request("b")).await.expect("opened"));
    }
    drop(ledger);
    let last = |dir: &Path| fs::read(segments(dir).pop().expect("a segment")).expect("reads");
    let longer = last(&beyond.dir());
    let lines: Vec<&[u8]> = longer.split_inclusive(|&b| b == b'\n').collect();
    let len = last(&room.dir()).len();
    let zeros = vec![0; 1024 - len % 512];
    append_raw(&room.dir(), &[&zeros[..], lines[lines.len() - 1]].concat());
    let tail = read(&room.dir()).1.expect("no damage");
    assert_eq!(tail.kind, TailKind::Hole);
    // Counted at this opening from the tail, and at the next from the bytes that were set aside.
    drop(open_file(&room.dir()));
    let ledger = open_file(&room.dir());
    let (_right, ordinal) = ledger.open(request("b")).await.expect("opened");
    assert_eq!(ordinal.map(Ordinal::get), Some(5), "ordinal 4 lies beyond the hole");
    drop((_right, ledger));
    // And still at the opening after that, from the bytes that were set aside.
    let ledger = open_file(&room.dir());
    let (_right, ordinal) = ledger.open(request("b")).await.expect("opened");
    assert_eq!(ordinal.map(Ordinal::get), Some(6));
    assert_eq!(ordinals(&read_clean(&room.dir()), "b"), [1, 5, 6]);
}

#[tokio::test]
async fn segments_are_finished_and_chained() {
    let room = Room::new();
    let io = TestIo::new();
    let options = FileOptions::new(room.dir()).segment_bytes(3_000).io(Arc::new(io.clone()));
    let ledger = options.clone().open().expect("opens");
    for _ in 0..40 {
        drop(attempt(&ledger, "a", Verdict::Ok).await);
    }
    assert_eq!(ledger.records().expect("reads").len(), read_clean(&room.dir()).len());
    drop(ledger);
    let records = read_clean(&room.dir());
    let paths = segments(&room.dir());
    assert!(paths.len() > 5);
    assert_eq!(ordinals(&records, "a"), (1..=40).collect::<Vec<_>>());
    for pair in records.windows(2) {
        if let Event::Segment(segment) = &pair[1].event {
            assert!(matches!(&pair[0].event, Event::Sealed(s) if s.next == pair[1].seq));
            assert_eq!(segment.ignored_len, 0);
            assert!(room.dir().join(format!("{:012}.jsonl", pair[1].seq)).exists());
        }
    }
    // A segment gets its name only when its header is on disk, and rows follow only when the name is.
    let ops = io.ops();
    for (at, op) in ops.iter().enumerate() {
        let Op::Rename { from, to } = op else { continue };
        assert!(from.starts_with("tmp-"), "{from}");
        assert_eq!(ops[at - 1], Op::Sync(from.clone()));
        assert!(matches!(&ops[at + 1], Op::SyncDir(_)), "{to}");
    }
    let sealed = ops.iter().position(|op| op.writes("\"kind\":\"sealed\"")).expect("sealed");
    assert!(matches!(ops[sealed + 1..], [Op::Sync(_), Op::Create(_), ..]));

    let ledger = options.open().expect("opens");
    let (_right, ordinal) = ledger.open(request("a")).await.expect("opened");
    assert_eq!(ordinal.map(Ordinal::get), Some(41));

    // An earlier segment that is missing, cut or longer is damage.
    for (n, path) in paths[..paths.len() - 1].iter().enumerate() {
        let whole = fs::read(path).expect("reads");
        fs::remove_file(path).expect("removed");
        assert!(read(&room.dir()).1.is_err(), "missing {n}");
        fs::write(path, &whole[..whole.len() - 1]).expect("written");
        assert!(read(&room.dir()).1.is_err(), "cut {n}");
        fs::write(path, [&whole[..], b"x"].concat()).expect("written");
        assert!(read(&room.dir()).1.is_err(), "longer {n}");
        fs::write(path, &whole).expect("written");
    }
    read_clean(&room.dir());
}

#[tokio::test]
async fn a_writer_killed_between_two_segments_goes_on() {
    let room = Room::new();
    let ledger = FileOptions::new(room.dir()).segment_bytes(2_000).open().expect("opens");
    for _ in 0..4 {
        drop(attempt(&ledger, "a", Verdict::Ok).await);
    }
    drop(ledger);
    let last = segments(&room.dir()).pop().expect("a segment");
    let before = read_clean(&room.dir());
    let temporary = room.dir().join(format!("tmp-1-{:032x}", 2));
    fs::rename(&last, &temporary).expect("renamed");
    assert!(matches!(read_clean(&room.dir()).pop().expect("a row").event, Event::Sealed(_)));
    let ledger = FileOptions::new(room.dir()).open().expect("opens");
    assert!(last.exists() && !temporary.exists());
    drop(attempt(&ledger, "z", Verdict::Ok).await);
    drop(ledger);
    let after = read_clean(&room.dir());
    let kept = before.iter().filter(|r| format!("{:012}.jsonl", r.seq) < name(&last)).count();
    assert_eq!(after[..kept], before[..kept]);
}

fn name(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().into_owned()
}

#[tokio::test]
async fn a_second_writer_is_refused_and_told_who_holds_it() {
    let room = Room::new();
    let ledger = FileOptions::new(room.dir()).tool_version("9.9").open().expect("opens");
    let error = FileOptions::new(room.dir()).open().expect_err("held");
    let OpenError::Held { holder: Some(holder), .. } = &error else { panic!("{error}") };
    assert_eq!((holder.pid, holder.session), (std::process::id(), ledger.session()));
    assert!(error.to_string().contains(&format!("process {} on", std::process::id())), "{error}");
    let reader = FileReader::open(room.dir()).expect("readers are welcome");
    assert_eq!(reader.live_session().expect("known"), Some(ledger.session()));
    drop(ledger);
    assert_eq!(reader.live_session().expect("known"), None);
    open_file(&room.dir());
}

#[tokio::test]
async fn what_can_not_be_trusted_is_refused() {
    let room = Room::new();
    let error = FileReader::open(room.dir()).expect_err("nothing there");
    assert!(matches!(error, OpenError::Missing(_) | OpenError::Io { .. }));
    let error = FileOptions::new(room.dir()).create(false).open().expect_err("nothing there");
    assert!(matches!(error, OpenError::Missing(_)));
    assert!(!room.dir().exists(), "and nothing made");
    small(&room.dir()).await;
    FileOptions::new(room.dir()).create(false).open().expect("opens what is there");

    for mode in [0o770, 0o707] {
        fs::set_permissions(room.dir(), fs::Permissions::from_mode(mode)).expect("set");
        let error = FileOptions::new(room.dir()).open().expect_err("others may write");
        assert!(matches!(error, OpenError::Writable { .. }), "{error}");
    }
    fs::set_permissions(room.dir(), fs::Permissions::from_mode(0o755)).expect("set");
    open_file(&room.dir());

    let io = TestIo::new();
    io.pretend_network_fs(Some("NFS"));
    let options = FileOptions::new(room.dir()).io(Arc::new(io));
    let error = options.clone().open().expect_err("on NFS");
    assert!(matches!(error, OpenError::NetworkFs { kind: "NFS", .. }));
    options.allow_network_fs(true).open().expect("on request");

    for name in ["lock", "000000000000.jsonl", "FORMAT"] {
        let (path, aside) = (room.dir().join(name), room.dir().join("aside"));
        fs::rename(&path, &aside).expect("renamed");
        symlink(&aside, &path).expect("linked");
        let error = FileOptions::new(room.dir()).open().expect_err("a symbolic link");
        assert!(error.to_string().contains(name), "{error}");
        fs::remove_file(&path).expect("removed");
        fs::rename(&aside, &path).expect("renamed");
    }

    let format = room.dir().join("FORMAT");
    let line = fs::read_to_string(&format).expect("reads");
    fs::write(&format, line.replace("attempt-ledger 1 ", "attempt-ledger 2 ")).expect("written");
    let error = FileOptions::new(room.dir()).open().expect_err("newer");
    assert!(matches!(error, OpenError::NewerFormat { found: 2, known: 1, .. }), "{error}");
    fs::remove_file(&format).expect("removed");
    assert!(matches!(damage_of(FileOptions::new(room.dir()).open()).kind, DamageKind::Format));
    fs::write(&format, line).expect("written");
    open_file(&room.dir());
}

#[tokio::test]
async fn a_row_that_is_too_long_is_refused_and_spends_nothing() {
    let room = Room::new();
    let ledger = open_file(&room.dir());
    let mut long = request("a");
    long.model = Some("m".repeat(70_000).into());
    let error = ledger.open(long).await.expect_err("too long");
    assert!(matches!(error, StoreError::RowTooLong { limit: 65_536, .. }), "{error}");
    let (_right, ordinal) = ledger.open(request("a")).await.expect("opened");
    assert_eq!(ordinal.map(Ordinal::get), Some(1));
    let mut near = request("b");
    near.model = Some("m".repeat(64_000).into());
    drop(ledger.open(near).await.expect("fits"));
    drop((_right, ledger));
    assert_eq!(read_clean(&room.dir()).len(), 4);
}

#[tokio::test]
async fn dropping_the_last_handle_writes_what_was_queued() {
    let room = Room::new();
    let io = TestIo::new();
    let ledger = FileOptions::new(room.dir()).io(Arc::new(io.clone())).open().expect("opens");
    let mut right = ledger.open(request("a")).await.expect("opened").0;
    drop(right.close(closed(right.attempt(), Verdict::Ok)));
    drop((right, ledger));
    assert_eq!(kinds(&read_clean(&room.dir())), ["segment", "session", "opened", "closed"]);
    assert!(matches!(io.ops().last(), Some(Op::Sync(_))), "closes alone are synced too");
}
