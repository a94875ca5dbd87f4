//! What `fsck` has found, for people and for programs.

use serde::Serialize;
use zone_vfs::store::{Damage, Finding, StoreError};

use crate::upkeep::{ComponentDamage, GenesisDamage, ImageDamage};

/// A fault, or what was done about one. For programs each has all fields, of which those are null that it is not about.
#[derive(Debug, Default, Serialize)]
pub struct Fault {
    /// `store`, `superblock`, `log`, `segment`, `agent`, `image`, `component`, `lost`, or `repaired`.
    pub kind: &'static str,
    /// The agent's name.
    pub agent: Option<String>,
    pub generation: Option<u64>,
    /// The zone's name.
    pub zone: Option<String>,
    /// The path, from the zone's root.
    pub path: Option<String>,
    /// The file of the segment.
    pub segment: Option<String>,
    /// The address that does not read.
    pub address: Option<String>,
    /// In words.
    pub text: String,
}

/// Where damage is, as the operator would name it.
fn place(d: &Damage) -> String {
    let mut place =
        d.agent.as_ref().map_or_else(|| "the list of agents".to_string(), |(_, name)| name.clone());
    if let Some(generation) = d.generation {
        place = format!("{place}@{generation}");
    }
    match (&d.zone, &d.path) {
        (Some(zone), Some(path)) => place + ":" + zone + "/" + path.trim_start_matches('/'),
        (Some(zone), None) => place + ": something of zone " + zone,
        (None, _) => place,
    }
}

impl From<&Finding> for Fault {
    fn from(finding: &Finding) -> Self {
        let of = |kind, text| Self { kind, text, ..Self::default() };
        match finding {
            Finding::Superblock { reason } => of("superblock", format!("superblock: {reason}")),
            Finding::Log { reason } => of("log", format!("log: {reason}")),
            Finding::Segment { file, reason } => {
                Self { segment: Some(file.clone()), ..of("segment", format!("{file}: {reason}")) }
            }
            Finding::Agent(d) => Self {
                agent: d.agent.as_ref().map(|(_, name)| name.clone()),
                generation: d.generation.map(|it| it.0),
                zone: d.zone.clone(),
                path: d.path.clone(),
                address: d.hash.map(|hash| hash.to_string()),
                ..of("agent", format!("{}: {}", place(d), d.reason))
            },
            Finding::Lost { what } => of("lost", format!("lost: {what}")),
            Finding::Repaired { what } => of("repaired", format!("repaired: {what}")),
        }
    }
}

impl From<&ComponentDamage> for Fault {
    fn from(damage: &ComponentDamage) -> Self {
        let text = format!(
            "{} (of {}): `dormouse new` with the same file puts it back",
            damage.reason, damage.agent
        );
        Self { kind: "component", agent: Some(damage.agent.clone()), text, ..Self::default() }
    }
}

impl Fault {
    /// Why a store does not open.
    pub fn of_store(reason: &StoreError) -> Self {
        let text = format!("the store does not open: {}", zone_vfs::told(reason));
        Self { kind: "store", text, ..Self::default() }
    }

    /// What is wrong with the image that agents of a component begin with, and what was done about it.
    pub fn of_genesis(damage: &GenesisDamage) -> impl Iterator<Item = Self> {
        let of = |kind, text| Self { kind, agent: Some(damage.agent.clone()), text, ..Self::default() };
        let text = format!("{} (genesis of the component of {})", damage.reason, damage.agent);
        let made = "repaired: the genesis image was made again by starting the component";
        std::iter::once(of("image", text)).chain(damage.repaired.then(|| of("repaired", made.into())))
    }

    /// What is wrong with an image, and what was done about it.
    pub fn of_image(damage: &ImageDamage) -> impl Iterator<Item = Self> {
        let of = |kind, text| Self {
            kind,
            agent: Some(damage.agent.clone()),
            generation: Some(damage.generation.0),
            text,
            ..Self::default()
        };
        let whose = format!("{}@{}", damage.agent, damage.generation);
        let wrong = of("image", format!("{whose}: {}", damage.reason));
        let made = damage.repaired.then(|| {
            of("repaired", format!("repaired: the memory of {whose} was made again from the archive"))
        });
        std::iter::once(wrong).chain(made)
    }
}

#[cfg(test)]
mod tests {
    use zone_vfs::id::{AgentId, GenerationNumber, Hash};

    use super::*;

    #[test]
    fn a_program_is_told_where_damage_is_without_reading_the_words() {
        let damage = Damage {
            agent: Some((AgentId(uuid::Uuid::nil()), "scribe".into())),
            generation: Some(GenerationNumber(3)),
            zone: Some("semantic".into()),
            path: Some("facts.md".into()),
            hash: Some(Hash([0xab; 32])),
            reason: "the frame is damaged".into(),
        };
        let told = serde_json::to_value(Fault::from(&Finding::Agent(damage))).expect("JSON");
        let wanted = serde_json::json!({
            "kind": "agent", "agent": "scribe", "generation": 3, "zone": "semantic", "path": "facts.md",
            "segment": null, "address": "ab".repeat(32), "text": "scribe@3:semantic/facts.md: the frame is damaged",
        });
        assert_eq!(told, wanted);
        let segment = Finding::Segment { file: "segments/3".into(), reason: "torn".into() };
        let told = serde_json::to_value(Fault::from(&segment)).expect("JSON");
        assert_eq!((&told["segment"], &told["agent"]), (&"segments/3".into(), &serde_json::Value::Null));
    }
}
