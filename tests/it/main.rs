//! Every test that runs the real binary, in one test program.

mod harness;
mod terminal;
mod tidy;
mod cli;
mod accelerator;
mod examples;
mod exports;
mod peer_env;
mod failure;
mod orphans;
mod signals;
mod ends;
mod hostlist;
mod ports;
