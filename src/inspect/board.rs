//! Where a launch shows itself while it runs, for `fabric ps` and `fabric stop`.
//!
//! It is a file without a name (memfd_create(2)) that the launcher holds open, and others of the same user
//! reach it through /proc/PID/fd. A named one would have to live in a folder that is gone when the user logs
//! out (XDG_RUNTIME_DIR, while a launch under tmux goes on) or is swept after ten days (/tmp), could be
//! planted by others, and would be left behind by a launcher that is killed. This one has the launcher's
//! lifetime whatever ends that, and whoever can be found through it is alive.

use std::ffi::CStr;
use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::launch::{Launch, Worker};
use crate::agent::{Event, Pid, Told, look_up, nameless_file};
use crate::plan::Plan;

const NAME: &CStr = c"fabric-launch";
/// How /proc/PID/fd shows a descriptor of that name (memfd_create(2)).
const LINK: &str = "/memfd:fabric-launch";

/// The launcher's side: shows the launch once all its workers were started, or while it waits for other nodes.
pub(crate) struct Board {
    launch: Launch,
    /// The rank of our first worker in the world.
    first_rank: u32,
    /// By index among ours; `None` for a worker that does not run.
    pids: Vec<Option<Pid>>,
    /// A run that is over before somebody could look is not shown.
    lasting: bool,
    shown: Option<OwnedFd>,
}

impl Board {
    pub(crate) fn new(plan: &Plan) -> Self {
        let workers = plan.workers() as usize;
        Self {
            launch: Launch {
                id: nix::unistd::getpid().as_raw(),
                script: plan.script.to_string_lossy().into_owned(),
                node_rank: plan.node_rank.value.0,
                num_nodes: plan.num_nodes.value,
                world_size: plan.even_world().1,
                grace: plan.settings.grace.as_secs_f64().ceil() as u64,
                ..Launch::default()
            },
            first_rank: 0,
            pids: vec![None; workers],
            lasting: false,
            shown: None,
        }
    }

    /// Follows what happens. Nothing that fails here is worth a word to the user: the run goes on.
    pub(crate) fn hear(&mut self, told: &Told) {
        if self.has_news(told)
            && let Err(error) = self.show()
        {
            tracing::debug!("`fabric ps` cannot show this launch: {error}");
        }
    }

    fn has_news(&mut self, told: &Told) -> bool {
        match told {
            Told::Waiting(_) => return self.shown.is_none(),
            Told::Ready(first_rank) => self.first_rank = *first_rank,
            Told::Lasting => {
                self.lasting = true;
                return self.all_run();
            }
            Told::Event(stamped) => match stamped.event {
                Event::Started { worker, pid } => {
                    self.pids[worker.0 as usize] = Some(pid);
                    return self.lasting && self.all_run();
                }
                Event::Exited { worker, .. } => self.pids[worker.0 as usize] = None,
                _ => {}
            },
            Told::Notice(_) | Told::Restarting(_) | Told::Elsewhere(_) => {}
        }
        false
    }

    fn all_run(&self) -> bool {
        self.pids.iter().all(Option::is_some)
    }

    /// A new file each time, so that nobody reads half of one.
    fn show(&mut self) -> std::io::Result<()> {
        self.launch.born = look_up(self.launch.id).map_or(0, |it| it.born);
        let workers = (self.first_rank..).zip(self.pids.iter().flatten());
        let workers = workers.map(|(rank, pid)| Worker {
            rank,
            pid: *pid,
            born: look_up(*pid).map_or(0, |it| it.born),
        });
        self.launch.workers = workers.collect();
        let mut file = fs::File::from(nameless_file(NAME)?);
        file.write_all(&self.launch.to_json())?;
        self.shown = Some(file.into());
        Ok(())
    }
}

/// All launches of this user on this machine, by their numbers.
pub(crate) fn launches() -> Vec<Launch> {
    let me = nix::unistd::geteuid().as_raw();
    let folders = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mine = folders.filter(|it| it.metadata().is_ok_and(|it| it.uid() == me));
    let pids = mine.filter_map(|it| it.file_name().to_str()?.parse().ok());
    let mut found: Vec<Launch> = pids.filter_map(launch_of).collect();
    found.sort_by_key(|it| it.id);
    found
}

/// The launch that this process has on its board.
pub(crate) fn launch_of(launcher: Pid) -> Option<Launch> {
    let descriptors = fs::read_dir(format!("/proc/{launcher}/fd")).ok()?.flatten();
    let mut boards = descriptors.filter(|it| is_board(&it.path()));
    boards.find_map(|it| {
        let launch = Launch::from_json(&fs::read(it.path()).ok()?).ok()?;
        // In another PID namespace the numbers mean other processes; a copy of the descriptor is no launch.
        let genuine = launch.id == launcher && look_up(launcher)?.born == launch.born;
        genuine.then_some(launch)
    })
}

fn is_board(descriptor: &Path) -> bool {
    let target = fs::read_link(descriptor);
    target.is_ok_and(|it| it.to_str().is_some_and(|it| it.starts_with(LINK)))
}
