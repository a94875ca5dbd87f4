//! Times as the names of versions and views have them: RFC 3339, in UTC, with nanoseconds.

use crate::id::Timestamp;

const DAY: u64 = 86_400;

/// `2026-11-29T19:45:37.123456789Z`.
pub(super) fn format(at: Timestamp) -> String {
    let (days, second) = (at.seconds() / DAY, at.seconds() % DAY);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:09}Z",
        second / 3600,
        second / 60 % 60,
        second % 60,
        at.nanoseconds()
    )
}

/// Reads what [`format`] writes, also with fewer digits behind the second, or none; at another offset from UTC, as
/// `+01:00`; and a date alone, which is the beginning of that day in UTC.
pub(super) fn parse(text: &[u8]) -> Option<Timestamp> {
    if text.len() == 10 {
        return parse_local(&[text, b"T00:00:00"].concat()).map(Timestamp);
    }
    if let Some(local) = text.strip_suffix(b"Z") {
        return parse_local(local).map(Timestamp);
    }
    let (local, offset) = text.split_last_chunk::<6>()?;
    let [sign, h1, h2, b':', m1, m2] = *offset else { return None };
    let number = |a: u8, b: u8, most: u64| {
        let both = a.is_ascii_digit() && b.is_ascii_digit();
        both.then(|| u64::from(a - b'0') * 10 + u64::from(b - b'0')).filter(|it| *it <= most)
    };
    let ahead = (number(h1, h2, 23)? * 60 + number(m1, m2, 59)?) * 60 * 1_000_000_000;
    let at = parse_local(local)?;
    match sign {
        b'+' => at.checked_sub(ahead).map(Timestamp),
        b'-' => at.checked_add(ahead).map(Timestamp),
        _ => None,
    }
}

/// Nanoseconds since 1970 began where clocks show this.
fn parse_local(text: &[u8]) -> Option<u64> {
    let (head, fraction) = match text.len() {
        19 => (text, &b""[..]),
        21.. if text[19] == b'.' && text.len() <= 29 => (&text[..19], &text[20..]),
        _ => return None,
    };
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if separators.iter().any(|(at, wanted)| head[*at] != *wanted) {
        return None;
    }
    let number = |digits: &[u8]| {
        digits
            .iter()
            .try_fold(0u64, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0')))
    };
    let part = |from: usize, to: usize| number(&head[from..to]);
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    let (hour, minute, second) = (part(11, 13)?, part(14, 16)?, part(17, 19)?);
    let days = days(year, month, day)?;
    if hour > 23 || minute > 59 || second > 59 || civil(days) != (year, month, day) {
        return None;
    }
    let nanoseconds = number(fraction)? * 10u64.pow(9 - fraction.len() as u32);
    let seconds = days * DAY + hour * 3600 + minute * 60 + second;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

/// Year, month and day of a day since 1970; the algorithms are Howard Hinnant's, of "chrono-compatible
/// low-level date algorithms", for days that are not before 1970.
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// The day since 1970 of a date from then on.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * 146_097 + day_of_era).checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_times() {
        for (at, text) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (1_000_000_000_000_000_001, "2001-09-09T01:46:40.000000001Z"),
            (1_709_164_800_000_000_000, "2024-02-29T00:00:00.000000000Z"),
            (u64::MAX, "2554-07-21T23:34:33.709551615Z"),
        ] {
            assert_eq!(format(Timestamp(at)), text);
        }
        let short = |text: &str| parse(text.as_bytes()).map(|at| at.0);
        assert_eq!(short("2001-09-09T01:46:40Z"), Some(1_000_000_000_000_000_000));
        assert_eq!(short("2001-09-09T01:46:40.5Z"), Some(1_000_000_000_500_000_000));
        assert_eq!(short("2001-09-09T03:16:40+01:30"), Some(1_000_000_000_000_000_000));
        assert_eq!(short("2001-09-08T20:46:40.5-05:00"), Some(1_000_000_000_500_000_000));
        assert_eq!(short("2001-09-09"), Some(1_000_000_000_000_000_000 - 6_400_000_000_000));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "Z",
            "2001-09-9",
            "2001-02-29",
            "2001-09-09T01:46:40",
            "2001-09-09T01:46:40+24:00",
            "2001-09-09T01:46:40+0100",
            "2001-09-09T01:46:40 01:00",
            "2001-09-09T01:46:40+01:60",
            "1970-01-01T00:00:00+01:00",
            "2001-09-09 01:46:40Z",
            "2001-02-29T00:00:00Z",
            "2001-13-01T00:00:00Z",
            "2001-00-01T00:00:00Z",
            "2001-01-00T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "2001-01-01T24:00:00Z",
            "2001-01-01T00:60:00Z",
            "2001-01-01T00:00:60Z",
            "2001-01-01T00:00:00.Z",
            "2001-01-01T00:00:00.1234567890Z",
            "+001-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z",
            "2001-01-01T00:00:00.12x456789Z",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_time_is_read_as_it_was_written(at: u64) {
            prop_assert_eq!(parse(format(Timestamp(at)).as_bytes()), Some(Timestamp(at)));
        }

        #[test]
        fn later_times_have_later_names(a: u64, b: u64) {
            prop_assert_eq!(a.cmp(&b), format(Timestamp(a)).cmp(&format(Timestamp(b))));
        }

        #[test]
        fn parsing_never_panics(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            parse(&text);
        }
    }
}
