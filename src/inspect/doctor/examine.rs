//! All checks, in the order in which a person would look.

use super::facts::Facts;
use super::finding::Finding;
use super::{devices, launch, machine, meeting};

/// A part of the doctor's answer, with the checks that make it.
type Part = (&'static str, &'static [fn(&Facts) -> Vec<Finding>]);

const PARTS: &[Part] = &[
    (
        "launch",
        &[
            launch::refusal,
            launch::values,
            launch::hints,
            launch::variables,
            launch::python,
            launch::program,
        ],
    ),
    ("devices", &[devices::gpus, devices::visible]),
    (
        "machine",
        &[
            machine::cpus,
            machine::numa,
            machine::memory,
            machine::shared_memory,
            machine::limits,
        ],
    ),
    (
        "network",
        &[
            meeting::interfaces,
            meeting::address,
            meeting::port,
            meeting::choice_of_interface,
        ],
    ),
];

/// The findings of one part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Examined {
    pub(crate) part: &'static str,
    pub(crate) findings: Vec<Finding>,
}

/// Looks at the facts with every check.
pub(crate) fn examine(facts: &Facts) -> Vec<Examined> {
    let parts = PARTS.iter().map(|(part, checks)| Examined {
        part,
        findings: checks.iter().flat_map(|check| check(facts)).collect(),
    });
    parts.filter(|it| !it.findings.is_empty()).collect()
}
