use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn canonical(text: &str) -> Result<String, JsonError> {
    canonical_json(text.as_bytes()).map(|out| String::from_utf8(out).expect("UTF-8"))
}

fn python(text: &str) -> String {
    let mut out = Vec::new();
    write_canonical::<Python>(text.as_bytes(), &[], &mut out).expect("JSON");
    String::from_utf8(out).expect("ASCII")
}

/// The examples of RFC 8785, sections 3.2.2 to 3.2.4.
#[test]
fn the_examples_of_the_rfc() {
    let sample = r#"{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }"#;
    let want = "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}";
    assert_eq!(canonical(sample).as_deref(), Ok(want));

    let sorted = r#"{
      "\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
      "1": "One", "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control", "\u00f6": "Latin"
    }"#;
    let want = "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\"ö\":\"Latin\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}";
    assert_eq!(canonical(sorted).as_deref(), Ok(want));
}

/// The number samples of RFC 8785, appendix B.
#[test]
fn the_numbers_of_the_rfc() {
    for (bits, want) in [
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ] {
        let text = format!("{:e}", f64::from_bits(bits));
        assert_eq!(canonical(&text).as_deref(), Ok(want), "{text}");
    }
}

#[test]
fn integers_keep_every_digit() {
    for (text, want) in [
        ("9007199254740993", "9007199254740993"),
        ("-123456789012345678901234567890", "-123456789012345678901234567890"),
        ("9007199254740993.0", "9007199254740992"),
        ("-0", "0"),
        ("10e1", "100"),
    ] {
        assert_eq!(canonical(text).as_deref(), Ok(want));
    }
    assert_eq!(canonical("1e400"), Err(JsonError::NumberTooLarge { at: 5 }));
}

