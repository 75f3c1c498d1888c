//! Lines that contain one of some texts.

use super::lines::LONGEST;

/// Picks lines out of what one stream brings.
#[derive(Debug)]
pub(super) struct Filter {
    texts: Vec<Vec<u8>>,
    /// Stands in front of every line that is picked.
    label: Vec<u8>,
    /// The beginning of a line whose end has not come yet.
    held: Vec<u8>,
}

impl Filter {
    pub(super) fn new(texts: Vec<Vec<u8>>, label: String) -> Self {
        Self {
            texts,
            label: label.into_bytes(),
            held: Vec::new(),
        }
    }

    /// Takes what was read, and returns the lines that are whole by now and contain a text. A line that is too
    /// long is looked at in pieces.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let end = self.held.iter().rposition(|it| *it == b'\n');
        match end {
            Some(at) => self.pick(at + 1),
            None if self.held.len() >= LONGEST => self.pick(self.held.len()),
            None => Vec::new(),
        }
    }

    /// The last line, which has no end; it gets one, for others write to the same file.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        let mut rest = self.pick(self.held.len());
        if !rest.is_empty() {
            rest.push(b'\n');
        }
        rest
    }

    fn pick(&mut self, length: usize) -> Vec<u8> {
        let whole: Vec<u8> = self.held.drain(..length).collect();
        let lines = whole.split_inclusive(|it| *it == b'\n');
        let picked = lines.filter(|line| self.texts.iter().any(|it| contains(line, it)));
        let labelled = picked.flat_map(|line| [&self.label[..], line]);
        labelled.collect::<Vec<_>>().concat()
    }
}

fn contains(line: &[u8], text: &[u8]) -> bool {
    line.windows(text.len().max(1)).any(|it| it == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&str], expected: &str) {
        let texts = ["loss", "a,b"].map(|it| it.as_bytes().to_vec());
        let mut filter = Filter::new(texts.to_vec(), "[0]:".to_owned());
        let picked = pieces.iter().map(|it| filter.take(it.as_bytes()));
        let mut picked: Vec<u8> = picked.collect::<Vec<_>>().concat();
        picked.extend(filter.rest());
        assert_eq!(String::from_utf8_lossy(&picked), expected);
    }

    #[test]
    fn lines_with_one_of_the_texts_are_picked() {
        check(&["loss 1\nacc 2\nx a,b\n"], "[0]:loss 1\n[0]:x a,b\n");
        check(&["", "acc\n\n"], "");
    }

    #[test]
    fn lines_may_come_in_pieces_and_without_an_end() {
        check(
            &["acc\nlo", "ss 1", "\nlos", "s 2"],
            "[0]:loss 1\n[0]:loss 2\n",
        );
    }

    #[test]
    fn what_is_held_is_bounded() {
        let mut filter = Filter::new(vec![b"x".to_vec()], String::new());
        for _ in 0..10 {
            filter.take(&[b'y'; LONGEST / 2]);
            assert!(filter.held.len() < LONGEST);
        }
    }
}
