//! Tests only: the same answers as the original gives, both recorded ones and live ones.
//!
//! The recorded ones are in `tests/data`. The live ones come from a Python with Lightning and torch,
//! which `FABRIC_TEST_PYTHON` names; it plays machines that do not exist (`tests/peer/devices.py`).

use std::ffi::OsString;
use std::io::Write;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::choice::Accelerator;
use super::inventory::{Devices, Inventory};
use super::refusal::{Refusal, Why};
use super::selection::{DeviceRequest, Selection};
use super::visible::{Gpus, Visible};
use crate::environ::Environ;
use crate::source::{Source, Sourced};

const ACCELERATORS: &[(Option<&str>, Option<Accelerator>)] = &[
    (None, None),
    (Some("auto"), Some(Accelerator::Auto)),
    (Some("cpu"), Some(Accelerator::Cpu)),
    (Some("gpu"), Some(Accelerator::Gpu)),
    (Some("cuda"), Some(Accelerator::Cuda)),
    (Some("mps"), Some(Accelerator::Mps)),
    (Some("tpu"), Some(Accelerator::Tpu)),
];

fn accelerator(name: Option<&str>) -> Option<Accelerator> {
    let known = ACCELERATORS.iter().find(|(it, _)| *it == name);
    known.expect("a known accelerator").1
}

/// Our answer, on a machine with so many devices.
fn select(
    accelerator: Option<Accelerator>,
    devices: &str,
    (cuda, mps): (u32, u32),
) -> Result<Selection, Refusal> {
    let devices = Sourced::new(OsString::from(devices), Source::Flag("--devices"));
    let request = DeviceRequest {
        accelerator,
        data_parallel: false,
        devices: &devices,
    };
    let present = |count| Devices {
        count,
        ..Devices::default()
    };
    request.select(&Inventory {
        cuda: present(cuda),
        mps: present(mps),
    })
}

#[test]
fn every_recorded_request_for_devices_gets_the_recorded_answer() {
    let mut lines = recorded(include_str!("../../tests/data/devices.jsonl"));
    let columns = lines.next().unwrap()["columns"].clone();
    let mut cells = 0;
    for row in lines {
        let text = row[0].as_str().unwrap();
        for (column, settings) in columns.as_array().unwrap().iter().enumerate() {
            for setting in settings.as_array().unwrap() {
                check_recorded(text, setting.as_str().unwrap(), &row[column + 1]);
                cells += 1;
            }
        }
    }
    assert_eq!(cells, 58 * 19);
}

/// `setting` is written as `gpu/cuda4/mps`.
fn check_recorded(text: &str, setting: &str, expected: &Value) {
    let mut parts = setting.split('/');
    let name = parts.next().filter(|it| *it != "None");
    let cuda = parts.next().unwrap().strip_prefix("cuda").unwrap();
    let machine = (cuda.parse().unwrap(), parts.count() as u32);
    let answer = select(accelerator(name), text, machine);
    let agrees = match (&answer, expected.as_u64()) {
        (Ok(selection), Some(count)) => u64::from(selection.workers) == count,
        // The original goes on with 0 processes, and then dies of an assertion.
        (Err(refusal), Some(0)) => refusal.why == Why::NoneAsked,
        (Err(refusal), None) => code(&refusal.why).contains(&expected.as_str().unwrap()),
        _ => false,
    };
    assert!(
        agrees,
        "{text:?} with {setting}: {answer:?}, recorded {expected}"
    );
}

/// The recorded complaints that a refusal may stand for.
fn code(why: &Why) -> &'static [&'static str] {
    match why {
        Why::Tpu => &["VE:tpu", "VE:auto:tpu"],
        Why::AutoForGpu => &["VE:auto:gpu"],
        Why::NotACount { .. } => &["TE:cpu"],
        Why::TooMany => &[],
        Why::NotAnInteger { .. } => &["VE:int()"],
        Why::NoneAsked | Why::NoneThere(_) => &["ME:none-avail"],
        Why::Twice { .. } | Why::TwoKinds => &["ME:dup"],
        Why::Missing { .. } | Why::TooFew { .. } => &["ME:missing"],
    }
}

#[test]
fn every_recorded_list_of_visible_devices_gets_the_recorded_count() {
    let mut lines = recorded(include_str!("../../tests/data/cuda_visible_devices.jsonl"));
    let gpus = machine(&lines.next().unwrap()["gpus"]);
    let mut rows = 0;
    for row in lines {
        let set = row[0].as_str().map(|value| ("CUDA_VISIBLE_DEVICES", value));
        let visible = Visible::nvidia(&set.into_iter().collect());
        let count = visible.map(|visible| i64::from(visible.devices(&gpus).count));
        match row[1].as_i64() {
            // torch asks the CUDA driver, which finds no such partition on this machine.
            Some(-1) => assert_eq!(count, Ok(0), "{row}"),
            Some(expected) => assert_eq!(count, Ok(expected), "{row}"),
            None => assert!(count.is_err(), "{row}"),
        }
        rows += 1;
    }
    assert_eq!(rows, 46);
}

fn recorded(text: &str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap())
}

/// A machine with the GPUs of these names.
fn machine(names: &Value) -> Gpus {
    let names = names.as_array().unwrap().iter();
    let names: Vec<_> = names
        .map(|it| it.as_str().unwrap().to_owned())
        .zip(0..)
        .collect();
    Gpus {
        count: names.len() as u32,
        names,
        partitions: Vec::new(),
    }
}

const RANDOM_CASES: usize = 6000;

/// Bits of text that mean something in both grammars.
const NUMBERS: &[&str] = &["0", "1", "2", "3", "4", ",", ",", ",", ",", " ", "-1"];

