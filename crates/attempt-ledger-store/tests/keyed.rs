//! What holds of a ledger whose fingerprints are keyed.
#![allow(clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    sync::Arc,
};

use attempt_ledger_core::{Digest, Event, Record, Verdict};
use attempt_ledger_store::{
    Capacity, FingerprintKey, Ledger, Memory, OpenRequest,
    file::{FileOptions, KeyFault, OpenError},
    testing::{Op, TestIo},
};
use common::*;

const KEY: &str = "fingerprint.key";

fn keyed(dir: &Path) -> Result<Ledger, OpenError> {
    FileOptions::new(dir).keyed(true).open()
}

fn plain(dir: &Path) -> Result<Ledger, OpenError> {
    FileOptions::new(dir).open()
}

#[track_caller]
fn fault(opened: Result<Ledger, OpenError>) -> KeyFault {
    match opened {
        Err(error @ OpenError::Key { fault, .. }) => {
            assert!(error.to_string().contains(KEY), "{error}");
            fault
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened"),
    }
}

/// An attempt at the prompt `text`, of which the fingerprint comes with the opening or the closing.
async fn prompt(ledger: &Ledger, case: &str, text: &str, streamed: bool) {
    let digest = Digest::of(text.as_bytes());
    let fixture = Some(Digest::of(format!("fixture of {text}").as_bytes()));
    let fingerprint = (!streamed).then_some(digest);
    let request = OpenRequest { fixture, fingerprint, ..request(case) };
    let (mut right, _) = ledger.open(request).await.expect("opened");
    let mut row = closed(right.attempt(), Verdict::Ok);
    row.fingerprint = streamed.then_some(digest);
    right.close(row).await.expect("closed");
}

/// All fingerprints and fixtures of a ledger.
fn digests(records: &[Record]) -> Vec<Digest> {
    let of = |record: &Record| match &record.event {
        Event::Opened(opened) => [opened.fingerprint, opened.fixture],
        Event::Closed(closed) => [closed.fingerprint, None],
        _ => [None, None],
    };
    records.iter().flat_map(of).flatten().collect()
}

/// From Python's `hmac`, and the same from `openssl mac`.
#[tokio::test]
async fn what_is_recorded_is_the_hmac_of_the_plain_digest() {
    let plain = "8a798890fe93817163b10b5f7bd2ca4d25d84c52739a645a889c173eee7d9d3d";
    let hmac = "31481f1af7c8bc36cad6792973b4067ca100deb0531a0317d43a14331c012ce5";
    let key = FingerprintKey::from_bytes(std::array::from_fn(|n| n as u8));
    assert_eq!(Digest::of(b"yes").hex(), plain);
    assert_eq!(key.digest(&Digest::of(b"yes")).hex(), hmac);
    assert_eq!(format!("{key:?}"), "FingerprintKey(..)");

    let ledger = Ledger::new_keyed(Arc::new(Memory::new(Capacity::default())), key);
    prompt(&ledger, "sent whole", "yes", false).await;
    prompt(&ledger, "streamed", "yes", true).await;
    let found = digests(&ledger.records().expect("read"));
    let (fingerprints, fixtures): (Vec<Digest>, Vec<Digest>) =
        found.into_iter().partition(|digest| digest.hex() == hmac);
    assert_eq!((fingerprints.len(), fixtures.len()), (2, 2));
    assert_eq!(fixtures[0], ledger.recorded(Digest::of(b"fixture of yes")));
    let newest = ledger.slot(&slot("streamed")).and_then(|state| state.newest_closed);
    assert_eq!(newest.and_then(|(.., print)| print), Some(ledger.recorded(Digest::of(b"yes"))));
}

#[tokio::test]
async fn no_byte_of_a_ledger_tells_a_short_prompt_and_a_reopened_one_is_equal() {
    let room = Room::new();
    let dir = room.dir();
    let ledger = keyed(&dir).expect("opens");
    prompt(&ledger, "a", "yes", false).await;
    prompt(&ledger, "b", "yes", true).await;
    assert!(ledger.is_keyed());
    drop(ledger);
    // Whatever is asked for: else nothing would match.
    let ledger = plain(&dir).expect("opens");
    assert!(ledger.is_keyed());
    prompt(&ledger, "a", "yes", false).await;
    let found = digests(&ledger.records().expect("read"));
    let print = ledger.recorded(Digest::of(b"yes"));
    assert_eq!(found.iter().filter(|digest| **digest == print).count(), 3, "{found:?}");
    drop(ledger);

    let key = fs::read_to_string(dir.join(KEY)).expect("a key");
    for entry in fs::read_dir(&dir).expect("lists") {
        let path = entry.expect("entry").path();
        let text = fs::read_to_string(&path).expect("text");
        for secret in ["yes", "fixture of yes"] {
            let digest = Digest::of(secret.as_bytes());
            assert!(!text.contains(&digest.hex()), "{} holds a plain digest", path.display());
            assert!(!text.contains(&digest.short()), "{} holds a plain digest", path.display());
        }
        let is_key = path.ends_with(KEY);
        assert_eq!(text.contains(key.trim()), is_key, "{} and the key", path.display());
    }
    // The same without a key, so that the search is known to find.
    let ledger = plain(&room.path("plain")).expect("opens");
    prompt(&ledger, "a", "yes", false).await;
    assert!(digests(&ledger.records().expect("read")).contains(&Digest::of(b"yes")));
}

#[tokio::test]
async fn each_ledger_has_a_key_of_its_own_for_its_owner_alone() {
    let room = Room::new();
    let keys: Vec<String> = ["one", "two"]
        .iter()
        .map(|name| {
            drop(keyed(&room.path(name)).expect("opens"));
            let path = room.path(name).join(KEY);
            let mode = fs::metadata(&path).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            fs::read_to_string(path).expect("a key")
        })
        .collect();
    assert!(keys.iter().all(|key| key.len() == 65 && key.ends_with('\n')));
    assert_ne!(keys[0], keys[1]);
}

/// A power cut leaves a ledger with its key, or none.
#[tokio::test]
async fn the_key_is_on_disk_before_there_is_a_ledger() {
    let room = Room::new();
    let io = TestIo::new();
    let options = FileOptions::new(room.dir()).keyed(true).io(Arc::new(io.clone()));
    drop(options.open().expect("opens"));
    let ops = io.ops();
    let at = |wanted: &dyn Fn(&Op) -> bool| ops.iter().position(wanted).expect("it was done");
    let named = at(&|op| matches!(op, Op::Rename { to, .. } if to == KEY));
    let synced = ops.iter().skip(named).position(|op| matches!(op, Op::SyncDir(_)));
    let begun = at(&|op| matches!(op, Op::Rename { to, .. } if to == "FORMAT"));
    assert!(synced.is_some_and(|after| named + after < begun), "{ops:?}");

    // What is left when the writer is killed between the two.
    let dir = room.path("cut");
    fs::create_dir(&dir).expect("made");
    fs::copy(room.dir().join(KEY), dir.join(KEY)).expect("copied");
    assert!(plain(&dir).expect("opens").is_keyed());
}

#[tokio::test]
async fn a_key_that_is_not_as_it_must_be_is_refused_and_nothing_is_changed() {
    let room = Room::new();
    let dir = room.dir();
    let ledger = keyed(&dir).expect("opens");
    prompt(&ledger, "a", "yes", false).await;
    drop(ledger);
    let (path, kept) = (dir.join(KEY), room.path("kept"));
    let rows = || fs::read(segments(&dir).pop().expect("a segment")).expect("read");
    let before = rows();
    let good = fs::read_to_string(&path).expect("a key");

    for mode in [0o640, 0o604, 0o620, 0o610] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        assert_eq!(fault(plain(&dir)), KeyFault::Exposed { mode });
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
    let upper = good.to_uppercase();
    let long = format!("{good}\n");
    for bad in ["", "\n", good.trim(), &good[1..], &upper, &long, &"0".repeat(1 << 16)] {
        fs::write(&path, bad).expect("written");
        assert_eq!(fault(plain(&dir)), KeyFault::Malformed, "{bad:?}");
    }
    fs::write(&path, format!("{}\n", Digest::of(b"another").hex())).expect("written");
    assert_eq!(fault(keyed(&dir)), KeyFault::Other);
    fs::write(&path, &good).expect("written");
    fs::rename(&path, &kept).expect("moved");
    assert_eq!(fault(plain(&dir)), KeyFault::Missing);
    assert_eq!(fault(keyed(&dir)), KeyFault::Missing, "another key would match nothing");
    symlink(&kept, &path).expect("linked");
    match plain(&dir) {
        Err(OpenError::Io { file, .. }) => assert_eq!(&*file, path),
        other => panic!("{other:?}"),
    }
    fs::remove_file(&path).expect("removed");
    assert_eq!(rows(), before);
    fs::rename(&kept, &path).expect("moved");
    assert!(plain(&dir).expect("opens").is_keyed());
}

#[tokio::test]
async fn a_ledger_that_was_begun_plain_stays_so() {
    let room = Room::new();
    let dir = room.dir();
    drop(plain(&dir).expect("opens"));
    assert_eq!(fault(keyed(&dir)), KeyFault::Late);
    assert!(!dir.join(KEY).exists());
    drop(keyed(&room.path("other")).expect("opens"));
    fs::copy(room.path("other").join(KEY), dir.join(KEY)).expect("copied");
    assert_eq!(fault(plain(&dir)), KeyFault::Unexpected);
    fs::remove_file(dir.join(KEY)).expect("removed");
    assert!(!plain(&dir).expect("opens").is_keyed());
}

#[tokio::test]
async fn every_segment_says_which_key_it_is_of() {
    let room = Room::new();
    let options = FileOptions::new(room.dir()).keyed(true).segment_bytes(1);
    let ledger = options.open().expect("opens");
    for _ in 0..3 {
        prompt(&ledger, "a", "yes", false).await;
    }
    let records = ledger.records().expect("read");
    let checks: Vec<Option<Digest>> = records
        .iter()
        .filter_map(|record| match &record.event {
            Event::Segment(segment) => Some(segment.key_check),
            _ => None,
        })
        .collect();
    assert!(checks.len() > 2 && checks[0].is_some(), "{checks:?}");
    assert!(checks.windows(2).all(|pair| pair[0] == pair[1]), "{checks:?}");
}
