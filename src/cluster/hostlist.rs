//! Slurm's bracket notation for many host names, such as `gpu-[001-003,7],login1`.
//!
//! The grammar is that of `scontrol show hostnames` (Slurm 22.05), and more: text after a
//! bracket is allowed. Nothing is expanded before somebody asks for a host, so
//! `n[1-100000000]` costs as much as `n1`.

use anyhow::{Result, bail, ensure};

/// A parsed list: names in the order in which they stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostList {
    items: Vec<Vec<Part>>,
}

/// A piece of one item; an item names every combination of its pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Ranges(Vec<Range>),
}

/// `low-high` inside brackets, each number padded with zeros to `width`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    low: u64,
    high: u64,
    width: usize,
}

impl HostList {
    /// Parses a list; an empty one is an error, as it names no host.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let items: Vec<_> = split_items(text)?
            .into_iter()
            .map(parse_item)
            .collect::<Result<_>>()?;
        ensure!(!items.is_empty(), "it names no host");
        let counts = items.iter().map(|it| count_item(it));
        let total = counts.reduce(|a, b| a?.checked_add(b?)).flatten();
        ensure!(total.is_some(), "it names more hosts than can be counted");
        Ok(Self { items })
    }

    /// The name at `index`, from 0.
    pub(crate) fn nth(&self, index: u64) -> Option<String> {
        let mut left = index;
        for item in &self.items {
            let count = count_item(item)?;
            if left < count {
                return Some(name_of(item, left));
            }
            left -= count;
        }
        None
    }

    /// The first name.
    pub(crate) fn first(&self) -> String {
        self.nth(0).unwrap_or_default()
    }
}

/// Cuts at commas and blanks that are outside brackets; empty items vanish.
fn split_items(text: &str) -> Result<Vec<&str>> {
    let (mut items, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, it) in text.char_indices() {
        match it {
            '[' if inside => bail!("a `[` stands inside brackets"),
            ']' if !inside => bail!("a `]` has no `[`"),
            '[' | ']' => inside = it == '[',
            _ if !inside && (it == ',' || it.is_whitespace()) => {
                items.push(&text[start..at]);
                start = at + it.len_utf8();
            }
            _ => {}
        }
    }
    ensure!(!inside, "a `[` is never closed");
    items.push(&text[start..]);
    items.retain(|it| !it.is_empty());
    Ok(items)
}

/// Brackets are known to pair up here.
fn parse_item(item: &str) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    let mut rest = item;
    while let Some((text, opened)) = rest.split_once('[') {
        let (ranges, after) = opened.split_once(']').unwrap_or((opened, ""));
        if !text.is_empty() {
            parts.push(Part::Text(text.to_owned()));
        }
        let ranges = ranges.split(',').map(|it| parse_range(it.trim()));
        parts.push(Part::Ranges(ranges.collect::<Result<_>>()?));
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.to_owned()));
    }
    Ok(parts)
}

fn parse_range(text: &str) -> Result<Range> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (Some(first), Some(last)) = (digits(low), digits(high)) else {
        bail!("`{text}` is not a range of numbers");
    };
    ensure!(first <= last, "the range `{text}` runs backwards");
    Ok(Range {
        low: first,
        high: last,
        width: low.len(),
    })
}

/// A number of plain digits; `parse` alone would take `+1`.
fn digits(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|it| it.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// How many names an item has; `None` beyond 64 bits.
fn count_item(item: &[Part]) -> Option<u64> {
    item.iter().try_fold(1, |all: u64, part| {
        all.checked_mul(match part {
            Part::Text(_) => 1,
            Part::Ranges(ranges) => count_ranges(ranges)?,
        })
    })
}

fn count_ranges(ranges: &[Range]) -> Option<u64> {
    ranges.iter().try_fold(0, |all: u64, it| {
        all.checked_add((it.high - it.low).checked_add(1)?)
    })
}

/// The `index`th combination: the last bracket counts fastest, like the last digit of a number.
fn name_of(item: &[Part], mut index: u64) -> String {
    let mut pieces = Vec::new();
    for part in item.iter().rev() {
        pieces.push(match part {
            Part::Text(text) => text.clone(),
            Part::Ranges(ranges) => {
                let count = count_ranges(ranges).unwrap_or(1);
                let piece = number_at(ranges, index % count);
                index /= count;
                piece
            }
        });
    }
    pieces.iter().rev().map(String::as_str).collect()
}

fn number_at(ranges: &[Range], mut index: u64) -> String {
    for it in ranges {
        let count = it.high - it.low;
        if index <= count {
            return format!("{:0width$}", it.low + index, width = it.width);
        }
        index -= count + 1;
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl HostList {
        /// How many names there are, repeated ones counted each time.
        fn count(&self) -> u64 {
            self.items.iter().filter_map(|it| count_item(it)).sum()
        }
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let list = HostList::parse(text).unwrap();
        let names: Vec<_> = (0..list.count())
            .map(|index| list.nth(index).unwrap())
            .collect();
        assert_eq!(names, expected, "{text}");
        assert_eq!(list.nth(list.count()), None);
    }

    #[track_caller]
    fn refused(text: &str, why: &str) {
        assert_eq!(HostList::parse(text).unwrap_err().to_string(), why);
    }

    #[test]
    fn plain_names() {
        check("alpha", &["alpha"]);
        check("alpha,beta", &["alpha", "beta"]);
        check(" alpha beta\tgamma ", &["alpha", "beta", "gamma"]);
        check("a,,b,", &["a", "b"]);
        check("ip-10-0-1-3", &["ip-10-0-1-3"]);
    }

    #[test]
    fn ranges_keep_their_zeros_and_their_order() {
        check("n[008-010]", &["n008", "n009", "n010"]);
        check("n[9-11]", &["n9", "n10", "n11"]);
        check("n[3,1]", &["n3", "n1"]);
        check("n[1,01,2]", &["n1", "n01", "n2"]);
        check(
            "1.2.3.[089, 100-101]",
            &["1.2.3.089", "1.2.3.100", "1.2.3.101"],
        );
        check("[1-2]", &["1", "2"]);
    }

    #[test]
    fn several_brackets_are_all_combinations() {
        check(
            "rack[0-1]n[2-3]",
            &["rack0n2", "rack0n3", "rack1n2", "rack1n3"],
        );
        check("a[0-1][2-3]", &["a02", "a03", "a12", "a13"]);
        check("n[1],m[3-4]", &["n1", "m3", "m4"]);
        check("n[1-2]-ib,x", &["n1-ib", "n2-ib", "x"]);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        refused("", "it names no host");
        refused(" , ", "it names no host");
        refused("n[1", "a `[` is never closed");
        refused("n1]", "a `]` has no `[`");
        refused("n[[1-2]]", "a `[` stands inside brackets");
        refused("n[]", "`` is not a range of numbers");
        refused("n[a-c]", "`a-c` is not a range of numbers");
        refused("n[1-2-3]", "`1-2-3` is not a range of numbers");
        refused("n[2-1]", "the range `2-1` runs backwards");
        refused(
            "n[0-18446744073709551615]",
            "it names more hosts than can be counted",
        );
    }

    #[test]
    fn huge_lists_cost_nothing() {
        let list = HostList::parse("n[1-100000000]x[0-999999]").unwrap();
        assert_eq!(list.count(), 100_000_000_000_000);
        assert_eq!(list.first(), "n1x0");
        assert_eq!(list.nth(1_000_001).unwrap(), "n2x1");
    }
}
