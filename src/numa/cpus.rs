//! Sets of CPUs, in the kernel's notation and as the mask that system calls take.

use std::collections::BTreeSet;
use std::fmt;

/// CPUs by the kernel's numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CpuSet(BTreeSet<u32>);

/// The kernel's own limit is far below; a wrong file shall not fill the memory.
const MOST: u32 = 1 << 16;

impl CpuSet {
    /// Reads a list such as `0-2,4,6-7`, as files in sysfs and procfs have it (cpuset(7), "List format").
    pub(crate) fn parse(list: &str) -> Option<Self> {
        let mut cpus = BTreeSet::new();
        for part in list.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            if last >= MOST {
                return None;
            }
            cpus.extend(first..=last);
        }
        Some(Self(cpus))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }

    /// Those that are in both.
    pub(crate) fn shared_with(&self, other: &Self) -> Self {
        self.0.intersection(&other.0).copied().collect()
    }

    /// One bit a CPU, in whole words, as sched_setaffinity(2) wants it.
    pub(crate) fn mask(&self) -> Vec<u64> {
        let mut words = vec![0; self.0.last().map_or(1, |it| *it as usize / 64 + 1)];
        for cpu in self.iter() {
            words[cpu as usize / 64] |= 1 << (cpu % 64);
        }
        words
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<T: IntoIterator<Item = u32>>(cpus: T) -> Self {
        Self(cpus.into_iter().collect())
    }
}

/// The notation that [`CpuSet::parse`] reads.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => runs.push((cpu, cpu)),
            }
        }
        for (at, (first, last)) in runs.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        for list in ["", "0", "0-2,4,6-7", "3,64-127"] {
            assert_eq!(CpuSet::parse(list).unwrap().to_string(), list);
        }
        assert_eq!(CpuSet::parse(" 1, 0\n").unwrap().to_string(), "0-1");
        for list in ["a", "1-", "-1", "1-2-3", "0-99999999"] {
            assert_eq!(CpuSet::parse(list), None, "{list}");
        }
    }

    #[test]
    fn the_mask_has_a_bit_for_each() {
        let mask = |list| CpuSet::parse(list).unwrap().mask();
        assert_eq!(mask("0,2-3"), [0b1101]);
        assert_eq!(mask("63-64"), [1 << 63, 1]);
        assert_eq!(mask(""), [0]);
    }
}
