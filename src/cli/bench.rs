//! `corelog bench`: the measure, in the broker's own binary, so that `--target percore` is what was built.

use super::failure::Failure;

pub(super) fn run(arguments: &corelog_perf::Arguments) -> Result<(), Failure> {
    corelog_perf::run(arguments, &["bench"]).map_err(|failure| Failure::Told(failure.to_string()))
}
