//! The `--devices` grammar: from the text and the inventory to the number of workers.
//!
//! The rules are those of Lightning 2.6's `_get_num_processes`, `_parse_gpu_ids` and
//! `_parse_cpu_cores`. One of its quirks is left out: with `TORCHELASTIC_RUN_ID` in the
//! environment and exactly one device visible, it takes any number of devices for granted. A launch
//! inside a launch starts clean here, so an outer launcher's variable changes nothing.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsString;

use super::choice::{Accelerator, Kind};
use super::inventory::{Inventory, Needs};
use super::refusal::{Pool, Refusal, Why};
use crate::integer::{Integer, is_digit_text, strip};
use crate::source::Sourced;

/// The part of the command line that decides how many workers start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceRequest<'a> {
    pub(crate) accelerator: Option<Accelerator>,
    /// `--strategy dp`: one process drives all devices, and `--devices` is not looked at.
    pub(crate) data_parallel: bool,
    pub(crate) devices: &'a Sourced<OsString>,
}

/// How many workers start, and on what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Selection {
    pub(crate) workers: u32,
    /// `None` where it makes no difference here, and each worker decides for itself.
    pub(crate) kind: Option<Kind>,
    /// The devices by the worker's index, one per worker; `None` where devices have no number or
    /// were not looked at.
    pub(crate) devices: Option<Vec<u32>>,
    /// Advice for a request that is right but perhaps not meant.
    pub(crate) hint: Option<String>,
}

impl DeviceRequest<'_> {
    /// What has to be known of the machine before `select` can answer.
    pub(crate) fn needs(&self) -> Needs {
        if self.makes_no_difference() {
            return Needs::default();
        }
        self.possible()
    }

    /// Every kind of device that workers may come to use, also where their number does not depend on it.
    pub(crate) fn possible(&self) -> Needs {
        let (cuda, mps) = match self.accelerator {
            None | Some(Accelerator::Auto | Accelerator::Gpu) => (true, true),
            Some(Accelerator::Cuda) => (true, false),
            Some(Accelerator::Mps) => (false, true),
            Some(Accelerator::Cpu | Accelerator::Tpu) => (false, false),
        };
        Needs { cuda, mps }
    }

    /// The workers to start on this machine.
    pub(crate) fn select(&self, inventory: &Inventory) -> Result<Selection, Refusal> {
        if self.makes_no_difference() {
            return Ok(Selection::of(1, None));
        }
        self.choose(inventory)
            .map_err(|why| Refusal::new(self.devices, why))
    }

    /// One worker whatever the machine has: `dp`, and one device of whichever kind is best.
    fn makes_no_difference(&self) -> bool {
        let any_kind = matches!(self.accelerator, None | Some(Accelerator::Auto));
        self.data_parallel || (any_kind && self.devices.value == "1")
    }

    fn choose(&self, inventory: &Inventory) -> Result<Selection, Why> {
        let kind = match self.accelerator {
            None | Some(Accelerator::Auto) => Kind::best(inventory),
            Some(Accelerator::Cpu) => Kind::Cpu,
            Some(Accelerator::Gpu) => Kind::best_gpu(inventory),
            Some(Accelerator::Cuda) => Kind::Cuda,
            Some(Accelerator::Mps) => Kind::Mps,
            Some(Accelerator::Tpu) => return Err(Why::Tpu),
        };
        let text = self.text()?;
        let mut selection = match kind {
            Kind::Cpu => Selection::of(cpu_count(&text, self.why_cpu(inventory))?, Some(kind)),
            Kind::Cuda | Kind::Mps => {
                Selection::of_devices(gpu_indices(&text, self.pool(kind, inventory))?, kind)
            }
        };
        selection.hint = self.hint(kind, inventory);
        Ok(selection)
    }

    /// The value, with `auto` resolved to the one device that the original makes of it.
    fn text(&self) -> Result<Cow<'_, str>, Why> {
        // Bytes that are no UTF-8 become lone surrogates in Python; those are neither blanks nor
        // digits nor commas, and nor is the character that stands for them here.
        let text = self.devices.value.to_string_lossy();
        match (text == "auto", self.accelerator) {
            (true, Some(Accelerator::Gpu)) => Err(Why::AutoForGpu),
            (true, _) => Ok(Cow::Borrowed("1")),
            (false, _) => Ok(text),
        }
    }

    /// What the devices are chosen from; `gpu` means both kinds.
    fn pool(&self, kind: Kind, inventory: &Inventory) -> Pool {
        let (cuda, mps) = (&inventory.cuda, &inventory.mps);
        let both = self.accelerator == Some(Accelerator::Gpu);
        let (noun, count, note) = match kind {
            _ if both => ("GPU", cuda.count.max(mps.count), &cuda.note),
            Kind::Mps => ("MPS device", mps.count, &mps.note),
            Kind::Cuda | Kind::Cpu => ("CUDA device", cuda.count, &cuda.note),
        };
        let (overlap, note) = (both && cuda.count.min(mps.count) > 0, note.clone());
        Pool {
            noun,
            count,
            note,
            overlap,
        }
    }

    /// Why it is the CPU where nobody asked for it.
    fn why_cpu(&self, inventory: &Inventory) -> Option<String> {
        if self.accelerator == Some(Accelerator::Cpu) {
            return None;
        }
        let cause = inventory.cuda.note.as_ref();
        let cause = cause.map_or_else(String::new, |note| format!(": {note}"));
        Some(format!("no GPU was found{cause}"))
    }

    fn hint(&self, kind: Kind, inventory: &Inventory) -> Option<String> {
        let there = match kind {
            Kind::Cuda => inventory.cuda.count,
            Kind::Mps => inventory.mps.count,
            Kind::Cpu => 0,
        };
        (self.devices.value == "auto" && there > 1).then(|| {
            format!(
                "`--devices auto` starts 1 process, and {there} devices are there: \
                 use `--devices {there}` or `--devices -1` for all"
            )
        })
    }
}

