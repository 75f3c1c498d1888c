//! Which GPUs CUDA_VISIBLE_DEVICES and its kin leave visible, read as torch 2.15 reads them.
//!
//! This is `_parse_visible_devices` and its neighbours in `torch/cuda/__init__.py`, quirks included,
//! because a worker counts its devices with them: a launcher that counted differently would start
//! workers that find no device.

use std::ffi::OsStr;

use super::inventory::Devices;
use crate::environ::Environ;
use crate::integer::{Integer, is_digit_text, strip};

const CUDA: &str = "CUDA_VISIBLE_DEVICES";
const ROCR: &str = "ROCR_VISIBLE_DEVICES";
const HIP: &str = "HIP_VISIBLE_DEVICES";

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
    /// What an NVIDIA build of torch is told. An error says which setting torch cannot read.
    pub(super) fn nvidia(environ: &Environ) -> Result<Self, String> {
        Self::read(environ, CUDA)
    }

    /// What a ROCm build of torch is told. ROCR_VISIBLE_DEVICES comes first and is only counted;
    /// HIP_VISIBLE_DEVICES chooses among what it left; CUDA_VISIBLE_DEVICES counts without either.
    pub(super) fn amd(environ: &Environ) -> Result<Self, String> {
        match (length(environ, ROCR), length(environ, HIP)) {
            (Some(rocr), Some(hip)) if hip > rocr => {
                let (hip, rocr) = (setting(environ, HIP), setting(environ, ROCR));
                Err(format!("{hip} lists more devices than {rocr}"))
            }
            (_, Some(_)) => Self::read(environ, HIP),
            (Some(rocr), None) => Ok(Self {
                list: List::First(rocr),
                setting: Some(setting(environ, ROCR)),
            }),
            (None, None) => Self::read(environ, CUDA),
        }
    }

    fn read(environ: &Environ, name: &str) -> Result<Self, String> {
        let Some(value) = environ.get(name) else {
            let (list, setting) = (List::First(MOST_UNLISTED), None);
            return Ok(Self { list, setting });
        };
        let setting = setting(environ, name);
        let list = List::parse(value)
            .map_err(|part| format!("{setting} is no list of devices: `{part}`"))?;
        let setting = Some(setting);
        Ok(Self { list, setting })
    }

    /// Whether it takes the devices' UUIDs to tell, which are dearer to ask for than their number.
    pub(super) fn by_name(&self) -> bool {
        matches!(self.list, List::Gpus(_) | List::Partitions(_))
    }

    /// How many of these GPUs a worker sees, and what hides the others.
    pub(super) fn devices(&self, gpus: &Gpus) -> Devices {
        let physical = self.physical(gpus);
        let count = physical.len() as u32;
        Devices {
            count,
            note: self.note(count, gpus.count),
            physical,
            partitions: matches!(self.list, List::Partitions(_)),
        }
    }

    /// The machine's number of each device that a worker sees, in the worker's order.
    fn physical(&self, gpus: &Gpus) -> Vec<u32> {
        match &self.list {
            List::First(most) => (0..gpus.count.min(*most)).collect(),
            List::Indices(list) => there(list, gpus.count),
            List::Gpus(list) => named(list, &gpus.names),
            // torch leaves these to the CUDA driver, which shows a process one partition at most.
            List::Partitions(list) => named(list.get(..1).unwrap_or_default(), &gpus.partitions),
        }
    }

    fn note(&self, seen: u32, count: u32) -> Option<String> {
        let setting = self.setting.as_ref()?;
        match self.list {
            List::Partitions(_) if seen == 1 => {
                Some(format!("{setting}, and CUDA shows a process one partition"))
            }
            _ if seen < count => Some(format!("{setting} shows {seen} of {count}")),
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

/// How many parts a list has, if it is there.
fn length(environ: &Environ, name: &str) -> Option<u32> {
    let list = environ.get(name)?.to_string_lossy();
    Some(list.split(',').count() as u32)
}

fn setting(environ: &Environ, name: &str) -> String {
    let value = environ.get(name).unwrap_or_default().to_string_lossy();
    format!("`{name}={}`", value.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two GPUs, the first of them cut in two.
    fn machine() -> Gpus {
        let named = |name: &str, index| (name.to_owned(), index);
        Gpus {
            count: 2,
            names: vec![named("GPU-aa01", 0), named("GPU-aa02", 1)],
            partitions: vec![named("MIG-c1", 0), named("MIG-c2", 0)],
        }
    }

    fn environ(set: &[(&str, &str)]) -> Environ {
        set.iter().copied().collect()
    }

    fn nvidia(value: &str) -> Visible {
        Visible::nvidia(&environ(&[("CUDA_VISIBLE_DEVICES", value)])).unwrap()
    }

    #[track_caller]
    fn check(value: &str, expected: &[u32]) {
        assert_eq!(nvidia(value).physical(&machine()), expected, "{value}");
    }

    #[track_caller]
    fn check_amd(set: &[(&str, &str)], expected: &[u32]) {
        let visible = Visible::amd(&environ(set)).unwrap();
        assert_eq!(visible.physical(&machine()), expected);
    }

    #[test]
    fn the_order_of_the_list_is_the_order_of_the_devices() {
        check("1,0", &[1, 0]);
        check("GPU-aa02,GPU-aa01", &[1, 0]);
    }

    #[test]
    fn the_note_says_what_is_hidden() {
        assert_eq!(nvidia("0,1").devices(&machine()).note, None);
        let note = nvidia("7\n").devices(&machine()).note.unwrap();
        assert_eq!(note, "`CUDA_VISIBLE_DEVICES=7\\n` shows 0 of 2");
        let unset = Visible::nvidia(&environ(&[])).unwrap();
        assert_eq!(unset.devices(&machine()).note, None);
    }

    #[test]
    fn a_partition_is_one_device_and_the_only_one() {
        check("MIG-c2", &[0]);
        check("MIG-c1,MIG-c2", &[0]);
        assert_eq!(
            nvidia("MIG-c1,MIG-c2").devices(&machine()).note.unwrap(),
            "`CUDA_VISIBLE_DEVICES=MIG-c1,MIG-c2`, and CUDA shows a process one partition"
        );
        for none in ["MIG-zz,MIG-c1", "MIG-c", "MIG-c1,MIG-c1"] {
            check(none, &[]);
        }
    }

    #[test]
    fn torch_looks_at_64_devices_where_no_list_is_given() {
        let gpus = Gpus {
            count: 100,
            ..Gpus::default()
        };
        let unset = Visible::nvidia(&environ(&[])).unwrap();
        assert_eq!(unset.devices(&gpus).count, 64);
    }

    #[test]
    fn names_are_asked_for_only_where_the_list_has_names() {
        let by_name = |value: &str| nvidia(value).by_name();
        assert!(by_name("GPU-a") && by_name("MIG-a"));
        assert!(!by_name("0,1") && !by_name("") && !by_name("0,GPU-a"));
    }

    #[test]
    fn a_list_that_torch_cannot_read_is_named() {
        let error = Visible::nvidia(&environ(&[("CUDA_VISIBLE_DEVICES", "0,1\u{b2}")]));
        assert_eq!(
            error.unwrap_err(),
            "`CUDA_VISIBLE_DEVICES=0,1\u{b2}` is no list of devices: `1\u{b2}`"
        );
    }

    #[test]
    fn amd_listens_to_its_own_variables_first() {
        let (cuda, rocr, hip) = (
            ("CUDA_VISIBLE_DEVICES", ""),
            ("ROCR_VISIBLE_DEVICES", "1"),
            ("HIP_VISIBLE_DEVICES", "GPU-aa02"),
        );
        check_amd(&[], &[0, 1]);
        check_amd(&[cuda], &[]);
        check_amd(&[cuda, rocr], &[0]);
        check_amd(&[cuda, hip], &[1]);
        check_amd(&[cuda, rocr, hip], &[1]);
    }

    #[test]
    fn amd_cannot_choose_from_more_than_were_left() {
        let set = [
            ("ROCR_VISIBLE_DEVICES", "0"),
            ("HIP_VISIBLE_DEVICES", "0,1"),
        ];
        assert_eq!(
            Visible::amd(&environ(&set)).unwrap_err(),
            "`HIP_VISIBLE_DEVICES=0,1` lists more devices than `ROCR_VISIBLE_DEVICES=0`"
        );
    }
}
