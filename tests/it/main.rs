//! Every test that runs the real binary, in one test program.

mod tidy;
mod cli;
