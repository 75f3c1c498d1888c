//! What a worker wrote about its own failure, where TORCHELASTIC_ERROR_FILE told it to.
//!
//! torch's `record` decorator writes `{"message": {"message": TEXT, "extraInfo": {"py_callstack": TEXT,
//! "timestamp": SECONDS}}}`; other programs write `{"message": TEXT, "timestamp": SECONDS}`. Both are read,
//! and anything else is taken as plain text: a malformed file must not hide a failure.

use serde_json::Value;

/// A worker's own words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Confession {
    pub(crate) message: String,
    pub(crate) traceback: Option<String>,
}

/// Reads the file's bytes; `None` if they say nothing.
pub(crate) fn parse(bytes: &[u8]) -> Option<Confession> {
    let parsed: Value = match serde_json::from_slice(bytes) {
        Ok(parsed) => parsed,
        Err(_) => return plain(&String::from_utf8_lossy(bytes)),
    };
    let message = &parsed["message"];
    let inner = message.get("message").unwrap_or(message);
    let traceback = message["extraInfo"]["py_callstack"].as_str().map(|it| it.trim_end().to_owned());
    let text = match inner {
        Value::String(text) => text.clone(),
        Value::Null => parsed.to_string(),
        other => other.to_string(),
    };
    plain(&text).map(|it| Confession { traceback, ..it })
}

/// The file that a launcher around us is shown: the worker's own, with the exit code added as torch does.
pub(crate) fn with_exit_code(bytes: &[u8], code: i32) -> Vec<u8> {
    let Ok(mut parsed) = serde_json::from_slice::<Value>(bytes) else { return bytes.to_vec() };
    match parsed.get_mut("message") {
        Some(Value::Object(message)) => drop(message.insert("errorCode".to_owned(), code.into())),
        _ => return bytes.to_vec(),
    }
    parsed.to_string().into_bytes()
}

fn plain(text: &str) -> Option<Confession> {
    let message = text.trim().to_owned();
    (!message.is_empty()).then_some(Confession { message, traceback: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], message: &str, traceback: Option<&str>) {
        let read = parse(bytes).unwrap();
        assert_eq!(read.message, message);
        assert_eq!(read.traceback.as_deref(), traceback);
    }

    #[test]
    fn both_forms_are_read() {
        let long = br#"{"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack": "Traceback\n", "timestamp": "5"}}}"#;
        check(long, "ValueError: boom", Some("Traceback"));
        check(br#"{"message": "boom", "timestamp": 5}"#, "boom", None);
    }

    #[test]
    fn malformed_files_still_say_something() {
        check(b"{\"message\": {\"mess", "{\"message\": {\"mess", None);
        check(b"\xff\xfe boom", "\u{fffd}\u{fffd} boom", None);
        check(br#"{"error": 1}"#, r#"{"error":1}"#, None);
        check(br#"{"message": {"message": 7}}"#, "7", None);
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b" \n"), None);
    }

    #[test]
    fn the_exit_code_is_added_for_a_launcher_around_us() {
        let out = with_exit_code(br#"{"message": {"message": "m"}}"#, 7);
        assert_eq!(out, br#"{"message":{"errorCode":7,"message":"m"}}"#);
        assert_eq!(with_exit_code(b"not json", 7), b"not json");
    }
}
