//! Which GPUs CUDA_VISIBLE_DEVICES and its kin leave visible, read as torch 2.15 reads them.
//!
//! This is `_parse_visible_devices` and its neighbours in `torch/cuda/__init__.py`, quirks included,
//! because a worker counts its devices with them: a launcher that counted differently would start
//! workers that find no device.

use std::ffi::OsStr;

use super::inventory::Devices;
use crate::environ::Environ;
use crate::integer::{Integer, is_digit_text, strip};

/// torch looks at no more devices than this while nothing limits them.
const MOST_UNLISTED: u32 = 64;

/// The devices that the environment leaves visible, before they are held against the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Visible {
    list: List,
    /// The deciding variable as `NAME=value`, if one is set.
    setting: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum List {
    /// The first so many.
    First(u32),
    Indices(Vec<Integer>),
    /// Beginnings of UUIDs, with their `GPU-`.
    Gpus(Vec<String>),
    /// Beginnings of UUIDs of GPU partitions, with their `MIG-`.
    Partitions(Vec<String>),
}

impl Visible {
    /// What an NVIDIA build of torch is told. An error says which setting torch cannot read.
    pub(super) fn nvidia(environ: &Environ) -> Result<Self, String> {
        Self::read(environ, "CUDA_VISIBLE_DEVICES")
    }

    /// What a ROCm build of torch is told. ROCR_VISIBLE_DEVICES comes first and is only counted;
    /// HIP_VISIBLE_DEVICES chooses among what it left; CUDA_VISIBLE_DEVICES counts without either.
    pub(super) fn amd(environ: &Environ) -> Result<Self, String> {
        let listed = |name| {
            environ
                .get(name)
                .map(|it| it.to_string_lossy().split(',').count())
        };
        match (
            listed("ROCR_VISIBLE_DEVICES"),
            listed("HIP_VISIBLE_DEVICES"),
        ) {
            (Some(rocr), Some(hip)) if hip > rocr => Err(format!(
                "{} lists more devices than {}",
                setting(environ, "HIP_VISIBLE_DEVICES"),
                setting(environ, "ROCR_VISIBLE_DEVICES"),
            )),
            (_, Some(_)) => Self::read(environ, "HIP_VISIBLE_DEVICES"),
            (Some(rocr), None) => Ok(Self {
                list: List::First(rocr as u32),
                setting: Some(setting(environ, "ROCR_VISIBLE_DEVICES")),
            }),
            (None, None) => Self::read(environ, "CUDA_VISIBLE_DEVICES"),
        }
    }

    fn read(environ: &Environ, name: &str) -> Result<Self, String> {
        let Some(value) = environ.get(name) else {
            let list = List::First(MOST_UNLISTED);
            return Ok(Self {
                list,
                setting: None,
            });
        };
        let setting = setting(environ, name);
        match List::parse(value) {
            Ok(list) => Ok(Self {
                list,
                setting: Some(setting),
            }),
            Err(part) => Err(format!("{setting} is no list of devices: `{part}`")),
        }
    }

    /// Whether it takes the devices' UUIDs to tell, which are dearer to ask for than their number.
    pub(super) fn by_name(&self) -> bool {
        matches!(self.list, List::Gpus(_) | List::Partitions(_))
    }
}

/// The GPUs of the machine as its driver tells.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Gpus {
    pub(super) count: u32,
    /// Filled only where names were asked for.
    pub(super) names: Vec<Named>,
    /// Partitions (MIG devices), each with the GPU it is cut from; filled as `names` is.
    pub(super) partitions: Vec<Named>,
}

/// A UUID as the driver writes it, and the index of the GPU.
pub(super) type Named = (String, u32);

impl Visible {
    /// What a worker sees of these GPUs.
    pub(super) fn devices(&self, gpus: &Gpus) -> Devices {
        let physical = match &self.list {
            List::First(most) => (0..gpus.count.min(*most)).collect(),
            List::Indices(list) => there(list, gpus.count),
            List::Gpus(list) => named(list, &gpus.names),
            // torch leaves these to the CUDA driver, which shows a process one partition at most.
            List::Partitions(list) => named(list.get(..1).unwrap_or_default(), &gpus.partitions),
        };
        let note = self.note(physical.len(), gpus.count);
        Devices { physical, note }
    }

    fn note(&self, seen: usize, count: u32) -> Option<String> {
        let setting = self.setting.as_ref()?;
        match self.list {
            List::Partitions(_) if seen == 1 => {
                Some(format!("{setting}, and CUDA shows a process one partition"))
            }
            _ if seen < count as usize => Some(format!("{setting} shows {seen} of {count}")),
            _ => None,
        }
    }
}

/// Up to the first index that is not there.
fn there(list: &[Integer], count: u32) -> Vec<u32> {
    let index = |it: &Integer| u32::try_from(it.value?).ok().filter(|it| *it < count);
    list.iter().map_while(index).collect()
}

/// Up to the first beginning that fits none or several; the same device twice hides all.
fn named(list: &[String], names: &[Named]) -> Vec<u32> {
    let mut found = Vec::new();
    for beginning in list {
        let mut fits = names.iter().filter(|(name, _)| name.starts_with(beginning));
        let (Some((_, index)), None) = (fits.next(), fits.next()) else {
            break;
        };
        if found.contains(index) {
            return Vec::new();
        }
        found.push(*index);
    }
    found
}

impl List {
    /// An error is the part at which torch's own parser raises.
    fn parse(value: &OsStr) -> Result<Self, String> {
        let text = value.to_string_lossy();
        if text.starts_with("GPU-") {
            return Ok(Self::Gpus(beginnings(&text, "GPU-")));
        }
        if text.starts_with("MIG-") {
            return Ok(Self::Partitions(beginnings(&text, "MIG-")));
        }
        indices(&text).map(Self::Indices)
    }
}

/// Up to the first that is something else; one that is there twice hides all.
fn beginnings(text: &str, prefix: &str) -> Vec<String> {
    let mut list: Vec<String> = Vec::new();
    for part in text.split(',') {
        if list.iter().any(|it| it == part) {
            return Vec::new();
        }
        if !part.starts_with(prefix) {
            break;
        }
        list.push(part.to_owned());
    }
    list
}

/// Up to the first that is negative or no number; one that is there twice hides all.
fn indices(text: &str) -> Result<Vec<Integer>, String> {
    let mut list = Vec::new();
    for part in text.split(',') {
        match leading_integer(strip(part))? {
            Some(index) if list.contains(&index) => return Ok(Vec::new()),
            Some(index) if !index.text.starts_with('-') => list.push(index),
            _ => break,
        }
    }
    Ok(list)
}

/// The number that a text begins with, as C's strtoul: `1gpu2` is 1, `0x1` is 0.
fn leading_integer(text: &str) -> Result<Option<Integer>, String> {
    let part_of_it = |(at, it): &(usize, char)| {
        is_digit_text(it.encode_utf8(&mut [0; 4])) || (*at == 0 && "+-".contains(*it))
    };
    let number: String = text
        .char_indices()
        .take_while(part_of_it)
        .map(|it| it.1)
        .collect();
    match number.is_empty() {
        true => Ok(None),
        false => Integer::parse(&number).map(Some).ok_or(number),
    }
}

fn setting(environ: &Environ, name: &str) -> String {
    let value = environ.get(name).unwrap_or_default().to_string_lossy();
    format!("`{name}={}`", value.escape_debug())
}
