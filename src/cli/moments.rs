//! Points in time and lengths of time as people write them: `2026-01-31T12:00:00.000`, `PT5M`.

/// Milliseconds since the Unix epoch of `YYYY-MM-DDTHH:MM:SS[.mmm]` with `Z`, `±HH:MM` or nothing (UTC) behind it.
pub(super) fn datetime(text: &str) -> Option<i64> {
    let (date, time) = text.split_once('T')?;
    let (time, offset_minutes) = zone(time)?;
    let mut date = date.splitn(3, '-');
    let (year, month, day) = (
        number(date.next()?, 4)?,
        number(date.next()?, 2)?,
        number(date.next()?, 2)?,
    );
    if !(1..=12).contains(&month) || !(1..=days_in(year, month)).contains(&day) {
        return None;
    }
    let day_ms = time_of_day(time)?;
    let days = days_since_epoch(year, month, day);
    Some(days * 86_400_000 + day_ms - offset_minutes * 60_000)
}

fn zone(time: &str) -> Option<(&str, i64)> {
    if let Some(utc) = time.strip_suffix('Z') {
        return Some((utc, 0));
    }
    let Some(at) = time.find(['+', '-']) else {
        return Some((time, 0));
    };
    let (time, offset) = time.split_at(at);
    let sign = if offset.starts_with('-') { -1 } else { 1 };
    let digits = offset[1..].replace(':', "");
    if digits.len() != 4 {
        return None;
    }
    let (hours, minutes) = (number(&digits[..2], 2)?, number(&digits[2..], 2)?);
    Some((time, sign * (hours * 60 + minutes)))
}

fn time_of_day(time: &str) -> Option<i64> {
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut clock = clock.splitn(3, ':');
    let (hour, minute) = (number(clock.next()?, 2)?, number(clock.next()?, 2)?);
    let second = number(clock.next().unwrap_or("00"), 2)?;
    if hour > 23 || minute > 59 || second > 59 || fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let millis: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    Some(((hour * 60 + minute) * 60 + second) * 1000 + millis)
}

/// A number of exactly so many digits.
fn number(text: &str, digits: usize) -> Option<i64> {
    let only_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    (only_digits && text.len() == digits).then(|| text.parse().ok())?
}

fn days_in(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let before = |year: i64| year * 365 + (year + 3) / 4 - (year + 99) / 100 + (year + 399) / 400;
    let months: i64 = (1..month).map(|month| days_in(year, month)).sum();
    before(year) - before(1970) + months + day - 1
}

/// Milliseconds of `P[nD][T[nH][nM][nS]]`.
pub(super) fn duration(text: &str) -> Option<i64> {
    let (days, time) = text.strip_prefix('P')?.split_once('T').map_or_else(
        || (text.strip_prefix('P').unwrap_or(""), ""),
        |(days, time)| (days, time),
    );
    if days.is_empty() && time.is_empty() {
        return None;
    }
    let days_ms = units(days, &[('D', 86_400_000)])?;
    let time_ms = units(time, &[('H', 3_600_000), ('M', 60_000), ('S', 1_000)])?;
    days_ms.checked_add(time_ms)
}

/// The sum of numbers with a unit behind them, in the order of `units`, each at most once.
fn units(text: &str, units: &[(char, i64)]) -> Option<i64> {
    let (mut rest, mut sum) = (text, 0_i64);
    for (unit, ms) in units {
        if let Some((count, after)) = rest.split_once(*unit) {
            let whole: f64 = count.parse().ok().filter(|count: &f64| *count >= 0.0)?;
            sum = sum.checked_add((whole * *ms as f64).round() as i64)?;
            rest = after;
        }
    }
    rest.is_empty().then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datetimes_are_read_with_and_without_a_zone() {
        for (text, ms) in [
            ("1970-01-01T00:00:00.000", 0),
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:30:15.5", 951_827_415_500),
            ("2026-01-31T12:00:00.123+02:00", 1_769_853_600_123),
            ("2026-01-31T12:00:00-0130", 1_769_866_200_000),
            ("1969-12-31T23:59:59.999", -1),
            ("2026-01-31T12:00", 1_769_860_800_000),
        ] {
            assert_eq!(datetime(text), Some(ms), "{text}");
        }
        for text in [
            "",
            "2026-01-31",
            "2026-02-29T00:00:00",
            "2026-13-01T00:00:00",
            "2026-01-01T24:00:00",
            "26-01-01T00:00:00",
            "2026-01-01T00:00:00.",
            "2026-01-01T00:00:00+1",
        ] {
            assert_eq!(datetime(text), None, "{text}");
        }
    }

    #[test]
    fn durations_are_those_of_iso_8601() {
        for (text, ms) in [
            ("PT5M", 300_000),
            ("P1D", 86_400_000),
            ("P1DT2H3M4.5S", 93_784_500),
            ("PT0S", 0),
        ] {
            assert_eq!(duration(text), Some(ms), "{text}");
        }
        for text in ["", "P", "PT", "5M", "PT5", "PT5D", "PT-5M", "PT5M3H"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
