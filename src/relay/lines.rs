//! Whole lines out of what read(2) happens to return.

use std::time::Duration;

/// Bytes of a line without an end that are held back, at most.
pub(crate) const LONGEST: usize = 64 * 1024;

/// A moment on the monotonic clock, counted from any fixed start.
pub(crate) type Moment = Duration;

/// The beginning of a line whose end has not come yet.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    held: Vec<u8>,
    /// When the first of them came.
    since: Option<Moment>,
}

impl Lines {
    /// Copies what is held to the front of `buffer`, which has room for it, and returns its length: what is
    /// read next belongs right behind it.
    pub(crate) fn lead(&self, buffer: &mut [u8]) -> usize {
        buffer[..self.held.len()].copy_from_slice(&self.held);
        self.held.len()
    }

    /// Takes what was held and what was read behind it, returns what can be passed on, and holds the rest.
    pub(crate) fn take<'b>(&mut self, bytes: &'b [u8], now: Moment) -> &'b [u8] {
        let read = &bytes[self.held.len()..];
        let (ready, rest) = match read.iter().rposition(|it| *it == b'\n') {
            Some(at) => bytes.split_at(self.held.len() + at + 1),
            None => bytes.split_at(0),
        };
        if rest.len() >= LONGEST {
            self.held.clear();
            self.since = None;
            return bytes;
        }
        if !ready.is_empty() {
            self.since = None;
        }
        if !rest.is_empty() {
            self.since = self.since.or(Some(now));
        }
        self.held.clear();
        self.held.extend_from_slice(rest);
        ready
    }

    /// When the oldest byte that is held came.
    pub(crate) fn since(&self) -> Option<Moment> {
        self.since
    }

    /// Gives up waiting for the line's end.
    pub(crate) fn release(&mut self) -> Vec<u8> {
        self.since = None;
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Moment = Moment::from_secs(1);

    /// One read of `bytes`.
    fn feed(lines: &mut Lines, bytes: &[u8], now: Moment) -> Vec<u8> {
        let mut buffer = vec![0; LONGEST + bytes.len()];
        let lead = lines.lead(&mut buffer);
        buffer[lead..lead + bytes.len()].copy_from_slice(bytes);
        lines.take(&buffer[..lead + bytes.len()], now).to_vec()
    }

    #[track_caller]
    fn check(reads: &[&str], passed: &[&str], held: &str) {
        let mut lines = Lines::default();
        let out: Vec<_> = reads
            .iter()
            .map(|it| feed(&mut lines, it.as_bytes(), NOW))
            .collect();
        let out: Vec<_> = out.iter().map(|it| String::from_utf8_lossy(it)).collect();
        assert_eq!(out, passed);
        assert_eq!(lines.since().is_some(), !held.is_empty());
        assert_eq!(lines.release(), held.as_bytes());
        assert_eq!(lines.since(), None);
    }

    #[test]
    fn whole_lines_pass_and_the_rest_is_held() {
        check(&["a\nb\nc"], &["a\nb\n"], "c");
        check(&["a", "b\n"], &["", "ab\n"], "");
        check(&["a\n", "\n", "b"], &["a\n", "\n", ""], "b");
    }

    #[test]
    fn carriage_returns_end_no_line() {
        check(&["\r 10%", "\r 20%", "\n"], &["", "", "\r 10%\r 20%\n"], "");
    }

    #[test]
    fn a_line_without_end_passes_in_pieces() {
        let piece = "x".repeat(LONGEST - 1);
        check(
            &[&piece, "xy", "z\n"],
            &["", &format!("{piece}xy"), "z\n"],
            "",
        );
    }

    #[test]
    fn the_wait_counts_from_the_first_byte_held() {
        let mut lines = Lines::default();
        let at = Moment::from_millis;
        feed(&mut lines, b"a", at(1));
        feed(&mut lines, b"b", at(2));
        assert_eq!(lines.since(), Some(at(1)));
        feed(&mut lines, b"c\nd", at(3));
        assert_eq!(lines.since(), Some(at(3)));
        feed(&mut lines, b"\n", at(4));
        assert_eq!(lines.since(), None);
    }

    /// Text with many line ends, cut anywhere into reads.
    fn text_and_cuts() -> impl Strategy<Value = (Vec<u8>, Vec<usize>)> {
        let byte = prop_oneof![3 => any::<u8>(), 1 => Just(b'\n'), 1 => Just(b'\r')];
        let text = prop::collection::vec(byte, 0..400);
        (text, prop::collection::vec(1..60_usize, 1..40))
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_bytes_in_whole_lines((text, cuts) in text_and_cuts()) {
            let (mut lines, mut out, mut rest) = (Lines::default(), Vec::new(), &text[..]);
            for cut in cuts.iter().cycle() {
                let (read, later) = rest.split_at(rest.len().min(*cut));
                rest = later;
                let passed = feed(&mut lines, read, NOW);
                prop_assert!(passed.is_empty() || passed.ends_with(b"\n"));
                out.extend(passed);
                if rest.is_empty() {
                    break;
                }
            }
            let whole = text.iter().rposition(|it| *it == b'\n').map_or(0, |at| at + 1);
            prop_assert_eq!(&out[..], &text[..whole]);
            out.extend(lines.release());
            prop_assert_eq!(out, text);
        }

        #[test]
        fn no_line_of_two_writers_is_mixed((one, cuts) in text_and_cuts(), (two, _) in text_and_cuts()) {
            // Reads of two workers in turn, each cut on its own.
            let mut sources = [(Lines::default(), &one[..]), (Lines::default(), &two[..])];
            let mut passed: Vec<(usize, Vec<u8>)> = Vec::new();
            for (turn, cut) in cuts.iter().cycle().take(1000).enumerate() {
                let (lines, rest) = &mut sources[turn % 2];
                let (read, later) = rest.split_at(rest.len().min(*cut));
                *rest = later;
                passed.push((turn % 2, feed(lines, read, NOW)));
            }
            for (index, text) in [&one, &two].into_iter().enumerate() {
                let whole = text.iter().rposition(|it| *it == b'\n').map_or(0, |at| at + 1);
                let own = passed.iter().filter(|(from, _)| *from == index);
                let own: Vec<u8> = own.flat_map(|(_, it)| it.clone()).collect();
                prop_assert_eq!(&own[..], &text[..whole]);
            }
            prop_assert!(passed.iter().all(|(_, it)| it.is_empty() || it.ends_with(b"\n")));
        }
    }
}
