//! NVIDIA GPUs, counted through the driver's own library (NVML), which is loaded at run time.

use std::ffi::OsStr;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::inventory::User;
use super::visible::{Gpus, Named};

/// The name that drivers install, then the one that development packages add.
const LIBRARIES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

/// The driver's library, ready to be asked.
pub(crate) struct Library(Box<Nvml>);

/// What the driver tells; names only where they are wanted, because asking for them wakes each GPU.
/// An error says in words that fit in parentheses why there is nothing to ask.
pub(super) fn gpus(names: bool) -> Result<(Gpus, Library), String> {
    gpus_of(&LIBRARIES.map(OsStr::new), names)
}

/// The driver's library; an error as of [`gpus`].
pub(super) fn load() -> Result<Library, String> {
    first_of(&LIBRARIES.map(OsStr::new))
}

fn gpus_of(libraries: &[&OsStr], names: bool) -> Result<(Gpus, Library), String> {
    let library = first_of(libraries)?;
    let count = library.count()?;
    let mut gpus = Gpus {
        count,
        ..Gpus::default()
    };
    if names {
        for index in 0..count {
            library.add_names(index, &mut gpus);
        }
    }
    Ok((gpus, library))
}

impl Library {
    /// How many GPUs there are; an error as of [`gpus`].
    pub(super) fn count(&self) -> Result<u32, String> {
        self.0.device_count().map_err(|error| told(&error))
    }

    /// The driver's own version, such as "580.65".
    pub(super) fn version(&self) -> Option<String> {
        self.0.sys_driver_version().ok()
    }

    /// The newest CUDA that the driver serves, as NVML writes it: 13010 is CUDA 13.1
    /// (nvmlSystemGetCudaDriverVersion in its reference).
    pub(super) fn cuda_version(&self) -> Option<i32> {
        self.0.sys_cuda_driver_version().ok()
    }

    /// A GPU, if it answers.
    pub(super) fn device(&self, index: u32) -> Option<Device<'_>> {
        self.0.device_by_index(index).ok()
    }

    /// Where a GPU is on the PCI bus, as sysfs writes it; function 0, as torch assumes.
    pub(super) fn address(&self, index: u32) -> Option<String> {
        let pci = self.device(index)?.pci_info().ok()?;
        let (domain, bus, device) = (pci.domain, pci.bus, pci.device);
        Some(format!("{domain:04x}:{bus:02x}:{device:02x}.0"))
    }

    /// The processes that compute on a GPU; none where the driver does not tell.
    pub(super) fn users(&self, index: u32) -> Vec<User> {
        let device = self.device(index);
        let processes = device.and_then(|it| it.running_compute_processes().ok());
        let processes = processes.unwrap_or_default().into_iter();
        let user = processes.map(|it| User {
            pid: it.pid,
            memory: match it.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            },
        });
        user.collect()
    }

    /// Adds the GPU's UUID and those of its partitions; one that does not answer has no name.
    fn add_names(&self, index: u32, gpus: &mut Gpus) {
        let Some(device) = self.device(index) else {
            return;
        };
        if let Ok(uuid) = device.uuid() {
            gpus.names.push((uuid, index));
        }
        gpus.partitions.extend(partitions(&device, index));
    }
}

fn first_of(libraries: &[&OsStr]) -> Result<Library, String> {
    for library in libraries {
        match Nvml::builder().lib_path(library).init() {
            Ok(nvml) => return Ok(Library(Box::new(nvml))),
            Err(NvmlError::LibloadingError(_)) => {}
            Err(error) => return Err(told(&error)),
        }
    }
    Err("no NVIDIA driver is installed".to_owned())
}

fn told(error: &NvmlError) -> String {
    match error {
        NvmlError::DriverNotLoaded => "the NVIDIA driver is not loaded".to_owned(),
        other => format!("the NVIDIA driver says: {other}"),
    }
}

/// The partitions of one GPU; none where the driver is older than they are.
fn partitions(device: &Device<'_>, index: u32) -> Vec<Named> {
    let slots = 0..device.mig_device_count().unwrap_or(0);
    slots
        .filter_map(|slot| device.mig_device_by_index(slot).ok()?.uuid().ok())
        .map(|uuid| (uuid, index))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use tempfile::TempDir;

    use super::*;

    /// The stand-in library with fixed numbers, in a directory of its own.
    fn stand_in(devices: &str, partitions: u32) -> (TempDir, PathBuf) {
        let dir = TempDir::new().unwrap();
        let library = dir.path().join("libnvidia-ml.so.1");
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"])
            .arg(&library)
            .arg(format!("-DFAKE_NVML_DEVICES=\"{devices}\""))
            .arg(format!("-DFAKE_NVML_PARTITIONS=\"{partitions}\""))
            .arg("-DFAKE_NVML_USERS=\"1:4711:3072 1:4712:?\"")
            .arg("tests/nvml/libnvidia-ml.c")
            .status();
        assert!(status.expect("`cc` is installed").success());
        (dir, library)
    }

    #[test]
    fn the_driver_is_asked_for_the_number_and_on_request_for_names() {
        for count in [0, 1, 4, 8] {
            let (_dir, library) = stand_in(&count.to_string(), 2);
            let counted = gpus_of(&[library.as_os_str()], false).unwrap().0;
            assert_eq!(
                counted,
                Gpus {
                    count,
                    ..Gpus::default()
                }
            );
            let named = gpus_of(&[library.as_os_str()], true).unwrap().0;
            assert_eq!(named.names.len(), count as usize);
            assert_eq!(named.partitions.len(), 2 * count as usize);
        }
    }

    #[test]
    fn names_keep_the_index_of_their_gpu() {
        let (_dir, library) = stand_in("4", 2);
        let gpus = gpus_of(&[library.as_os_str()], true).unwrap().0;
        let name = "GPU-00000003-0000-4000-8000-000000000000".to_owned();
        assert_eq!(gpus.names[3], (name, 3));
        let name = "MIG-00000003-0001-5000-8000-000000000000".to_owned();
        assert_eq!(gpus.partitions[7], (name, 3));
    }

    #[test]
    fn the_second_library_name_is_tried_when_the_first_is_absent() {
        let (dir, library) = stand_in("1", 0);
        let absent = dir.path().join("absent.so");
        let libraries = [absent.as_os_str(), library.as_os_str()];
        assert_eq!(gpus_of(&libraries, false).unwrap().0.count, 1);
    }

    #[test]
    fn a_missing_driver_and_an_unloaded_one_are_told_apart() {
        let (dir, library) = stand_in("no-driver", 0);
        let absent = dir.path().join("absent.so");
        let reason = gpus_of(&[absent.as_os_str()], false).err().unwrap();
        assert_eq!(reason, "no NVIDIA driver is installed");
        let reason = gpus_of(&[library.as_os_str()], false).err().unwrap();
        assert_eq!(reason, "the NVIDIA driver is not loaded");
    }

    #[test]
    fn a_gpu_tells_where_it_is_and_who_computes_on_it() {
        let (_dir, library) = stand_in("4", 0);
        let (_, driver) = gpus_of(&[library.as_os_str()], false).unwrap();
        assert_eq!(driver.address(2).as_deref(), Some("0000:42:00.0"));
        assert_eq!(driver.address(4), None);
        let users = [(4711, Some(3 << 30)), (4712, None)];
        let users = users.map(|(pid, memory)| User { pid, memory });
        assert_eq!(driver.users(1), users);
        assert_eq!((driver.users(0), driver.users(4)), (vec![], vec![]));
    }
}
