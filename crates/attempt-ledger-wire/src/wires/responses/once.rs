//! What of an answer came already. A stream says a text up to three times: in deltas, in events
//! that close a part or an item, and in the final object. Servers leave out any of these.

use attempt_ledger_core::Uninspected;

use crate::gather::{CallKey, Gather};

/// Items, and parts of items, that one answer may hold before its body counts as unreadable.
const MAX: usize = 2048;

/// What an item of the output is to the answer. Those that the server itself made and ran are not
/// read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    /// A call that the client must run.
    Call,
    Reasoning,
}

/// A text within an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text,
    Refusal,
    Arguments,
    Summary,
    Thought,
}

impl Piece {
    fn kind(self) -> Kind {
        match self {
            Piece::Text | Piece::Refusal => Kind::Message,
            Piece::Arguments => Kind::Call,
            Piece::Summary | Piece::Thought => Kind::Reasoning,
        }
    }
}

/// How an item is told from the others: by its place in the output, or by an id. An event may name
/// either, both, or none; some servers give the same item another id in each event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Name {
    pub(super) index: Option<u64>,
    /// Shortened; the item's own, and that of the call it is.
    pub(super) ids: [Option<u64>; 2],
}

impl Name {
    fn shares_id(&self, other: &Name) -> bool {
        self.ids.iter().flatten().any(|id| other.ids.contains(&Some(*id)))
    }

    fn has_id(&self) -> bool {
        self.ids.iter().any(Option::is_some)
    }

    fn both_have_ids(&self, other: &Name) -> bool {
        self.has_id() && other.has_id()
    }

    /// Nothing in them says whether they are the same.
    fn is_no_help(&self, other: &Name) -> bool {
        !self.both_have_ids(other) && (self.index.is_none() || other.index.is_none())
    }

    fn complete(&mut self, from: &Name) {
        self.index = self.index.or(from.index);
        for (id, from) in self.ids.iter_mut().zip(from.ids) {
            *id = id.or(from);
        }
    }
}

/// An item in full, as an event that closes it or the final object gives it.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) kind: Kind,
    pub(super) name: Name,
    /// The name of the tool that a call is for.
    pub(super) tool: String,
    /// Texts with their place among the parts.
    pub(super) pieces: Vec<(Piece, u64, String)>,
}

/// Remembers which items and parts came; of their texts nothing is held.
#[derive(Debug, Default)]
pub(super) struct Once {
    items: Vec<Item>,
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Item {
    kind: Kind,
    name: Name,
    /// The name of its tool came.
    has_tool: bool,
    /// It came in full.
    closed: bool,
    /// It was found in the final object that is read.
    claimed: bool,
}

#[derive(Debug)]
struct Part {
    item: usize,
    piece: Piece,
    index: Option<u64>,
    came: Came,
    /// It was found in the full item that is read.
    claimed: bool,
}

/// What comes first stands, and all that repeats it is passed over.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    Nothing,
    Deltas,
    Whole,
}

impl Once {
    /// A piece of a text.
    pub(super) fn delta(
        &mut self,
        piece: Piece,
        name: &Name,
        index: Option<u64>,
        text: &str,
        gather: &mut Gather,
    ) {
        let Some(item) = self.item(piece.kind(), name, gather) else { return };
        let Some(at) = self.part(item, piece, index, gather) else { return };
        if let Some(part) = self.parts.get_mut(at)
            && part.came != Came::Whole
            && !text.is_empty()
        {
            part.came = Came::Deltas;
            say(piece, item, text, gather);
        }
    }

    /// A text in full.
    pub(super) fn whole(
        &mut self,
        piece: Piece,
        name: &Name,
        index: Option<u64>,
        text: &str,
        gather: &mut Gather,
    ) {
        let Some(item) = self.item(piece.kind(), name, gather) else { return };
        let Some(at) = self.part(item, piece, index, gather) else { return };
        self.whole_part(at, text, gather);
    }

    /// The name of the tool that a call is for.
    pub(super) fn tool(&mut self, name: &Name, tool: &str, gather: &mut Gather) {
        if let Some(at) = self.item(Kind::Call, name, gather) {
            self.name_tool(at, tool, gather);
        }
    }

    /// An item begins. What it holds already comes again later.
    pub(super) fn begin(&mut self, kind: Kind, name: &Name, tool: &str, gather: &mut Gather) {
        let known = self.items.iter().rposition(|item| {
            let here = item.name.index.is_some() && item.name.index == name.index;
            item.kind == kind
                && (item.name.shares_id(name) || (here && !item.name.both_have_ids(name)))
        });
        if let Some(at) = known.or_else(|| self.new_item(kind, name, gather)) {
            self.name_tool(at, tool, gather);
        }
    }

    /// An item in full.
    pub(super) fn item_done(&mut self, whole: &Whole, gather: &mut Gather) {
        if let Some(at) = self.item(whole.kind, &whole.name, gather) {
            self.whole_item(at, whole, gather);
        }
    }

    /// All items in full, as the final object has them.
    ///
    /// Each is looked for by its id, then by its place, then by its order among those of its kind:
    /// the final object of some servers has new ids, or leaves an item out.
    pub(super) fn output(&mut self, wholes: &[Whole], gather: &mut Gather) {
        for item in &mut self.items {
            item.claimed = false;
        }
        let by: [fn(&Name, &Name) -> bool; 3] = [
            Name::shares_id,
            |known, given| known.index.is_some() && known.index == given.index,
            |_, _| true,
        ];
        let mut found: Vec<Option<usize>> = vec![None; wholes.len()];
        for same in by {
            for (whole, found) in wholes.iter().zip(&mut found).filter(|(_, f)| f.is_none()) {
                let free = |item: &Item| {
                    !item.claimed && item.kind == whole.kind && same(&item.name, &whole.name)
                };
                if let Some(at) = self.items.iter().position(free)
                    && let Some(item) = self.items.get_mut(at)
                {
                    item.claimed = true;
                    *found = Some(at);
                }
            }
        }
        for (whole, found) in wholes.iter().zip(found) {
            let at = found.or_else(|| self.new_item(whole.kind, &whole.name, gather));
            let Some(at) = at else { return };
            self.whole_item(at, whole, gather);
        }
    }

