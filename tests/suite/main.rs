//! What crosses crates, most of it through the program as a user runs it.
//!
//! | module | what it tests |
//! |---|---|
//! | [`bed`] | stores, guests and processes for all others |
//! | [`guests`] | each test program, in its zones |
//! | [`hostile`] | guests that do what they must not |
//! | [`continuity`] | an agent goes on from open files and memory: resume, fork |
//! | [`composed`] | a component of two, with a resource type of its own |
//! | [`rewind`] | what goes back and what stays |
//! | [`shared`] | zones that several agents mount |
//! | [`crowd`] | a thousand forks alive in one process |
//! | [`forgets`] | what is forgotten is in no byte of the store |
//! | [`fair`] | guests that compute without end, and those beside them |
//! | [`files`] | files between the operator and zones |
//! | [`limits`] | limits of agents, changed after they were made |
//! | [`locks`] | locks among agents in one process |
//! | [`killed`] | `kill -9` at any moment |
//! | [`errors`] | wrong input of every kind, and what it leaves as it was |
//! | [`differential`] | every guest, rewritten and as it is, beside plain wasmtime |
//! | [`diffs`] | what differs between generations and agents |
//! | [`archive`] | image files that are gone, damaged, or make room |
//! | [`backups`] | backups, restores, `fsck`, `du` |
//! | [`exports`] | agents that go to another store |
//! | [`imports`] | exports that somebody has made up |
//! | [`upkeep`] | what is given back, and what is not |
//! | [`stops`] | what ends a command early, and what is refused before anything is changed |
//! | [`tables`] | an agent that changes its function table |
//! | [`upgrade`] | another component for an agent, and what tells it that its memory comes to life |
//! | [`versions`] | versions of files, rollback, the change feed |
//! | [`goldens`] | stores and backups that were written earlier |
//! | [`operator`] | `zone`, `logs`, `ps`: tables, JSON, what reaches a terminal |

mod archive;
mod backups;
mod bed;
mod behind;
mod composed;
mod continuity;
mod crowd;
mod differential;
mod diffs;
mod errors;
mod exceptions;
mod exchange;
mod exports;
mod fair;
mod files;
mod forgets;
mod found;
mod goldens;
mod guests;
mod hostile;
mod imports;
mod killed;
mod limits;
mod locks;
mod moves;
mod operator;
mod parked;
mod policies;
mod queued;
mod replay;
mod rewind;
mod shared;
mod stops;
mod tables;
mod unreadable;
mod upgrade;
mod upkeep;
mod versions;
