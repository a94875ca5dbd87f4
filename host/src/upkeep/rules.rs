//! What is kept, as an operator writes it down: a file in TOML, by default `policy.toml` in the store's folder.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use figment::Figment;
use figment::providers::{Format, Serialized, Toml};
use figment::value::Dict;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use zone_vfs::contract::ZoneKind;
use zone_vfs::contract::lifecycle::Reaping;
use zone_vfs::store::{KeepGenerations, KeepPolicy, ReapPolicy, Store, StoreError, VersionPolicy};

use crate::agent::{AgentError, default_zones};
use crate::host::{Host, HostShared};
use crate::size;

/// The file in the store's folder that [`Host::reap_policy`] reads.
pub const POLICY_FILE: &str = "policy.toml";
/// The longest policy that is read. Bytes.
pub const MAX_POLICY: u64 = 1 << 20;

/// Zones that an error names, at most.
const MAX_TOLD: usize = 64;

/// Which old versions of a zone's files are kept. What is not said is as the agent's, and then as everybody's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ZoneRules {
    /// What was replaced or deleted longer ago than this goes.
    #[serde(deserialize_with = "time")]
    pub versions_older_than: Option<Duration>,
    /// But not the newest so many versions of a file that is there.
    pub keep_versions: Option<usize>,
}

/// What an agent keeps. What is not said is as everybody's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct AgentRules {
    /// The newest so many generations of ended turns.
    pub keep_turns: Option<usize>,
    /// What the newest so many failed turns left.
    pub keep_failed: Option<usize>,
    /// The newest so many generations of pauses, and of what the operator wrote.
    pub keep_paused: Option<usize>,
    /// Paused for longer, it keeps no generation of a turn but the head.
    #[serde(deserialize_with = "time")]
    pub thin_paused: Option<Duration>,
    /// Paused for longer, it is removed.
    #[serde(deserialize_with = "time")]
    pub remove_paused: Option<Duration>,
    /// See [`ZoneRules`].
    #[serde(deserialize_with = "time")]
    pub versions_older_than: Option<Duration>,
    /// See [`ZoneRules`].
    pub keep_versions: Option<usize>,
    /// Its zones, by name.
    pub zone: BTreeMap<String, ZoneRules>,
}

/// What a store keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReapRules {
    /// What holds for every agent. In the file these keys stand beside those of the store.
    pub everybody: AgentRules,
    /// Agents, by name.
    pub agent: BTreeMap<String, AgentRules>,
    /// Bytes of needed frames, beyond which fewer generations of turns are kept.
    pub budget: Option<u64>,
    /// Shared zones that no agent mounts are removed.
    pub remove_unmounted: Option<bool>,
}

/// What a file says beside what holds for every agent.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct StoreRules {
    agent: BTreeMap<String, AgentRules>,
    #[serde(deserialize_with = "bytes")]
    budget: Option<u64>,
    remove_unmounted: Option<bool>,
}

/// The keys of [`StoreRules`].
const OF_STORE: [&str; 3] = ["agent", "budget", "remove-unmounted"];

