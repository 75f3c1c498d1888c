//! The one line of a worker's last lines that says what went wrong.

/// How the header of Python's traceback begins.
const TRACEBACK: &str = "Traceback (most recent call last):";

/// The line with the exception: the one after the last traceback, else the last that looks like one. torch
/// puts `[rank3]: ` before every line of a traceback once there is a process group.
pub(crate) fn exception(lines: &[String]) -> Option<&str> {
    let lines: Vec<&str> = lines.iter().map(|it| unlabelled(it)).collect();
    let after_header = lines
        .iter()
        .rposition(|it| *it == TRACEBACK)
        .and_then(|header| {
            let mut below = lines[header + 1..].iter().copied();
            below.find(|it| it.starts_with(char::is_alphabetic))
        });
    after_header.or_else(|| lines.iter().rev().copied().find(|it| names_exception(it)))
}

/// Without `[rank3]: `.
fn unlabelled(line: &str) -> &str {
    let rest = line
        .strip_prefix("[rank")
        .and_then(|it| it.split_once("]: "));
    match rest {
        Some((number, rest)) if number.bytes().all(|it| it.is_ascii_digit()) => rest,
        _ => line,
    }
}

/// `ValueError: text`, `torch.OutOfMemoryError: text`, `KeyboardInterrupt`.
fn names_exception(line: &str) -> bool {
    let name = line.split_once(':').map_or(line, |(name, _)| name);
    let last = name.rsplit('.').next().unwrap_or(name);
    let kinds = ["Error", "Exception", "Interrupt", "Exit", "Iteration"];
    let word = |it: char| it.is_ascii_alphanumeric() || "._".contains(it);
    last.starts_with(|it: char| it.is_ascii_uppercase())
        && name.chars().all(word)
        && kinds.iter().any(|it| last.ends_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, found: Option<&str>) {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(exception(&lines), found);
    }

    #[test]
    fn what_follows_the_traceback_is_the_exception() {
        let text = "\
epoch 3
Traceback (most recent call last):
  File \"train.py\", line 7, in <module>
    main()
  File \"train.py\", line 3, in main
    raise ValueError(\"bad batch\")
ValueError: bad batch
size 3";
        check(text, Some("ValueError: bad batch"));
    }

    #[test]
    fn of_several_the_last_counts() {
        let text = "\
Traceback (most recent call last):
  File \"a.py\", line 1, in <module>
KeyError: 'lr'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File \"a.py\", line 3, in <module>
my.pkg.Stop
Exception ignored in: <module 'threading'>
OSError: later";
        check(text, Some("my.pkg.Stop"));
    }

    #[test]
    fn the_label_that_torch_writes_is_taken_off() {
        let text = "\
[rank3]: Traceback (most recent call last):
[rank3]:   File \"train.py\", line 7, in <module>
[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB
[W socket.cpp] a warning of the library";
        check(
            text,
            Some("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
        );
    }

    #[test]
    fn without_a_header_the_last_line_that_looks_like_one_counts() {
        check(
            "  in frame 40\nRuntimeError: boom\n  note",
            Some("RuntimeError: boom"),
        );
        check("step 1\nKeyboardInterrupt", Some("KeyboardInterrupt"));
        check("Segmentation fault (core dumped)", None);
        check("INFO: Error: no", None);
        check("", None);
    }
}
