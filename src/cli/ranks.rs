//! Sets of ranks as people write them: `0,3-5`.

use std::fmt;

/// Runs of ranks, each with its first and last, as they were written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ranks(Vec<(u32, u32)>);

impl Ranks {
    /// Numbers and runs of numbers with commas between them, at least one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        text.split(',')
            .map(|it| run(it.trim()))
            .collect::<Option<_>>()
            .map(Self)
    }

    pub(crate) fn contains(&self, rank: u32) -> bool {
        self.0
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&rank))
    }
}

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "," })?;
            write!(f, "{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
        }
        Ok(())
    }
}

fn run(text: &str) -> Option<(u32, u32)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some((first, last))
}

fn number(text: &str) -> Option<u32> {
    // `parse` alone would take a plus sign.
    text.bytes()
        .all(|it| it.is_ascii_digit())
        .then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, ranks: &[u32]) {
        let parsed = Ranks::parse(text).unwrap();
        let found: Vec<u32> = (0..20).filter(|it| parsed.contains(*it)).collect();
        assert_eq!(found, ranks);
        assert_eq!(Ranks::parse(&parsed.to_string()), Some(parsed));
    }

    #[test]
    fn numbers_and_runs_name_ranks() {
        check("3", &[3]);
        check("0,2", &[0, 2]);
        check("0,3-5", &[0, 3, 4, 5]);
        check(" 7-7 , 1", &[1, 7]);
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            ",",
            "1,",
            "a",
            "5-3",
            "-1",
            "1-",
            "+1",
            "1 2",
            "4294967296",
        ] {
            assert_eq!(Ranks::parse(text), None, "{text:?}");
        }
    }
}
