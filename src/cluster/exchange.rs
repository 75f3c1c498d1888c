//! Asks the engine itself what its variables leave out: on which host rank 0 runs, and how
//! the ranks lie on the nodes. Lightning's MPIEnvironment needs mpi4py for it, and MPI_Init.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::mem::ManuallyDrop;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, FromRawFd as _, RawFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};

use super::facts::{Cluster, Inquiry};
use super::hosts::same_host;
use super::layout::Layout;
use super::pmi::{ADDRESS_KEY, Command, places};
use super::variables::{derived, text};
use super::{mpi, pmix, port};
use crate::environ::Environ;
use crate::source::Sourced;

/// Within it all ranks of a job have started and come to the barrier, or something is wrong.
const PATIENCE: Duration = Duration::from_secs(30);

/// Fills in what the engine answers. Where it does not, the cluster remembers why, and
/// `share` says so if it matters.
pub(super) fn ask(cluster: &mut Cluster, environ: &Environ, hostname: &str) {
    let Some((rank, world)) = rank_and_size(cluster) else {
        return;
    };
    let answer = match cluster.inquiry {
        Some(Inquiry::Pmi { descriptor }) => {
            // The name by which mpirun knows this host: others reach it by that.
            let own = environ
                .text("MPIR_CVAR_CH3_INTERFACE_HOSTNAME")
                .unwrap_or(hostname);
            ask_pmi(cluster, descriptor, own).context("PMI")
        }
        Some(Inquiry::Pmix) => ask_pmix(cluster, rank, world)
            .context("PMIx")
            .or_else(|why| {
                let guess = guess(environ, rank, hostname).with_context(|| format!("{why:#}"))?;
                cluster.main_address = Some(guess);
                Ok(())
            }),
        None => return,
    };
    cluster.unanswered = answer.err().map(|it| format!("{it:#}"));
    *cluster = cluster.clone().settled_on_one_node();
}

fn rank_and_size(cluster: &Cluster) -> Option<(u32, u32)> {
    let seat = &cluster.tasks.as_ref()?.seat;
    let world = seat.world_size.value;
    (world > 1).then_some((seat.global_rank.value.0, world))
}

fn ask_pmi(cluster: &mut Cluster, descriptor: RawFd, own: &str) -> Result<()> {
    let (rank, world) = rank_and_size(cluster).context("a job of one rank")?;
    let mut manager = Manager::on(descriptor)?;
    manager.ask(Command::Init)?;
    let answer = meet(&mut manager, rank, own);
    // Also after a failure; there is nothing to do about one of its own.
    let _ = manager.ask(Command::Finalize);
    let answer = answer?;
    let places = answer.mapping.and_then(|it| places(&it, world));
    if let Some(layout) = places.and_then(|it| Layout::of(&it, rank)) {
        cluster.learn(&layout, "PMI_process_mapping");
    }
    let address = derived(answer.address, "rank 0, by PMI");
    cluster.main_address.get_or_insert(address);
    let port = derived(port::of_name(&answer.table), "the job's name, by PMI");
    cluster.main_port.get_or_insert(port);
    Ok(())
}

/// What all ranks know after the barrier.
struct Answer {
    table: String,
    address: String,
    /// Not every process manager has one; then the sizes have to tell.
    mapping: Option<String>,
}

/// All ranks meet at the barrier; rank 0 has left its address before, all find it after.
fn meet(manager: &mut Manager, rank: u32, own: &str) -> Result<Answer> {
    let table = manager.ask(Command::TableName)?;
    let (table_name, key) = (table.as_str(), ADDRESS_KEY);
    if rank == 0 {
        manager.ask(Command::Put {
            table: table_name,
            key,
            value: own,
        })?;
    }
    manager.ask(Command::Barrier)?;
    let address = manager.ask(Command::Get {
        table: table_name,
        key,
    })?;
    let mapping = manager.ask(Command::Get {
        table: table_name,
        key: "PMI_process_mapping",
    });
    Ok(Answer {
        address,
        mapping: mapping.ok(),
        table,
    })
}

/// The other end of PMI_FD.
struct Manager {
    /// Not ours to close: it was open when we came, and the engine watches it.
    stream: ManuallyDrop<File>,
    deadline: Instant,
}

impl Manager {
    fn on(descriptor: RawFd) -> Result<Self> {
        // SAFETY: used for fstat first, which fails on a closed descriptor; never closed here.
        let stream = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
        let status = fstat(stream.as_fd()).with_context(|| format!("`PMI_FD` is {descriptor}"))?;
        // A left-over PMI_FD may be the number of any file by now.
        let kind = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
        ensure!(
            kind == SFlag::S_IFSOCK,
            "`PMI_FD` is {descriptor}, which is no socket"
        );
        Ok(Self {
            stream,
            deadline: Instant::now() + PATIENCE,
        })
    }

    /// Sends a command and waits for its answer.
    fn ask(&mut self, command: Command) -> Result<String> {
        self.stream
            .write_all(command.line().as_bytes())
            .context("write to `PMI_FD`, which serves one program of each rank")?;
        command.read(&self.line()?)
    }

