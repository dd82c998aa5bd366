//! The wire `llama-completion`.

use crate::{
    event::Event,
    gather::Gather,
    wire::{self, Spec},
};

pub(crate) const COMPLETION: Spec = Spec {
    name: "llama-completion",
    paths: &["/completion"],
    usage: ("tokens_evaluated", "tokens_predicted"),
    lists: false,
    statuses: &[],
    request: |_| None,
};

#[derive(Debug, Default)]
pub(crate) struct Reader;

impl wire::Reader for Reader {
    fn event(&mut self, _event: &Event<'_>, _gather: &mut Gather) -> bool {
        true
    }

    fn document(&mut self, _body: &[u8], _cut: bool, _gather: &mut Gather) {}
}
