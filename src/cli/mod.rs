//! Words to data: the command line, parsed without a look at the machine.

mod request;

pub(crate) use request::{Accelerator, Integer, Isolation, Request};
