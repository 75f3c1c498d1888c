//! `fabric run`, from what was asked to how it ended, and `fabric doctor`, which stops before the start.

use std::ffi::OsString;
use std::time::Instant;

use anyhow::Result;

use crate::accelerator::{self, DeviceRequest, Selection};
use crate::agent::{self, Exit, Inherited, Start};
use crate::cli::{Doctor, Request};
use crate::cluster::{self, Asked, Share};
use crate::environ::Environ;
use crate::inspect::{self, doctor};
use crate::placement::Placement;
use crate::plan::{self, Given, Machine, Plan};
use crate::relay::Voice;
use crate::report;
use crate::source::Source;

/// `fabric run`: decide, then do.
pub(crate) fn run(
    request: &Request,
    environ: Environ,
    inherited: &Inherited,
    words: &[OsString],
) -> Result<Exit> {
    let (voice, origin) = (Voice::new(), Instant::now());
    report::start_log(request.verbosity, &environ, &voice);
    let plan = decide(request, environ)?;
    let mut reporter = report::Reporter::new(&plan, &voice);
    reporter.warn();
    if request.dry_run {
        report::say(&plan::describe(request, &plan));
        return Ok(Exit::Code(0));
    }
    reporter.open_files(origin)?;
    let mut board = inspect::Board::new(&plan);
    reporter.give_hints();
    let hosted = plan.place.leads.then(|| agent::host(&plan)).transpose()?;
    if let Some(hosted) = &hosted {
        reporter.tell_port(hosted);
    }
    let start = Start {
        inherited,
        argument_bytes: words.iter().map(|it| it.len() + 1).sum(),
        server: hosted.map(|it| it.server),
        voice: &voice,
        origin,
    };
    let outcome = agent::run(&plan, start, &mut |it, at| {
        // First, for the report may have a reader who does not read.
        board.hear(it);
        reporter.hear(it, at);
    })?;
    reporter.sum_up(&outcome);
    Ok(outcome.exit())
}

/// `fabric doctor`: the same decisions, and then a look around instead of a start.
pub(crate) fn examine(asked: &Doctor, environ: Environ) -> Exit {
    let paint = report::output(&environ).paint;
    let (plan, refusal) = match decide(&asked.request, environ.clone()) {
        Ok(plan) => (Some(plan), None),
        Err(error) => {
            let modest = decide(&asked.request.on_one_cpu(), environ.clone());
            (modest.ok(), Some(format!("{error:#}")))
        }
    };
    let facts = doctor::gather(doctor::Case {
        request: &asked.request,
        environ,
        refusal,
        plan,
    });
    let found = doctor::examine(&facts);
    report::say(&match asked.json {
        true => doctor::json(&found),
        false => doctor::text(&found, paint),
    });
    Exit::Code(u8::from(doctor::count(&found, doctor::Level::Bad) > 0))
}

/// Everything about what to launch.
fn decide(request: &Request, environ: Environ) -> Result<Plan> {
    let environ = environ.with(&request.env);
    let devices = DeviceRequest {
        accelerator: request.accelerator,
        data_parallel: request.strategy == Some("dp"),
        devices: &request.devices,
    };
    let needs = match request.numa_binding {
        Some(_) => devices.possible(),
        None => devices.needs(),
    };
    let (inventory, driver) = accelerator::probe(needs, &environ);
    let selection = devices.select(&inventory)?;
    let asked = asked(request);
    let cluster = cluster::discover(&environ, &asked)?;
    let share = cluster.share(&asked, workers_asked(request, &selection))?;
    let partly = request.numa_binding.is_some() || matches!(share, Share::Rank { .. });
    let sharers = match environ.get("OMP_NUM_THREADS") {
        Some(_) => usize::MAX,
        None if partly => 0,
        None => selection.workers as usize,
    };
    let machine = Machine::look(&environ, partly, sharers);
    let placement = Placement {
        share: &share,
        selection: &selection,
        inventory: &inventory,
        driver: &driver,
    };
    let bound = request.numa_binding.map(|it| placement.bind(it, &machine));
    plan::resolve(Given {
        request,
        cluster,
        interpreter: plan::program(request, &environ)?,
        bound: bound.transpose()?,
        busy: placement.busy(),
        share,
        selection,
        machine,
        environ,
    })
}

/// What the command line says that bears on the cluster.
fn asked(request: &Request) -> Asked<'_> {
    // The cluster room reads the map's variable itself, to name it when it is wrong.
    let map = request
        .cluster_map
        .as_ref()
        .filter(|it| matches!(it.source, Source::Flag(_)));
    Asked {
        cluster: request.cluster.as_ref().and_then(|it| it.value.to_str()),
        cluster_map: map.and_then(|it| it.value.to_str()),
        num_nodes: request.num_nodes.as_ref().and_then(|it| it.value),
        node_rank: request.node_rank.is_some(),
        main_address: request.main_address.is_some(),
    }
}

/// How many workers a node shall have, where somebody said so.
fn workers_asked(request: &Request, selection: &Selection) -> Option<u32> {
    let open = request.devices.source == Source::Default || request.devices.value == "auto";
    (!open).then_some(selection.workers)
}
