//! Metrics and health checks over HTTP (`docs/metrics.md`): their numbers are those of what clients do, and nobody
//! who uses or abuses their port disturbs clients (I8).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::harness::client::Session;
use crate::harness::{
    self, Cluster, HANG_S_MAX, METRICS_DISTANCE, Options, alone, assert_names, eventually, finish,
    free_port, ms, s, target_is_plain,
};

/// Who asks at intervals of this length is never told what was seen before.
const SEEN_AGAIN: Duration = Duration::from_millis(150);
/// What Prometheus sends.
const OPEN_METRICS: &str = "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.3,*/*;q=0.2\r\n";

/// An answer over HTTP.
#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    /// Reads all that comes on a connection.
    fn read(mut stream: TcpStream) -> std::io::Result<Reply> {
        stream.set_read_timeout(Some(s(HANG_S_MAX)))?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        let text = String::from_utf8(bytes).expect("UTF-8");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok(Reply { status: status.unwrap_or(0), head: head.to_lowercase(), body: body.to_owned() })
    }

    /// Sends bytes and reads what is answered until the other side closes; again if the relay had no time to answer.
    fn to(port: u16, bytes: &[u8]) -> std::io::Result<Reply> {
        let deadline = Instant::now() + s(HANG_S_MAX);
        loop {
            let mut stream = TcpStream::connect(("127.0.0.1", port))?;
            // It may close before it has read all.
            let _ = stream.write_all(bytes);
            let reply = Reply::read(stream)?;
            // (What HEAD is answered has no body.)
            let is_late =
                reply.status == 503 && ["the relay does not answer\n", ""].contains(&&*reply.body);
            if !is_late || Instant::now() > deadline {
                return Ok(reply);
            }
        }
    }
}

/// What metrics are told.
pub fn metrics_at(port: u16) -> String {
    get(port, "/metrics").body
}

/// What a GET of a path is answered.
fn get(port: u16, path: &str) -> Reply {
    get_with(port, path, "").expect("metrics are served")
}

fn get_with(port: u16, path: &str, headers: &str) -> std::io::Result<Reply> {
    Reply::to(port, format!("GET {path} HTTP/1.1\r\nHost: test\r\n{headers}\r\n").as_bytes())
}

impl Cluster {
    /// Where `up` serves metrics unless told otherwise.
    fn metrics_port(&self) -> u16 {
        self.port + METRICS_DISTANCE
    }

    /// All metrics as they are now.
    fn metrics(&self) -> Metrics {
        std::thread::sleep(SEEN_AGAIN);
        let reply = get_with(self.metrics_port(), "/metrics", OPEN_METRICS).expect("metrics");
        assert_eq!(reply.status, 200, "{reply:?}");
        Metrics::read(&reply.body, true)
    }
}

/// A text of metrics that was read by the rules of OpenMetrics 1.0 ("Text Format"), or of Prometheus' own format.
#[derive(Debug, Default)]
struct Metrics {
    /// By name: type, and whether there is a unit.
    families: BTreeMap<String, (String, bool)>,
    /// By name and labels.
    samples: BTreeMap<(String, BTreeMap<String, String>), f64>,
}

impl Metrics {
    /// Reads a text; whatever is wrong with it fails the test.
    fn read(text: &str, is_open: bool) -> Metrics {
        let mut metrics = Metrics::default();
        let mut family = String::new();
        let body = if is_open {
            text.strip_suffix("# EOF\n").expect("the end")
        } else {
            assert!(text.ends_with('\n'));
            text
        };
        for line in body.lines() {
            match line.strip_prefix("# ") {
                Some(comment) => metrics.describe(comment, &mut family, is_open),
                None => metrics.sample(line, &family, is_open),
            }
        }
        metrics.check_histograms();
        metrics
    }

    fn describe(&mut self, comment: &str, family: &mut String, is_open: bool) {
        let words: Vec<&str> = comment.splitn(3, ' ').collect();
        let [word, name, rest] = words[..] else { panic!("# {comment}") };
        match word {
            "HELP" => {
                assert!(!self.families.contains_key(name), "{name} is there twice");
                assert!(!rest.is_empty());
                *family = name.to_owned();
                self.families.insert(name.to_owned(), (String::new(), false));
            }
            "TYPE" => {
                assert_eq!(name, family);
                assert!(["counter", "gauge", "histogram"].contains(&rest), "{comment}");
                self.families.get_mut(name).expect("HELP comes first").0 = rest.to_owned();
            }
            "UNIT" if is_open => {
                assert_eq!(name, family);
                assert!(name.ends_with(&format!("_{rest}")), "{comment}");
                self.families.get_mut(name).expect("HELP comes first").1 = true;
            }
            _ => panic!("# {comment}"),
        }
    }

