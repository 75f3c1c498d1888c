//! `!fabric run` in a cell of a notebook: a real kernel, and the ways in which its user may end it.

use std::time::Duration;

use crate::harness::{Fabric, Finished, binary, test_python};

/// What stands below the cell in the end; nothing is left of it, whatever became of the kernel.
fn notebook(way: &str) -> Finished {
    let python = test_python();
    let fabric = Fabric::through(python.to_str().unwrap(), &["tests/notebook.py", binary()]);
    let folder = fabric.scratch().to_owned();
    let folders = ["HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR"];
    let fabric = folders
        .into_iter()
        .fold(fabric, |it, name| it.env(name, &folder));
    let fabric = fabric.scratch_arg().arg(way).start();
    let done = fabric.finish_within(Duration::from_secs(10)).expect_code(0);
    assert!(
        done.stdout
            .starts_with("both were heard while the cell ran\n"),
        "{}",
        done.stdout
    );
    done
}

#[test]
fn output_appears_while_the_cell_runs() {
    let done = notebook("finish");
    for text in ["rank 0 is done\r\n", "rank 1 is done\r\n", "exit code 0\n"] {
        assert!(done.stdout.contains(text), "{}", done.stdout);
    }
}

#[test]
fn interrupting_the_cell_ends_everything() {
    let done = notebook("interrupt");
    let texts = [
        "KeyboardInterrupt",
        "stopped by SIGINT",
        "ranks 0, 1: ended by fabric (SIGINT)",
        "exit code -2\n",
    ];
    for text in texts {
        assert!(done.stdout.contains(text), "{}", done.stdout);
    }
}

#[test]
fn a_kernel_that_is_gone_leaves_nothing() {
    for way in ["kill", "shutdown"] {
        let done = notebook(way);
        assert!(
            done.stdout.contains("the kernel is gone\n"),
            "{way}: {}",
            done.stdout
        );
    }
}
