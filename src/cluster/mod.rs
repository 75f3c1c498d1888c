//! Which scheduler or launcher is around us, and what it says.

mod facts;

pub(crate) use facts::Cluster;
