//! Integers and digits as Python reads them, for the options that the original hands to `int()`.
//!
//! The rules are CPython 3.11's (`Objects/longobject.c`, `Objects/unicodeobject.c`) with its
//! Unicode 14 tables: blanks around, a sign, single underscores between digits, the decimal digits
//! of every script. Text that is no UTF-8 reaches Python as lone surrogates and is never a number.

/// An integer of any size, kept as canonical decimal text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Integer {
    /// ASCII digits with a leading `-` if negative, as Python's `str(int(text))`.
    pub(crate) text: String,
    /// The value where it fits.
    pub(crate) value: Option<i64>,
}

/// Python refuses longer ones (`sys.int_info.default_max_str_digits`); leading zeros count.
const MAX_DIGITS: usize = 4300;

impl Integer {
    /// What `int(text)` gives, or `None` where it raises ValueError.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        // Unlike `str.strip()`, int() takes U+001C..U+001F for no blanks, and Rust agrees.
        let text = text.trim();
        let (negative, body) = match text.strip_prefix('-') {
            Some(body) => (true, body),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let digits = plain_digits(body).filter(|it| it.len() <= MAX_DIGITS)?;
        Some(Self::canonical(negative, &digits))
    }

    fn canonical(negative: bool, digits: &str) -> Self {
        let digits = match digits.trim_start_matches('0') {
            "" => "0",
            digits => digits,
        };
        let sign = if negative && digits != "0" { "-" } else { "" };
        let text = format!("{sign}{digits}");
        let value = text.parse().ok();
        Self { text, value }
    }
}

/// The digits in ASCII without their underscores; `None` if anything else is there, or nothing.
fn plain_digits(body: &str) -> Option<String> {
    let group = |group: &str| match group {
        "" => None,
        _ => group.chars().map(decimal).collect::<Option<String>>(),
    };
    body.split('_').map(group).collect()
}

/// The ASCII digit of the same value, for the decimal digits (Unicode category Nd) of any script.
fn decimal(it: char) -> Option<char> {
    let (code, after) = (u32::from(it), ZEROS.partition_point(|zero| *zero <= it));
    let value = code - u32::from(*ZEROS.get(after.checked_sub(1)?)?);
    char::from_digit(value, 10)
}

/// `str.isdigit()`: as `isdecimal()`, but also with digits that `int()` refuses, such as `²` or `①`.
pub(crate) fn is_digit_text(text: &str) -> bool {
    let other = |it| OTHER_DIGITS.iter().any(|(a, b)| (*a..=*b).contains(&it));
    !text.is_empty() && text.chars().all(|it| decimal(it).is_some() || other(it))
}

/// `str.strip()`, which also drops the separators U+001C..U+001F.
pub(crate) fn strip(text: &str) -> &str {
    text.trim_matches(|it: char| it.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&it))
}

/// The zeros of category Nd, ascending; the other nine digits follow each.
#[rustfmt::skip]
const ZEROS: &[char] = &[
    '\u{30}', '\u{660}', '\u{6f0}', '\u{7c0}', '\u{966}', '\u{9e6}', '\u{a66}', '\u{ae6}',
    '\u{b66}', '\u{be6}', '\u{c66}', '\u{ce6}', '\u{d66}', '\u{de6}', '\u{e50}', '\u{ed0}',
    '\u{f20}', '\u{1040}', '\u{1090}', '\u{17e0}', '\u{1810}', '\u{1946}', '\u{19d0}', '\u{1a80}',
    '\u{1a90}', '\u{1b50}', '\u{1bb0}', '\u{1c40}', '\u{1c50}', '\u{a620}', '\u{a8d0}', '\u{a900}',
    '\u{a9d0}', '\u{a9f0}', '\u{aa50}', '\u{abf0}', '\u{ff10}', '\u{104a0}', '\u{10d30}',
    '\u{11066}', '\u{110f0}', '\u{11136}', '\u{111d0}', '\u{112f0}', '\u{11450}', '\u{114d0}',
    '\u{11650}', '\u{116c0}', '\u{11730}', '\u{118e0}', '\u{11950}', '\u{11c50}', '\u{11d50}',
    '\u{11da0}', '\u{16a60}', '\u{16ac0}', '\u{16b50}', '\u{1d7ce}', '\u{1d7d8}', '\u{1d7e2}',
    '\u{1d7ec}', '\u{1d7f6}', '\u{1e140}', '\u{1e2f0}', '\u{1e950}', '\u{1fbf0}',
];

