//! Lists of cores: `0,2-5`.

use std::collections::BTreeSet;

/// No machine that this runs on has more; a typing error such as `0-99999999` must not be counted out.
const CORE_END: usize = 4096;

/// The cores of a list, sorted, each once.
pub fn parse(text: &str) -> Result<Vec<usize>, String> {
    let mut cores = BTreeSet::new();
    for range in text.split(',').map(str::trim) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let first = core(first, text)?;
        let last = core(last, text)?;
        if first > last {
            return Err(format!(
                "{range} is an empty range; give the smaller core first"
            ));
        }
        cores.extend(first..=last);
    }
    Ok(cores.into_iter().collect())
}

fn core(text: &str, list: &str) -> Result<usize, String> {
    match text.trim().parse() {
        Ok(core) if core < CORE_END => Ok(core),
        _ => Err(format!(
            "\"{list}\" is no list of cores; give one such as 0,2-5"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_single_cores_are_counted_once() {
        assert_eq!(parse("0,2-5").unwrap(), [0, 2, 3, 4, 5]);
        assert_eq!(parse(" 3 , 1-3,1").unwrap(), [1, 2, 3]);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["", ",", "a", "1-", "-1", "5-2", "0-99999999", "1,,2"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
