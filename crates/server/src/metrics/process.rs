//! What the operating system tells of the manager, under the names that Prometheus' own client libraries use. What
//! it doesn't tell is NaN.

use std::borrow::Cow;
use std::fs;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use nix::time::{ClockId, clock_gettime};

use super::sample::{Sample, Value};

fn number(number: Option<f64>) -> Vec<Sample> {
    vec![Sample { labels: Vec::new(), value: Value::Number(number.unwrap_or(f64::NAN)) }]
}

pub(super) fn build_info() -> Vec<Sample> {
    let labels = vec![Cow::Borrowed(env!("CARGO_PKG_VERSION"))];
    vec![Sample { labels, value: Value::Number(1.0) }]
}

pub(super) fn cpu() -> Vec<Sample> {
    let used = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).ok();
    number(used.map(|used| Duration::from(used).as_secs_f64()))
}

pub(super) fn memory() -> Vec<Sample> {
    number(resident_bytes().map(|bytes| bytes as f64))
}

/// Memory that the process uses, bytes.
pub(crate) fn resident_bytes() -> Option<u64> {
    resident(&fs::read_to_string("/proc/self/status").ok()?)
}

/// The line `VmRSS:     12345 kB` (proc(5)).
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1_024)
}

pub(super) fn open_fds() -> Vec<Sample> {
    // One of them reads the directory.
    number(fs::read_dir("/proc/self/fd").ok().map(|open| open.count() as f64 - 1.0))
}

pub(super) fn max_fds() -> Vec<Sample> {
    number(getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| soft as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operating_system_is_understood() {
        assert_eq!(resident("VmHWM:\t  9 kB\nVmRSS:\t    12 kB\n"), Some(12_288));
        assert_eq!(resident("VmRSS: much\n"), None);
        for tell in [cpu, memory, open_fds, max_fds] {
            let samples = tell();
            let [Sample { value: Value::Number(told), .. }] = samples.as_slice() else {
                panic!("{samples:?}")
            };
            assert!(*told > 0.0, "{told}");
        }
    }
}
