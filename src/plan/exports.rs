//! The variables that workers find: one table, in the order in which `--dry-run` shows them.
//!
//! Names, values and the rule for what the user had exported are those of `fabric run` of lightning 2.6.6
//! with torch 2.15. On purpose different: NODE_RANK is set, OMP_NUM_THREADS is divided by the workers, and
//! what an outer launcher exported is taken out.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::worker::{Plan, World};
use crate::topology::LocalRank;

/// Who wins when the user has exported the variable, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    Ours,
    /// Also when it is set but empty.
    Users,
    /// Ours, but made from the user's.
    Narrowed,
}

type Value = Option<OsString>;

/// A name and its value.
pub(crate) type Variable<'p> = (&'p OsStr, Cow<'p, OsStr>);

/// A variable that all workers share, with what is not obvious about its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Told {
    pub(crate) name: &'static str,
    pub(crate) value: OsString,
    /// Empty where there is nothing to say.
    pub(crate) note: String,
}

/// Where a variable's value comes from.
enum From {
    /// The same for all workers.
    Plan(fn(&Plan, &World) -> Value),
    /// Different for each.
    Worker(fn(&Plan, &World, LocalRank) -> Value),
}

struct Export {
    name: &'static str,
    rule: Rule,
    from: From,
    /// What `--dry-run` says about the value.
    note: &'static str,
}

const fn ours(name: &'static str, value: fn(&Plan, &World) -> Value) -> Export {
    Export {
        name,
        rule: Rule::Ours,
        from: From::Plan(value),
        note: "",
    }
}

const fn users(name: &'static str, value: fn(&Plan, &World) -> Value) -> Export {
    Export {
        name,
        rule: Rule::Users,
        from: From::Plan(value),
        note: "",
    }
}

const fn own(
    name: &'static str,
    rule: Rule,
    value: fn(&Plan, &World, LocalRank) -> Value,
) -> Export {
    Export {
        name,
        rule,
        from: From::Worker(value),
        note: "",
    }
}

#[rustfmt::skip]
const EXPORTS: &[Export] = &[
    ours("LT_CLI_USED", |_, _| text(1)),
    ours("LT_DEVICES", |plan, _| Some(plan.devices.clone())),
    ours("LT_NUM_NODES", |plan, _| text(plan.num_nodes.value)),
    ours("LT_ACCELERATOR", |plan, _| plan.accelerator.map(Into::into)),
    ours("LT_STRATEGY", |plan, _| plan.strategy.map(Into::into)),
    ours("LT_PRECISION", |plan, _| plan.precision.map(Into::into)),
    ours("MASTER_ADDR", |plan, _| text(&plan.main_address.value)),
    ours("MASTER_PORT", |_, world| text(world.port)),
    own("RANK", Rule::Ours, |_, world, rank| text(world.first_rank + rank.0)),
    own("LOCAL_RANK", Rule::Ours, |plan, _, rank| text(plan.shown_rank(rank))),
    own("CUDA_VISIBLE_DEVICES", Rule::Narrowed, |plan, _, rank| plan.own_device(rank)),
    own("HIP_VISIBLE_DEVICES", Rule::Narrowed, |plan, _, rank| plan.own_device(rank).filter(|_| plan.listens_to_hip())),
    ours("WORLD_SIZE", |_, world| text(world.world_size)),
    ours("LOCAL_WORLD_SIZE", |plan, _| text(plan.local_world_size.value)),
    ours("GROUP_RANK", |plan, _| text(plan.node_rank.value)),
    ours("GROUP_WORLD_SIZE", |plan, _| text(plan.num_nodes.value)),
    ours("NODE_RANK", |plan, _| text(plan.node_rank.value)),
    ours("ROLE_NAME", |plan, _| text(&plan.role.value)),
    own("ROLE_RANK", Rule::Ours, |_, world, rank| text(world.first_role_rank + rank.0)),
    ours("ROLE_WORLD_SIZE", |_, world| text(world.role_world_size)),
    ours("TORCHELASTIC_RUN_ID", |plan, _| text(&plan.run_id.value)),
    ours("TORCHELASTIC_RESTART_COUNT", |_, world| text(world.attempt)),
    ours("TORCHELASTIC_MAX_RESTARTS", |plan, _| text(plan.max_restarts)),
    // Exactly `True` makes every worker a client of a store that the launcher serves.
    ours("TORCHELASTIC_USE_AGENT_STORE", |_, _| text("True")),
    ours("TORCHELASTIC_SIGNALS_TO_HANDLE", |plan, _| text(handled(plan))),
    own("TORCHELASTIC_ERROR_FILE", Rule::Ours, |_, world, rank| Some(error_file(world, rank).unwrap_or_default().into())),
    users("TORCH_NCCL_ASYNC_ERROR_HANDLING", |_, _| text(1)),
    users("OMP_NUM_THREADS", |plan, _| text(threads(plan)).filter(|_| plan.bound.is_none())).noted("CPUs divided by workers"),
    // Workers that are bound to the same CPUs share those.
    own("OMP_NUM_THREADS", Rule::Users, |plan, _, rank| text(bound_threads(plan, rank)?)),
    // What importing Lightning and torch's compiler leave in the original's own environment.
    ours("PYTORCH_NVML_BASED_CUDA_CHECK", |_, _| text(1)),
    users("TORCHINDUCTOR_CACHE_DIR", |plan, _| Some(inductor_cache(plan).into())),
];

