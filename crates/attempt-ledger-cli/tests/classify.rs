//! `classify` says of every recorded response what is due.
#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::{fs, path::PathBuf};

use attempt_ledger::Wire;
use common::{Room, cli};
use serde_json::Value;

fn fixtures() -> Vec<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/wire");
    let mut files = Vec::new();
    for folder in fs::read_dir(root).expect("the fixtures") {
        for file in fs::read_dir(folder.expect("a folder").path()).expect("a folder") {
            let path = file.expect("a file").path();
            if path.extension().is_some_and(|ext| ext == "http") {
                files.push(path);
            }
        }
    }
    files.sort();
    assert!(files.len() >= 200, "{} cases", files.len());
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recorded_response_gets_what_is_due() {
    let mut of = [Vec::new(), Vec::new()];
    for file in fixtures() {
        let text = fs::read(file.with_extension("json")).expect("what is due");
        let due: Value = serde_json::from_slice(&text).expect("JSON");
        let file = file.to_str().expect("UTF-8").to_owned();
        of[usize::from(due["stream"] == true)].push((file, due));
    }
    for (stream, all) in of.into_iter().enumerate() {
        assert!(all.len() > 10, "{}", all.len());
        let mut args = vec!["classify"];
        args.extend(if stream == 1 { &["--stream"][..] } else { &[] });
        args.extend(all.iter().map(|(file, _)| file.as_str()));
        let ran = cli(&args).await.exits(0);
        assert_eq!(ran.out.lines().count(), all.len());
        for (found, (file, mut due)) in ran.json().into_iter().zip(all) {
            let fields = due.as_object_mut().expect("an object");
            fields.remove("why");
            fields.remove("source");
            fields.insert("file".into(), file.into());
            assert_eq!(found, due);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wire_is_the_folders_name_or_what_is_said() {
    let room = Room::new();
    let body = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
    let file = room.write("response.http", body);
    cli(&["classify", &file])
        .await
        .exits(2)
        .complains("the name of its folder is no wire")
        .complains("openai-chat, openai-completions");
    let all = Wire::ALL.iter().map(|wire| wire.as_str()).collect::<Vec<_>>().join(", ");
    cli(&["classify", &file]).await.exits(2).complains(&all);
    cli(&["classify", &file, "--wire", "smoke"]).await.exits(2).complains(&all);
    for wire in Wire::ALL {
        let (name, folder) = (wire.as_str(), room.path(wire.as_str()));
        std::fs::create_dir(&folder).expect("made");
        let file = room.write(&format!("{name}/response.http"), body);
        let found = cli(&["classify", &file]).await.exits(0).json();
        assert_eq!(found[0]["wire"], name);
        assert!(cli(&["classify", "--help"]).await.exits(0).out.contains(name), "{name}");
    }
    cli(&["classify", &file, "--wire", "plain"]).await.exits(0).says(r#""verdict":"ok""#);
    cli(&["classify", &file, "--wire", "openai-chat"])
        .await
        .exits(0)
        .says(r#""verdict":"malformed""#);
    cli(&["classify", "/nowhere.http", "--wire", "plain"])
        .await
        .exits(2)
        .complains("could not be read");
    // What is missing is told before its wire is guessed.
    cli(&["classify", "/nowhere.http"]).await.exits(2).complains("could not be read");
    for text in
        ["hi", "{\"id\":1}", "\u{feff}HTTP/1.1 200 OK\r\n\r\n", "HTTQ", "\r\nHTTP/1.1 200 OK"]
    {
        let file = room.write("other.http", text);
        cli(&["classify", &file, "--wire", "plain"])
            .await
            .exits(2)
            .complains("other.http is no recorded HTTP response")
            .complains("curl -si --raw");
    }
    // curl's way to write what is no text on a connection.
    let two = room.write("two.http", "HTTP/2 200 \r\n\r\nhi");
    cli(&["classify", &two, "--wire", "plain"]).await.exits(2).complains("--http1.1");
    for cut in ["H", "HTTP", "HTTP/", "HTTP/1.1 200 OK\r\ncontent-le"] {
        let file = room.write("cut.http", cut);
        let ran = cli(&["classify", &file, "--wire", "plain"]).await.exits(0);
        assert_eq!(ran.json()[0]["verdict"], "transport", "{cut}");
    }
    let empty = room.write("empty.http", "");
    cli(&["classify", &empty, "--wire", "plain"]).await.exits(0).says(r#""verdict":"transport""#);
    // A body larger than the pipe, and than what a gate holds.
    let large = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(9 << 20));
    let large = room.write("large.http", large);
    cli(&["classify", &large, "--wire", "plain"]).await.exits(0).says(r#""content_chars":9437184"#);
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_end_is_not_read() {
    let room = Room::new();
    std::fs::create_dir(room.path("folder.http")).expect("made");
    for file in ["/dev/zero", "/dev/stdin", &room.arg("folder.http")] {
        cli(&["classify", file, "--wire", "plain"]).await.exits(2).complains("is no regular file");
    }
    let large = room.write("large.http", "HTTP/1.1 200 OK\r\n\r\n");
    let file = std::fs::File::options().write(true).open(&large).expect("open");
    file.set_len((64 << 20) + 1).expect("a hole");
    cli(&["classify", &large, "--wire", "plain"])
        .await
        .exits(2)
        .complains("has more than the 67108864 bytes");
}
