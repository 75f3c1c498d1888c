//! A worker of ours and a worker of the original, started with the same options: each sees the same, but for a
//! list of differences that are meant and told in the README.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use crate::harness::{Fabric, free_port, test_python};

/// Variables that may differ, each with the start of its row in the README's table of differences.
const MEANT: &[(&str, &str)] = &[
    ("NODE_RANK", "`NODE_RANK`"),
    ("OMP_NUM_THREADS", "`OMP_NUM_THREADS` (if unset)"),
    ("TORCHELASTIC_ERROR_FILE", "folder for error files"),
    ("LT_ACCELERATOR", "variables of an outer launch"),
    ("LT_PRECISION", "variables of an outer launch"),
];

/// One command line, with what the user had exported.
struct Case {
    options: &'static [&'static str],
    exported: &'static [(&'static str, &'static str)],
}

/// Few, since the original takes seconds for each; together they give every option and every rule a turn.
const CASES: &[Case] = &[
    Case {
        options: &["--devices", "2"],
        exported: &[("GREETING", "good morning")],
    },
    // The user's own settings, without a launcher around.
    Case {
        options: &[
            "--accelerator",
            "cpu",
            "--strategy",
            "ddp",
            "--main-address",
            "::1",
        ],
        exported: &[
            ("LT_PRECISION", "16-mixed"),
            ("LT_DEVICES", "7"),
            ("MASTER_ADDR", "elsewhere"),
            ("MASTER_PORT", "1"),
            ("NODE_RANK", "9"),
            ("OMP_NUM_THREADS", ""),
            ("RANK", "5"),
            ("ROLE_NAME", "trainer"),
            ("TORCHELASTIC_MAX_RESTARTS", "3"),
            ("TORCHELASTIC_RUN_ID", "mine"),
            ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"),
            ("TORCHINDUCTOR_CACHE_DIR", "/somewhere"),
            ("PYTORCH_NVML_BASED_CUDA_CHECK", "0"),
            ("CUDA_VISIBLE_DEVICES", ""),
            ("PYTHONUNBUFFERED", ""),
        ],
    },
    // What a launcher around us leaves.
    Case {
        options: &[
            "--devices",
            "2",
            "--strategy",
            "fsdp",
            "--main-address",
            "[::1]",
            "--num-nodes",
            "1",
            "--node-rank",
            "0",
        ],
        exported: &[
            ("LT_CLI_USED", "1"),
            ("LT_ACCELERATOR", "cpu"),
            ("LT_PRECISION", "bf16-mixed"),
            ("LT_STRATEGY", "ddp"),
            ("OMP_NUM_THREADS", "3"),
            ("GROUP_RANK", "4"),
            ("LOCAL_WORLD_SIZE", "8"),
            ("TORCHELASTIC_RESTART_COUNT", "2"),
            ("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM"),
        ],
    },
];

#[test]
fn a_worker_sees_the_same_as_under_the_original() {
    let mut differing = BTreeMap::new();
    for case in CASES {
        let port = free_port().to_string();
        let original = test_python().with_file_name("fabric");
        let theirs = Fabric::through(original.to_str().unwrap(), &["run"]);
        let ours = Fabric::run().arg("--python").arg(test_python());
        let (theirs, ours) = (seen(theirs, case, &port), seen(ours, case, &port));
        assert_eq!(theirs.len(), ours.len(), "workers of {:?}", case.options);
        for (theirs, ours) in theirs.iter().zip(&ours) {
            differing.extend(differing_variables(&theirs["environ"], &ours["environ"]));
            for fact in ["cwd", "umask", "nice", "files", "fds", "signals", "isatty"] {
                assert_eq!(theirs[fact], ours[fact], "{fact} of {:?}", case.options);
            }
            // The interpreter's own name for itself is each launcher's way of finding it.
            let words = |it: &Value| it["argv"].as_array().unwrap()[1..].to_vec();
            assert_eq!(words(theirs), words(ours));
            for it in [theirs, ours] {
                assert_eq!(
                    [&it["ids"]["pgid"], &it["ids"]["sid"]],
                    [&it["ids"]["pid"]; 2]
                );
            }
        }
    }
    let names: BTreeSet<&str> = differing.keys().map(String::as_str).collect();
    let meant: BTreeSet<&str> = MEANT.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, meant, "{differing:#?}");
}

#[test]
fn each_difference_is_in_the_readme() {
    let readme = fs::read_to_string("README.md").unwrap();
    for (name, row) in MEANT {
        assert!(
            readme.contains(&format!("\n| {row}")),
            "{name}: no row `{row}`"
        );
    }
}

/// What the workers of a case saw, in the order of their ranks, scratch folders made alike.
fn seen(run: Fabric, case: &Case, port: &str) -> Vec<Value> {
    let exported = [("LOGNAME", "jo"), ("LC_ALL", "C.UTF-8")];
    let exported = exported.iter().chain(case.exported);
    let run = exported.fold(run, |run, (name, value)| run.env(name, value));
    let run = run.args(case.options).args(["--main-port", port]);
    let run = run.worker("dump.py").scratch_arg().args(["--lr", "0.1"]);
    let done = run.finish().expect_code(0);
    let folder = done.scratch.path().to_str().unwrap();
    let files =
        (0..).map(|rank| fs::read_to_string(done.scratch.path().join(format!("{rank}.json"))));
    let texts = files.map_while(Result::ok);
    texts
        .map(|it| serde_json::from_str(&it.replace(folder, "/scratch")).unwrap())
        .collect()
}

/// Variables that only one of the two has, or with another value: theirs and ours.
fn differing_variables(theirs: &Value, ours: &Value) -> BTreeMap<String, [Option<String>; 2]> {
    let read = |it: &Value| -> BTreeMap<String, String> {
        let mut variables: BTreeMap<_, _> = serde_json::from_value(it.clone()).unwrap();
        variables.remove("FABRIC_TEST_RUN");
        variables
    };
    let (theirs, ours) = (read(theirs), read(ours));
    let names: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
    let both = |name: &String| [theirs.get(name).cloned(), ours.get(name).cloned()];
    let pairs = names.into_iter().map(|it| (it.clone(), both(it)));
    pairs.filter(|(_, [theirs, ours])| theirs != ours).collect()
}