/// Bits of lists of names.
const NAMES: &[&str] = &[
    "GPU-aaa", "GPU-aa", "GPU-aab", "GPU-b", "GPU-c", ",", ",", ",",
];

/// Bits that are rare, or only look as if they meant something.
#[rustfmt::skip]
const RARE: &[&str] = &[
    "00", "-", "+", "_", "auto", "[]", "a", ".", "e", "x", "\t", "\u{1c}", "\u{a0}", "\u{3000}",
    "\u{200b}", "\u{663}", "\u{1d7d9}", "\u{b2}", "\u{2460}", "\u{2167}", "\u{2212}1", "GPU-",
    "MIG-", "b",
];

fn text(common: &'static [&'static str]) -> impl Strategy<Value = String> {
    let bit = prop_oneof![7 => prop::sample::select(common), 1 => prop::sample::select(RARE)];
    prop::collection::vec(bit, 0..7).prop_map(|bits| bits.concat())
}

fn samples<S: Strategy>(strategy: S) -> Vec<S::Value> {
    let mut runner = TestRunner::deterministic();
    let mut sample = || strategy.new_tree(&mut runner).unwrap().current();
    (0..RANDOM_CASES).map(|_| sample()).collect()
}

/// What asks the original itself.
mod live {
    use super::*;

    #[test]
    fn random_requests_for_devices_get_the_answer_of_the_original() {
        let names = prop::sample::select(ACCELERATORS);
        let machines = prop::sample::select(&[(0, 0), (1, 0), (4, 0), (0, 1), (4, 1)][..]);
        let cases = samples((names, text(NUMBERS), machines));
        let questions = cases.iter().map(|((name, _), devices, (cuda, mps))| {
        json!({"accelerator": name, "devices": devices, "cuda": cuda, "mps": mps})
    });
        let answers = ask(questions);
        for (((name, accelerator), devices, machine), answer) in cases.iter().zip(answers) {
            let ours = select(*accelerator, devices, *machine);
            let comparable = match &ours {
                Ok(selection) => json!(selection.workers),
                Err(refusal) => complaint(&refusal.why, &answer),
            };
            assert_eq!(
                comparable, answer,
                "{devices:?} for {name:?} on {machine:?}: {ours:?}"
            );
        }
    }

    /// What the original says where we refuse.
    fn complaint(why: &Why, answer: &Value) -> Value {
        match why {
            Why::NoneAsked if *answer == json!(0) => json!(0),
            Why::NoneAsked | Why::NoneThere(_) => json!("none"),
            Why::Tpu | Why::AutoForGpu | Why::NotAnInteger { .. } => json!("ValueError"),
            Why::NotACount { .. } => json!("TypeError"),
            Why::TooMany => json!("the original would try"),
            Why::Twice { .. } | Why::TwoKinds => json!("twice"),
            Why::Missing { .. } | Why::TooFew { .. } => json!("missing"),
        }
    }

    #[test]
    fn random_lists_of_visible_devices_get_the_count_of_torch() {
        let gpus = json!(["GPU-aaa1", "GPU-aab2", "GPU-b003", "GPU-c004"]);
        let setting = || prop::option::weighted(0.6, prop_oneof![text(NUMBERS), text(NAMES)]);
        let cases = samples((any::<bool>(), setting(), setting(), setting()));
        let environs = cases.iter().map(|(_, cuda, rocr, hip)| {
            let named = [
                ("CUDA_VISIBLE_DEVICES", cuda),
                ("ROCR_VISIBLE_DEVICES", rocr),
                ("HIP_VISIBLE_DEVICES", hip),
            ];
            let set = named.map(|(name, value)| Some((name, value.as_deref()?)));
            set.into_iter().flatten().collect::<Vec<_>>()
        });
        let environs: Vec<_> = environs.collect();
        let questions = cases.iter().zip(&environs).map(|((amd, ..), environ)| {
            let environ: serde_json::Map<_, _> = environ
                .iter()
                .map(|(name, value)| ((*name).to_owned(), json!(value)))
                .collect();
            json!({"build": if *amd { "amd" } else { "nvidia" }, "environ": environ, "gpus": gpus})
        });
        let answers = ask(questions);
        for (((amd, ..), environ), answer) in cases.iter().zip(&environs).zip(answers) {
            let read = if *amd { Visible::amd } else { Visible::nvidia };
            let visible = read(&environ.iter().copied().collect::<Environ>());
            let ours = match visible.map(|it| it.devices(&machine(&gpus)).count) {
                // There are no partitions, whoever is asked.
                Ok(0) if answer == json!(-1) => json!(-1),
                Ok(count) => json!(count),
                Err(_) => json!("error"),
            };
            assert_eq!(ours, answer, "amd {amd}, {environ:?}");
        }
    }

    /// The original's answers, in order.
    fn ask(questions: impl Iterator<Item = Value>) -> Vec<Value> {
        let environ = Environ::of_this_process();
        let python = environ.text("FABRIC_TEST_PYTHON");
        let python =
            python.expect("FABRIC_TEST_PYTHON names a Python that has lightning and torch");
        let mut file = tempfile::tempfile().unwrap();
        for question in questions {
            writeln!(file, "{question}").unwrap();
        }
        std::io::Seek::rewind(&mut file).unwrap();
        let output = Command::new(python)
            .arg("tests/peer/devices.py")
            .stdin(file)
            .stderr(Stdio::inherit())
            .output()
            .unwrap_or_else(|error| panic!("failed to run FABRIC_TEST_PYTHON={python}: {error}"));
        let answers: Vec<_> = recorded(std::str::from_utf8(&output.stdout).unwrap()).collect();
        assert_eq!(answers.len(), RANDOM_CASES, "each question gets an answer");
        answers
    }
}