    fn sample(&mut self, line: &str, family: &str, is_open: bool) {
        let (name, labels, value) = parts(line);
        let suffix = name.strip_prefix(family).unwrap_or_else(|| panic!("{line} in {family}"));
        let (kind, has_unit) = &self.families[family];
        let fits = match (kind.as_str(), suffix) {
            ("counter", "_total") => is_open,
            ("counter", "") => !is_open && family.ends_with("_total"),
            ("gauge", "") => true,
            ("histogram", "_sum" | "_count") => !labels.contains_key("le"),
            ("histogram", "_bucket") => labels.contains_key("le"),
            _ => false,
        };
        assert!(fits, "{line} in {kind} {family}");
        let is_dimension = family.ends_with("_seconds") || family.ends_with("_bytes");
        assert!(!is_open || *has_unit == is_dimension, "{family}");
        assert!(kind == "gauge" || value >= 0.0, "{line}");
        let before = self.samples.insert((name, labels), value);
        assert_eq!(before, None, "{line} is there twice");
    }

    /// Buckets only grow, up to the number of all.
    fn check_histograms(&self) {
        let mut buckets: BTreeMap<_, Vec<(f64, f64)>> = BTreeMap::new();
        for ((name, labels), value) in &self.samples {
            let Some(family) = name.strip_suffix("_bucket") else { continue };
            let mut others = labels.clone();
            let bound = others.remove("le").expect("checked");
            let bound = if bound == "+Inf" { f64::INFINITY } else { number(&bound) };
            buckets.entry((family.to_owned(), others)).or_default().push((bound, *value));
        }
        for ((family, labels), mut buckets) in buckets {
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(buckets.is_sorted_by_key(|bucket| bucket.1), "{family} {labels:?} {buckets:?}");
            let (last, count) = *buckets.last().expect("one at least");
            assert!(last.is_infinite(), "{family}");
            assert_eq!(count, self.samples[&(format!("{family}_count"), labels)], "{family}");
        }
    }

    /// The sum of the samples of a name that have these labels.
    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |known: &BTreeMap<String, String>| {
            labels.iter().all(|(label, value)| known.get(*label).is_some_and(|is| is == value))
        };
        let found = self.samples.iter().filter(|((known, known_labels), _)| {
            assert!(
                known != name || labels.iter().all(|(label, _)| known_labels.contains_key(*label))
            );
            known == name && has(known_labels)
        });
        let mut values = found.map(|(_, value)| *value).peekable();
        assert!(values.peek().is_some(), "{name} {labels:?} is not there");
        values.sum()
    }

    /// The only sample of a name.
    fn value(&self, name: &str) -> f64 {
        self.sum(name, &[])
    }

    /// The values that a label has anywhere.
    fn values_of(&self, label: &str) -> BTreeSet<&str> {
        let labels = self.samples.keys().filter_map(|(_, labels)| labels.get(label));
        labels.map(String::as_str).collect()
    }

    /// The names of the samples.
    fn names(&self) -> BTreeSet<&str> {
        self.samples.keys().map(|(name, _)| name.as_str()).collect()
    }
}

/// Name, labels and value of a sample.
fn parts(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let end = line.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').expect("a value");
    let (name, rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    let Some(mut rest) = rest.strip_prefix('{') else {
        return (name.to_owned(), labels, number(rest.strip_prefix(' ').expect("one space")));
    };
    loop {
        let (label, quoted) = rest.split_once("=\"").expect("a label");
        assert!(label.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{line}");
        let (value, after) = unquoted(quoted);
        assert_eq!(labels.insert(label.to_owned(), value), None, "{line}");
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None => {
                return (name.to_owned(), labels, number(after.strip_prefix("} ").expect(line)));
            }
        }
    }
}

/// A label's value up to its closing quotation mark, and what is behind.
fn unquoted(text: &str) -> (String, &str) {
    let (mut value, mut letters) = (String::new(), text.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match letters.next() {
                Some((_, 'n')) => '\n',
                Some((_, escaped @ ('"' | '\\'))) => escaped,
                other => panic!("{other:?} is escaped in {text}"),
            }),
            letter => value.push(letter),
        }
    }
    panic!("no end: {text}")
}