/// The text of a policy, which is not too long.
fn read_policy(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(file)?.take(MAX_POLICY + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_POLICY {
        return Err(std::io::Error::other(format!("it has more than {MAX_POLICY} bytes")));
    }
    Ok(text)
}

/// The rules that a text holds.
fn read(text: &str) -> Result<ReapRules, Box<figment::Error>> {
    let all: Dict = Figment::from(Toml::string(text)).extract()?;
    let (store, everybody): (Dict, Dict) = all.into_iter().partition(|(key, _)| OF_STORE.contains(&&**key));
    let StoreRules { agent, budget, remove_unmounted } =
        Figment::from(Serialized::defaults(store)).extract()?;
    let everybody = Figment::from(Serialized::defaults(everybody)).extract()?;
    Ok(ReapRules { everybody, agent, budget, remove_unmounted })
}

impl ReapRules {
    /// These rules, with those of a file where these say nothing. A file that is missing says nothing.
    ///
    /// # Errors
    ///
    /// [`AgentError::Policy`] names the file and what is wrong in it.
    pub fn over(&self, file: &Path) -> Result<Self, AgentError> {
        let wrong = |reason: String| AgentError::Policy { file: file.to_path_buf(), reason };
        let text = match std::fs::metadata(file) {
            Ok(found) if !found.is_file() => return Err(wrong("it is no file".into())),
            Ok(_) => read_policy(file).map_err(|e| wrong(e.to_string()))?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(wrong(e.to_string())),
        };
        let others = read(&text).map_err(|e| {
            let place = e.path.join(".");
            wrong(if place.is_empty() { e.kind.to_string() } else { format!("{place}: {}", e.kind) })
        })?;
        let mut agent = others.agent;
        for (name, rules) in &self.agent {
            let known = agent.entry(name.clone()).or_default();
            *known = rules.or(known);
        }
        Ok(Self {
            everybody: self.everybody.or(&others.everybody),
            agent,
            budget: self.budget.or(others.budget),
            remove_unmounted: self.remove_unmounted.or(others.remove_unmounted),
        })
    }
}

impl AgentRules {
    /// These, with `others` where these say nothing.
    fn or(&self, others: &Self) -> Self {
        let mut zone = others.zone.clone();
        for (name, rules) in &self.zone {
            let known = zone.entry(name.clone()).or_default();
            known.versions_older_than = rules.versions_older_than.or(known.versions_older_than);
            known.keep_versions = rules.keep_versions.or(known.keep_versions);
        }
        Self {
            keep_turns: self.keep_turns.or(others.keep_turns),
            keep_failed: self.keep_failed.or(others.keep_failed),
            keep_paused: self.keep_paused.or(others.keep_paused),
            thin_paused: self.thin_paused.or(others.thin_paused),
            remove_paused: self.remove_paused.or(others.remove_paused),
            versions_older_than: self.versions_older_than.or(others.versions_older_than),
            keep_versions: self.keep_versions.or(others.keep_versions),
            zone,
        }
    }

    fn policy(&self) -> KeepPolicy {
        let all = KeepGenerations::default();
        let versions = |zone: Option<&ZoneRules>| VersionPolicy {
            older_than: zone.and_then(|it| it.versions_older_than).or(self.versions_older_than),
            newest: zone.and_then(|it| it.keep_versions).or(self.keep_versions).unwrap_or(0),
        };
        KeepPolicy {
            generations: KeepGenerations {
                turns: self.keep_turns.unwrap_or(all.turns),
                sides: self.keep_failed.unwrap_or(all.sides),
                pauses: self.keep_paused.unwrap_or(all.pauses),
            },
            thin_paused: self.thin_paused,
            remove_paused: self.remove_paused,
            versions: versions(None),
            zones: self.zone.iter().map(|(name, rules)| (name.clone(), versions(Some(rules)))).collect(),
        }
    }
}

/// The zones that the rules of a store may name.
struct KnownZones<'a> {
    store: &'a Store,
    file: &'a Path,
}

