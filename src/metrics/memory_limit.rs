//! Memory limit of the container in which the process runs.
//!
//! In: the files with the limit of the control group of the process. Out: bytes, or 0 without a limit.

use std::fs;

/// Files of version 2 and of version 1 of control groups. Inside a container, its own group is the root.
const FILES: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
/// Smallest number that means no limit. Version 1 has a number near 2⁶³ without a limit, version 2 the word `max`.
const NO_LIMIT: f64 = 4_611_686_018_427_387_904.0;

/// Returns the limit in bytes, or 0 without one.
pub(super) fn of_container() -> f64 {
    FILES.iter().filter_map(|file| fs::read_to_string(file).ok()).find_map(|text| parse(&text)).unwrap_or(0.0)
}

fn parse(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|limit| *limit < NO_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn both_forms_of_no_limit_are_parsed() {
        assert_eq!(parse("536870912\n"), Some(536_870_912.0));
        assert_eq!((parse("max\n"), parse("9223372036854771712\n")), (None, None));
    }
}
