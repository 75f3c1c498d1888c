//! Which scheduler or launcher is around us, and what it says.
//!
//! An engine - Slurm, an MPI's `mpirun`, LSF, a training operator - starts programs on many
//! nodes and tells each of them, in environment variables of its own, where it is. Every
//! engine is a pair of plain functions in a closed table ([`detect`](detect::detect)): does
//! its mark stand in the environment, and what does it say. The answer is one [`Cluster`].
//!
//! ```text
//! environment --detect--> Cluster --ask the engine--> Cluster --share(workers)--> Share
//!               pure                 effect, MPI only              pure
//! ```
//!
//! [`discover`] does the first two steps on the real machine; [`Cluster::share`] decides
//! whether this launcher starts a node's workers or is one of several on its node.

mod facts;
mod variables;
mod surroundings;
mod hostlist;
mod hosts;
mod counts;
mod port;
mod layout;
mod share;
mod narrowed;
mod body;
mod torchelastic;
mod slurm;
mod pmi;
mod mpi;
mod flux;
mod pbs;
mod pals;
mod lsf;
mod kubeflow;
mod cloud;
mod tpu;
mod custom;
mod local;
mod detect;
#[cfg(test)]
mod snapshots;
mod pmix;
mod exchange;
mod discover;

pub(crate) use discover::discover;
pub(crate) use facts::{Asked, Cluster, Seat, Share};
pub(crate) use narrowed::narrowed;