impl KnownZones<'_> {
    /// Refuses rules for zones that no agent has: they would hold for nothing, and less be kept than was meant. Zones
    /// that every agent has by default are known also where there are no agents.
    fn check(&self, rules: &ReapRules) -> Result<(), AgentError> {
        for (name, agent) in &rules.agent {
            if agent.zone.is_empty() {
                continue;
            }
            let Some(id) = self.store.find(name)? else { continue };
            let look = match self.store.look(id) {
                // which zones it has is not known
                Err(e) if e.is_of_one_agent() => continue,
                Err(StoreError::NoAgent(_)) => continue,
                look => look?,
            };
            for zone in look.zones.iter().filter(|it| agent.zone.contains_key(&it.name)) {
                self.expect_old_versions(&format!("agent.{name}.zone.{}", zone.name), zone.kind)?;
            }
            let zones: BTreeSet<_> = look.zones.into_iter().map(|it| it.name).collect();
            if let Some(zone) = agent.zone.keys().find(|zone| !zones.contains(*zone)) {
                return Err(self.unknown(&format!("agent.{name}.zone.{zone}: {name} has"), zone, &zones));
            }
        }
        let defaults = default_zones();
        for zone in defaults.iter().filter(|it| rules.everybody.zone.contains_key(&it.name)) {
            self.expect_old_versions(&format!("zone.{}", zone.name), zone.kind)?;
        }
        let mut zones: BTreeSet<_> = defaults.into_iter().map(|it| it.name).collect();
        let missing = |zones: &BTreeSet<String>| rules.everybody.zone.keys().find(|it| !zones.contains(*it));
        if missing(&zones).is_none() {
            return Ok(());
        }
        let agents = self.store.agents()?;
        for (name, id) in &agents {
            match self.store.look(*id) {
                Ok(look) => zones.extend(look.zones.into_iter().map(|it| it.name)),
                Err(e) if e.is_of_one_agent() => {
                    tracing::warn!(
                        "{name} does not read: rules for zones that no other agent has may be its"
                    );
                    return Ok(());
                }
                Err(StoreError::NoAgent(_)) => {}
                Err(e) => return Err(e.into()),
            }
        }
        match missing(&zones) {
            Some(zone) if !agents.is_empty() => {
                Err(self.unknown(&format!("zone.{zone}: there is"), zone, &zones))
            }
            _ => Ok(()),
        }
    }

    /// Refuses rules about versions for a zone of which none is ever given back.
    fn expect_old_versions(&self, place: &str, kind: ZoneKind) -> Result<(), AgentError> {
        if kind.reaping() == Reaping::OldVersions {
            return Ok(());
        }
        let why = if kind.keeps_versions() {
            "versions in it are never given back"
        } else {
            "it keeps no versions"
        };
        let reason = format!("{place}: this zone is {kind}: {why}, and no rule holds for them");
        Err(AgentError::Policy { file: self.file.to_path_buf(), reason })
    }

    #[cold]
    fn unknown(&self, place: &str, zone: &str, zones: &BTreeSet<String>) -> AgentError {
        let mut known: Vec<_> = zones.iter().take(MAX_TOLD).map(String::as_str).collect();
        if zones.len() > MAX_TOLD {
            known.push("...");
        }
        let reason = format!("{place} no zone `{zone}`, but {}", known.join(", "));
        AgentError::Policy { file: self.file.to_path_buf(), reason }
    }
}

impl Host {
    /// The policy that rules and the store's own [`POLICY_FILE`], or `file`, make together; what `rules` say goes
    /// before. Agents that are not there are passed over with a warning.
    ///
    /// # Errors
    ///
    /// [`AgentError::Policy`] names the file and what is wrong in it, also a zone that no agent has.
    pub fn reap_policy(&self, rules: &ReapRules, file: Option<PathBuf>) -> Result<ReapPolicy, AgentError> {
        self.shared.reap_policy(rules, file)
    }
}

