//! All metrics in one table: name, type, labels, meaning, and where the values come from. What `/metrics` shows and
//! `docs/metrics.md` are both made from it.

use super::gather::{self, Moment};
use super::process;
use super::sample::Sample;

/// What kind of value a metric has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A number that only grows, from zero on when the manager starts.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// Durations by buckets.
    Histogram,
}

/// Where values come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum From {
    /// From the relay's thread.
    Relay(fn(&Moment<'_>) -> Vec<Sample>),
    /// From the operating system.
    Process(fn() -> Vec<Sample>),
}

/// A metric.
#[derive(Debug)]
pub(super) struct Metric {
    /// Its name, with unit and, if it is a counter, `_total`.
    pub(super) name: &'static str,
    /// Its type.
    pub(super) kind: Kind,
    /// The names of its labels.
    pub(super) labels: &'static [&'static str],
    /// What it means: a sentence without quotation marks and backslashes, which the text formats would escape.
    pub(super) help: &'static str,
    /// Where its values come from.
    pub(super) from: From,
}

impl Metric {
    /// The name of its family: that of a counter lacks `_total`.
    pub(super) fn family(&self) -> &'static str {
        match self.kind {
            Kind::Counter => self.name.strip_suffix("_total").unwrap_or(self.name),
            Kind::Gauge | Kind::Histogram => self.name,
        }
    }

    /// Its unit, if it has one: the last word of its family's name.
    pub(super) fn unit(&self) -> Option<&'static str> {
        let (_, last) = self.family().rsplit_once('_')?;
        ["seconds", "bytes"].into_iter().find(|unit| *unit == last)
    }
}

/// Labels of what is shown by server.
const SITE: &[&str] = &["site", "role"];
/// Labels of what is shown by replica.
const REPLICA: &[&str] = &["site"];

