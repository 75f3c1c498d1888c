//! Words to data: the command line, parsed without a look at the machine but for the script's existence.
//!
//! A drop-in for click 8.5 as Lightning Fabric 2.6 uses it. One table, `options`, holds every option of
//! `fabric run`; the parser, `--help`, completions and the man page are made from it.

mod repr;
mod similar;
mod request;
mod queries;
mod kind;
mod opt;
mod options;
mod torchrun;
mod usage;
mod commands;
mod script;
mod hint;
mod run;
mod parse;

pub(crate) use parse::{Command, parse};
pub(crate) use queries::{Doctor, Ps, Stop};
pub(crate) use request::{Entry, Isolation, Request};
pub(crate) use script::look_at;
pub(crate) use usage::EXIT_USAGE;
