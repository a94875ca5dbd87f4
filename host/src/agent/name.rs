//! Names of agents: the rules of git branch names, and nothing that cannot be seen.
//! Sources: `git help check-ref-format`; Unicode 16, `DerivedGeneralCategory.txt` (Cf) and
//! `DerivedCoreProperties.txt` (`Default_Ignorable_Code_Point`).

use std::fmt;

/// Bytes of a name, at most.
const MAX: usize = 200;

/// Characters that show nothing or reorder what is shown, so that two names could look the same:
/// first and last of each run.
const INVISIBLE: [(char, char); 26] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{202a}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{2800}', '\u{2800}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

fn is_invisible(c: char) -> bool {
    INVISIBLE.iter().any(|(first, last)| (*first..=*last).contains(&c))
}

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
        if name.chars().any(is_invisible) {
            return refuse("it contains a character that cannot be seen, or that reorders what is shown");
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

    #[test]
    fn what_cannot_be_seen_is_in_no_name() {
        for c in
            ['\u{ad}', '\u{200b}', '\u{200d}', '\u{202e}', '\u{2066}', '\u{feff}', '\u{61c}', '\u{e0041}']
        {
            let refused = AgentName::new(&format!("scri{c}be")).unwrap_err().to_string();
            assert!(refused.contains("cannot be seen"), "{refused}");
            assert!(!refused.contains(c), "{refused:?}");
        }
        for good in ["日本語", "עברית", "résumé", "re\u{301}sume\u{301}", "снова", "🐭"] {
            assert!(AgentName::new(good).is_ok(), "{good}");
        }
    }
}
