use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    io,
    process::{ExitStatus, Stdio},
    sync::Arc,
};

use attempt_ledger_core::{CaseId, GraderAttempts, GraderInfo};
use serde::Serialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
};

use super::info;
use crate::{BoxError, GradeInput, Graded, Grader, rule::version_of};

/// What a command may print, in bytes.
const OUTPUT: u64 = 64 << 10;

/// A grader that is an outside command: one JSON object on its standard input, a number on its
/// standard output.
///
/// ```json
/// {"run": "nightly-7", "case": "case-7", "epoch": 1, "step": 1, "ordinal": 1, "verdict": "ok",
///  "text": "Paris", "tool_calls": [{"name": "look_up", "arguments": "{}"}], "refusal": null,
///  "finish_reason": "stop", "expected": "Paris"}
/// ```
///
/// `expected` is there where the case has one; `arguments` is what the model wrote. The command
/// prints the grade as one decimal number, with white space around it or without, and exits with 0.
/// Any other exit, more than 64 KiB, and what is no number leave the attempt without a grade; a
/// number outside the range is refused.
///
/// It runs in the environment and the directory of this process, in a process group of its own, which
/// is killed when the grade's limit passes. What it writes to standard error is dropped unless
/// [`stderr`](Self::stderr) says otherwise. Whether it calls a model is not known, so that the grade
/// cites `unknown`. Needs a runtime with I/O turned on; it is awaited, not blocked on.
///
/// ```
/// use attempt_ledger::CommandGrader;
///
/// let grader = CommandGrader::new("python3").arg("grade.py").range(0.0, 10.0);
/// # let _ = grader;
/// ```
#[derive(Clone, Debug)]
pub struct CommandGrader {
    program: OsString,
    args: Vec<OsString>,
    expected: Arc<HashMap<CaseId, String>>,
    name: String,
    version: Option<String>,
    range: [f64; 2],
    stderr: bool,
}

impl CommandGrader {
    /// Runs `program`, found as a shell finds it, without arguments.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        CommandGrader {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            expected: Arc::default(),
            name: "command".into(),
            version: None,
            range: [0.0, 1.0],
            stderr: false,
        }
    }

    /// Runs a line of the shell: `sh -c LINE`.
    pub fn shell(line: impl AsRef<OsStr>) -> Self {
        Self::new("sh").arg("-c").arg(line)
    }

    /// With another argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// With the expected answer of each case, which the command is given.
    #[must_use]
    pub fn expected(self, expected: HashMap<CaseId, String>) -> Self {
        CommandGrader { expected: Arc::new(expected), ..self }
    }

    /// With another name than `command`.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        CommandGrader { name: name.into(), ..self }
    }

    /// With this version, instead of one made of the command and its arguments. What is in the files
    /// it names is not looked at.
    #[must_use]
    pub fn version(self, version: impl Into<String>) -> Self {
        CommandGrader { version: Some(version.into()), ..self }
    }

    /// With another range of grades than 0 to 1.
    #[must_use]
    pub fn range(self, low: f64, high: f64) -> Self {
        CommandGrader { range: [low, high], ..self }
    }

    /// Passes on what the command writes to standard error, to that of this process. It may hold the
    /// answer.
    #[must_use]
    pub fn stderr(self, pass_on: bool) -> Self {
        CommandGrader { stderr: pass_on, ..self }
    }

    fn start(&self) -> io::Result<Group> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(if self.stderr { Stdio::inherit() } else { Stdio::null() })
            .kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        command.spawn().map(Group)
    }
}

impl Grader for CommandGrader {
    fn info(&self) -> GraderInfo {
        let command = || -> Vec<_> {
            std::iter::once(&self.program)
                .chain(&self.args)
                .map(|arg| arg.to_string_lossy())
                .collect()
        };
        let version =
            self.version.clone().unwrap_or_else(|| version_of(&format!("{:?}", command())));
        let [low, high] = self.range;
        GraderInfo { low, high, ..info(&self.name, &version) }
    }