    /// Byte by byte: what follows the line is not ours.
    fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            self.wait()?;
            let mut byte = [0];
            let count = self.stream.read(&mut byte).context("read from `PMI_FD`")?;
            ensure!(count > 0, "the process manager closed `PMI_FD`");
            line.push(byte[0]);
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    fn wait(&self) -> Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let ready = poll(
            &mut [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)],
            timeout,
        );
        ensure!(
            ready.context("poll")? > 0,
            "no answer in {} s: not all ranks are here",
            PATIENCE.as_secs()
        );
        Ok(())
    }
}

fn ask_pmix(cluster: &mut Cluster, rank: u32, world: u32) -> Result<()> {
    let hosts = pmix::hosts(world, PATIENCE)?;
    let layout = Layout::of(&hosts, rank).context("no rank is here")?;
    cluster.learn(&layout, "PMIx");
    cluster
        .main_address
        .get_or_insert(derived(hosts[0].clone(), "rank 0's host, by PMIx"));
    Ok(())
}

/// The user's MASTER_ADDR, or the host of mpirun. Rank 0 can tell whether it is there, and
/// its refusal ends the job; the others trust it.
fn guess(environ: &Environ, rank: u32, hostname: &str) -> Result<Sourced<String>> {
    let guess = text(environ, "MASTER_ADDR").or_else(|| mpi::mpirun_host(environ));
    let guess = guess.context("nor is mpirun's host known")?;
    if rank == 0 && !is_here(&guess.value, hostname)? {
        bail!(
            "rank 0 is on `{hostname}`, not on `{}` ({})",
            guess.value,
            guess.source
        );
    }
    Ok(guess)
}

/// Whether a name or address is this host's.
fn is_here(host: &str, hostname: &str) -> Result<bool> {
    let Ok(address) = host.parse::<IpAddr>() else {
        return Ok(same_host(host, hostname));
    };
    let interfaces = nix::ifaddrs::getifaddrs().context("list network interfaces")?;
    let mut own = interfaces.filter_map(|it| {
        let storage = it.address?;
        let v4 = storage.as_sockaddr_in().map(|it| IpAddr::V4(it.ip()));
        v4.or_else(|| storage.as_sockaddr_in6().map(|it| IpAddr::V6(it.ip())))
    });
    Ok(own.any(|it| it == address))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    /// A process manager of one line for each command.
    fn manager(answers: &'static [&str]) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        thread::spawn(move || {
            let mut commands = BufReader::new(theirs.try_clone().unwrap()).lines();
            for answer in answers {
                assert!(commands.next().is_some());
                (&theirs).write_all(answer.as_bytes()).unwrap();
            }
        });
        ours
    }

    fn asked(descriptor: RawFd) -> Cluster {
        let environ = [
            ("PMI_RANK", "2"),
            ("PMI_SIZE", "4"),
            ("MPI_LOCALRANKID", "0"),
            ("MPI_LOCALNRANKS", "2"),
        ];
        let environ = environ.into_iter().collect();
        let surroundings = super::super::surroundings::Surroundings {
            environ: &environ,
            asked: &super::super::facts::Asked::default(),
            hostname: "here",
            pid: 1,
            cpus: &|| (1, 1),
            read: &|_| Err("no files".to_owned()),
        };
        let mut cluster = mpi::read_hydra(&surroundings).unwrap();
        cluster.inquiry = Some(Inquiry::Pmi { descriptor });
        ask(&mut cluster, &environ, "here");
        cluster
    }

    #[test]
    fn the_process_manager_tells_where_rank_0_runs() {
        let manager = manager(&[
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
            "cmd=my_kvsname kvsname=kvs_1\n",
            "cmd=barrier_out\n",
            "cmd=get_result rc=0 msg=success value=host1\n",
            "cmd=get_result rc=0 msg=success value=(vector,(0,2,2))\n",
            "cmd=finalize_ack\n",
        ]);
        let cluster = asked(manager.as_raw_fd());
        assert_eq!(cluster.unanswered, None);
        assert_eq!(cluster.main_address.unwrap().value, "host1");
        assert_eq!(cluster.node_rank.unwrap().value.0, 1);
        assert_eq!(cluster.main_port.unwrap().value, port::of_name("kvs_1"));
    }

    #[test]
    fn a_failed_command_is_remembered() {
        let manager = manager(&[
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
            "cmd=my_kvsname rc=-1\n",
        ]);
        let why = asked(manager.as_raw_fd()).unanswered.unwrap();
        assert!(
            why.starts_with("PMI: `cmd=get_my_kvsname` was answered by"),
            "{why}"
        );
    }

    #[test]
    fn a_left_over_descriptor_is_left_alone() {
        let file = File::open("/dev/null").unwrap();
        let why = asked(file.as_raw_fd()).unanswered.unwrap();
        assert!(why.ends_with("which is no socket"), "{why}");
        assert_eq!(file.metadata().unwrap().len(), 0);
    }
}