impl Selection {
    /// The GPU of each worker, by its place among the visible ones; `None` where workers use none.
    pub(crate) fn gpus(&self, inventory: &Inventory) -> Option<Vec<u32>> {
        match self.kind {
            Some(Kind::Cuda) => self.devices.clone(),
            // One worker, which takes the first of what there is.
            None if Kind::best_gpu(inventory) == Kind::Cuda && inventory.cuda.count > 0 => {
                Some(vec![0])
            }
            _ => None,
        }
    }

    /// What the workers train on, such as `cuda 0, 2`; `None` where that makes no difference.
    pub(crate) fn hardware(&self) -> Option<String> {
        let kind = self.kind?;
        let numbers: Vec<String> = self.devices.iter().flatten().map(u32::to_string).collect();
        let text = format!("{kind} {}", numbers.join(", "));
        Some(text.trim_end().to_owned())
    }

    fn of(workers: u32, kind: Option<Kind>) -> Self {
        let (devices, hint) = (None, None);
        Self {
            workers,
            kind,
            devices,
            hint,
        }
    }

    fn of_devices(devices: Vec<u32>, kind: Kind) -> Self {
        let workers = devices.len() as u32;
        let devices = Some(devices);
        Self {
            devices,
            ..Self::of(workers, Some(kind))
        }
    }
}

fn cpu_count(text: &str, note: Option<String>) -> Result<u32, Why> {
    if !is_digit_text(strip(text)) {
        return Err(Why::NotACount { note });
    }
    // The original looks at the stripped text but reads the whole; some blanks make a difference.
    let count = Integer::parse(text).ok_or(Why::NotAnInteger { part: None })?;
    match index(&count) {
        Some(0) => Err(Why::NotACount { note }),
        Some(count) => Ok(count),
        None => Err(Why::TooMany),
    }
}