    async fn grade(&self, input: GradeInput) -> Result<Graded, BoxError> {
        let asked = serde_json::to_vec(&Asked::of(&input, self.expected.get(&input.slot.case)))?;
        let mut group = self.start().map_err(|error| CommandError::Start(self.shown(), error))?;
        let (stdin, stdout) = (group.0.stdin.take(), group.0.stdout.take());
        // Both ways at once: a command may print before it has read all.
        let tell = async {
            if let Some(mut stdin) = stdin {
                // One that does not read what it is told may still grade.
                let _ = stdin.write_all(&asked).await;
            }
        };
        let hear = async {
            let mut printed = Vec::new();
            if let Some(stdout) = stdout {
                stdout.take(OUTPUT + 1).read_to_end(&mut printed).await?;
            }
            Ok::<_, io::Error>(printed)
        };
        let told_and_heard = async { tokio::join!(tell, hear).1 };
        let printed =
            told_and_heard.await.map_err(|error| CommandError::Read(self.shown(), error))?;
        if printed.len() as u64 > OUTPUT {
            return Err(CommandError::Long(self.shown()).into());
        }
        let status =
            group.0.wait().await.map_err(|error| CommandError::Read(self.shown(), error))?;
        if !status.success() {
            return Err(CommandError::Failed(self.shown(), status).into());
        }
        let printed = str::from_utf8(&printed).ok().map(str::trim);
        let score: f64 = printed
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| CommandError::NoNumber(self.shown()))?;
        Ok(Graded { score, attempts: GraderAttempts::Unknown })
    }
}

impl CommandGrader {
    fn shown(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }
}

/// A running command, killed with all that it started when this is dropped before its end.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // Without an id it has ended and was waited for: another process may have its number.
        #[cfg(unix)]
        if let Some(pid) = self.0.id()
            && let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw)
        {
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }
}

/// Why a command gave no grade. What it printed is in none: it may be the answer.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error("the grader {0:?} could not be started")]
    Start(String, #[source] io::Error),
    #[error("the grader {0:?} could not be read")]
    Read(String, #[source] io::Error),
    #[error("the grader {0:?} printed more than 64 KiB")]
    Long(String),
    #[error("the grader {0:?} failed: {1}")]
    Failed(String, ExitStatus),
    #[error("the grader {0:?} did not print a number")]
    NoNumber(String),
}

/// What a command is told.
#[derive(Serialize)]
struct Asked<'a> {
    run: &'a str,
    case: &'a str,
    epoch: u32,
    step: u32,
    ordinal: Option<u32>,
    verdict: &'static str,
    text: &'a str,
    tool_calls: Vec<AskedCall<'a>>,
    refusal: Option<&'a str>,
    finish_reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<&'a str>,
}

#[derive(Serialize)]
struct AskedCall<'a> {
    name: &'a str,
    arguments: &'a str,
}

impl<'a> Asked<'a> {
    fn of(input: &'a GradeInput, expected: Option<&'a String>) -> Self {
        let (slot, content) = (&input.slot, &input.content);
        let call = |call: &'a attempt_ledger_core::ToolCall| AskedCall {
            name: &call.name,
            arguments: &call.arguments,
        };
        Asked {
            run: slot.run.as_str(),
            case: slot.case.as_str(),
            epoch: slot.epoch,
            step: slot.step,
            ordinal: input.ordinal.map(attempt_ledger_core::Ordinal::get),
            verdict: input.verdict.as_str(),
            text: &content.text,
            tool_calls: content.tool_calls.iter().map(call).collect(),
            refusal: content.refusal.as_deref(),
            finish_reason: content.finish_reason.as_ref().map(attempt_ledger_core::Label::as_str),
            expected: expected.map(String::as_str),
        }
    }
}
