//! Known causes of failures, told by their words, and the way out of each.

/// A known cause.
struct Known {
    /// Texts that all stand in one line of the worker's last lines.
    signs: &'static [&'static str],
    hint: &'static str,
}

const fn known(signs: &'static [&'static str], hint: &'static str) -> Known {
    Known { signs, hint }
}

/// The first that fits counts: what causes the others comes before them.
#[rustfmt::skip]
const KNOWN: &[Known] = &[
    known(&["CUDA out of memory"], GPU_MEMORY),
    known(&["CUDA error: out of memory"], GPU_MEMORY),
    known(&["HIP out of memory"], GPU_MEMORY),
    known(&["invalid device ordinal"],
        "a worker asked for a GPU that it cannot see; count GPUs by LOCAL_RANK, not by RANK, and compare --devices with CUDA_VISIBLE_DEVICES"),
    known(&["Duplicate GPU detected"],
        "two workers use the same GPU: each has to choose its own by LOCAL_RANK, as Fabric does"),
    known(&["device-side assert triggered"],
        "often an index or a label out of range; CUDA_LAUNCH_BLOCKING=1 shows the line that did it"),
    known(&["no kernel image is available"],
        "this build of torch does not know this GPU: install one that does"),
    known(&["driver on your system is too old"], DRIVER),
    known(&["CUDA driver version is insufficient"], DRIVER),
    known(&["Found no NVIDIA driver"],
        "no NVIDIA driver can be seen: on a machine without GPUs use --accelerator cpu, in a container pass the GPUs on"),
    known(&["no socket interface found"], INTERFACE),
    known(&["NCCL", "unhandled system error"], INTERFACE),
    known(&["NCCL", "remote process exited or there was a network error"],
        "another rank ended first, perhaps on another node; NCCL_DEBUG=INFO shows more"),
    known(&["collective operation timeout"],
        "not all ranks came to the same collective operation in time; see what the others did, or raise the process group's timeout"),
    known(&["Expected to have finished reduction in the prior iteration"],
        "some parameters had no part in the loss: use --strategy ddp_find_unused_parameters_true"),
    known(&["ddress already in use"],
        "another program has the port; find it with `ss -tlnp`, or let the system choose: --main-port 0 on a single node, another --main-port on every node of several"),
    known(&["EADDRINUSE"],
        "another program has the port; find it with `ss -tlnp`, or choose another with --main-port"),
    known(&["No module named"],
        "this Python does not have the module: activate the right environment or name its interpreter with --python"),
    known(&["unable to open shared memory object"], SHARED_MEMORY),
    known(&["DataLoader worker", "Bus error"], SHARED_MEMORY),
    known(&["DataLoader worker", "killed by signal: Killed"],
        "a data loader's process was killed, mostly for want of memory: fewer num_workers need less"),
    known(&["can't allocate memory"], MEMORY),
    known(&["Cannot allocate memory"], MEMORY),
    known(&["MemoryError"], MEMORY),
    known(&["Too many open files"],
        "raise the limit with `ulimit -n`, or share tensors by file names: torch.multiprocessing.set_sharing_strategy(\"file_system\")"),
    known(&["No space left on device"],
        "a disk is full, /dev/shm or /tmp may be one; see `df -h`"),
    known(&["the following arguments are required"], ARGUMENTS),
    known(&["unrecognized arguments"], ARGUMENTS),
    known(&["EOF when reading a line"],
        "standard input goes to local rank 0 of the first node only: let that one read and broadcast the answer"),
];

const GPU_MEMORY: &str = "the GPU's memory is full: try a smaller batch or lower precision; `nvidia-smi` shows who else uses it";
const DRIVER: &str =
    "torch was built for a newer driver: update the driver, or install a torch for an older CUDA";
const INTERFACE: &str = "NCCL found no network that works: name one of `ip -br addr` in NCCL_SOCKET_IFNAME; NCCL_DEBUG=INFO shows what it tried";
const SHARED_MEMORY: &str =
    "data loaders need /dev/shm: give the container more (docker run --shm-size 8g, or --ipc host)";
const MEMORY: &str =
    "the machine or its cgroup is out of memory: fewer workers or data loader processes need less";
