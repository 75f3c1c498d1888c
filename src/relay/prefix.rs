//! Who says it: a label in front of every line.

/// What a label can be made of, by name as in torchrun's templates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    pub(crate) role_name: &'a str,
    pub(crate) local_rank: u32,
    pub(crate) rank: u32,
    pub(crate) hostname: &'a str,
}

/// Replaces `$name` and `${name}`, and `$$` by one dollar; what is no such name stays as it is, as in
/// Python's `string.Template.safe_substitute`, which torchrun uses.
pub(crate) fn expand(template: &str, names: &Names<'_>) -> String {
    let (mut text, mut rest) = (String::new(), template);
    while let Some(at) = rest.find('$') {
        text.push_str(&rest[..at]);
        let (value, length) = replacement(&rest[at..], names);
        text.push_str(&value);
        rest = &rest[at + length..];
    }
    text + rest
}

/// What stands for the beginning of `text`, which is a dollar, and how long that is.
fn replacement(text: &str, names: &Names<'_>) -> (String, usize) {
    let after = &text[1..];
    if after.starts_with('$') {
        return ("$".to_owned(), 2);
    }
    let (name, length) = match after.strip_prefix('{') {
        Some(braced) => {
            let name = &braced[..word(braced)];
            let closed = braced[name.len()..].starts_with('}');
            (if closed { name } else { "" }, name.len() + 3)
        }
        None => (&after[..word(after)], word(after) + 1),
    };
    let value = match name {
        "role_name" => names.role_name.to_owned(),
        "local_rank" => names.local_rank.to_string(),
        "rank" => names.rank.to_string(),
        "hostname" => names.hostname.to_owned(),
        _ => return ("$".to_owned(), 1),
    };
    (value, length)
}

/// The length of the name at the beginning.
fn word(text: &str) -> usize {
    let part = |it: char| it.is_ascii_alphanumeric() || it == '_';
    text.find(|it| !part(it)).unwrap_or(text.len())
}

/// Puts a label in front of the lines of one worker's stream.
#[derive(Debug)]
pub(crate) struct Prefix {
    label: Vec<u8>,
    /// The last byte was a carriage return: a line of the same place follows, or the end of this one.
    returned: bool,
    /// The last byte was a line's.
    inside: bool,
}

impl Prefix {
    pub(crate) fn new(label: impl Into<Vec<u8>>) -> Self {
        Self {
            label: label.into(),
            returned: false,
            inside: false,
        }
    }

    /// Others have written since: what comes next stands on a new line.
    pub(crate) fn restart(&mut self) {
        (self.returned, self.inside) = (false, false);
    }

    /// Appends the bytes to `out`, with a label where a line begins. A bar that goes back to the line's
    /// beginning gets one again, or it would write over it.
    pub(crate) fn add(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for piece in bytes.split_inclusive(|it| matches!(it, b'\n' | b'\r')) {
            let bare_return = piece == b"\r";
            let end_of_returned = self.returned && piece == b"\n";
            if !self.inside && !bare_return && !end_of_returned {
                out.extend_from_slice(&self.label);
            }
            out.extend_from_slice(piece);
            self.returned = piece.ends_with(b"\r");
            self.inside = !self.returned && !piece.ends_with(b"\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check_template(template: &str, expected: &str) {
        let names = Names {
            role_name: "default",
            local_rank: 3,
            rank: 11,
            hostname: "gpu-1",
        };
        assert_eq!(expand(template, &names), expected);
    }

    #[test]
    fn templates_are_pythons() {
        check_template("[${role_name}${local_rank}]:", "[default3]:");
        check_template("$hostname:$rank ", "gpu-1:11 ");
        check_template("$$rank ${rank", "$rank ${rank");
        check_template("${unknown} $ranks $ $", "${unknown} $ranks $ $");
        check_template("é$rank€", "é11€");
        check_template("", "");
    }

    #[track_caller]
    fn check(pieces: &[&str], expected: &str) {
        let (mut prefix, mut out) = (Prefix::new(*b"> "), Vec::new());
        pieces
            .iter()
            .for_each(|it| prefix.add(it.as_bytes(), &mut out));
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn every_line_has_a_label() {
        check(&["a\nb\n"], "> a\n> b\n");
        check(&["a\n\nb"], "> a\n> \n> b");
        check(&["be", "ginning", "\n", "c"], "> beginning\n> c");
    }

    #[test]
    fn carriage_returns_do_not_hide_it() {
        check(&["\r 10%", "\r 20%", "\n"], "\r>  10%\r>  20%\n");
        check(&["10%\r", "20%\r", "\n"], "> 10%\r> 20%\r\n");
        check(&["dos\r\nline\r\n"], "> dos\r\n> line\r\n");
    }

    #[test]
    fn after_others_a_line_begins_anew() {
        let (mut prefix, mut out) = (Prefix::new(*b"> "), Vec::new());
        prefix.add(b"half", &mut out);
        out.extend_from_slice(b"\nother\n");
        prefix.restart();
        prefix.add(b" done\n", &mut out);
        assert_eq!(out, b"> half\nother\n>  done\n");
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_lines(text in "[ab\n\r]{0,80}", cuts in prop::collection::vec(1..9_usize, 1..20)) {
            let whole = {
                let (mut prefix, mut out) = (Prefix::new(*b"> "), Vec::new());
                prefix.add(text.as_bytes(), &mut out);
                out
            };
            let (mut prefix, mut out, mut rest) = (Prefix::new(*b"> "), Vec::new(), text.as_bytes());
            for cut in cuts.iter().cycle().take(100) {
                let (piece, later) = rest.split_at(rest.len().min(*cut));
                prefix.add(piece, &mut out);
                rest = later;
            }
            prop_assert_eq!(&out, &whole);
            prop_assert_eq!(String::from_utf8(out).unwrap().replace("> ", ""), text);
        }
    }
}