fn number(text: &str) -> f64 {
    assert!(!text.is_empty() && !text.contains(' '), "{text:?}");
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(path).expect("a document")
}

/// Before anything has happened, all that can happen is there, and is documented; in both formats.
#[test]
fn everything_is_there_from_the_beginning_and_documented() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(2));
    let (port, mut seen) = (cluster.metrics_port(), Metrics::default());
    eventually("all servers are there", || {
        seen = cluster.metrics();
        seen.sum("hihooi_replica_state", &[("state", "serving")]) == 2.0
            && seen.sum("hihooi_server_up", &[]) == 3.0
            && seen.value("hihooi_stream_connected") == 1.0
    });
    for (site, reason) in [("primary", "write"), ("primary", "unsafe"), ("replica2", "waited")] {
        let labels = [("site", site), ("reason", reason), ("level", "sync")];
        assert_eq!(seen.sum("hihooi_statements_total", &labels), 0.0);
    }
    assert_eq!(seen.sum("hihooi_query_seconds_count", &[("role", "replica")]), 0.0);
    assert_eq!(seen.sum("hihooi_errors_total", &[("site", "replica1")]), 0.0);
    assert_eq!(seen.sum("hihooi_discards_total", &[("site", "replica1")]), 0.0);
    assert_eq!(seen.sum("hihooi_clients", &[("state", "in transaction")]), 0.0);
    assert_eq!(seen.sum("hihooi_replica_state", &[]), 2.0);
    let about_now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let runs_for =
        about_now.expect("after 1970").as_secs_f64() - seen.value("process_start_time_seconds");
    assert!((0.0..600.0).contains(&runs_for), "{runs_for}");
    for name in ["hihooi_log_bytes", "process_resident_memory_bytes", "process_open_fds"] {
        assert!(seen.value(name) > 0.0, "{name}");
    }
    eventually("the primary has said what it keeps", || {
        cluster.metrics().value("hihooi_slot_retained_bytes") > 0.0
    });

    let reply = get_with(port, "/metrics", OPEN_METRICS).expect("metrics");
    assert_names(&reply.head, &["content-type: application/openmetrics-text; version=1.0.0"]);
    let reply = get(port, "/metrics");
    assert_names(&reply.head, &["content-type: text/plain; version=0.0.4"]);
    let plain = Metrics::read(&reply.body, false);
    assert_eq!(plain.names(), seen.names());
    let plain: Vec<_> = plain.samples.keys().collect();
    assert_eq!(plain, seen.samples.keys().collect::<Vec<_>>());

    // By the names under which they are found: a counter's has its suffix.
    let name = |(family, (kind, _)): (&String, &(String, bool))| {
        if kind == "counter" { format!("{family}_total") } else { family.clone() }
    };
    let known: BTreeSet<String> = seen.families.iter().map(name).collect();
    let page = document("metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let rows = rows
        .filter(|(_, rest)| ["counter", "gauge", "histogram"].iter().any(|k| rest.starts_with(k)));
    let documented: BTreeSet<String> = rows.map(|(name, _)| name.to_owned()).collect();
    assert_eq!(known, documented, "docs/metrics.md has all metrics and no others");
    for word in words(&page).chain(words(&document("grafana.json"))) {
        let is_known = known.contains(word) || seen.names().contains(word);
        assert!(is_known, "{word} is no metric");
    }
    for name in known {
        let is_shown = words(&document("grafana.json")).any(|word| word.starts_with(&name));
        assert!(is_shown, "the dashboard lacks {name}");
    }
}

/// What looks like a metric's name.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("hihooi_") || word.starts_with("process_"))
}

