//! Every test that runs the real binary, in one test program.

mod harness;
mod terminal;
mod tidy;
mod cli;
mod accelerator;
mod examples;
mod consolidate;
mod docs;
mod exports;
mod launch;
mod peer_env;
mod failure;
mod orphans;
mod signals;
mod ends;
mod hostlist;
mod cluster_engines;
mod ports;
mod launches;
mod doctor;
mod notices;
mod powers;
mod link;
mod nodes;
mod hosts;
mod restarts;
