//! The end of what a worker wrote, kept for the report.

use std::collections::BTreeMap;

use crate::topology::LocalRank;

/// Bytes that are kept at least, once there are as many: twenty lines of 800.
const KEPT: usize = 16 * 1024;

/// The last words of each worker.
pub(crate) type Words = BTreeMap<LocalRank, Tail>;

/// What one worker wrote: its end, and how much it was.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tail {
    bytes: Vec<u8>,
    /// The beginning is missing.
    cut: bool,
    /// Ends of lines, and bytes, since the beginning.
    pub(crate) ends: u64,
    pub(crate) length: u64,
}

impl Tail {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.ends += bytes.iter().filter(|it| **it == b'\n').count() as u64;
        self.length += bytes.len() as u64;
        let kept = &bytes[bytes.len().saturating_sub(KEPT)..];
        self.cut |= kept.len() < bytes.len();
        if kept.len() == KEPT {
            self.cut |= !self.bytes.is_empty();
            self.bytes.clear();
        }
        self.bytes.extend_from_slice(kept);
        if self.bytes.len() >= 2 * KEPT {
            self.bytes.drain(..self.bytes.len() - KEPT);
            self.cut = true;
        }
    }

    /// Puts another stream of the same worker in its place, unless that says nothing; what was written counts
    /// for both.
    pub(crate) fn follow(&mut self, other: Self) {
        let (ends, length) = (self.ends + other.ends, self.length + other.length);
        if other.length > 0 {
            *self = other;
        }
        (self.ends, self.length) = (ends, length);
    }

    /// The last lines that say something, `most` at most, as they would stand on a terminal: of a line that
    /// was written over with carriage returns the last state counts. Colours are taken off, and bytes that
    /// are no text replaced.
    pub(crate) fn lines(&self, most: usize) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        let mut lines: Vec<&str> = text.split('\n').collect();
        if self.cut && lines.len() > 1 {
            // Its beginning is missing.
            lines.remove(0);
        }
        let lines = lines.into_iter().map(|it| uncoloured(visible(it)));
        let mut lines: Vec<String> = lines.collect();
        let end = lines.iter().rposition(|it| !it.trim().is_empty());
        lines.truncate(end.map_or(0, |at| at + 1));
        lines.split_off(lines.len().saturating_sub(most))
    }
}

/// The last state of a line with carriage returns in it.
fn visible(line: &str) -> &str {
    let line = line.trim_end_matches('\r');
    line.rsplit('\r').next().unwrap_or(line)
}

/// Without control sequences (ECMA-48, 5.4: ESC `[`, parameters, one final byte from `@` to `~`).
pub(super) fn uncoloured(line: &str) -> String {
    let mut pieces = line.split("\x1b[");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(|it| matches!(it, '@'..='~'));
        text.push_str(end.map_or("", |at| &piece[at + 1..]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&str], most: usize, lines: &[&str]) {
        let mut tail = Tail::default();
        pieces.iter().for_each(|it| tail.push(it.as_bytes()));
        assert_eq!(tail.lines(most), lines);
    }

    #[test]
    fn the_last_lines_are_kept() {
        check(&["a\nb\n", "c", "d\n"], 2, &["b", "cd"]);
        check(
            &["a\n", "\n", "b without end"],
            9,
            &["a", "", "b without end"],
        );
        check(&["a\n\n  \n"], 9, &["a"]);
        check(&[], 9, &[]);
    }

    #[test]
    fn of_a_progress_bar_the_last_state_counts() {
        check(&["\r 10%", "\r 20%\n", "dos\r\n"], 9, &[" 20%", "dos"]);
    }

    #[test]
    fn colours_are_taken_off() {
        check(
            &["\x1b[1;31mred\x1b[0m and \x1b[Kplain\n"],
            9,
            &["red and plain"],
        );
        check(&["cut \x1b[1;3"], 9, &["cut "]);
    }

    #[test]
    fn only_the_end_of_much_is_kept() {
        let mut tail = Tail::default();
        for number in 0..100_000 {
            tail.push(format!("line {number}\n").as_bytes());
        }
        assert!(tail.bytes.len() < 2 * KEPT);
        assert_eq!(tail.lines(2), ["line 99998", "line 99999"]);
        let all = tail.lines(usize::MAX);
        assert!(all.len() > 1000 && all.iter().all(|it| it.starts_with("line ")));
    }

    #[test]
    fn a_piece_larger_than_all_that_is_kept_replaces_it() {
        let mut tail = Tail::default();
        tail.push(b"before\n");
        tail.push(&[b"x".repeat(10 * KEPT), b"\nlast\n".to_vec()].concat());
        assert_eq!(tail.lines(9), ["last"]);
        assert!(tail.bytes.len() == KEPT);
    }
}
