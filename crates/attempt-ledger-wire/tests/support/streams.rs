//! The recorded responses of every wire, and damage that can be done to them.
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::expect_used, reason = "a test may panic, its helpers too")]

use std::{path::Path, sync::LazyLock};

use attempt_ledger_wire::Wire;
use proptest::{prelude::*, sample::Index};

use crate::support::{Response, parse};

/// A recorded response, and the wire it was recorded on.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) wire: Wire,
    pub(crate) response: Response,
}

/// Those of every wire that have a body, always in the same order.
pub(crate) static RECORDED: LazyLock<Vec<Recorded>> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/wire");
    let mut recorded = Vec::new();
    for &wire in Wire::ALL {
        let Ok(folder) = std::fs::read_dir(root.join(wire.as_str())) else { continue };
        let mut paths: Vec<_> = folder.map(|entry| entry.expect("a file").path()).collect();
        paths.retain(|path| path.extension().is_some_and(|end| end == "http"));
        paths.sort();
        for path in paths {
            let response = parse(&std::fs::read(&path).expect("a readable file"));
            let bodied = response.filter(|response| !response.body.is_empty());
            recorded.extend(bodied.map(|response| Recorded { wire, response }));
        }
    }
    assert!(recorded.len() >= 70, "only {} responses", recorded.len());
    recorded
});

/// A recorded response, whole or its head of one and its tail of another, with some damage.
pub(crate) fn damaged() -> impl Strategy<Value = (Wire, Response)> {
    let splice = prop::option::weighted(0.3, any::<(Index, Index, Index)>());
    (any::<Index>(), splice, prop::collection::vec((any::<Index>(), damage()), 0..4)).prop_map(
        |(one, splice, damage)| {
            let Recorded { wire, response } = one.get(&RECORDED);
            let mut response = response.clone();
            if let Some((other, keep, skip)) = splice {
                let other = &other.get(&RECORDED).response.body;
                response.body.truncate(keep.index(response.body.len() + 1));
                response.body.extend_from_slice(&other[skip.index(other.len() + 1)..]);
            }
            for (at, damage) in damage {
                damage.to(&mut response.body, at);
            }
            (*wire, response)
        },
    )
}

/// What a byte or a run of them may suffer.
#[derive(Clone, Debug)]
pub(crate) enum Damage {
    Flip(u8),
    Set(u8),
    Insert(u8),
    Remove(usize),
    Double(usize),
    End,
}

/// Every kind of damage; a cut is rare, since little is left behind it.
pub(crate) fn damage() -> impl Strategy<Value = Damage> {
    let byte = || prop_oneof![prop::sample::select(&b"{}[]\":,\\\n\r 0-\0"[..]), any::<u8>()];
    prop_oneof![
        4 => (0..8u8).prop_map(Damage::Flip),
        4 => byte().prop_map(Damage::Set),
        4 => byte().prop_map(Damage::Insert),
        4 => (1..64usize).prop_map(Damage::Remove),
        4 => (1..256usize).prop_map(Damage::Double),
        1 => Just(Damage::End),
    ]
}

impl Damage {
    pub(crate) fn to(self, body: &mut Vec<u8>, at: Index) {
        let at = at.index(body.len() + 1);
        let to = |len: usize| body.len().min(at + len);
        match self {
            Damage::Flip(bit) => drop(body.get_mut(at).map(|byte| *byte ^= 1 << bit)),
            Damage::Set(new) => drop(body.get_mut(at).map(|byte| *byte = new)),
            Damage::Insert(new) => body.insert(at, new),
            Damage::Remove(len) => drop(body.drain(at..to(len))),
            Damage::Double(len) => drop(body.splice(at..at, body[at..to(len)].to_vec())),
            Damage::End => body.truncate(at),
        }
    }
}
