//! Sizes and times, as people write them.

use std::time::Duration;

use zone_vfs::id::Timestamp;

/// Not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no size: give bytes, or a number with K, M, G or T (powers of 1024; KiB, MiB, ... too)")]
pub struct InvalidSize(pub String);

/// Bytes: a number, with K, M, G or T for powers of 1024. `KB` and `KiB` mean the same as `K`, in
/// capitals or not.
pub fn parse(text: &str) -> Result<u64, InvalidSize> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err(InvalidSize(text.into())),
    };
    let number = digits.parse::<u64>().ok().filter(|_| !digits.starts_with('+'));
    number.and_then(|n| n.checked_mul(1 << shift)).ok_or_else(|| InvalidSize(text.into()))
}

/// Not a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no time: write 30d, 12h, 15m or 90s")]
pub struct InvalidSpan(pub String);

/// Reads a time such as `30d`, `12h`, `15m` or `90s`.
pub fn span(text: &str) -> Result<Duration, InvalidSpan> {
    let wrong = || InvalidSpan(text.into());
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

/// A moment as text, as in RFC 3339.
pub fn time(t: Timestamp) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(t.0)).map_or_else(|_| t.0.to_string(), |t| t.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_or_none() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("1k", 1 << 10),
            ("64M", 64 << 20),
            ("64MB", 64 << 20),
            ("64MiB", 64 << 20),
            ("2g", 2 << 30),
            ("1TiB", 1 << 40),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "many", "1.5G", "-1", "+1", "1 G", "1Q", "99999999999T", "1KK", "0x10"] {
            assert_eq!(parse(text), Err(InvalidSize(text.into())));
        }
    }

    #[test]
    fn times_have_units() {
        for (text, seconds) in [("0s", 0), ("90s", 90), ("15m", 900), ("12h", 43_200), ("30d", 2_592_000)] {
            assert_eq!(span(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "d", "30", "3w", "1.5h", "-1d", "99999999999999999999s", "1e3s", "\u{fc}"] {
            assert_eq!(span(text), Err(InvalidSpan(text.into())));
        }
    }
}
