//! Tests of instances below the level of agents.

pub(crate) mod programs;
mod warm;