/// A dashboard as Grafana's documentation has them ("Dashboard JSON model").
#[test]
fn the_dashboard_is_one() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&document("grafana.json")).expect("JSON");
    assert_eq!(dashboard["title"], "hihooi");
    assert!(dashboard["schemaVersion"].as_u64().is_some_and(|version| version >= 36));
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let variables: Vec<_> =
        variables.iter().map(|known| known["name"].as_str().expect("a name")).collect();
    assert_eq!(variables, ["datasource", "job"]);
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().expect("panels") {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{panel}");
        let place = |side: &str| panel["gridPos"][side].as_u64().expect("a number");
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(x < 24 && taken.insert((x, y)), "{} overlaps another", panel["title"]);
            }
        }
        let kind = panel["type"].as_str().expect("a type");
        assert!(["row", "stat", "timeseries"].contains(&kind), "{kind}");
        let targets = panel["targets"].as_array().map_or(&[][..], Vec::as_slice);
        assert_eq!(targets.is_empty(), kind == "row", "{panel}");
        for target in targets {
            assert_eq!(target["datasource"]["uid"], "${datasource}");
            let query = target["expr"].as_str().expect("a query");
            let is_closed =
                |open, close| query.matches(open).count() == query.matches(close).count();
            assert!(is_closed('(', ')') && is_closed('{', '}') && is_closed('[', ']'), "{query}");
            assert_eq!(words(query).count(), query.matches("{job=\"$job\"}").count(), "{query}");
        }
    }
}

const LEVELS: [&str; 6] = ["sync", "strict", "gssi", "rsi-pc", "session", "weak-si"];

/// Counters are those of the statements that ran, by site, reason and level.
#[test]
fn counters_count_what_ran() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(2));
    let mut session = cluster.connect();
    session.run("CREATE TABLE counted (id int PRIMARY KEY)");
    session.run("CREATE DATABASE aside");
    cluster.caught_up();
    let before = cluster.metrics();
    (0..20).for_each(|id| drop(session.run(&format!("INSERT INTO counted VALUES ({id})"))));
    session.error("INSERT INTO counted VALUES (1)");
    cluster.caught_up();
    let mut ran = count_reads(&mut session, "SELECT * FROM counted", 30, "gssi");
    session.run("SET hihooi.consistency = 'weak-si'");
    ran.extend(count_reads(&mut session, "SELECT * FROM counted", 20, "weak-si"));
    for level in LEVELS {
        let hinted = format!("/* hihooi: consistency={level} */ SELECT * FROM counted");
        ran.extend(count_reads(&mut session, &hinted, 3, level));
        session.run("BEGIN");
        session.run(&format!("SET LOCAL hihooi.consistency = '{level}'"));
        ran.extend(count_reads(&mut session, "SELECT * FROM counted", 3, level));
        session.run("COMMIT");
        ran.extend(count_reads(&mut session, "SELECT * FROM counted", 1, "weak-si"));
        let options = format!("-c hihooi.consistency={level}");
        let mut started = cluster.connect_with(&[("options", &options)]);
        ran.extend(count_reads(&mut started, "SELECT * FROM counted", 3, level));
    }
    session.run("BEGIN");
    session.run("ROLLBACK");
    let mut aside = cluster.connect_with(&[("database", "aside")]);
    (0..5).for_each(|_| drop(aside.run("SELECT 1")));
    let idle = [("state", "idle")];
    eventually("the others are gone", || cluster.metrics().sum("hihooi_clients", &idle) == 2.0);
    let after = cluster.metrics();
    let more =
        |name: &str, labels: &[(&str, &str)]| after.sum(name, labels) - before.sum(name, labels);

    let statements = "hihooi_statements_total";
    let written = [("reason", "write"), ("level", "gssi"), ("database", "postgres")];
    assert_eq!(more(statements, &written), 21.0);
    for ((site, reason, level), count) in counted(&ran) {
        let role = if site == "primary" { "primary" } else { "replica" };
        let labels = [
            ("site", site),
            ("role", role),
            ("reason", reason),
            ("level", level),
            ("database", "postgres"),
        ];
        assert_eq!(more(statements, &labels), count, "{labels:?}");
    }
    let at_replicas = ran.iter().filter(|(site, ..)| site != "primary").count();
    assert!(at_replicas > 0, "{ran:?}");
    assert_eq!(more(statements, &[("role", "replica")]), at_replicas as f64);
    assert_eq!(more(statements, &[("database", "(other)")]), 5.0);
    let all = 21 + ran.len() + 5;
    assert_eq!(more(statements, &[]), all as f64);
    assert_eq!(more("hihooi_query_seconds_count", &[]), all as f64);
    assert_eq!(more("hihooi_query_seconds_count", &[("role", "replica")]), at_replicas as f64);
    assert!(more("hihooi_query_seconds_sum", &[("role", "primary")]) > 0.0);
    assert_eq!(more("hihooi_errors_total", &[("site", "primary")]), 1.0);
    assert!(more("hihooi_commits_total", &[]) >= 20.0);
    assert_eq!(more("hihooi_sessions_total", &[]), 1.0 + LEVELS.len() as f64);
    assert!(more("hihooi_pool_wait_seconds_count", &[]) >= all as f64);
    assert!(after.value("hihooi_log_last_tsid") >= before.value("hihooi_log_last_tsid") + 20.0);
    assert!(after.value("hihooi_log_bytes") > before.value("hihooi_log_bytes"));
    assert_eq!(after.sum("hihooi_server_connections", &[("state", "used")]), 0.0);
    assert!(
        after.sum("hihooi_server_connections", &[("site", "primary"), ("state", "idle")]) >= 2.0
    );

    // What takes long is in the right buckets.
    session.run("/* hihooi: primary */ SELECT pg_sleep(0.3)");
    let last = cluster.metrics();
    let within = |metrics: &Metrics, le| {
        metrics.sum("hihooi_query_seconds_bucket", &[("site", "primary"), ("le", le)])
    };
    assert_eq!(within(&last, "0.25"), within(&after, "0.25"));
    assert_eq!(within(&last, "+Inf"), within(&after, "+Inf") + 1.0);
}