/// What a text asks for before it is held against the devices there are.
enum Wanted {
    All,
    First(Integer),
    These(Vec<Integer>),
}

impl Wanted {
    fn parse(text: &str) -> Result<Self, Why> {
        if text.contains(',') {
            let parts = text.split(',').filter(|part| !part.is_empty());
            let these = parts.map(|part| integer(part, || Some(part.to_owned())));
            return these.collect::<Result<_, _>>().map(Self::These);
        }
        if strip(text) == "[]" {
            return Err(Why::NoneAsked);
        }
        let count = integer(text, || None)?;
        match count.text.as_str() {
            "-1" => Ok(Self::All),
            "0" => Err(Why::NoneAsked),
            negative if negative.starts_with('-') => Err(Why::NoneAsked),
            _ => Ok(Self::First(count)),
        }
    }
}

fn integer(text: &str, part: impl Fn() -> Option<String>) -> Result<Integer, Why> {
    Integer::parse(strip(text)).ok_or_else(|| Why::NotAnInteger { part: part() })
}

fn gpu_indices(text: &str, pool: Pool) -> Result<Vec<u32>, Why> {
    match Wanted::parse(text)? {
        Wanted::All if pool.count == 0 => Err(Why::NoneThere(pool)),
        Wanted::All if pool.overlap => Err(Why::TwoKinds),
        Wanted::All => Ok((0..pool.count).collect()),
        Wanted::First(count) => match index(&count) {
            Some(count) if count <= pool.count => Ok((0..count).collect()),
            _ => Err(Why::TooFew {
                count: count.text,
                pool,
            }),
        },
        Wanted::These(list) if list.is_empty() => Err(Why::NoneAsked),
        Wanted::These(list) => listed(list, pool),
    }
}

/// The listed devices in their order: each once, and each there.
fn listed(list: Vec<Integer>, pool: Pool) -> Result<Vec<u32>, Why> {
    let mut seen = BTreeSet::new();
    if let Some(twice) = list.iter().find(|it| !seen.insert(&it.text)) {
        let index = twice.text.clone();
        return Err(Why::Twice { index });
    }
    let there = |it: &Integer| index(it).filter(|it| *it < pool.count);
    match list.iter().find(|it| there(it).is_none()) {
        Some(missing) => Err(Why::Missing {
            index: missing.text.clone(),
            pool,
        }),
        None => Ok(list.iter().filter_map(there).collect()),
    }
}

fn index(number: &Integer) -> Option<u32> {
    u32::try_from(number.value?).ok()
}

#[cfg(test)]
mod tests {
    use super::super::inventory::Devices;
    use super::*;
    use crate::source::Source;

    const NO_DRIVER: &str = "no NVIDIA driver is installed";

    fn cuda(count: u32) -> Inventory {
        let mut inventory = nothing();
        inventory.cuda.count = count;
        inventory.cuda.note = (count == 0).then(|| NO_DRIVER.to_owned());
        inventory
    }

    fn nothing() -> Inventory {
        Inventory {
            cuda: Devices::none(NO_DRIVER),
            mps: Devices::none("no Mac"),
        }
    }

    fn given(devices: &str) -> Sourced<OsString> {
        Sourced::new(devices.into(), Source::Flag("--devices"))
    }