/// All metrics, in the order in which they are shown.
pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "hihooi_statements_total",
        kind: Kind::Counter,
        labels: &["database", "site", "role", "reason", "level"],
        help: "Statements that have run, except BEGIN, COMMIT and ROLLBACK; a pipeline up to its Sync counts as one \
               statement.",
        from: From::Relay(gather::statements),
    },
    Metric {
        name: "hihooi_query_seconds",
        kind: Kind::Histogram,
        labels: SITE,
        help: "Time from sending a statement to the server until it was answered, of the statements in \
               hihooi_statements_total.",
        from: From::Relay(gather::query_seconds),
    },
    Metric {
        name: "hihooi_statements_running",
        kind: Kind::Gauge,
        labels: SITE,
        help: "Statements of clients that are running now.",
        from: From::Relay(gather::running),
    },
    Metric {
        name: "hihooi_commits_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Transactions that wrote something and were committed.",
        from: From::Relay(gather::commits),
    },
    Metric {
        name: "hihooi_errors_total",
        kind: Kind::Counter,
        labels: SITE,
        help: "Statements that failed, with an error of the server or because the connection to it was lost.",
        from: From::Relay(gather::errors),
    },
    Metric {
        name: "hihooi_discards_total",
        kind: Kind::Counter,
        labels: REPLICA,
        help: "Results of reads that were discarded, because they may have shown two transactions in a different \
               order than the primary did or were too long to be held back; the reads ran again.",
        from: From::Relay(gather::discards),
    },
    Metric {
        name: "hihooi_misjudged_total",
        kind: Kind::Counter,
        labels: REPLICA,
        help: "Statements that were sent to a replica as reads, but tried to write there; they then ran on the \
               primary.",
        from: From::Relay(gather::misjudged),
    },
    Metric {
        name: "hihooi_writes_in_flight",
        kind: Kind::Gauge,
        labels: &[],
        help: "Writes that may have been committed, but have not arrived in the replication stream. Until then, \
               reads of the same rows run on the primary or wait.",
        from: From::Relay(gather::writes_in_flight),
    },
    Metric {
        name: "hihooi_clients",
        kind: Kind::Gauge,
        labels: &["state"],
        help: "Sessions of clients, by what they are doing.",
        from: From::Relay(gather::clients),
    },
    Metric {
        name: "hihooi_sessions_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Sessions of clients that were opened.",
        from: From::Relay(gather::sessions),
    },
    Metric {
        name: "hihooi_server_up",
        kind: Kind::Gauge,
        labels: SITE,
        help: "1 if the server answered the last probe. Servers are probed twice within sites.timeout_ms.",
        from: From::Relay(gather::server_up),
    },
    Metric {
        name: "hihooi_server_connections",
        kind: Kind::Gauge,
        labels: &["site", "role", "state"],
        help: "Connections of all pools to the server.",
        from: From::Relay(gather::server_connections),
    },
    Metric {
        name: "hihooi_server_connections_max",
        kind: Kind::Gauge,
        labels: SITE,
        help: "How many connections all pools together may have to the server; NaN until it was asked for its \
               max_connections.",
        from: From::Relay(gather::server_connections_max),
    },
    Metric {
        name: "hihooi_pools",
        kind: Kind::Gauge,
        labels: SITE,
        help: "Pools of connections to the server, one for each role and database.",
        from: From::Relay(gather::pools),
    },
    Metric {
        name: "hihooi_pool_size",
        kind: Kind::Gauge,
        labels: &[],
        help: "How many connections one pool may have (pool.size).",
        from: From::Relay(gather::pool_size),
    },
    Metric {
        name: "hihooi_pool_used_max",
        kind: Kind::Gauge,
        labels: SITE,
        help: "Connections in use of the pool that has the most of them in use.",
        from: From::Relay(gather::pool_used_max),
    },
    Metric {
        name: "hihooi_pool_waiting",
        kind: Kind::Gauge,
        labels: SITE,
        help: "Sessions that are waiting for a connection to the server.",
        from: From::Relay(gather::pool_waiting),
    },
    Metric {
        name: "hihooi_pool_wait_seconds",
        kind: Kind::Histogram,
        labels: SITE,
        help: "Time that a session waited for a connection to the server, until it had one or was refused. Opening \
               a connection is part of it.",
        from: From::Relay(gather::pool_wait_seconds),
    },
    Metric {
        name: "hihooi_replica_state",
        kind: Kind::Gauge,
        labels: &["site", "state"],
        help: "1 for the state of the replica, 0 for the other states; as in SHOW REPLICAS.",
        from: From::Relay(gather::replica_state),
    },
    Metric {
        name: "hihooi_replica_readable",
        kind: Kind::Gauge,
        labels: REPLICA,
        help: "1 if the replica may serve reads; whether it is fresh enough is decided for each read.",
        from: From::Relay(gather::replica_readable),
    },
    Metric {
        name: "hihooi_replica_rebuilds_total",
        kind: Kind::Counter,
        labels: REPLICA,
        help: "How often the replica was replaced by a copy of the primary; hihooi.log tells why.",
        from: From::Relay(gather::replica_rebuilds),
    },
    Metric {
        name: "hihooi_replica_tables_set_aside",
        kind: Kind::Gauge,
        labels: REPLICA,
        help: "Tables whose rows can't be written at the replica; they are read elsewhere. SHOW REPLICAS gives the reason.",
        from: From::Relay(gather::tables_set_aside),
    },
    Metric {
        name: "hihooi_replica_lag_entries",
        kind: Kind::Gauge,
        labels: REPLICA,
        help: "Transactions in the log that the replica has not applied. The log lacks what the primary commits \
               while hihooi_stream_connected is 0.",
        from: From::Relay(gather::lag_entries),
    },
    Metric {
        name: "hihooi_replica_lag_seconds",
        kind: Kind::Gauge,
        labels: REPLICA,
        help: "Time since the oldest of these transactions was committed, 0 if there is none; NaN if that is not \
               known.",
        from: From::Relay(gather::lag_seconds),
    },
    Metric {
        name: "hihooi_replica_apply_seconds",
        kind: Kind::Gauge,
        labels: &["site", "quantile"],
        help: "Time from a commit at the primary until it was visible at the replica, of some thousand recent \
               transactions; NaN before the first.",
        from: From::Relay(gather::apply_seconds),
    },
    Metric {
        name: "hihooi_replica_applied_tsid",
        kind: Kind::Gauge,
        labels: REPLICA,
        help: "Position in the log up to which the replica has applied everything.",
        from: From::Relay(gather::applied_tsid),
    },
    Metric {
        name: "hihooi_replica_share_ratio",
        kind: Kind::Gauge,
        labels: REPLICA,
        help: "Part of its weight that the replica gets now: less than 1 after it came back, 0 while its reads fail or \
               are not answered.",
        from: From::Relay(gather::share_ratio),
    },
    Metric {
        name: "hihooi_replica_slowdown_ratio",
        kind: Kind::Gauge,
        labels: REPLICA,
        help: "Time that reads at the replica take, divided by the time that the same statements usually take.",
        from: From::Relay(gather::slowdown_ratio),
    },
    Metric {
        name: "hihooi_stream_connected",
        kind: Kind::Gauge,
        labels: &[],
        help: "1 while hihooi reads the replication stream of the primary.",
        from: From::Relay(gather::stream_connected),
    },
    Metric {
        name: "hihooi_certificate_end_timestamp_seconds",
        kind: Kind::Gauge,
        labels: &["file"],
        help: "When the certificate in a file ends, or the first of those that certify it: seconds since 1970. Those for \
               clients and those that servers are shown.",
        from: From::Relay(gather::certificate_ends),
    },
    Metric {
        name: "hihooi_slot_retained_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "WAL that the primary keeps for the replication slot, as of at most some seconds ago; NaN if the primary \
               can't be asked or the slot is lost.",
        from: From::Relay(gather::slot_retained_bytes),
    },
    Metric {
        name: "hihooi_log_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Size of the log on disk. Its newest file has 32 MiB from the beginning, of which only what was \
               written counts.",
        from: From::Relay(gather::log_bytes),
    },
    Metric {
        name: "hihooi_log_entries",
        kind: Kind::Gauge,
        labels: &[],
        help: "Transactions in the log. Those that all replicas have are removed from time to time.",
        from: From::Relay(gather::log_entries),
    },
    Metric {
        name: "hihooi_log_last_tsid",
        kind: Kind::Gauge,
        labels: &[],
        help: "Position of the last transaction in the log: its rate is the rate of writing transactions.",
        from: From::Relay(gather::log_last_tsid),
    },
    Metric {
        name: "hihooi_log_stalled",
        kind: Kind::Gauge,
        labels: &[],
        help: "1 while the log can't be written, because the disk is full for example; hihooi.log gives the reason.",
        from: From::Relay(gather::log_stalled),
    },
    Metric {
        name: "process_start_time_seconds",
        kind: Kind::Gauge,
        labels: &[],
        help: "When the manager was started, in seconds since 1970.",
        from: From::Relay(gather::start_time),
    },
    Metric {
        name: "hihooi_build_info",
        kind: Kind::Gauge,
        labels: &["version"],
        help: "Always 1; the label is the version of hihooi.",
        from: From::Process(process::build_info),
    },
    Metric {
        name: "process_cpu_seconds_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Processor time of the manager.",
        from: From::Process(process::cpu),
    },
    Metric {
        name: "process_resident_memory_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Memory of the manager.",
        from: From::Process(process::memory),
    },
    Metric {
        name: "process_open_fds",
        kind: Kind::Gauge,
        labels: &[],
        help: "Open file descriptors of the manager: one for each client and each server connection, and some more.",
        from: From::Process(process::open_fds),
    },
    Metric {
        name: "process_max_fds",
        kind: Kind::Gauge,
        labels: &[],
        help: "How many file descriptors the manager may open (ulimit -n).",
        from: From::Process(process::max_fds),
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write;
    use std::path::Path;

    use super::*;

    /// The heading of the part of docs/metrics.md that is made from the table.
    const HEADING: &str = "## The metrics\n";

    /// That part.
    fn part() -> String {
        let mut part = format!("{HEADING}\n| metric | type | labels | |\n|---|---|---|---|\n");
        for metric in METRICS {
            let Metric { name, kind, labels, help, .. } = metric;
            let kind = format!("{kind:?}").to_lowercase();
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            let _ = writeln!(part, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
        }
        part + "\n"
    }

    /// Part of docs/metrics.md is made from the table; `HIHOOI_BLESS=1` rewrites it.
    #[test]
    fn the_documentation_has_this_table() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        let known = std::fs::read_to_string(&file).expect("docs/metrics.md");
        let (before, rest) = known.split_once(HEADING).expect("its heading");
        let after = &rest[rest.find("\n## ").expect("another heading") + 1..];
        let wanted = format!("{before}{}{after}", part());
        if std::env::var_os("HIHOOI_BLESS").is_some() {
            std::fs::write(&file, &wanted).expect("docs/metrics.md is written");
        } else {
            assert_eq!(known, wanted, "docs/metrics.md: run this test with HIHOOI_BLESS=1");
        }
    }

    #[test]
    fn names_say_what_they_are() {
        let mut names = BTreeSet::new();
        for metric in METRICS {
            let Metric { name, kind, labels, help, .. } = metric;
            assert!(names.insert(metric.family()), "{name} twice");
            assert_eq!(*kind == Kind::Counter, name.ends_with("_total"), "{name}");
            assert!(*kind != Kind::Histogram || metric.unit() == Some("seconds"), "{name}");
            assert!(name.starts_with("hihooi_") || name.starts_with("process_"), "{name}");
            assert!(name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase()), "{name}");
            assert!(!labels.contains(&"le"), "{name}");
            assert!(
                help.ends_with('.') && !help.contains(['"', '\\', '\n', '|']),
                "{name}: {help}"
            );
        }
    }
}
