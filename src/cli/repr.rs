//! How Python shows a command-line word: `repr()` of the text that `surrogateescape` makes of its bytes.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// `repr(text)` as CPython 3 writes it; a byte that is not UTF-8 becomes `\udcXX`.
pub(super) fn repr(text: &OsStr) -> String {
    let bytes = text.as_bytes();
    let quote = if bytes.contains(&b'\'') && !bytes.contains(&b'"') {
        '"'
    } else {
        '\''
    };
    let mut shown = String::from(quote);
    for chunk in bytes.utf8_chunks() {
        for it in chunk.valid().chars() {
            push(&mut shown, it, quote);
        }
        for byte in chunk.invalid() {
            write(&mut shown, format_args!("\\udc{byte:02x}"));
        }
    }
    shown.push(quote);
    shown
}

/// `repr()` of a file name as click shows it: what is not UTF-8 becomes U+FFFD first.
pub(super) fn repr_path(path: &OsStr) -> String {
    repr(OsStr::new(path.to_string_lossy().as_ref()))
}

fn push(shown: &mut String, it: char, quote: char) {
    match it {
        '\n' => shown.push_str("\\n"),
        '\r' => shown.push_str("\\r"),
        '\t' => shown.push_str("\\t"),
        '\\' => shown.push_str("\\\\"),
        _ if it == quote => {
            shown.push('\\');
            shown.push(it);
        }
        _ if printable(it) => shown.push(it),
        '\0'..='\u{ff}' => write(shown, format_args!("\\x{:02x}", it as u32)),
        '\u{100}'..='\u{ffff}' => write(shown, format_args!("\\u{:04x}", it as u32)),
        _ => write(shown, format_args!("\\U{:08x}", it as u32)),
    }
}

/// Python's `str.isprintable()`. The standard library has the same table (all but the categories
/// C* and Z*, and the blank) behind `escape_debug`, which also escapes quotes and, at the start of
/// a text only, combining marks: hence the letter in front.
fn printable(it: char) -> bool {
    let text: String = ['a', it].iter().collect();
    let mut escaped = text.escape_debug().skip(1);
    matches!(it, '\'' | '"') || escaped.next() == Some(it) && escaped.next().is_none()
}

fn write(shown: &mut String, text: std::fmt::Arguments<'_>) {
    shown
        .write_fmt(text)
        .expect("a String takes everything that is written to it");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: &str) {
        assert_eq!(repr(OsStr::from_bytes(bytes)), expected);
    }

    #[test]
    fn quotes_are_chosen_as_python_does() {
        check(b"t.py", "'t.py'");
        check(b"it's", "\"it's\"");
        check(b"say \"hi\"", "'say \"hi\"'");
        check(b"'\"", "'\\'\"'");
        check(b"a\\b", "'a\\\\b'");
    }

    #[test]
    fn what_cannot_be_printed_is_escaped() {
        check(b"\t\n\r\x1b\x7f", "'\\t\\n\\r\\x1b\\x7f'");
        check("\u{a0}\u{ad}".as_bytes(), "'\\xa0\\xad'");
        check("\u{200b}\u{e000}".as_bytes(), "'\\u200b\\ue000'");
        check("\u{e0001}".as_bytes(), "'\\U000e0001'");
        check("é٣e\u{301}😀".as_bytes(), "'é٣e\u{301}😀'");
        check("\u{301}".as_bytes(), "'\u{301}'");
    }

    #[test]
    fn bytes_that_are_no_text_are_surrogates_in_values_and_replaced_in_paths() {
        check(b"a\xff\xe2\x82", "'a\\udcff\\udce2\\udc82'");
        assert_eq!(repr_path(OsStr::from_bytes(b"\xff.py")), "'\u{fffd}.py'");
    }
}