    /// Bytes allocated.
    pub(super) fn held(&self) -> usize {
        self.items.capacity() * size_of::<Item>() + self.parts.capacity() * size_of::<Part>()
    }

    fn whole_item(&mut self, at: usize, whole: &Whole, gather: &mut Gather) {
        self.name_tool(at, &whole.tool, gather);
        for part in &mut self.parts {
            part.claimed = false;
        }
        // By place first, then by order: some servers number parts otherwise in deltas.
        let mut found: Vec<Option<usize>> = vec![None; whole.pieces.len()];
        for by_place in [true, false] {
            let open = whole.pieces.iter().zip(&mut found).filter(|(_, found)| found.is_none());
            for ((piece, index, _), found) in open {
                let free = |part: &Part| {
                    !part.claimed
                        && (part.item, part.piece) == (at, *piece)
                        && (!by_place || part.index == Some(*index))
                };
                if let Some(place) = self.parts.iter().position(free)
                    && let Some(part) = self.parts.get_mut(place)
                {
                    part.claimed = true;
                    *found = Some(place);
                }
            }
        }
        for ((piece, index, text), found) in whole.pieces.iter().zip(found) {
            let place = found.or_else(|| self.new_part(at, *piece, Some(*index), gather));
            let Some(place) = place else { return };
            self.whole_part(place, text, gather);
        }
        if let Some(item) = self.items.get_mut(at) {
            item.closed = true;
        }
    }

    fn whole_part(&mut self, at: usize, text: &str, gather: &mut Gather) {
        if let Some(part) = self.parts.get_mut(at)
            && part.came == Came::Nothing
            && !text.is_empty()
        {
            part.came = Came::Whole;
            say(part.piece, part.item, text, gather);
        }
    }

    fn name_tool(&mut self, at: usize, tool: &str, gather: &mut Gather) {
        if let Some(item) = self.items.get_mut(at)
            && item.kind == Kind::Call
            && !item.has_tool
            && !tool.is_empty()
        {
            item.has_tool = true;
            gather.call(CallKey::Index(at as u64), tool, "");
        }
    }

    /// The item of this name, a new one if there is none; `None` over the bound.
    fn item(&mut self, kind: Kind, name: &Name, gather: &mut Gather) -> Option<usize> {
        let newest = |same: &dyn Fn(&Item) -> bool| {
            self.items.iter().rposition(|item| item.kind == kind && same(item))
        };
        let found = newest(&|item| item.name.shares_id(name))
            .or_else(|| {
                newest(&|item| {
                    let here = item.name.index.is_some() && item.name.index == name.index;
                    // One that was closed under another id: the server numbers all alike.
                    here && !(item.closed && item.name.both_have_ids(name))
                })
            })
            .or_else(|| newest(&|item| !item.closed && item.name.is_no_help(name)));
        match found {
            Some(at) => {
                if let Some(item) = self.items.get_mut(at) {
                    item.name.complete(name);
                }
                Some(at)
            }
            None => self.new_item(kind, name, gather),
        }
    }

    fn new_item(&mut self, kind: Kind, name: &Name, gather: &mut Gather) -> Option<usize> {
        if self.items.len() == MAX {
            gather.uninspected(Uninspected::Size);
            return None;
        }
        let at = self.items.len();
        let item = Item { kind, name: *name, has_tool: false, closed: false, claimed: true };
        self.items.push(item);
        if kind == Kind::Call {
            gather.call(CallKey::Index(at as u64), "", "");
        }
        Some(at)
    }

    /// The part of this place, a new one if there is none; `None` over the bound.
    fn part(
        &mut self,
        item: usize,
        piece: Piece,
        index: Option<u64>,
        gather: &mut Gather,
    ) -> Option<usize> {
        let newest = |same: &dyn Fn(Option<u64>) -> bool| {
            self.parts
                .iter()
                .rposition(|part| (part.item, part.piece) == (item, piece) && same(part.index))
        };
        let found = newest(&|known| known.is_some() && known == index)
            .or_else(|| newest(&|known| known.is_none() || index.is_none()));
        match found {
            Some(at) => {
                if let Some(part) = self.parts.get_mut(at) {
                    part.index = part.index.or(index);
                }
                Some(at)
            }
            None => self.new_part(item, piece, index, gather),
        }
    }

    fn new_part(
        &mut self,
        item: usize,
        piece: Piece,
        index: Option<u64>,
        gather: &mut Gather,
    ) -> Option<usize> {
        if self.parts.len() == MAX {
            gather.uninspected(Uninspected::Size);
            return None;
        }
        self.parts.push(Part { item, piece, index, came: Came::Nothing, claimed: true });
        Some(self.parts.len() - 1)
    }
}

fn say(piece: Piece, item: usize, text: &str, gather: &mut Gather) {
    match piece {
        Piece::Text => gather.text(text),
        Piece::Refusal => gather.refusal(text),
        Piece::Arguments => gather.call(CallKey::Index(item as u64), "", text),
        Piece::Summary | Piece::Thought => gather.reasoning(text),
    }
}
