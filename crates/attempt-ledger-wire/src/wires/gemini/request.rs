//! What a request of the wire `gemini` asks for.

use std::{fmt, marker::PhantomData};

use attempt_ledger_core::Effect;
use serde::{
    Deserialize, Deserializer,
    de::{
        self, IgnoredAny, MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};
use serde_json::{Value, value::RawValue};

use crate::{
    json::{self, Obj, Text},
    request::{Asked, RequestFacts, Sum, bounded, model_in_path, path_ends_with, sums, text_chars},
};

/// Collections whose members answer.
const MODELS: [&str; 3] = ["/models/", "/tunedModels/", "/endpoints/"];

pub(crate) fn read(asked: &Asked<'_>) -> Option<RequestFacts> {
    let stream = path_ends_with(asked.path, ":streamGenerateContent");
    if !stream && !path_ends_with(asked.path, ":generateContent") {
        // It counts, embeds, or begins a batch.
        return None;
    }
    let Obj(outer): Obj<Request<'_>> = serde_json::from_slice(asked.body).ok()?;
    let within = match outer.request {
        // Google's assistant for code wraps what is asked.
        Some(raw) => Some(serde_json::from_str::<Obj<Request<'_>>>(raw.get()).ok()?),
        None => None,
    };
    let named = outer.model.as_ref().map(|Text(model)| &**model).filter(|name| !name.is_empty());
    let in_path = MODELS.iter().find_map(|of| model_in_path(asked.path, of, ":"));
    let model = in_path.as_deref().or(named).map(bounded);
    // What was cached may hold tools that the server runs, and so may what a wrapper leaves outside.
    let may_hold_tools =
        outer.cached_content.is_some() || (within.is_some() && outer.tools.is_some());
    let request = match within {
        Some(Obj(within)) => within,
        None => outer,
    };
    let may_act = may_hold_tools || request.cached_content.is_some();
    let tools = request.tools.unwrap_or_default().0;
    let prompt = [request.contents, request.system_instruction];
    let number = |value: &Value| {
        json::count(value).or_else(|| value.as_str().and_then(|digits| digits.parse().ok()))
    };
    Some(RequestFacts {
        model,
        stream: Some(stream),
        tools: u32::try_from(tools.count).unwrap_or(u32::MAX),
        cap: request.generation_config.and_then(|Obj(config)| number(&config.max_output_tokens)),
        prompt_chars: prompt.into_iter().flatten().map(|Many(Contents(chars))| chars).sum(),
        understood: true,
        effect: if tools.remote || may_act { Effect::Writes } else { Effect::ReadOnly },
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    #[serde(borrow, default)]
    model: Option<Text<'a>>,
    #[serde(borrow, default)]
    request: Option<&'a RawValue>,
    #[serde(default)]
    contents: Option<Many<Contents>>,
    #[serde(default, alias = "system_instruction")]
    system_instruction: Option<Many<Contents>>,
    #[serde(default)]
    tools: Option<Many<Tools>>,
    #[serde(borrow, default, alias = "cached_content")]
    cached_content: Option<&'a RawValue>,
    #[serde(default, alias = "generation_config")]
    generation_config: Option<Obj<Config>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    #[serde(default, alias = "max_output_tokens")]
    max_output_tokens: Value,
}

/// A sum over a list, or over the one item that Google's servers take for a list of it.
#[derive(Default)]
struct Many<S>(S);

impl<'de, S: Sum<'de>> Deserialize<'de> for Many<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of<S>(PhantomData<S>);
        impl<'de, S: Sum<'de>> Visitor<'de> for Of<S> {
            type Value = Many<S>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object or a list")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let mut sum = S::default();
                sum.add(S::Item::deserialize(MapAccessDeserializer::new(map))?);
                Ok(Many(sum))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                crate::request::sum(SeqAccessDeserializer::new(list)).map(Many)
            }
        }
        deserializer.deserialize_any(Of(PhantomData))
    }
}

/// Code points of the text of all parts.
#[derive(Default)]
struct Contents(u64);

impl<'de> Sum<'de> for Contents {
    type Item = Obj<Content<'de>>;
    fn add(&mut self, Obj(content): Self::Item) {
        self.0 += content.parts.map_or(0, |parts| text_chars(parts, 0));
    }
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow, default)]
    parts: Option<&'a RawValue>,
}

#[derive(Default)]
struct Tools {
    count: usize,
    /// There is one that the server itself runs, or that is not known.
    remote: bool,
}

impl Sum<'_> for Tools {
    type Item = Tool;
    fn add(&mut self, tool: Tool) {
        self.count += tool.declared + tool.others;
        self.remote |= tool.others > 0;
    }
}

/// One entry of the tools: functions that the caller runs, and what the server runs by itself.
struct Tool {
    declared: usize,
    others: usize,
}

impl<'de> Deserialize<'de> for Tool {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of;
        impl<'de> Visitor<'de> for Of {
            type Value = Tool;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a tool")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tool, A::Error> {
                let (mut declared, mut others) = (None, 0);
                while let Some(Text(name)) = map.next_key()? {
                    if !matches!(&*name, "functionDeclarations" | "function_declarations") {
                        others += usize::from(map.next_value::<Option<IgnoredAny>>()?.is_some());
                    } else if declared.is_some() {
                        return Err(de::Error::duplicate_field("functionDeclarations"));
                    } else {
                        let functions = map.next_value::<Option<Functions>>()?;
                        declared = Some(functions.unwrap_or_default().0);
                    }
                }
                Ok(Tool { declared: declared.unwrap_or_default(), others })
            }
        }
        deserializer.deserialize_map(Of)
    }
}

sums! { Functions }

#[derive(Default)]
struct Functions(usize);

impl<'de> Sum<'de> for Functions {
    type Item = &'de RawValue;
    fn add(&mut self, _: Self::Item) {
        self.0 += 1;
    }
}