/// Not ours to decide where the option is not given, unless a launcher set them for a worker that we are:
/// LT_CLI_USED tells that.
const OUTER_LIGHTNING: &[&str] = &["LT_ACCELERATOR", "LT_STRATEGY", "LT_PRECISION"];

/// Options that set variables of ours, for those who try to set the variables.
const WAYS_OUT: &[(&str, &str)] = &[
    ("LT_DEVICES", "--devices"),
    ("LT_NUM_NODES", "--num-nodes"),
    ("LT_ACCELERATOR", "--accelerator"),
    ("LT_STRATEGY", "--strategy"),
    ("LT_PRECISION", "--precision"),
    ("MASTER_ADDR", "--main-address"),
    ("MASTER_PORT", "--main-port"),
    ("GROUP_RANK", "--node-rank"),
    ("NODE_RANK", "--node-rank"),
    ("GROUP_WORLD_SIZE", "--num-nodes"),
    ("LOCAL_WORLD_SIZE", "--devices"),
    ("ROLE_NAME", "--role"),
    ("TORCHELASTIC_RUN_ID", "--run-id"),
    ("TORCHELASTIC_MAX_RESTARTS", "--max-restarts"),
    ("TORCHELASTIC_SIGNALS_TO_HANDLE", "--signals-to-handle"),
];

/// For a variable that is never the user's: what to do instead of setting it.
pub(super) fn launchers_own(name: &OsStr) -> Option<String> {
    let ours = |it: &&Export| it.name == name && it.rule == Rule::Ours;
    let name = EXPORTS.iter().find(ours)?.name;
    let option = WAYS_OUT.iter().find(|(it, _)| *it == name);
    Some(match option {
        Some((_, option)) => format!("use `{option}`"),
        None => "it follows from the launch; leave it out".to_owned(),
    })
}

/// Where this worker may write what made it fail, as torch's `record` does; another file in each attempt.
pub(crate) fn error_file(world: &World, rank: LocalRank) -> Option<PathBuf> {
    let name = match world.attempt {
        0 => format!("error_{rank}.json"),
        attempt => format!("attempt_{attempt}_error_{rank}.json"),
    };
    Some(world.error_dir.as_ref()?.join(name))
}

