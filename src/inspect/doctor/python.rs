//! Asks an interpreter what it has, for no longer than it may take.

use std::ffi::OsStr;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use super::facts::Python;

/// A cold file server may take a while, a broken one for ever.
const PATIENCE: Duration = Duration::from_secs(20);

/// Looks at what is installed without importing any of it, which would take seconds.
const QUESTION: &str = "\
import json, sys
from importlib import metadata
def version(name):
    try: return metadata.version(name)
    except metadata.PackageNotFoundError: return None
found = {name: version(name) for name in ('torch', 'lightning', 'lightning-fabric', 'pytorch-lightning')}
found['python'] = '.'.join(map(str, sys.version_info[:3]))
print(json.dumps(found))
";

/// # Errors
/// It cannot be run, says something else, or nothing in time: in words that go on after its path.
pub(super) fn ask(interpreter: &OsStr) -> Result<Python, String> {
    let mut python = Command::new(interpreter);
    python.args(["-c", QUESTION]);
    python.stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = python
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("does not run: {error}"))?;
    let Some(mut out) = child.stdout.take() else {
        return Err("has no output".to_owned());
    };
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let _ = out.read_to_string(&mut text);
        let _nobody_waits = sender.send(text);
    });
    let answer = receiver.recv_timeout(PATIENCE);
    let _ended = child.kill();
    let _reaped = child.wait();
    let text = answer.map_err(|_| format!("does not answer within {} s", PATIENCE.as_secs()))?;
    read(&text).ok_or_else(|| "does not run Python 3.8 or later".to_owned())
}

/// The last line, for a site customisation may print before it.
fn read(text: &str) -> Option<Python> {
    let value: Value = serde_json::from_str(text.lines().last()?).ok()?;
    let version = |name: &str| Some(value[name].as_str()?.to_owned());
    let packages = ["lightning", "lightning-fabric", "pytorch-lightning"];
    let lightning = packages
        .into_iter()
        .find_map(|name| Some(format!("{name} {}", version(name)?)));
    Some(Python {
        version: version("python")?,
        torch: version("torch"),
        lightning,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_answer() {
        let text =
            "welcome\n{\"python\": \"3.11.7\", \"torch\": null, \"lightning-fabric\": \"2.5.0\"}\n";
        let expected = Python {
            version: "3.11.7".to_owned(),
            torch: None,
            lightning: Some("lightning-fabric 2.5.0".to_owned()),
        };
        assert_eq!(read(text), Some(expected));
        assert_eq!(read(""), None);
        assert_eq!(read("{}"), None);
    }

    #[test]
    fn what_is_no_python_is_told() {
        assert!(
            ask(OsStr::new("/nonexistent"))
                .unwrap_err()
                .starts_with("does not run: ")
        );
        assert!(
            ask(OsStr::new("/bin/true"))
                .unwrap_err()
                .contains("Python 3.8")
        );
    }
}