/// Where and why reads ran, at a level, until enough of them did.
fn count_reads(
    session: &mut Session,
    text: &str,
    count: usize,
    level: &'static str,
) -> Vec<(String, String, &'static str)> {
    let read = |_| {
        session.run(text);
        let route = session.route();
        (route.site().to_owned(), route.reason().to_owned(), level)
    };
    (0..count).map(read).collect()
}

fn counted<'a>(
    ran: &'a [(String, String, &'static str)],
) -> BTreeMap<(&'a str, &'a str, &'static str), f64> {
    let mut counts = BTreeMap::new();
    for (site, reason, level) in ran {
        *counts.entry((site.as_str(), reason.as_str(), *level)).or_default() += 1.0;
    }
    counts
}

/// Whatever clients call themselves, it is no label.
#[test]
fn labels_are_not_what_clients_choose() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut session = cluster.connect();
    session.run(r#"CREATE ROLE "odd ""role\" LOGIN"#);
    session.run(r#"CREATE DATABASE "odd ""database\""#);
    let before = cluster.metrics();
    let named =
        [("user", "odd \"role\\"), ("database", "odd \"database\\"), ("application_name", "odd\"")];
    let mut odd = cluster.connect_with(&named);
    odd.run("SELECT 1");
    let after = cluster.metrics();
    assert_eq!(after.samples.keys().collect::<Vec<_>>(), before.samples.keys().collect::<Vec<_>>());
    assert_eq!(after.values_of("database"), BTreeSet::from(["(other)", "postgres"]));
    assert_eq!(after.sum("hihooi_statements_total", &[("database", "(other)")]), 1.0);
}

#[test]
fn lag_is_that_of_a_paused_replica() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(2));
    let mut session = cluster.connect();
    session.run("CREATE TABLE lagging (id int PRIMARY KEY)");
    cluster.caught_up();
    let lag = |metrics: &Metrics, site, what: &str| {
        metrics.sum(&format!("hihooi_replica_lag_{what}"), &[("site", site)])
    };
    let before = cluster.metrics();
    assert_eq!(lag(&before, "replica1", "entries"), 0.0);
    assert_eq!(lag(&before, "replica1", "seconds"), 0.0);
    cluster.command("PAUSE REPLICA replica1");
    (0..10).for_each(|id| drop(session.run(&format!("INSERT INTO lagging VALUES ({id})"))));
    let began = Instant::now();
    eventually("the lag is shown, and grows with time", || {
        let seen = cluster.metrics();
        let seconds = lag(&seen, "replica1", "seconds");
        // (Unknown if reading the log took too long.)
        let is_possible = seconds.is_nan() || seconds < began.elapsed().as_secs_f64() + 30.0;
        assert!(is_possible, "{seconds}");
        lag(&seen, "replica1", "entries") == 10.0 && seconds >= 1.0
    });
    let states = |metrics: &Metrics| {
        ["paused", "serving"].map(|state| {
            metrics.sum("hihooi_replica_state", &[("site", "replica1"), ("state", state)])
        })
    };
    eventually("it is paused, and can be read", || {
        let seen = cluster.metrics();
        let readable = seen.sum("hihooi_replica_readable", &[("site", "replica1")]);
        (states(&seen), readable) == ([1.0, 0.0], 1.0)
    });
    eventually("the other follows", || lag(&cluster.metrics(), "replica2", "entries") == 0.0);
    cluster.command("RESUME REPLICA replica1");
    cluster.caught_up();
    eventually("it serves without lag", || {
        let seen = cluster.metrics();
        let lags = ["entries", "seconds"].map(|what| lag(&seen, "replica1", what));
        (states(&seen), lags) == ([0.0, 1.0], [0.0, 0.0])
    });
}

