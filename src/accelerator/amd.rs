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
    let mut numbers: Vec<u32> = fs::read_dir(nodes)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let serials = numbers.iter().filter_map(|number| {
        let path = nodes.join(number.to_string()).join("properties");
        serial(&fs::read_to_string(path).ok()?)
    });
    let named = |(index, serial)| (format!("GPU-{serial:016x}"), index);
    let names: Vec<_> = (0..).zip(serials).map(named).collect();
    Gpus {
        count: names.len() as u32,
        names,
        partitions: Vec::new(),
    }
}

/// The serial number of a node that computes (0 where the GPU has none), nothing for a CPU.
fn serial(properties: &str) -> Option<u64> {
    let property = |name: &str| -> Option<u64> {
        let mut lines = properties.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(it, _)| *it == name)?.1.trim().parse().ok()
    };
    let computes = property("simd_count")? > 0;
    computes.then(|| property("unique_id").unwrap_or(0))
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
    fn no_driver_means_no_gpus() {
        assert_eq!(gpus_under(Path::new("/nonexistent")), Gpus::default());
    }
}
