//! Binary frames, as a server would send them.
#![allow(dead_code, reason = "each test binary uses a part")]

/// One frame with these headers (each a name, a type and its value's bytes) and this payload.
pub(crate) fn frame(headers: &[(&str, u8, &[u8])], payload: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, kind, value) in headers {
        block.push(name.len() as u8);
        block.extend_from_slice(name.as_bytes());
        block.push(*kind);
        if matches!(kind, 6 | 7) {
            block.extend_from_slice(&(value.len() as u16).to_be_bytes());
        }
        block.extend_from_slice(value);
    }
    let len = (block.len() + payload.len() + 16) as u32;
    let mut frame = len.to_be_bytes().to_vec();
    frame.extend_from_slice(&(block.len() as u32).to_be_bytes());
    checked(&mut frame);
    frame.extend_from_slice(&block);
    frame.extend_from_slice(payload);
    checked(&mut frame);
    frame
}

/// The checksum of all before it.
pub(crate) fn checked(frame: &mut Vec<u8>) {
    frame.extend_from_slice(&crc32fast::hash(frame).to_be_bytes());
}

pub(crate) fn event(name: &str, payload: &str) -> Vec<u8> {
    let headers = [
        (":event-type", 7, name.as_bytes()),
        (":content-type", 7, &b"application/json"[..]),
        (":message-type", 7, b"event"),
    ];
    frame(&headers, payload.as_bytes())
}

pub(crate) fn exception(name: &str, payload: &str) -> Vec<u8> {
    let headers = [
        (":exception-type", 7, name.as_bytes()),
        (":content-type", 7, &b"application/json"[..]),
        (":message-type", 7, b"exception"),
    ];
    frame(&headers, payload.as_bytes())
}

/// A frame that wraps an event of the model's vendor.
pub(crate) fn chunk(inner: &str) -> Vec<u8> {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    let bytes = BASE64_STANDARD.encode(inner);
    event("chunk", &format!("{{\"bytes\":\"{bytes}\",\"p\":\"abcdefghij\"}}"))
}