/// Sessions that wait for a connection are seen while they do.
#[test]
fn who_waits_for_a_connection_is_counted() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1).env("HIHOOI_POOL_SIZE", "1"));
    let mut first = cluster.connect();
    first.run("CREATE TABLE waited (id int)");
    first.run("BEGIN");
    first.run("INSERT INTO waited VALUES (1)");
    let mut second = cluster.connect();
    let waiting = std::thread::spawn(move || second.run("INSERT INTO waited VALUES (2)"));
    let at_primary = |metrics: &Metrics, name: &str| metrics.sum(name, &[("site", "primary")]);
    eventually("a session waits", || at_primary(&cluster.metrics(), "hihooi_pool_waiting") == 1.0);
    std::thread::sleep(ms(300));
    let seen = cluster.metrics();
    assert_eq!(seen.sum("hihooi_clients", &[("state", "in transaction")]), 1.0);
    assert_eq!(seen.sum("hihooi_clients", &[("state", "active")]), 1.0);
    assert_eq!(
        (at_primary(&seen, "hihooi_pool_used_max"), seen.value("hihooi_pool_size")),
        (1.0, 1.0)
    );
    first.run("COMMIT");
    waiting.join().expect("it got its turn");
    let after = cluster.metrics();
    assert_eq!(at_primary(&after, "hihooi_pool_waiting"), 0.0);
    let waited = |metrics| at_primary(metrics, "hihooi_pool_wait_seconds_sum");
    assert!(waited(&after) - waited(&seen) >= 0.3, "{} {}", waited(&seen), waited(&after));
}

/// The primary is gone, or frozen: clients can't be served, which is no reason to restart hihooi.
#[test]
fn readiness_is_the_primarys_and_liveness_is_not() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let port = free_port();
    let mut options = Options::replicas(1).noticing_silence();
    options.arguments =
        ["--metrics-listen", &format!("127.0.0.1:{port}")].map(String::from).to_vec();
    let cluster = Cluster::start(options);
    let ready = || {
        let (ready, live) = (get(port, "/readyz"), get(port, "/livez"));
        assert_eq!((live.status, live.body.as_str()), (200, "ok\n"));
        std::thread::sleep(ms(20));
        (ready.status, ready.body)
    };
    let good = (200, "ok\n".to_owned());
    let until_good = |what: &str| eventually(what, || ready() == good);
    until_good("all is well");

    // Frozen.
    let frozen = cluster.freeze("primary");
    let why = (503, "the primary does not answer\n".to_owned());
    eventually("the primary's silence is noticed", || ready() == why);
    drop(frozen);
    until_good("the primary answers again");

    // Stopped. Nobody starts it again: only the manager runs.
    cluster.kill_manager();
    cluster.serve();
    until_good("another manager serves");
    let mut client = cluster.connect();
    cluster.kill_site("primary");
    let why = (503, "the primary does not accept connections\n".to_owned());
    eventually("the primary's end is noticed", || ready() == why);
    for _ in 0..50 {
        assert_eq!(ready(), why);
    }
    let seen = || {
        let reply = get_with(port, "/metrics", OPEN_METRICS).expect("metrics");
        Metrics::read(&reply.body, true)
    };
    eventually("the replica is there, the primary and its stream are not", || {
        let seen = seen();
        let up = ["primary", "replica"].map(|role| seen.sum("hihooi_server_up", &[("role", role)]));
        (up, seen.value("hihooi_stream_connected")) == ([0.0, 1.0], 0.0)
    });
    eventually("nobody knows what the primary keeps", || {
        std::thread::sleep(ms(50));
        seen().value("hihooi_slot_retained_bytes").is_nan()
    });
    assert!(client.simple("CREATE TABLE lost (id int)").is_err());

    cluster.stop_manager(Signal::SIGTERM);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "nothing is served any more");
    cluster.up();
    until_good("the primary runs again");
    cluster.psql("CREATE TABLE back (id int)");
}

