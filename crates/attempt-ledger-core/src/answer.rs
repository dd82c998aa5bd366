use sha2::{Digest as _, Sha256};

use crate::{Content, Digest, Label};

/// The digest that grades bind to: `answer_sha256` of a row of this content.
///
/// SHA-256 of the canonical JSON (RFC 8785) of `{"finish_reason", "refusal", "text",
/// "tool_calls": [{"arguments", "name"}]}`, in which the stop word stands as it is and each of the
/// other strings as the hexadecimal SHA-256 of its UTF-8 bytes; absent values, and a text without
/// characters, are null. Hashing the parts first lets a stream be hashed in the order in which it
/// arrives, without being held.
pub fn answer_sha256(content: &Content) -> Digest {
    let digest = |text: &str| Digest::of(text.as_bytes());
    let calls = content.tool_calls.iter().map(|call| (digest(&call.name), digest(&call.arguments)));
    let text = (!content.text.is_empty()).then(|| digest(&content.text));
    answer_of_parts(
        content.finish_reason.as_ref(),
        content.refusal.as_deref().map(digest),
        text,
        calls,
    )
}

/// As [`answer_sha256`], of an answer that was hashed while it came: its stop word, and the digests of
/// refusal, text, and each tool call's name and arguments.
pub fn answer_of_parts(
    finish: Option<&Label>,
    refusal: Option<Digest>,
    text: Option<Digest>,
    calls: impl Iterator<Item = (Digest, Digest)>,
) -> Digest {
    // Piece by piece: made as text it would be an allocation for each answer.
    // A label's characters and hexadecimal digits need no escapes in JSON.
    fn field(hash: &mut Sha256, name: &str, word: Option<&[u8]>) {
        hash.update(name);
        match word {
            Some(word) => {
                hash.update(b"\"");
                hash.update(word);
                hash.update(b"\"");
            }
            None => hash.update(b"null"),
        }
    }
    let digits = |digest: Digest| digest.digits();
    let (refusal, text) = (refusal.map(digits), text.map(digits));
    let mut hash = Sha256::new();
    field(&mut hash, "{\"finish_reason\":", finish.map(|word| word.as_str().as_bytes()));
    field(&mut hash, ",\"refusal\":", refusal.as_ref().map(<[u8; 64]>::as_slice));
    field(&mut hash, ",\"text\":", text.as_ref().map(<[u8; 64]>::as_slice));
    hash.update(b",\"tool_calls\":[");
    for (n, (name, arguments)) in calls.enumerate() {
        hash.update(if n == 0 { "" } else { "," });
        field(&mut hash, "{\"arguments\":", Some(&arguments.digits()));
        field(&mut hash, ",\"name\":", Some(&name.digits()));
        hash.update(b"}");
    }
    hash.update(b"]}");
    Digest::from_bytes(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToolCall;

    /// Written down, since grades of earlier runs are bound to it.
    #[test]
    fn the_digest_of_an_answer_never_changes() {
        let nothing = "28a460ca44ba366026af8c763fb037ff986061b72589a87a2294b90fe325eb8e";
        assert_eq!(answer_sha256(&Content::default()).hex(), nothing);
        let call = |name: &str, arguments: &str| ToolCall {
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        };
        let content = Content {
            text: "h\u{e9}llo \"x\"\n".to_owned(),
            tool_calls: vec![call("f", "{\"a\":1}"), call("g", "")],
            refusal: Some("no".to_owned()),
            finish_reason: Some(Label::new("tool_calls")),
        };
        let all = "48fbb1db9b454f84f44e64382569b878eb4d37b3e253b328f856130d96026e4e";
        assert_eq!(answer_sha256(&content).hex(), all);
    }
}