/// Digits that are no decimal digits, as ranges: superscripts, circled ones and the like.
#[rustfmt::skip]
const OTHER_DIGITS: &[(char, char)] = &[
    ('\u{b2}', '\u{b3}'), ('\u{b9}', '\u{b9}'), ('\u{1369}', '\u{1371}'),
    ('\u{19da}', '\u{19da}'), ('\u{2070}', '\u{2070}'), ('\u{2074}', '\u{2079}'),
    ('\u{2080}', '\u{2089}'), ('\u{2460}', '\u{2468}'), ('\u{2474}', '\u{247c}'),
    ('\u{2488}', '\u{2490}'), ('\u{24ea}', '\u{24ea}'), ('\u{24f5}', '\u{24fd}'),
    ('\u{24ff}', '\u{24ff}'), ('\u{2776}', '\u{277e}'), ('\u{2780}', '\u{2788}'),
    ('\u{278a}', '\u{2792}'), ('\u{10a40}', '\u{10a43}'), ('\u{10e60}', '\u{10e68}'),
    ('\u{11052}', '\u{1105a}'), ('\u{1f100}', '\u{1f10a}'),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(
            Integer::parse(text).map(|it| it.text).as_deref(),
            Some(expected)
        );
    }

    #[track_caller]
    fn refused(text: &str) {
        assert_eq!(Integer::parse(text), None, "{text:?}");
    }

    #[test]
    fn signs_blanks_and_underscores() {
        check(" 3 ", "3");
        check("+3", "3");
        check("-3", "-3");
        check("1_0", "10");
        check("\t\u{b}\u{c}2\r\n", "2");
        check("\u{3000}\u{85}\u{a0}4", "4");
        for text in ["", " ", "+", "+ 1", "--1", "_1", "1_", "-_1", "1__0", "1 2"] {
            refused(text);
        }
    }

    #[test]
    fn other_notations_are_refused() {
        for text in ["0x10", "1e3", "2.0", "a", "1,", "\u{2212}1", "\u{ff0b}1"] {
            refused(text);
        }
    }

    #[test]
    fn characters_that_only_look_blank_are_refused() {
        for text in ["1\0", "\u{1c}1", "\u{1f}\u{663}", "\u{200b}1", "\u{feff}1"] {
            refused(text);
        }
    }

    #[test]
    fn digits_of_every_script_may_be_mixed() {
        check("\u{663}", "3");
        check("\u{661}_\u{967}9", "119");
        check("\u{ff11}", "1");
        check("\u{1d7ff}", "9");
        refused("\u{b2}");
        refused("\u{2460}");
        refused("\u{2167}");
    }

    #[test]
    fn the_text_is_canonical() {
        check("-0", "0");
        check("0_0", "0");
        check("-007", "-7");
    }

    #[test]
    fn large_ones_keep_their_text_and_lose_their_value() {
        let value = |text| Integer::parse(text).unwrap().value;
        assert_eq!(value("9223372036854775807"), Some(i64::MAX));
        assert_eq!(value("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(value("9223372036854775808"), None);
        check("0099999999999999999999", "99999999999999999999");
    }

    #[test]
    fn at_most_4300_digits() {
        check(&"0".repeat(4300), "0");
        refused(&"0".repeat(4301));
        check(
            &format!("  -{}", "1_".repeat(4299) + "1"),
            &format!("-{}", "1".repeat(4300)),
        );
    }

    #[test]
    fn isdigit_knows_more_than_isdecimal() {
        assert!(is_digit_text("1\u{663}"));
        assert!(is_digit_text("\u{b2}"));
        assert!(is_digit_text("1\u{2460}"));
        for text in ["", " 1", "-1", "1_0", "\u{bd}", "\u{2167}"] {
            assert!(!is_digit_text(text), "{text:?}");
        }
    }

    #[test]
    fn strip_drops_the_information_separators() {
        assert_eq!(strip("\u{1c}\u{1f} 1 \u{2028}\n"), "1");
        assert_eq!(strip("\u{200b}"), "\u{200b}");
    }
}