/// A port that is taken is said, and nothing else changes; what is asked for explicitly, `serve` wants.
#[test]
fn a_taken_port_is_said_and_ends_nothing() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let taken = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let taken_at = taken.local_addr().expect("bound").to_string();
    let mut options = Options::replicas(1);
    options.environment.push(("HIHOOI_METRICS_LISTEN".to_owned(), taken_at.clone()));
    let cluster = Cluster::start(options);
    cluster.psql("CREATE TABLE served (id int)");
    assert_eq!(cluster.logged(&["metrics are not served", &taken_at, "in use"]), 1);
    let shown = |cluster: &Cluster| {
        let config = cluster.admin().run("SHOW CONFIG");
        let row = config.records().into_iter().find(|row| row["key"] == "metrics.listen");
        row.expect("every key is shown")["value"].clone()
    };
    assert_eq!(shown(&cluster), "off");
    cluster.kill_manager();

    // On standard output, too.
    let mut command = cluster.up_command();
    let out = cluster.data().join("out");
    command.stdout(std::fs::File::create(&out).expect("own folder")).stderr(Stdio::null());
    let mut manager = command.spawn().expect("hihooi up");
    std::fs::write(cluster.data().join("../manager.pid"), manager.id().to_string())
        .expect("own folder");
    let said = || std::fs::read_to_string(&out).unwrap_or_default();
    eventually("ready", || said().contains("ready at postgres://"));
    let line = said().lines().find(|line| line.contains("metrics")).expect("a line").to_owned();
    assert_names(
        &line,
        &["hihooi: metrics are not served", &taken_at, "in use", "--metrics-listen"],
    );
    manager.kill().expect("own child");
    manager.wait().expect("own child");

    let mut serve = Command::new(harness::program());
    serve
        .args(["serve", "--metrics-listen", &taken_at, "--config"])
        .arg(cluster.data().join("hihooi.toml"));
    let refused = finish(&mut serve);
    assert!(!refused.status.success());
    let line = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_names(&line, &["cannot listen on", &taken_at, "in use", "--metrics-listen"]);
    assert_eq!(line.lines().count(), 1, "{line}");
    drop(taken);
    cluster.up();
    assert_eq!(
        get(taken_at.rsplit(':').next().expect("a port").parse().expect("one"), "/livez").status,
        200
    );
    assert_eq!(shown(&cluster), taken_at);
}

/// Nobody is served who is not wanted.
#[test]
fn metrics_can_be_switched_off() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    for off in ["off", ""] {
        let cluster = Cluster::start(Options::replicas(0).env("HIHOOI_METRICS_LISTEN", off));
        assert!(TcpStream::connect(("127.0.0.1", cluster.metrics_port())).is_err(), "{off:?}");
        assert!(cluster.connect().value("SELECT 1") == "1");
    }
    let folder = harness::reaper::Folder::new();
    let mut wrong = Command::new(harness::program());
    wrong.args([
        "up",
        "--listen",
        &format!("127.0.0.1:{}", free_port()),
        "--metrics-listen",
        "nonsense",
    ]);
    let refused = finish(wrong.arg("--data").arg(folder.path().join("data")));
    assert!(!refused.status.success());
    assert_names(&String::from_utf8_lossy(&refused.stderr), &["metrics.listen", "nonsense", "off"]);
    assert!(!folder.path().join("data").exists());
}

