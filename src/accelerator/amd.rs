//! AMD GPUs, counted through the topology that their kernel driver (KFD) shows in sysfs.

use std::fs;
use std::path::Path;

use super::visible::Gpus;

/// One directory per node of the topology, CPUs among them.
const NODES: &str = "/sys/class/kfd/kfd/topology/nodes";

/// The GPUs that this process may use: the kernel refuses to show it the properties of others.
pub(super) fn gpus() -> Gpus {
    gpus_under(Path::new(NODES))
}

fn gpus_under(nodes: &Path) -> Gpus {
    let gpus = properties(nodes);
    let serials = gpus.iter().map(|it| property(it, "unique_id").unwrap_or(0));
    let named = |(index, serial)| (format!("GPU-{serial:016x}"), index);
    let names: Vec<_> = (0..).zip(serials).map(named).collect();
    Gpus {
        count: names.len() as u32,
        names,
        partitions: Vec::new(),
    }
}

/// Where a GPU is on the PCI bus, as sysfs writes it, by the place among [`gpus`].
pub(super) fn address(index: u32) -> Option<String> {
    address_under(Path::new(NODES), index)
}

fn address_under(nodes: &Path, index: u32) -> Option<String> {
    let gpus = properties(nodes);
    let gpu = gpus.get(index as usize)?;
    let (domain, location) = (property(gpu, "domain")?, property(gpu, "location_id")?);
    let (bus, device, function) = (location >> 8, location >> 3 & 0x1f, location & 7);
    Some(format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"))
}

/// The properties of all nodes that compute, in the order of their numbers.
fn properties(nodes: &Path) -> Vec<String> {
    let mut numbers: Vec<u32> = fs::read_dir(nodes)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let files = numbers.iter().filter_map(|number| {
        let path = nodes.join(number.to_string()).join("properties");
        fs::read_to_string(path).ok()
    });
    let computes = |it: &String| property(it, "simd_count").is_some_and(|it| it > 0);
    files.filter(computes).collect()
}

/// A number; 0 is also what a GPU has that has no serial number.
fn property(properties: &str, name: &str) -> Option<u64> {
    let mut lines = properties.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(it, _)| *it == name)?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn node(nodes: &TempDir, number: u32, properties: &str) {
        let dir = nodes.path().join(number.to_string());
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("properties"), properties).unwrap();
    }

    #[test]
    fn nodes_that_compute_are_counted_in_the_order_of_their_numbers() {
        let nodes = TempDir::new().unwrap();
        node(&nodes, 0, "cpu_cores_count 64\nsimd_count 0\nunique_id 0\n");
        node(
            &nodes,
            10,
            "cpu_cores_count 0\nsimd_count 440\nunique_id 171\n",
        );
        node(
            &nodes,
            2,
            "cpu_cores_count 0\nsimd_count 440\nunique_id 18446744073709551615\n",
        );
        // What the kernel makes of a GPU that a container may not use.
        node(&nodes, 3, "");
        let gpus = gpus_under(nodes.path());
        let names = [("GPU-ffffffffffffffff", 0), ("GPU-00000000000000ab", 1)];
        let names = names.map(|(name, index)| (name.to_owned(), index)).to_vec();
        assert_eq!((gpus.count, gpus.names), (2, names));
    }

    #[test]
    fn a_gpu_tells_where_it_is() {
        let nodes = TempDir::new().unwrap();
        node(&nodes, 0, "simd_count 0\nlocation_id 0\n");
        node(&nodes, 1, "simd_count 440\nlocation_id 50433\ndomain 2\n");
        assert_eq!(
            address_under(nodes.path(), 0).as_deref(),
            Some("0002:c5:00.1")
        );
        assert_eq!(address_under(nodes.path(), 1), None);
    }

    #[test]
    fn no_driver_means_no_gpus() {
        assert_eq!(gpus_under(Path::new("/nonexistent")), Gpus::default());
    }
}
