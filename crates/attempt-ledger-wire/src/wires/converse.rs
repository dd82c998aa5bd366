//! The wire `bedrock-converse`.

use crate::{
    event::Event,
    gather::Gather,
    wire::{self, Spec},
};

pub(crate) const CONVERSE: Spec = Spec {
    name: "bedrock-converse",
    paths: &["/model/*/converse", "/model/*/converse-stream"],
    usage: ("inputTokens", "outputTokens"),
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