/// Whatever is sent to the port is answered or cut off, and the next one is served.
#[test]
fn bad_requests_are_refused() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(0));
    let port = cluster.metrics_port();
    let ask = |text: &str| Reply::to(port, text.as_bytes()).expect("an answer");
    for path in ["/", "/metrics/", "/livez/x", "/favicon.ico", "/..%2fmetrics", "*"] {
        assert_eq!(get(port, path).status, 404, "{path}");
    }
    assert_eq!(get(port, "/metrics?collect=all").status, 200);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"] {
        let refused =
            ask(&format!("{method} /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"));
        assert_eq!(refused.status, 405, "{refused:?}");
        assert_names(&refused.head, &["allow: get, head"]);
    }
    for path in ["/metrics", "/livez", "/readyz"] {
        let head = ask(&format!("HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert_eq!((head.status, head.body.as_str()), (200, ""), "{head:?}");
        assert_eq!(ask(&format!("GET {path} HTTP/1.0\r\n\r\n")).status, 200);
    }
    let long = "x".repeat(100_000);
    let many: String = (0..1_000).map(|n| format!("h{n}: x\r\n")).collect();
    let mut startup = vec![0, 0, 0, 8, 4, 210, 22, 47]; // PostgreSQL's request for TLS
    startup.resize(64, 0);
    for (what, bytes) in [
        ("no HTTP", b"hello\r\n\r\n".to_vec()),
        ("zeros", vec![0; 1_000]),
        ("a client of PostgreSQL", startup),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
        ("a long path", format!("GET /{long} HTTP/1.1\r\n\r\n").into_bytes()),
        ("a long header", format!("GET /metrics HTTP/1.1\r\na: {long}\r\n\r\n").into_bytes()),
        ("many headers", format!("GET /metrics HTTP/1.1\r\n{many}\r\n").into_bytes()),
        (
            "two lengths",
            b"GET /livez HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".to_vec(),
        ),
    ] {
        // Closing without having read all may reset the connection.
        if let Ok(reply) = Reply::to(port, &bytes) {
            assert!(reply.status == 0 || (400..500).contains(&reply.status), "{what}: {reply:?}");
        }
        assert_eq!(get(port, "/livez").status, 200, "{what}");
    }
    // One request a connection, also of those who send several.
    let two = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2);
    assert_eq!(ask(&two).body, "ok\n");
    assert_eq!(cluster.connect().value("SELECT 1"), "1");
}

/// Idle and slow connections, and a flood of requests, keep neither clients nor health checks away.
#[test]
fn who_abuses_the_port_disturbs_nobody() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(0));
    let port = cluster.metrics_port();
    let mut session = cluster.connect();
    session.run("SELECT 1");
    let before = cluster.metrics().value("process_open_fds");
    let connect = || TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let mut idle: Vec<TcpStream> = (0..200).map(|_| connect()).collect();
    // Some of them have begun to ask, or have asked and don't read.
    for stream in &mut idle[150..175] {
        let _ = stream.write_all(b"GET /metr");
    }
    for stream in &mut idle[175..] {
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
    }
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(get(port, "/livez").status, 200);
        assert_eq!(session.value("SELECT 1"), "1");
    }
    // Who had to wait until those that are idle are cut off would wait for half a minute.
    assert!(began.elapsed() < s(20), "{:?}", began.elapsed());
    let open = cluster.metrics().value("process_open_fds");
    assert!(open <= before + 40.0, "{before} before, {open} with them");
    // Slow ones are cut off.
    let slow = connect();
    let began = Instant::now();
    let reply = Reply::read(slow);
    assert!(began.elapsed() < s(30), "{reply:?}");
    drop(idle);

    let (asked, is_over, began) = (AtomicUsize::new(0), AtomicBool::new(false), Instant::now());
    let flood = || {
        while !is_over.load(Ordering::SeqCst) && began.elapsed() < s(HANG_S_MAX) {
            let is_answered = get_with(port, "/metrics", "").is_ok();
            asked.fetch_add(usize::from(is_answered), Ordering::SeqCst);
        }
    };
    std::thread::scope(|scope| {
        (0..4).for_each(|_| drop(scope.spawn(flood)));
        let mut answered = 0;
        eventually("clients are served during the flood", || {
            (0..20).for_each(|_| drop(session.run("SELECT 1")));
            answered += 20;
            answered >= 500 && asked.load(Ordering::SeqCst) >= 500
        });
        is_over.store(true, Ordering::SeqCst);
    });
    assert_eq!(get(port, "/readyz").status, 200);
}