impl HostShared {
    pub(super) fn reap_policy(
        &self,
        rules: &ReapRules,
        file: Option<PathBuf>,
    ) -> Result<ReapPolicy, AgentError> {
        let file = file.unwrap_or_else(|| self.options.folder.join(POLICY_FILE));
        let rules = rules.over(&file)?;
        let everybody = &rules.everybody;
        let store = self.store()?;
        KnownZones { store: &store, file: &file }.check(&rules)?;
        let mut policy = ReapPolicy {
            keep: everybody.policy(),
            budget: rules.budget,
            remove_unmounted: rules.remove_unmounted.unwrap_or(false),
            ..ReapPolicy::default()
        };
        for (name, agent) in &rules.agent {
            let Some(id) = store.find(name)? else {
                // one that has gone, or a name that is not spelt as the agent's: then it is kept less than was meant
                tracing::warn!("{}: there is no agent `{name}`: its rules hold for nobody", file.display());
                continue;
            };
            policy.agents.insert(id, agent.or(everybody).policy());
        }
        Ok(policy)
    }
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    size::span(&text).map(Some).map_err(D::Error::custom)
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Bytes {
    Number(u64),
    Text(String),
}

fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    match Bytes::deserialize(from)? {
        Bytes::Number(bytes) => Ok(Some(bytes)),
        Bytes::Text(text) => size::parse(&text).map(Some).map_err(D::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    fn read(text: &str) -> Result<ReapRules, AgentError> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join(POLICY_FILE);
        std::fs::write(&file, text).expect("a file");
        let everybody = AgentRules { keep_turns: Some(3), ..AgentRules::default() };
        let rules = ReapRules { everybody, ..ReapRules::default() };
        rules.over(&file)
    }

    #[test]
    fn an_agents_rules_stand_before_everybodys_and_a_zones_before_those() {
        let rules = read(
            r#"
            keep-turns = 50
            keep-failed = 7
            remove-paused = "365d"
            versions-older-than = "90d"
            budget = "2G"

            [zone.semantic]
            keep-versions = 4

            [agent.scout]
            thin-paused = "12h"
            keep-failed = 0
            [agent.scout.zone.semantic]
            versions-older-than = "1d"
            [agent.scout.zone.facts]
            keep-versions = 9
            "#,
        )
        .expect("rules");
        assert_eq!(
            (rules.everybody.keep_turns, rules.budget),
            (Some(3), Some(2 << 30)),
            "what is asked for goes before"
        );
        let everybody = &rules.everybody;
        let all = everybody.policy();
        assert_eq!((all.generations.turns, all.generations.sides), (3, 7));
        assert_eq!(all.generations.pauses, usize::MAX);
        let days = |days| Some(Duration::from_secs(days * DAY));
        assert_eq!(all.versions_in("semantic"), VersionPolicy { older_than: days(90), newest: 4 });
        assert_eq!(all.versions_in("facts"), VersionPolicy { older_than: days(90), newest: 0 });
        let scout = rules.agent["scout"].or(everybody).policy();
        assert_eq!((scout.generations.turns, scout.generations.sides), (3, 0));
        assert_eq!((scout.thin_paused, scout.remove_paused), (Some(Duration::from_hours(12)), days(365)));
        assert_eq!(scout.versions_in("semantic"), VersionPolicy { older_than: days(1), newest: 4 });
        assert_eq!(scout.versions_in("facts"), VersionPolicy { older_than: days(90), newest: 9 });
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (text, wrong) in [
            ("keep-turn = 3", "unknown field: found `keep-turn`"),
            ("[agent.scout]\nthin-paused = \"3 weeks\"", "agent.scout.thin-paused: `3 weeks` is no time"),
            ("budget = \"much\"", "budget: `much` is no size"),
            ("budget = -1", "budget: "),
            ("agent = 3", "agent: "),
            ("remove-unmounted = 3", "remove-unmounted: "),
            ("[zone.semantic]\nkeep-version = 1", "zone.semantic"),
            ("keep-turns = ", "TOML parse error"),
            ("[agent.scout.zone.semantic]\nkeep-turns = 1", "agent.scout.zone.semantic"),
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains(wrong) && error.contains(POLICY_FILE), "{text}: {error}");
        }
        let asked = BTreeMap::from([(
            "scout".to_string(),
            AgentRules { keep_failed: Some(1), ..AgentRules::default() },
        )]);
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join(POLICY_FILE);
        std::fs::write(&file, "[agent.scout]\nkeep-failed = 2\nkeep-turns = 5").expect("a file");
        let both = ReapRules { agent: asked, ..ReapRules::default() }.over(&file).expect("rules");
        let scout = &both.agent["scout"];
        assert_eq!(
            (scout.keep_failed, scout.keep_turns),
            (Some(1), Some(5)),
            "what is asked for goes before"
        );
        let missing = ReapRules::default().over(Path::new("/nowhere/at/all.toml")).expect("no rules");
        assert_eq!(missing, ReapRules::default());
    }
}