#[test]
fn what_is_not_one_json_value_has_no_form() {
    for bad in [
        "",
        " ",
        "nul",
        "tru",
        "01",
        "-",
        "1.",
        ".5",
        "1e",
        "+1",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{",
        "[",
        "{\"a\"}",
        "{\"a\":1,}",
        "{a:1}",
        "\"",
        "\"\u{1}\"",
        "\"\n\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\\u+123\"",
        "1 2",
        "{} x",
        "\u{feff}{}",
        "NaN",
        "Infinity",
        "'a'",
        "[1}",
        "{\"a\":1]",
    ] {
        assert!(matches!(canonical(bad), Err(JsonError::Syntax { .. })), "{bad:?}");
    }
    assert_eq!(canonical_json(b"\"\xff\""), Err(JsonError::NotUnicode { at: 1 }));
    for half in [
        r#""\ud800""#,
        r#""\udc00""#,
        r#""\ud800\ud800""#,
        r#""\udc00\udc00""#,
        r#""\ud800x""#,
        r#""\ud800\n1234""#,
    ] {
        assert_eq!(canonical(half), Err(JsonError::NotUnicode { at: 1 }), "{half}");
    }
    for twice in [r#"{"a":1,"a":2}"#, r#"{"a":1,"b":1,"\u0061":2}"#, r#"[{"\n":1,"\u000a":2}]"#] {
        assert!(matches!(canonical(twice), Err(JsonError::DuplicateName { .. })), "{twice}");
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |n: usize| "[".repeat(n) + &"]".repeat(n);
    assert_eq!(canonical(&nested(128)), Ok(nested(128)));
    assert_eq!(canonical(&nested(129)), Err(JsonError::TooDeep { at: 128 }));
    assert!(canonical(&"[{\"a\":".repeat(1_000_000)).is_err());
}

#[test]
fn only_the_outermost_object_loses_members() {
    let mut out = b"x".to_vec();
    let text = br#"{"user":1,"b":{"user":2,"a":[{"user":3}]},"a":0,"us\u0065r2":4}"#;
    write_canonical::<Rfc8785>(text, &["user", "b2"], &mut out).expect("JSON");
    assert_eq!(out, br#"x{"a":0,"b":{"a":[{"user":3}],"user":2},"user2":4}"#);
    out.clear();
    write_canonical::<Rfc8785>(br#"[{"user":1}]"#, &["user"], &mut out).expect("JSON");
    assert_eq!(out, br#"[{"user":1}]"#);
    out.clear();
    write_canonical::<Rfc8785>(br#"{"user":1}"#, &["user"], &mut out).expect("JSON");
    assert_eq!(out, b"{}");
    assert!(write_canonical::<Rfc8785>(b"[1", &[], &mut out).is_err());
    assert_eq!(out, b"{}", "an error leaves what was there");
}

/// Names long enough, and of every kind, order by UTF-16 (and by code point in Python's form).
#[test]
fn long_names_order_too() {
    let long = "x".repeat(100);
    let (high, low) = (format!("{long}\u{ff5e}"), format!("{long}😀"));
    let text = format!(r#"{{"{high}":1,"{low}":2}}"#);
    assert_eq!(canonical(&text), Ok(format!(r#"{{"{low}":2,"{high}":1}}"#)));
    assert_eq!(python(&text), format!(r#"{{"{long}\uff5e": 1, "{long}\ud83d\ude00": 2}}"#));
}

#[test]
fn floats_as_python_writes_them() {
    for (text, want) in [
        ("1e16", "1e+16"),
        ("1e15", "1000000000000000.0"),
        ("123456789012345680.0", "1.2345678901234568e+17"),
        ("1e-4", "0.0001"),
        ("1e-5", "1e-05"),
        ("0.00012345", "0.00012345"),
        ("-0.0", "-0.0"),
        ("-0", "0"),
        ("0.1", "0.1"),
        ("100.0", "100.0"),
        ("1.5e300", "1.5e+300"),
        ("5e-324", "5e-324"),
        ("1E5", "100000.0"),
        ("123.456", "123.456"),
        ("1e400", "Infinity"),
        // As near to two shortest forms: the even one.
        ("-9.98176625870080267E+14", "-998176625870080.2"),
        ("1280771808890868.2", "1280771808890868.2"),
        ("-1e400", "-Infinity"),
        ("9007199254740993", "9007199254740993"),
        ("12345678.9e-3", "12345.6789"),
    ] {
        assert_eq!(python(text), want, "{text}");
    }
    assert_eq!(python(r#"{"b":1,"a":2,"b":[3,{}]}"#), r#"{"a": 2, "b": [3, {}]}"#);
    assert_eq!(python("\"\u{7f}é\\/\\u0001\\n\""), r#""\u007f\u00e9/\u0001\n""#);
}

fn json() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        "[a-c]{0,3}",
        "[\\x00-\\x7f]{0,3}",
        any::<String>(),
        "[\u{e000}-\u{ffff}😀€]{1,2}"
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-(1_i64 << 53)..=1 << 53).prop_map(Value::from),
        any::<f64>().prop_filter("finite", |x| x.is_finite()).prop_map(Value::from),
        any::<f32>().prop_filter("finite", |x| x.is_finite()).prop_map(Value::from),
        name.clone().prop_map(Value::from),
        "[ -~\\n\"é]{20,90}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// The value as JSON text with members, white space and escapes as `seed` has it.
fn scramble(value: &Value, seed: &mut u64, out: &mut String) {
    let mut roll = |n: u64| {
        *seed =
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) % n
    };
    out.push_str(["", " ", "\n\t", "\r "][roll(4) as usize]);
    match value {
        Value::String(text) => {
            out.push('"');
            for c in text.chars() {
                match c {
                    _ if c < ' ' || roll(4) == 0 => {
                        for unit in c.encode_utf16(&mut [0; 2]) {
                            out.push_str(&format!("\\u{unit:04X}"));
                        }
                    }
                    '"' | '\\' => out.extend(['\\', c]),
                    '/' if roll(2) == 0 => out.push_str("\\/"),
                    _ => out.push(c),
                }
            }
            out.push('"');
        }
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                scramble(item, seed, out);
            }
            out.push_str(" ]");
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            for i in (1..members.len()).rev() {
                members.swap(i, roll(i as u64 + 1) as usize);
            }
            out.push('{');
            for (i, (name, item)) in members.into_iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                scramble(&Value::from(name.as_str()), seed, out);
                out.push(':');
                scramble(item, seed, out);
            }
            out.push('}');
        }
        Value::Number(number) if number.is_f64() => {
            out.push_str(&format!("{:e}", number.as_f64().expect("f64")));
        }
        other => out.push_str(&other.to_string()),
    }
}

proptest! {
    /// Against another implementation, on text as unlike the canonical form as can be.
    #[test]
    fn equals_another_implementation(value in json(), mut seed: u64) {
        let want = serde_json_canonicalizer::to_string(&value).expect("canonical");
        let mut text = String::new();
        scramble(&value, &mut seed, &mut text);
        prop_assert_eq!(canonical(&text), Ok(want.clone()), "{}", text);
        prop_assert_eq!(canonical(&want), Ok(want), "its own canonical form");
    }

    /// What is accepted is what another reader accepts, and nothing panics.
    #[test]
    fn accepts_what_is_json(text in "[\\[\\]{}:,\"\\\\ua-c0-9eE.+\\- \n/tfn]{0,16}") {
        let ours = canonical(&text);
        let theirs: Result<Value, _> = serde_json::from_str(&text);
        match ours {
            Ok(_) => prop_assert!(theirs.is_ok(), "{}", text),
            Err(JsonError::Syntax { .. } | JsonError::NotUnicode { .. }) => prop_assert!(theirs.is_err(), "{}", text),
            Err(_) => {}
        }
    }
}
