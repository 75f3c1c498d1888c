//! Takes the port where the workers meet, before there is a worker.

use anyhow::{Result, bail};

use crate::plan::Plan;
use crate::rendezvous::{BindError, Server, holder_of};
use crate::source::Source;

/// The store's port is ours.
pub(crate) struct Hosted {
    pub(crate) server: Server,
    /// The usual port was taken; another was chosen. By whom is not asked: to look through all sockets and all
    /// processes for a line that changes nothing would cost ten times what all else does before the first worker.
    pub(crate) moved: bool,
}

/// Takes the plan's port. On a single node whose user named none, any free one does as well: nobody else
/// has to know it. It is held from here on, so what workers are told stays true.
///
/// # Errors
/// The port is taken or refused: named with its holder and the way out.
pub(crate) fn host(plan: &Plan) -> Result<Hosted> {
    let (address, wanted) = (plan.main_address.value.as_ref(), &plan.main_port);
    let single = plan.num_nodes.value == 1;
    if wanted.value == 0 && !single {
        bail!("`--main-port 0` means a free port, which the other nodes would not know: name one");
    }
    match Server::bind(address, wanted.value) {
        Ok(server) => Ok(Hosted {
            server,
            moved: false,
        }),
        Err(BindError::InUse { .. }) if single && wanted.source == Source::Default => Ok(Hosted {
            server: Server::bind(address, 0)?,
            moved: true,
        }),
        Err(BindError::InUse { port }) => {
            let holder = holder_of(port).map_or_else(String::new, |pid| format!(" by pid {pid}"));
            bail!(
                "port {port} ({}) is taken{holder}\nhint: end that process, or choose another port with --main-port{}",
                wanted.source,
                if single {
                    "; 0 takes a free one"
                } else {
                    " on every node"
                }
            )
        }
        Err(error) => bail!("failed to {error}"),
    }
}