impl Plan {
    /// All variables that are the same for every worker: the user's, minus an outer launcher's, plus ours.
    pub(crate) fn common_environment(&self, world: &World) -> Vec<Variable<'_>> {
        let exported = self.common_exports(world);
        let own = self.own_environment(world, LocalRank(0));
        let replaced = |name: &OsStr| {
            exported.iter().any(|(it, _)| *it == name) || own.iter().any(|(it, _)| *it == name)
        };
        let outer = self.outer();
        let kept = self
            .environ
            .iter()
            .filter(|(name, _)| !replaced(name) && !outer.iter().any(|it| it == name))
            .map(|(name, value)| (name, Cow::Borrowed(value)));
        let mut all: Vec<Variable<'_>> = kept.collect();
        let ours = exported.into_iter();
        all.extend(ours.map(|(name, value)| (OsStr::new(name), Cow::Owned(value))));
        all
    }

    /// The variables that each worker has for itself.
    pub(crate) fn own_environment(&self, world: &World, rank: LocalRank) -> Vec<Variable<'_>> {
        let own = EXPORTS.iter().filter(|it| !self.leaves_to_user(it));
        let own = own.filter_map(|it| match it.from {
            From::Worker(value) => {
                let value = value(self, world, rank)?;
                Some((OsStr::new(it.name), Cow::Owned(value)))
            }
            From::Plan(_) => None,
        });
        own.collect()
    }

    /// What we set for all workers, in the table's order.
    pub(crate) fn common_exports(&self, world: &World) -> Vec<(&'static str, OsString)> {
        let set = EXPORTS.iter().filter(|it| !self.leaves_to_user(it));
        let set = set.filter_map(|it| match it.from {
            From::Plan(value) => Some((it.name, value(self, world)?)),
            From::Worker(_) => None,
        });
        set.collect()
    }

    /// The same with those that stay the user's, for somebody who asks where each value comes from.
    pub(crate) fn told_exports(&self, world: &World) -> Vec<Told> {
        let ours = self.common_exports(world);
        let tell = |row: &Export| {
            let ours = ours.iter().find(|(name, _)| *name == row.name);
            let (value, note) = match (ours, self.environ.get(row.name)) {
                (Some((_, value)), Some(users)) if users != value => {
                    let note = format!("instead of your `{}`", users.display());
                    (value.clone(), note)
                }
                (Some((_, value)), _) => (value.clone(), row.note.to_owned()),
                (None, Some(users)) if !self.outer().contains(&row.name) => {
                    (users.to_owned(), "yours, kept".to_owned())
                }
                (None, _) => return None,
            };
            let name = row.name;
            Some(Told { name, value, note })
        };
        let shared = |it: &&Export| matches!(it.from, From::Plan(_));
        EXPORTS.iter().filter(shared).filter_map(tell).collect()
    }

    /// Variables of the user's environment that workers do not get, since an outer launcher set them.
    pub(crate) fn removed(&self, world: &World) -> Vec<&'static str> {
        let ours = self.common_exports(world);
        let set_anew = |name: &str| ours.iter().any(|(it, _)| *it == name);
        let outer = self.outer().iter().copied();
        outer
            .filter(|it| self.environ.get(it).is_some() && !set_anew(it))
            .collect()
    }

    fn leaves_to_user(&self, export: &Export) -> bool {
        export.rule == Rule::Users && self.environ.get(export.name).is_some()
    }

    /// The local rank that a worker is told.
    fn shown_rank(&self, index: LocalRank) -> LocalRank {
        match self.own_devices {
            Some(_) => LocalRank(0),
            None => self.local_rank(index),
        }
    }

    fn own_device(&self, index: LocalRank) -> Value {
        text(self.own_devices.as_ref()?.names.get(index.0 as usize)?)
    }

    fn listens_to_hip(&self) -> bool {
        self.own_devices.as_ref().is_some_and(|it| it.hip)
    }

    /// The names of variables that are not the user's, since an outer launcher set them.
    fn outer(&self) -> &'static [&'static str] {
        match self.environ.get("LT_CLI_USED") {
            Some(_) => OUTER_LIGHTNING,
            None => &[],
        }
    }
}

impl Export {
    const fn noted(mut self, note: &'static str) -> Self {
        self.note = note;
        self
    }
}

