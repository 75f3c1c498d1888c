//! What the README says is what the program does.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::accelerator::stand_in;
use crate::harness::Fabric;

fn readme() -> String {
    fs::read_to_string("README.md").unwrap()
}

/// The text between two lines of the README.
#[track_caller]
fn between<'t>(text: &'t str, start: &str, end: &str) -> &'t str {
    let (_, rest) = text.split_once(start).expect(start);
    rest.split_once(end).expect(end).0
}

#[test]
fn the_first_command_prints_what_is_shown() {
    let readme = readme();
    let shown = between(&readme, "$ cargo run --release -- ", "```");
    let (command, output) = shown.split_once('\n').unwrap();
    let done = Fabric::new()
        .args(command.split(' '))
        .finish()
        .expect_code(0);
    assert_eq!(done.stdout, output);
}

/// Every command line with `fabric run` that the README shows, from the word after it.
fn shown_command_lines(readme: &str) -> Vec<Vec<&str>> {
    let lines = readme.lines().filter(|it| it.split_once("$ ").is_some());
    let ours = lines.filter_map(|it| it.split_once(" fabric run "));
    let words = ours.map(|(_, words)| words.split(' ').collect());
    words.collect()
}

#[test]
fn every_command_line_that_is_shown_is_accepted() {
    let readme = readme();
    let shown = shown_command_lines(&readme);
    assert!(shown.len() >= 6, "{shown:?}");
    for words in shown {
        let run = Fabric::run().arg("--dry-run").args(&words);
        let folder = run.scratch().to_owned();
        fs::write(folder.join("train.py"), "").unwrap();
        let run = run
            .env("LD_LIBRARY_PATH", stand_in())
            .env("FAKE_NVML_DEVICES", "8");
        let done = run.cwd(&folder).finish();
        assert_eq!(done.code(), 0, "{words:?}: {}", done.stderr);
    }
}

/// Words that look like options, such as `--linger` or `-v`.
fn options(text: &str) -> BTreeSet<String> {
    let is_part = |it: char| it.is_ascii_alphanumeric() || it == '-';
    let words = text.split(|it| !is_part(it));
    let is_option = |it: &&str| match it.strip_prefix("--") {
        Some(name) => !name.is_empty(),
        None => it.len() == 2 && it.starts_with('-'),
    };
    words.filter(is_option).map(str::to_owned).collect()
}

/// Words that look like variables.
fn variables(text: &str) -> BTreeSet<&str> {
    let is_part = |it: char| it.is_ascii_uppercase() || it == '_';
    let words = text.split(|it| !is_part(it));
    words
        .filter(|it| it.starts_with("PET_") || it.starts_with("TORCH_"))
        .collect()
}

#[test]
fn the_options_are_those_of_the_help_with_their_variables() {
    let readme = readme();
    let (original, own) = readme.split_once("Options of our own stand").unwrap();
    let original = options(between(&(original.to_owned() + "\0"), "### Options", "\0"));
    let own = between(own, "|---|---|---|\n", "\n\n");
    let help = Fabric::run().arg("--help").finish().expect_code(0).stdout;
    let (help_original, help_own) = help.split_once("Options of fabric's own").unwrap();

    assert_eq!(variables(own), variables(help_own));
    // Each option by all its names, which help lists on the first line of its entry.
    let indent = |it: &&str| it.len() - it.trim_start().len() <= 6;
    let entries = |help: &str| -> Vec<BTreeSet<String>> {
        let lines = help
            .lines()
            .filter(indent)
            .filter(|it| it.trim_start().starts_with('-'));
        let first_column = lines.map(|it| it.trim_start().split("  ").next().unwrap());
        first_column.map(options).collect()
    };
    for (shown, listed) in [
        (original, entries(help_original)),
        (options(own), entries(help_own)),
    ] {
        for names in &listed {
            let told = names.contains("--help") || !names.is_disjoint(&shown);
            assert!(told, "not in the README: {names:?}");
        }
        let unknown: Vec<_> = shown
            .iter()
            .filter(|it| !listed.iter().any(|names| names.contains(*it)))
            .collect();
        assert!(unknown.is_empty(), "not in the help: {unknown:?}");
    }
}

#[test]
fn every_file_that_is_named_is_there() {
    let readme = readme();
    let quoted = readme.split('`').skip(1).step_by(2);
    let files = quoted.filter(|it| it.starts_with("examples/") || it.starts_with("tests/"));
    let files: BTreeSet<&str> = files.map(|it| it.split(' ').next().unwrap()).collect();
    assert!(files.contains("tests/run"), "{files:?}");
    for file in files {
        assert!(Path::new(file).exists(), "{file}");
    }
}
