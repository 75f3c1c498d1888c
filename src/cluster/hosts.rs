//! Hosts and how many slots each has, as host files and host variables list them.

/// Distinct hosts in order of first appearance, each with its number of slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hosts(pub(super) Vec<(String, u32)>);

impl Hosts {
    /// One slot per name; a name may come again later.
    pub(super) fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::from_slots(names.into_iter().map(|name| (name, 1)))
    }

    /// Slots of a host that appears several times add up.
    pub(super) fn from_slots<'a>(slots: impl IntoIterator<Item = (&'a str, u32)>) -> Self {
        let mut hosts = Self::default();
        for (name, slots) in slots {
            match hosts.0.iter_mut().find(|it| it.0 == name) {
                Some(known) => known.1 += slots,
                None => hosts.0.push((name.to_owned(), slots)),
            }
        }
        hosts
    }

    /// `host n host n ...`: the notation of `LSB_MCPU_HOSTS`.
    pub(super) fn from_pairs(text: &str) -> Self {
        let words: Vec<&str> = text.split_whitespace().collect();
        let pairs = words.chunks_exact(2);
        Self::from_slots(pairs.filter_map(|it| Some((it[0], it[1].parse().ok()?))))
    }

    /// The first word of every line that has one.
    pub(super) fn from_lines(text: &str) -> Self {
        Self::from_names(first_words(text))
    }

    pub(super) fn len(&self) -> u32 {
        self.0.len() as u32
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first host's name.
    pub(super) fn first(&self) -> Option<&str> {
        Some(&self.0.first()?.0)
    }

    /// Where `hostname` stands. A list may hold full names where uname(2) has the short
    /// one, or the other way round.
    pub(super) fn position(&self, hostname: &str) -> Option<u32> {
        let exact = self.0.iter().position(|it| it.0 == hostname);
        let found = exact.or_else(|| self.0.iter().position(|it| same_host(&it.0, hostname)))?;
        Some(found as u32)
    }

    /// Whether no host has more than one slot.
    pub(super) fn one_slot_each(&self) -> bool {
        self.0.iter().all(|it| it.1 == 1)
    }
}

/// The first word of every line that has one.
pub(super) fn first_words(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|it| it.split_whitespace().next())
}

/// Whether two names are one host's, where at most one of them carries its domain.
pub(super) fn same_host(one: &str, other: &str) -> bool {
    let short = |it: &str| it.split('.').next().unwrap_or(it).to_ascii_lowercase();
    let both_full = one.contains('.') && other.contains('.');
    one.eq_ignore_ascii_case(other) || (!both_full && short(one) == short(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_may_appear_again() {
        let hosts = Hosts::from_lines("a slots=2\n\nb\na\n");
        assert_eq!(hosts.0, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
        assert!(!hosts.one_slot_each());
        assert_eq!(
            Hosts::from_pairs("a 1 b 2"),
            Hosts::from_names(["a", "b", "b"])
        );
    }

    #[test]
    fn a_short_name_finds_its_full_one() {
        let hosts = Hosts::from_names(["n1.site", "n2.site", "n2"]);
        assert_eq!(hosts.position("n1"), Some(0));
        assert_eq!(hosts.position("n2"), Some(2));
        assert_eq!(hosts.position("n1.other"), None);
        assert_eq!(hosts.position("n3"), None);
    }
}
