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
            _ if both => ("GPU", cuda.count().max(mps.count()), &cuda.note),
            Kind::Mps => ("MPS device", mps.count(), &mps.note),
            Kind::Cuda | Kind::Cpu => ("CUDA device", cuda.count(), &cuda.note),
        };
        let (overlap, note) = (both && cuda.count().min(mps.count()) > 0, note.clone());
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
            Kind::Cuda => inventory.cuda.count(),
            Kind::Mps => inventory.mps.count(),
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
