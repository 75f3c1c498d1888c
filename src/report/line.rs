//! Small pieces of text: lists of ranks, spans of time, colours.

use std::time::Duration;

/// Colours for a terminal, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Paint {
    pub(crate) on: bool,
}

impl Paint {
    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.wrap("1;31", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.wrap("33", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.on && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// `rank 3`, `ranks 0, 2-5, 9`: numbers in ascending order.
pub(crate) fn ranks(numbers: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let texts = runs.iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}-{last}"),
    });
    let word = if numbers.len() == 1 { "rank" } else { "ranks" };
    format!("{word} {}", texts.collect::<Vec<_>>().join(", "))
}

/// `30 s`, `0.25 s`, `12.3 s`, `4 min 5 s`, `2 h 3 min`: as exact as a person wants it.
pub(crate) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..=59 if time.subsec_nanos() == 0 => format!("{seconds} s"),
        0..=9 => format!("{:.2} s", time.as_secs_f64()),
        10..=59 => format!("{:.1} s", time.as_secs_f64()),
        60..=3599 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Breaks a text at blanks so that no line is longer than `width` characters, unless a single word is.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// At most `most` characters, the cut marked by dots.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 3).chain("...".chars()).collect()
}

/// Somebody else's text, made fit for a terminal: no escape sequences, no carriage returns.
pub(crate) fn harmless(text: &str) -> String {
    let visible = |it: char| {
        if it.is_control() && it != '\n' && it != '\t' {
            char::REPLACEMENT_CHARACTER
        } else {
            it
        }
    };
    text.chars().map(visible).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_cut_and_cleaned() {
        assert_eq!(shortened("abcdef", 6), "abcdef");
        assert_eq!(shortened("abcdefg", 6), "abc...");
        assert_eq!(harmless("a\x1b[31mb\n\tc\r"), "a\u{fffd}[31mb\n\tc\u{fffd}");
    }

    #[test]
    fn ranks_are_listed_in_runs() {
        assert_eq!(ranks(&[3]), "rank 3");
        assert_eq!(ranks(&[0, 1]), "ranks 0, 1");
        assert_eq!(ranks(&[0, 2, 3, 4, 9]), "ranks 0, 2-4, 9");
    }

    #[test]
    fn spans_are_as_exact_as_a_person_wants() {
        assert_eq!(span(Duration::from_secs(30)), "30 s");
        assert_eq!(span(Duration::from_millis(253)), "0.25 s");
        assert_eq!(span(Duration::from_millis(12_345)), "12.3 s");
        assert_eq!(span(Duration::from_secs(245)), "4 min 5 s");
        assert_eq!(span(Duration::from_secs(7384)), "2 h 3 min");
    }

    #[test]
    fn text_is_broken_at_blanks() {
        assert_eq!(wrap("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(wrap("long-word b", 3), ["long-word", "b"]);
    }
}
