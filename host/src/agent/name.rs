//! Names of agents: the rules of git branch names.
//! Source: `git help check-ref-format`.

use std::fmt;

/// Bytes of a name, at most.
const MAX: usize = 200;

/// A name that an agent can have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentName(String);

/// Why a name is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` cannot be an agent's name: {reason}", name.escape_debug())]
pub struct InvalidName {
    name: String,
    reason: &'static str,
}

impl AgentName {
    /// Checks a name.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        let refuse = |reason| Err(InvalidName { name: name.chars().take(80).collect(), reason });
        if name.is_empty() {
            return refuse("it is empty");
        }
        if name.len() > MAX {
            return refuse("it is longer than 200 bytes");
        }
        if name == "@" || name == "HEAD" {
            return refuse("it is reserved");
        }
        if name.starts_with('-') {
            return refuse("it begins with `-`");
        }
        if name.starts_with('/') || name.ends_with('/') || name.contains("//") {
            return refuse("a part between slashes is empty");
        }
        if name.ends_with('.') || name.contains("..") {
            return refuse("it ends with a dot or has two in a row");
        }
        if name.contains("@{") {
            return refuse("it contains `@{`");
        }
        if name.split('/').any(|part| part.starts_with('.') || part.ends_with(".lock")) {
            return refuse("a part of it begins with a dot or ends with `.lock`");
        }
        if name.chars().any(|c| c.is_whitespace() || c.is_control() || "~^:?*[\\@".contains(c)) {
            return refuse("it contains a space, a control character or one of ~^:?*[\\@");
        }
        Ok(Self(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_of_branches() {
        for good in ["a", "notes", "team/notes-2", "x.y", "ümlaut", "UPPER_case", "a-b"] {
            assert!(AgentName::new(good).is_ok(), "{good}");
        }
        for bad in [
            "", "-x", "a b", "a..b", "a/", "/a", "a//b", ".a", "a/.b", "a.lock", "a~", "a^", "a:b", "a?",
            "a*", "a[", "a\\b", "a@{b", "@", "HEAD", "a\n", "a\x1b[2J", "a.", "a@3",
        ] {
            assert!(AgentName::new(bad).is_err(), "{bad:?}");
        }
        assert!(AgentName::new(&"x".repeat(201)).is_err());
    }
}
