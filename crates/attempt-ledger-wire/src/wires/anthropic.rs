//! The wire `anthropic-messages`.

use crate::{
    event::Event,
    gather::Gather,
    wire::{self, Spec},
};

mod request;

pub(crate) const MESSAGES: Spec = Spec {
    name: "anthropic-messages",
    paths: &[
        "/v1/messages",
        "/publishers/anthropic/models/*:rawPredict",
        "/publishers/anthropic/models/*:streamRawPredict",
        "/model/*anthropic.*/invoke",
        "/model/*anthropic.*/invoke-with-response-stream",
    ],
    usage: ("input_tokens", "output_tokens"),
    lists: false,
    statuses: &[],
    request: request::read,
};

#[derive(Debug, Default)]
pub(crate) struct Reader;

impl wire::Reader for Reader {
    fn event(&mut self, _event: &Event<'_>, _gather: &mut Gather) -> bool {
        true
    }

    fn document(&mut self, _body: &[u8], _cut: bool, _gather: &mut Gather) {}
}
