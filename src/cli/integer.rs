//! Python's `int()`: which texts are integers, and which integers they are.

use std::ffi::OsStr;

/// An integer as Python's `int()` reads it: any size, kept as canonical decimal text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Integer {
    /// Canonical decimal digits with a leading `-` if negative, as Python's `str(int(text))`.
    pub(crate) text: String,
    /// The value where it fits.
    pub(crate) value: Option<i64>,
}

/// CPython refuses longer texts: `sys.int_info.default_max_str_digits`.
const MAX_DIGITS: usize = 4300;

/// The zeros of all decimal digits (category Nd) but ASCII; each is followed by its 1 to 9. Unicode 14, as in CPython 3.11.
const ZEROS: [u32; 65] = [
    0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6,
    0xe50, 0xed0, 0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50,
    0x1bb0, 0x1c40, 0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10,
    0x104a0, 0x10d30, 0x11066, 0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0, 0x11650,
    0x116c0, 0x11730, 0x118e0, 0x11950, 0x11c50, 0x11d50, 0x11da0, 0x16a60, 0x16ac0, 0x16b50,
    0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec, 0x1d7f6, 0x1e140, 0x1e2f0, 0x1e950, 0x1fbf0,
];

impl Integer {
    /// `int(text)` of CPython 3.11: white space around it, a sign, single underscores between digits, digits of any script.
    pub(crate) fn parse(text: &OsStr) -> Option<Self> {
        let text = text.to_str()?.trim_matches(char::is_whitespace);
        let (negative, digits) = match text.strip_prefix(['+', '-']) {
            Some(rest) => (text.starts_with('-'), rest),
            None => (false, text),
        };
        let digits = decimal(digits)?;
        let digits = match digits.trim_start_matches('0') {
            "" => "0",
            significant => significant,
        };
        let sign = if negative && digits != "0" { "-" } else { "" };
        let text = format!("{sign}{digits}");
        let value = text.parse().ok();
        Some(Self { text, value })
    }
}

/// The ASCII digits of digits that single underscores may part.
fn decimal(text: &str) -> Option<String> {
    let groups = text.split('_');
    let mut digits = String::with_capacity(text.len());
    for group in groups {
        let before = digits.len();
        for it in group.chars() {
            digits.push(ascii_digit(it)?);
        }
        if digits.len() == before {
            return None;
        }
    }
    (digits.len() <= MAX_DIGITS).then_some(digits)
}

fn ascii_digit(it: char) -> Option<char> {
    if it.is_ascii() {
        return Some(it).filter(char::is_ascii_digit);
    }
    let at = ZEROS.partition_point(|zero| *zero <= it as u32);
    let zero = ZEROS.get(at.checked_sub(1)?)?;
    char::from_digit(it as u32 - zero, 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let found = Integer::parse(OsStr::new(text)).map(|it| it.text);
        assert_eq!(found.as_deref(), expected, "{text:?}");
    }

    #[test]
    fn signs_blanks_and_underscores() {
        check("3", Some("3"));
        check("\u{a0} +3\t\u{2003}", Some("3"));
        check("-0", Some("0"));
        check("-007", Some("-7"));
        check("1_0", Some("10"));
        for wrong in [
            "", " ", "+", "-", "_1", "1_", "1__0", "- 1", "--1", "0x10", "1e3", "2.0", "1 0",
            "\u{1c}1",
        ] {
            check(wrong, None);
        }
    }

    #[test]
    fn digits_of_every_script_count_but_only_decimal_ones() {
        check("٣", Some("3"));
        check("１_𝟗", Some("19"));
        check("Ⅷ", None);
        check("²", None);
        for zero in ZEROS {
            let digits: String = (zero..zero + 10)
                .map(|it| char::from_u32(it).unwrap())
                .inspect(|it| assert!(it.is_numeric(), "{it:?}"))
                .collect();
            check(&digits, Some("123456789"));
        }
    }

    #[test]
    fn size_is_limited_only_by_pythons_digit_limit() {
        let big = Integer::parse(OsStr::new("99999999999999999999")).unwrap();
        assert_eq!(
            (big.text.as_str(), big.value),
            ("99999999999999999999", None)
        );
        check(&"1".repeat(MAX_DIGITS), Some(&"1".repeat(MAX_DIGITS)));
        check(&"0".repeat(MAX_DIGITS + 1), None);
    }

    #[test]
    fn the_value_is_given_where_it_fits() {
        let value = |text: &str| Integer::parse(OsStr::new(text)).unwrap().value;
        assert_eq!(value("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(value("9223372036854775808"), None);
    }
}
