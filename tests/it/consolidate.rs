//! `fabric consolidate` is handed to the Python original.

use std::path::Path;

use crate::harness::{Fabric, python, test_python};

#[test]
fn the_original_answers_where_it_is_installed() {
    let original = test_python().with_file_name("fabric");
    for words in [&["--help"][..], &["nope", "--output_file", "o"]] {
        let theirs = Fabric::through(original.to_str().unwrap(), &["consolidate"]);
        let theirs = theirs.args(words).finish();
        let ours = Fabric::new().arg("consolidate").args(words);
        let ours = ours.env("PYTHON_EXEC", test_python()).finish();
        assert_eq!(ours.code(), theirs.code(), "{words:?}: {}", ours.stderr);
        assert_eq!(ours.stdout, theirs.stdout, "{words:?}");
        assert_eq!(ours.stderr, theirs.stderr, "{words:?}");
    }
}

/// An interpreter that has no packages but those in `folder`.
fn with_packages(folder: &Path) -> Fabric {
    let run = Fabric::new().arg("consolidate").env("PYTHONPATH", folder);
    run.env("PYTHON_EXEC", python())
        .env("PYTHONNOUSERSITE", "1")
}

#[test]
fn without_lightning_one_line_says_what_to_install() {
    let empty = tempfile::tempdir().unwrap();
    let python = python().display();
    let done = with_packages(empty.path()).finish().expect_code(1);
    let expected = format!(
        "fabric: `fabric consolidate` needs the Python package `lightning`, which {python} does not have\n\
         hint: {python} -m pip install lightning\n"
    );
    assert_eq!(done.stderr, expected);
}

#[test]
fn the_older_package_serves_as_well_and_the_working_folder_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let package = |name: &str, code: &str| {
        std::fs::create_dir_all(folder.path().join(name)).unwrap();
        std::fs::write(folder.path().join(name).join("__init__.py"), "").unwrap();
        std::fs::write(folder.path().join(name).join("cli.py"), code).unwrap();
    };
    package(
        "lightning_fabric",
        "import sys\ndef _main(prog_name):\n    print(prog_name, *sys.argv)\n    return 5\n",
    );
    let done = with_packages(folder.path())
        .args(["a b", "--x"])
        .finish()
        .expect_code(5);
    assert_eq!(done.stdout, "fabric fabric consolidate a b --x\n");

    let elsewhere = tempfile::tempdir().unwrap();
    with_packages(elsewhere.path())
        .cwd(folder.path())
        .finish()
        .expect_code(1);

    package("lightning_fabric", "");
    let done = with_packages(folder.path()).finish().expect_code(1);
    assert!(
        done.stderr.contains("needs the Python package `click`"),
        "{}",
        done.stderr
    );
}
