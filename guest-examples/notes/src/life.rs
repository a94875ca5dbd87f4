//! What the host tells about the agent's life, and what follows from it.

use wasip2::random::random::get_random_u64;

use crate::bindings::dormouse::agent::lifecycle::{self, StartCause};

/// One line on who this agent is and how it came to run.
pub fn who(turns: u64) -> String {
    let me = lifecycle::identity();
    let cause = cause(lifecycle::cause());
    let parent = lifecycle::parent().unwrap_or_else(|| "-".into());
    let generation = lifecycle::generation();
    format!(
        "id={} name={} generation={generation} cause={cause} parent={parent} turns={turns}",
        me.id, me.name
    )
}

/// The word for a cause.
pub fn cause(cause: StartCause) -> &'static str {
    match cause {
        StartCause::Created => "created",
        StartCause::Resumed => "resumed",
        StartCause::Forked => "forked",
        StartCause::Rewound => "rewound",
        StartCause::Upgraded => "upgraded",
    }
}

/// A generator of random numbers in the guest's own memory (splitmix64, Steele and others 2014).
///
/// Two forks share its state as they share all memory, and would draw the same numbers; so it is
/// seeded anew whenever the generation has changed.
pub struct Dice {
    state: u64,
    seeded_at: Option<u64>,
}

impl Dice {
    /// A generator without a seed; it takes one at the first roll.
    pub fn new() -> Self {
        Self { state: 0, seeded_at: None }
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        let generation = lifecycle::generation();
        if self.seeded_at != Some(generation) {
            self.state = get_random_u64();
            self.seeded_at = Some(generation);
        }
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