const ARGUMENTS: &str =
    "the script's own arguments go behind it: fabric run [OPTIONS] SCRIPT [ARGUMENTS]";

/// The way out of a known cause that these lines show; the later a line, the more it counts.
pub(crate) fn hint<'l>(lines: impl DoubleEndedIterator<Item = &'l str>) -> Option<&'static str> {
    lines.rev().find_map(|line| {
        let fits = |it: &&Known| it.signs.iter().all(|sign| line.contains(sign));
        KNOWN.iter().find(fits).map(|it| it.hint)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines as the programs write them, with other numbers and names, each with a word of its hint.
    #[rustfmt::skip]
    const SAMPLES: &[(&str, &str)] = &[
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 3 has a total capacity of 79.10 GiB", "smaller batch"),
        ("RuntimeError: CUDA error: out of memory", "smaller batch"),
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 640.00 MiB", "smaller batch"),
        ("RuntimeError: CUDA error: invalid device ordinal", "LOCAL_RANK"),
        ("ncclInvalidUsage: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000", "same GPU"),
        ("torch.AcceleratorError: CUDA error: device-side assert triggered", "CUDA_LAUNCH_BLOCKING"),
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "this GPU"),
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 11040).", "newer driver"),
        ("RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version", "newer driver"),
        ("RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU", "--accelerator cpu"),
        ("node7:411:411 [0] bootstrap.cc:88 NCCL WARN Bootstrap : no socket interface found", "NCCL_SOCKET_IFNAME"),
        ("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3680, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.27.5", "NCCL_SOCKET_IFNAME"),
        ("torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, remote process exited or there was a network error, NCCL version 2.27.5", "another rank"),
        ("[rank2]:[E1130 18:00:03 ProcessGroupNCCL.cpp:632] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)", "collective"),
        ("RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.", "ddp_find_unused_parameters_true"),
        ("OSError: [Errno 98] Address already in use", "--main-port"),
        ("torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29400, code: -98, name: EADDRINUSE", "--main-port"),
        ("ModuleNotFoundError: No module named 'lightning'", "--python"),
        ("RuntimeError: unable to open shared memory object </torch_71_22_0> in read-write mode: No space left on device (28)", "/dev/shm"),
        ("RuntimeError: DataLoader worker (pid(s) 812) exited unexpectedly: Bus error. It is possible that shared memory is short", "/dev/shm"),
        ("RuntimeError: DataLoader worker (pid 812) is killed by signal: Killed.", "num_workers"),
        ("RuntimeError: [enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 9000000000 bytes", "out of memory"),
        ("OSError: [Errno 12] Cannot allocate memory", "out of memory"),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 74.5 GiB for an array with shape (100000, 100000)", "out of memory"),
        ("OSError: [Errno 24] Too many open files: 'data/shard-007.bin'", "ulimit -n"),
        ("OSError: [Errno 28] No space left on device: 'checkpoints/last.ckpt'", "df -h"),
        ("train.py: error: the following arguments are required: --data", "behind it"),
        ("train.py: error: unrecognized arguments: --devices 2", "behind it"),
        ("EOFError: EOF when reading a line", "broadcast"),
    ];

    #[test]
    fn every_known_cause_is_recognised_by_its_words() {
        for (line, word) in SAMPLES {
            let found = hint([*line].into_iter());
            assert!(
                found.is_some_and(|it| it.contains(word)),
                "{line}: {found:?}"
            );
        }
        for it in KNOWN {
            let shown = |(line, _): &(&str, &str)| it.signs.iter().all(|sign| line.contains(sign));
            assert!(SAMPLES.iter().any(shown), "{:?} has no sample", it.signs);
        }
    }

    #[test]
    fn the_last_line_that_is_known_counts() {
        let lines = [
            "No module named 'apex', going on without",
            "CUDA out of memory",
            "  note",
        ];
        assert_eq!(hint(lines.into_iter()), Some(GPU_MEMORY));
    }

    #[test]
    fn nothing_is_said_of_what_is_not_known() {
        assert_eq!(hint(["ValueError: boom", ""].into_iter()), None);
    }
}
