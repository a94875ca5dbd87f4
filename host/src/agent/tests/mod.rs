//! Tests of instances below the level of agents.

mod programs;
mod warm;
