//! `fabric`: starts one training process per device and watches over them.

mod status;
mod topology;
mod source;
mod integer;
mod environ;
mod accelerator;
mod cluster;
mod cli;
mod plan;
mod rendezvous;
mod agent;
mod report;

fn main() {}