fn text(value: impl ToString) -> Value {
    Some(value.to_string().into())
}

fn handled(plan: &Plan) -> String {
    let names: Vec<String> = plan
        .settings
        .handled
        .iter()
        .map(ToString::to_string)
        .collect();
    names.join(",")
}

/// The CPUs this launcher may use, shared out among its workers. Where it is one of several on its node
/// and was bound to a part of the CPUs, that part is its own already.
fn threads(plan: &Plan) -> usize {
    let (cpus, bound) = (
        plan.machine.cpus,
        plan.machine.cpus < plan.machine.online_cpus,
    );
    let sharers = if plan.seat.is_some() && bound {
        1
    } else {
        plan.local_world_size.value
    };
    (cpus / sharers.max(1) as usize).max(1)
}

/// The CPUs that a worker is bound to, shared out among those that are bound to the same; a quota of the cgroup counts, too.
fn bound_threads(plan: &Plan, index: LocalRank) -> Option<usize> {
    Some(plan.bound.as_ref()?.threads(index.0, plan.machine.cpus))
}

/// As torch 2.15 names it (`torch/_inductor/runtime/cache_dir_utils.py`).
fn inductor_cache(plan: &Plan) -> PathBuf {
    let user: String = plan
        .machine
        .user
        .chars()
        .map(|it| if r#"\/:*?"<>|"#.contains(it) { '_' } else { it })
        .collect();
    plan.machine.temp.join(format!("torchinductor_{user}"))
}

#[cfg(test)]
mod tests {
    use super::super::own_device::OwnDevices;
    use super::super::sample;
    use super::*;
    use crate::numa::{Binding, Bound, CpuSet};

    fn world() -> World {
        World {
            attempt: 0,
            first_rank: 4,
            world_size: 8,
            first_role_rank: 4,
            role_world_size: 8,
            port: 29401,
            error_dir: Some("/tmp/torchelastic_1".into()),
        }
    }

    /// What a worker of two finds under this name when the user has exported these.
    #[track_caller]
    fn check(exported: &[(&str, &str)], name: &str, expected: Option<&str>) {
        let plan = sample::plan(2, exported);
        let common = plan.common_environment(&world());
        let own = plan.own_environment(&world(), LocalRank(1));
        let mut found = common.iter().chain(&own).filter(|(it, _)| *it == name);
        let value = found.next().map(|(_, value)| value.to_str().unwrap());
        assert_eq!(value, expected, "{name}");
        assert!(found.next().is_none(), "{name} is there twice");
    }

    #[test]
    fn ranks_count_on_from_the_nodes_first() {
        check(&[], "RANK", Some("5"));
        check(&[("RANK", "9")], "RANK", Some("5"));
        check(&[], "ROLE_RANK", Some("5"));
        check(&[], "LOCAL_RANK", Some("1"));
        check(&[], "WORLD_SIZE", Some("8"));
    }

    #[test]
    fn threads_are_divided_and_the_users_number_stays() {
        check(&[], "OMP_NUM_THREADS", Some("4"));
        check(&[("OMP_NUM_THREADS", "3")], "OMP_NUM_THREADS", Some("3"));
        check(&[("OMP_NUM_THREADS", "")], "OMP_NUM_THREADS", Some(""));
        let crowded = sample::plan(100, &[]);
        assert_eq!(threads(&crowded), 1);
    }

    #[test]
    fn names_can_be_chosen() {
        let mut plan = sample::plan(2, &[("ROLE_NAME", "mine")]);
        plan.role.value = "trainer".into();
        plan.run_id.value = "run 7".into();
        let common = plan.common_environment(&world());
        let value = |name: &str| &*common.iter().find(|(it, _)| *it == name).unwrap().1;
        assert_eq!(value("ROLE_NAME"), "trainer");
        assert_eq!(value("TORCHELASTIC_RUN_ID"), "run 7");
    }

    #[test]
    fn a_worker_with_a_device_of_its_own_is_number_0_of_one() {
        let visible = ("CUDA_VISIBLE_DEVICES", "7,5");
        check(&[visible], visible.0, Some("7,5"));
        let mut plan = sample::plan(2, &[visible, ("HIP_VISIBLE_DEVICES", "")]);
        let names = vec!["7".to_owned(), "5".to_owned()];
        plan.own_devices = Some(OwnDevices { names, hip: false });
        let own = plan.own_environment(&world(), LocalRank(1));
        let value = |name: &str| {
            own.iter()
                .find(|(it, _)| *it == name)
                .map(|it| it.1.to_str().unwrap())
        };
        assert_eq!((value("LOCAL_RANK"), value("RANK")), (Some("0"), Some("5")));
        assert_eq!(
            (value(visible.0), value("HIP_VISIBLE_DEVICES")),
            (Some("5"), None)
        );
        let common = plan.common_environment(&world());
        assert!(common.iter().all(|(it, _)| *it != visible.0));
        assert!(common.iter().any(|(it, _)| *it == "HIP_VISIBLE_DEVICES"));
    }

    #[test]
    fn bound_workers_have_the_threads_of_their_cpus() {
        let threads = |exported: &[(&str, &str)]| {
            let mut plan = sample::plan(2, exported);
            let cpus = ["0-2", "3-7"].map(|it| CpuSet::parse(it).unwrap()).to_vec();
            let (mode, allowed) = (Binding::Exclusive, 8);
            plan.bound = Some(Bound {
                mode,
                cpus,
                allowed,
            });
            let own = plan.own_environment(&world(), LocalRank(1));
            let all = plan.common_environment(&world()).into_iter().chain(own);
            let found = all.filter(|(name, _)| *name == "OMP_NUM_THREADS");
            found
                .map(|it| it.1.to_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(threads(&[]), ["5"]);
        assert_eq!(threads(&[("OMP_NUM_THREADS", "3")]), ["3"]);
    }

    #[test]
    fn what_the_launcher_sets_is_not_set_by_hand() {
        let way_out = |name: &str| launchers_own(OsStr::new(name));
        assert_eq!(way_out("MASTER_PORT").as_deref(), Some("use `--main-port`"));
        assert_eq!(
            way_out("RANK").as_deref(),
            Some("it follows from the launch; leave it out")
        );
        for name in ["OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PATH", ""] {
            assert_eq!(way_out(name), None, "{name}");
        }
        for (name, _) in WAYS_OUT {
            assert!(way_out(name).is_some(), "{name}");
        }
    }

    #[test]
    fn an_outer_launchers_choice_is_not_the_users() {
        check(&[("LT_STRATEGY", "ddp")], "LT_STRATEGY", Some("ddp"));
        let outer = [
            ("LT_CLI_USED", "1"),
            ("LT_STRATEGY", "ddp"),
            ("LT_ACCELERATOR", "cuda"),
        ];
        check(&outer, "LT_STRATEGY", None);
        check(&outer, "LT_ACCELERATOR", Some("cpu"));
        assert_eq!(sample::plan(2, &outer).removed(&world()), ["LT_STRATEGY"]);
    }

    #[test]
    fn without_a_folder_the_error_file_is_an_empty_name() {
        let world = World {
            attempt: 0,
            error_dir: None,
            ..world()
        };
        let plan = sample::plan(2, &[]);
        let own = plan.own_environment(&world, LocalRank(0));
        let file = own
            .iter()
            .find(|(name, _)| *name == "TORCHELASTIC_ERROR_FILE");
        assert!(file.unwrap().1.is_empty());
    }

    #[test]
    fn the_compilers_cache_bears_the_users_name_as_torch_spells_it() {
        let mut plan = sample::plan(2, &[]);
        plan.machine.user = r"CORP\jo".into();
        assert_eq!(
            inductor_cache(&plan),
            PathBuf::from("/tmp/torchinductor_CORP_jo")
        );
    }
}