    fn ask(accelerator: Option<Accelerator>, devices: &Sourced<OsString>) -> DeviceRequest<'_> {
        let data_parallel = false;
        DeviceRequest {
            accelerator,
            data_parallel,
            devices,
        }
    }

    #[track_caller]
    fn selected(accelerator: Accelerator, devices: &str, inventory: &Inventory) -> Selection {
        ask(Some(accelerator), &given(devices))
            .select(inventory)
            .unwrap()
    }

    #[track_caller]
    fn refused(accelerator: Accelerator, devices: &str, inventory: &Inventory, expected: &str) {
        let answer = ask(Some(accelerator), &given(devices)).select(inventory);
        assert_eq!(answer.unwrap_err().to_string(), expected);
    }

    #[test]
    fn a_list_keeps_its_order() {
        let selection = selected(Accelerator::Cuda, "2,0", &cuda(4));
        assert_eq!(selection.devices, Some(vec![2, 0]));
        assert_eq!((selection.workers, selection.kind), (2, Some(Kind::Cuda)));
    }

    #[test]
    fn on_the_cpu_there_are_workers_but_no_device_indices() {
        let selection = selected(Accelerator::Auto, "3", &nothing());
        assert_eq!(selection, Selection::of(3, Some(Kind::Cpu)));
    }

    #[test]
    fn auto_hints_at_devices_that_stay_idle() {
        let hint = |count| selected(Accelerator::Auto, "auto", &cuda(count)).hint;
        assert_eq!(
            hint(4).unwrap(),
            "`--devices auto` starts 1 process, and 4 devices are there: \
             use `--devices 4` or `--devices -1` for all"
        );
        assert_eq!((hint(1), hint(0)), (None, None));
    }

    #[test]
    fn gpu_takes_what_a_worker_will_take() {
        let mut both = cuda(4);
        assert_eq!(
            selected(Accelerator::Gpu, "1", &both).kind,
            Some(Kind::Cuda)
        );
        both.mps = Devices {
            count: 1,
            ..Devices::default()
        };
        assert_eq!(selected(Accelerator::Gpu, "1", &both).kind, Some(Kind::Mps));
        refused(
            Accelerator::Gpu,
            "-1",
            &both,
            "`--devices -1` covers both CUDA and MPS devices, whose indices overlap: \
             choose `--accelerator cuda` or `mps`",
        );
    }

    #[test]
    fn the_machine_is_asked_only_for_what_makes_a_difference() {
        let needs = |accelerator, devices| {
            let Needs { cuda, mps } = ask(accelerator, &given(devices)).needs();
            (cuda, mps)
        };
        assert_eq!(needs(Some(Accelerator::Cpu), "2"), (false, false));
        assert_eq!(needs(Some(Accelerator::Tpu), "2"), (false, false));
        assert_eq!(needs(Some(Accelerator::Cuda), "1"), (true, false));
        assert_eq!(needs(Some(Accelerator::Mps), "1"), (false, true));
        assert_eq!(needs(Some(Accelerator::Gpu), "1"), (true, true));
        assert_eq!(needs(None, "2"), (true, true));
        // One device of whatever kind is one worker.
        assert_eq!(needs(None, "1"), (false, false));
        assert_eq!(needs(Some(Accelerator::Auto), "1"), (false, false));
    }

    #[test]
    fn data_parallel_looks_at_nothing_and_starts_one() {
        for accelerator in [None, Some(Accelerator::Tpu), Some(Accelerator::Cuda)] {
            let devices = given("abc");
            let request = ask(accelerator, &devices);
            let request = DeviceRequest {
                data_parallel: true,
                ..request
            };
            assert_eq!(request.needs(), Needs::default());
            assert_eq!(request.select(&nothing()), Ok(Selection::of(1, None)));
        }
    }

    #[test]
    fn too_few_devices_are_counted_out() {
        refused(
            Accelerator::Cuda,
            "8",
            &cuda(4),
            "`--devices 8` asks for 8 CUDA devices, but only 4, numbers 0 to 3, are there: \
             use `--devices 4` or less",
        );
        refused(
            Accelerator::Gpu,
            "0,4",
            &cuda(4),
            "`--devices 0,4` names GPU 4, but only 4, numbers 0 to 3, are there: \
             use `--devices 4` or less",
        );
        let mut hidden = cuda(1);
        hidden.cuda.note = Some("`CUDA_VISIBLE_DEVICES=3` shows 1 of 4".to_owned());
        refused(
            Accelerator::Auto,
            "2",
            &hidden,
            "`--devices 2` asks for 2 CUDA devices, but only number 0 is there \
             (`CUDA_VISIBLE_DEVICES=3` shows 1 of 4): use `--devices 1`",
        );
    }

    #[test]
    fn no_devices_at_all_come_with_the_reason() {
        refused(
            Accelerator::Cuda,
            "1",
            &nothing(),
            "`--devices 1` asks for 1 CUDA device, but none is there \
             (no NVIDIA driver is installed): `--accelerator cpu` works without",
        );
        refused(
            Accelerator::Mps,
            "-1",
            &nothing(),
            "`--devices -1` asks for all MPS devices, but none is there (no Mac): \
             `--accelerator cpu` works without",
        );
        refused(
            Accelerator::Auto,
            "-1",
            &nothing(),
            "`--devices -1` is no number of processes for the CPU (no GPU was found: \
             no NVIDIA driver is installed): give one above 0, such as `--devices 2`",
        );
    }

    #[test]
    fn a_value_that_means_nothing_is_shown_on_one_line() {
        let way_out = "give a count such as `2`, indices such as `0,2`, or `-1` for all";
        for (text, shown) in [
            ("0-3", "`--devices 0-3` is not understood"),
            ("", "`--devices \"\"` is not understood"),
            ("2 x", "`--devices \"2 x\"` is not understood"),
            ("\u{b2}\n", "`--devices \u{b2}\\n` is not understood"),
            ("0,a,1", "`--devices 0,a,1` is not understood at `a`"),
        ] {
            refused(
                Accelerator::Cuda,
                text,
                &cuda(4),
                &format!("{shown}: {way_out}"),
            );
        }
    }

    #[test]
    fn zero_processes_are_refused_in_words() {
        for text in ["0", "[]", "-0", "-2", ","] {
            refused(
                Accelerator::Cuda,
                text,
                &cuda(4),
                &format!(
                    "`--devices {text}` asks for no device, so nothing would start: give a count \
                     above 0, or `-1` for all, or use `--accelerator cpu`"
                ),
            );
        }
        refused(
            Accelerator::Cpu,
            "0",
            &nothing(),
            "`--devices 0` is no number of processes for the CPU: \
             give one above 0, such as `--devices 2`",
        );
    }

    #[test]
    fn counts_beyond_any_machine_are_refused_and_cost_nothing() {
        refused(
            Accelerator::Cpu,
            "99999999999",
            &nothing(),
            "`--devices 99999999999` is more than any machine can run: give less",
        );
        refused(
            Accelerator::Cuda,
            "99999999999999999999",
            &cuda(1),
            "`--devices 99999999999999999999` asks for 99999999999999999999 CUDA devices, \
             but only number 0 is there: use `--devices 1`",
        );
    }

    #[test]
    fn the_same_device_twice_is_refused_however_it_is_written() {
        refused(
            Accelerator::Cuda,
            "1,0,+01",
            &cuda(4),
            "`--devices 1,0,+01` names device 1 twice: name each once",
        );
    }

    #[test]
    fn tpus_are_refused_before_the_value_is_looked_at() {
        refused(
            Accelerator::Tpu,
            "abc",
            &nothing(),
            "`--accelerator tpu` cannot be launched from here: start the script with `python`, \
             its TPU strategy starts the processes itself",
        );
        refused(
            Accelerator::Gpu,
            "auto",
            &cuda(1),
            "`--devices auto` does not go with `--accelerator gpu`: \
             use `--accelerator cuda` or `mps`, or give a number",
        );
    }

    #[test]
    fn the_origin_of_the_value_is_named() {
        let refusal = |source| {
            let devices = Sourced::new("x".into(), source);
            let refusal = ask(Some(Accelerator::Cuda), &devices).select(&cuda(1));
            refusal.unwrap_err().given
        };
        let variable = Source::Variable("LT_DEVICES".to_owned());
        assert_eq!(refusal(variable), "`LT_DEVICES=x`");
        assert_eq!(refusal(Source::Default), "`--devices x` (default)");
    }
}
