//! A cluster made by `hihooi up`, which a test can kill in parts and start again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::reaper::Folder;
use super::{
    Answer, DATABASE, Failure, HANG_S_MAX, Reference, Session, USER, eventually, finish, free_port,
    ms, s, succeed, target_is_plain, tool,
};

/// A replica that is shown as failed for so long, not only while its server restarts, has failed.
const FAILED_S_MAX: u64 = 60;
/// How soon a silent site is noticed.
const SITES_TIMEOUT_MS: &str = "HIHOOI_SITES_TIMEOUT_MS";

/// What a cluster is started with.
#[derive(Clone, Debug)]
pub struct Options {
    pub replicas: usize,
    /// Where clients can connect besides, as `--listen` has it.
    pub listen: Vec<String>,
    /// Further arguments of `up`.
    pub arguments: Vec<String>,
    /// Further environment of `up`.
    pub environment: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Options {
        let options =
            Options { replicas: 2, listen: vec![], arguments: vec![], environment: vec![] };
        // A site that gets no processor for some seconds is not silent.
        options.env(SITES_TIMEOUT_MS, "10000")
    }
}

impl Options {
    /// A cluster of that many replicas.
    pub fn replicas(replicas: usize) -> Options {
        Options { replicas, ..Options::default() }
    }

    /// As soon as by default, a site that doesn't answer counts as silent.
    #[must_use]
    pub fn noticing_silence(mut self) -> Options {
        self.environment.retain(|(name, _)| name != SITES_TIMEOUT_MS);
        self
    }

    /// Sets a variable of the environment of `up`; the last value counts.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Options {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// Where a server of the cluster is.
#[derive(Clone, Debug)]
pub struct Site {
    pub name: String,
    pub role: String,
    pub port: u16,
}

impl Site {
    fn plain(server: &Reference) -> Site {
        Site { name: "primary".to_owned(), role: "primary".to_owned(), port: server.port }
    }
}

/// A running cluster, or a plain server if the tests' target is that.
pub struct Cluster {
    folder: Folder,
    /// Where clients connect.
    pub port: u16,
    options: Options,
    manager: Mutex<Option<Child>>,
    plain: Option<Reference>,
    /// As last seen; sites keep their names and ports for life.
    sites: Mutex<Vec<Site>>,
}

impl Cluster {
    /// Makes a cluster and waits until it is ready.
    pub fn start(options: Options) -> Cluster {
        Cluster::of(options, target_is_plain().then(Reference::start))
    }

    /// A plain server, whatever the tests' target is.
    pub fn plain() -> Cluster {
        Cluster::of(Options::replicas(0), Some(Reference::start()))
    }

    fn of(options: Options, plain: Option<Reference>) -> Cluster {
        let port = plain.as_ref().map_or_else(free_port, |server| server.port);
        let cluster = Cluster {
            folder: Folder::new(),
            port,
            options,
            manager: Mutex::new(None),
            sites: Mutex::new(plain.as_ref().map(Site::plain).into_iter().collect()),
            plain,
        };
        cluster.up();
        cluster
    }

    /// Whether this is hihooi, not a plain server.
    pub fn is_hihooi(&self) -> bool {
        self.plain.is_none()
    }

    /// Folder of the cluster's data.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The command that `up` is.
    pub fn up_command(&self) -> Command {
        self.up_command_for(self.options.replicas)
    }

    /// The command that `up` is, for a cluster of that many replicas.
    pub fn up_command_for(&self, replicas: usize) -> Command {
        let mut command = Command::new(super::program());
        let places = [&[format!("127.0.0.1:{}", self.port)], &self.options.listen[..]].concat();
        command
            .arg("up")
            .arg("--data")
            .arg(self.data())
            .args(["--listen", &places.join(",")])
            .args(["--replicas", &replicas.to_string()])
            .args(&self.options.arguments)
            // A replica that stops is what tests look for.
            .env("HIHOOI_REPLICA_AUTO_REBUILD", "false")
            .envs(self.options.environment.iter().cloned())
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    /// Starts the manager and waits for its ready line, and until all replicas serve.
    pub fn up(&self) {
        if self.is_hihooi() {
            self.up_with(self.up_command());
        }
    }

    /// Starts the manager by this command, and waits until all replicas serve.
    pub fn up_with(&self, command: Command) {
        self.await_ready(self.spawn_manager(command));
        self.await_replicas();
        *self.sites.lock().unwrap_or_else(PoisonError::into_inner) = self.ask_sites();
    }

    /// Starts `hihooi serve` on the servers that run, and waits for its ready line, and until all replicas serve.
    pub fn serve(&self) {
        self.serve_without_waiting_for_all();
        self.await_replicas();
    }

    /// Starts `hihooi serve` when a replica is known to stay out: waits only for the ready line.
    pub fn serve_without_waiting_for_all(&self) {
        let mut command = Command::new(super::program());
        command.args(["serve", "--config"]).arg(self.data().join("hihooi.toml"));
        command.envs(self.options.environment.iter().cloned());
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        self.await_ready(self.spawn_manager(command));
    }

    /// Starts the manager when a replica is known to stay out: waits only for the ready line.
    pub fn up_without_waiting_for_all(&self) {
        self.await_ready(self.spawn_manager(self.up_command()));
    }

    /// Waits until all replicas serve; if a load outruns them, until they get on. One that doesn't shows what it
    /// and its server do.
    fn await_replicas(&self) {
        const CATCH_UP_S: u64 = 20;
        let (began, first) = (Instant::now(), self.show_replicas());
        loop {
            let replicas = self.show_replicas();
            let serves = |name: &String| replicas[name]["state"] == "serving";
            let gets_on = |name: &String| {
                let applied = |seen: &BTreeMap<String, BTreeMap<String, String>>| {
                    seen[name]["applied"].parse::<u64>().unwrap_or(0)
                };
                replicas[name]["state"] == "catching_up" && applied(&replicas) > applied(&first)
            };
            let is_late = began.elapsed() > s(CATCH_UP_S);
            if replicas.keys().all(|name| serves(name) || (is_late && gets_on(name))) {
                return;
            }
            let in_time = began.elapsed() < s(HANG_S_MAX);
            assert!(in_time, "a replica doesn't serve:\n{}", self.standstill());
            std::thread::sleep(ms(50));
        }
    }

    /// What replicas and all servers are at.
    fn standstill(&self) -> String {
        let mut text = format!("{:#?}\n", self.show_replicas());
        let query = "SELECT concat_ws(' ', pid, backend_type, application_name, state, wait_event_type, \
             wait_event, clock_timestamp() - xact_start, pg_blocking_pids(pid), left(query, 200)) \
             FROM pg_stat_activity";
        for site in self.ask_sites() {
            let parameters = [("user", super::USER), ("database", super::DATABASE)];
            let seen =
                Session::open(site.port, &parameters).and_then(|mut open| open.simple(query));
            text += &format!(
                "{}: {:#?}\n",
                site.name,
                seen.map(|answers| answers
                    .into_iter()
                    .map(|answer| answer.rows)
                    .collect::<Vec<_>>())
            );
        }
        text
    }

    fn spawn_manager(&self, mut command: Command) -> Receiver<()> {
        let log = File::options().create(true).append(true).open(self.log_path()).expect("log");
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().expect("hihooi up");
        let pid_file = self.folder.path().join("manager.pid");
        std::fs::write(pid_file, format!("{}\n", child.id())).expect("own folder");
        let ready = ready_line(&mut child);
        *self.lock_manager() = Some(child);
        ready
    }

    fn await_ready(&self, ready: Receiver<()>) {
        match ready.recv_timeout(s(HANG_S_MAX)) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => {
                panic!("hihooi isn't ready after {HANG_S_MAX} s:\n{}", self.log_tail())
            }
            Err(RecvTimeoutError::Disconnected) => {
                panic!("hihooi ended before it was ready:\n{}", self.log_tail())
            }
        }
    }

    fn lock_manager(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.manager.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("manager.log")
    }

    /// The last lines the manager logged.
    pub fn log_tail(&self) -> String {
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let log = read(&self.data().join("hihooi.log")) + &read(&self.log_path());
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// A session of the superuser.
    pub fn connect(&self) -> Session {
        self.connect_with(&[])
    }

    /// A session with further or other start-up parameters.
    pub fn connect_with(&self, parameters: &[(&str, &str)]) -> Session {
        match self.try_connect(parameters) {
            Ok(session) => session,
            Err(failure) => panic!("no session ({parameters:?}): {failure}\n{}", self.log_tail()),
        }
    }

    /// A session, or why there is none.
    pub fn try_connect(&self, parameters: &[(&str, &str)]) -> Result<Session, Failure> {
        let mut all = BTreeMap::from([("user", USER), ("database", DATABASE)]);
        all.extend(parameters.iter().copied());
        Session::open(self.port, &all.into_iter().collect::<Vec<_>>())
    }

    /// A session of the admin database.
    pub fn admin(&self) -> Session {
        self.connect_with(&[("database", "hihooi")])
    }

    /// A session at a site, past hihooi.
    pub fn direct(&self, site: &str) -> Session {
        let port = self.site(site).port;
        match Session::open(port, &[("user", USER), ("database", DATABASE)]) {
            Ok(session) => session,
            Err(failure) => panic!("no session at {site}: {failure}"),
        }
    }

    /// A session at a replica's own port that may change it, with the words that its refusal names.
    pub fn repair(&self, site: &str) -> Session {
        let mut session = self.direct(site);
        session
            .run("SET default_transaction_read_only = off; SET session_replication_role = replica");
        session
    }

    /// A site by its name.
    pub fn site(&self, name: &str) -> Site {
        let sites = self.sites();
        let found = sites.iter().find(|site| site.name == name);
        found.unwrap_or_else(|| panic!("no site {name} in {sites:?}")).clone()
    }

    /// All sites.
    pub fn sites(&self) -> Vec<Site> {
        self.sites.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sessions at all sites together that fulfil a condition on `pg_stat_activity`.
    pub fn activity(&self, condition: &str) -> i64 {
        let ports: Vec<u16> = self.sites().iter().map(|site| site.port).collect();
        super::activity(&ports, condition)
    }

    /// Waits until some site has a session that fulfils a condition on `pg_stat_activity`.
    pub fn until_active(&self, condition: &str) {
        eventually(condition, || self.activity(condition) > 0);
    }

    /// Waits until a statement like this one (as LIKE means it) waits for a lock.
    pub fn until_locked_out(&self, statement: &str) {
        self.until_active(&format!("wait_event_type = 'Lock' AND query LIKE '{statement}'"));
    }

    /// The names of the replicas.
    pub fn replicas(&self) -> Vec<String> {
        let sites = self.sites();
        sites.into_iter().filter(|s| s.role == "replica").map(|site| site.name).collect()
    }

    fn ask_sites(&self) -> Vec<Site> {
        let servers = self.admin().run("SHOW SERVERS");
        let record = |record: BTreeMap<String, String>| Site {
            name: record["site"].clone(),
            role: record["role"].clone(),
            port: record["port"].parse().expect("a port"),
        };
        let mut sites: Vec<Site> = servers.records().into_iter().map(record).collect();
        sites.sort_by(|a, b| a.name.cmp(&b.name));
        sites.dedup_by(|a, b| a.name == b.name);
        sites
    }

    /// `SHOW REPLICAS`, by the site's name.
    pub fn show_replicas(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let answer = self.admin().run("SHOW REPLICAS");
        answer.records().into_iter().map(|record| (record["replica"].clone(), record)).collect()
    }

    /// Writes that may have been committed and have not arrived in the log: reads of their rows are the primary's.
    fn writes_in_flight(&self) -> u64 {
        let held = self.admin().run("SHOW MEM").records();
        let found = held.iter().find(|record| record["name"] == "writes_in_flight");
        found.map_or(0, |record| record["items"].parse().expect("a number"))
    }

    /// The state of a replica.
    pub fn state(&self, site: &str) -> String {
        self.show_replicas().remove(site).map_or_else(String::new, |r| r["state"].clone())
    }

    /// `SHOW STATS`: a number of a site.
    pub fn stat(&self, site: &str, column: &str) -> i64 {
        let answer = self.admin().run("SHOW STATS");
        let of_site = answer.records().into_iter().filter(|record| record["site"] == site);
        of_site.map(|record| record[column].parse::<i64>().expect("a number")).sum()
    }

    /// Reads that replicas have served so far.
    pub fn replica_reads(&self) -> i64 {
        self.replicas().iter().map(|site| self.stat(site, "reads")).sum()
    }

    /// Waits until every replica serves and has applied all that the primary committed, as long as
    /// they get on.
    pub fn caught_up(&self) {
        self.await_applied(|| 0);
    }

    /// The same, and no commit is on its way to the log: none is open any more, not even a COPY.
    pub fn settled(&self) {
        self.await_applied(|| self.writes_in_flight());
    }

    fn await_applied(&self, in_flight: impl Fn() -> u64) {
        if !self.is_hihooi() {
            return;
        }
        let (mut deadline, mut least) = (Instant::now() + s(HANG_S_MAX), u64::MAX);
        let mut failed_deadline = Instant::now() + s(FAILED_S_MAX);
        loop {
            // What has arrived by then is in the log, and counts below.
            let in_flight = in_flight();
            let replicas = self.show_replicas();
            let failed = replicas.values().any(|replica| replica["state"] == "failed");
            if !failed {
                failed_deadline = Instant::now() + s(FAILED_S_MAX);
            }
            assert!(
                !failed || Instant::now() < failed_deadline,
                "a replica failed: {replicas:#?}\n{}",
                self.log_tail()
            );
            let equal =
                |r: &BTreeMap<String, String>| r["lag_entries"] == "0" && r["state"] == "serving";
            let all = replicas.len() >= self.options.replicas && replicas.values().all(equal);
            if all && in_flight == 0 {
                return;
            }
            let lags = replicas.values().filter_map(|r| r["lag_entries"].parse::<u64>().ok());
            let lag = lags.sum::<u64>() + in_flight;
            if lag < least {
                (deadline, least) = (Instant::now() + s(HANG_S_MAX), lag);
            }
            assert!(
                Instant::now() < deadline,
                "replicas don't get on for {HANG_S_MAX} s: {replicas:#?}, {in_flight} in flight\n{}",
                self.log_tail()
            );
            std::thread::sleep(ms(50));
        }
    }

    /// Asserts that every site answers a query alike, once caught up (I2, I5).
    pub fn assert_equal(&self, query: &str) -> Answer {
        self.caught_up();
        let expected = self.direct("primary").run(query);
        for replica in self.replicas() {
            let got = self.direct(&replica).run(query);
            assert_eq!(expected, got, "{replica} differs from the primary: {query}");
        }
        expected
    }

    /// Asserts that tables, rows and definitions of a schema are the same at every site.
    pub fn assert_schema_equal(&self, schema: &str) {
        if !self.is_hihooi() {
            return;
        }
        self.caught_up();
        let expected = definitions(self.site("primary").port, schema);
        for replica in self.replicas() {
            let got = definitions(self.site(&replica).port, schema);
            if let Some(differs) = super::script::difference(&expected, &got) {
                panic!("{replica} (as hihooi) differs from the primary (as PostgreSQL): {differs}");
            }
        }
        let tables = format!(
            "SELECT quote_ident(relname) FROM pg_class WHERE relkind = 'r' \
             AND relpersistence = 'p' AND relnamespace = '{schema}'::regnamespace ORDER BY 1"
        );
        for row in self.direct("primary").run(&tables).rows {
            self.assert_table_equal(&format!("{schema}.{}", row[0].as_deref().expect("a name")));
        }
    }

    /// Asserts that a table has the same rows at every site (I5).
    pub fn assert_table_equal(&self, table: &str) {
        if self.is_hihooi() {
            let sum = "md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), ''))";
            self.assert_equal(&format!("SELECT count(*), {sum} FROM {table} t"));
        }
    }

    /// Runs `hihooi verify`; whether it said equal, and what it printed.
    pub fn run_verify(&self) -> (bool, String) {
        let mut command = Command::new(super::program());
        command.args(["verify", "--listen", &format!("127.0.0.1:{}", self.port)]);
        let output = finish(&mut command);
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    /// Asserts that `hihooi verify` finds all replicas equal.
    pub fn assert_verified(&self) {
        if self.is_hihooi() {
            self.caught_up();
            let mut told = String::new();
            // A replica that can't be compared at this moment can be later.
            eventually("all replicas are compared", || {
                let (is_equal, text) = self.run_verify();
                told = if is_equal { String::new() } else { text };
                is_equal || !told.contains("was not compared")
            });
            assert_eq!(told, "", "verify");
        }
    }

    /// Runs an admin command; waits until a replica's applier has heard of RESUME.
    pub fn command(&self, text: &str) {
        self.admin().run(text);
        if std::thread::panicking() {
            return; // a guard ends what was begun
        }
        if let Some(site) = text.strip_prefix("RESUME REPLICA ") {
            eventually(text, || self.state(site) != "paused");
        }
    }

    /// Runs SQL through psql.
    pub fn psql(&self, sql: &str) -> String {
        succeed(tool("psql", self.port).args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-c", sql]))
    }

    /// kill -9 of the manager.
    pub fn kill_manager(&self) {
        if let Some(mut child) = self.lock_manager().take() {
            child.kill().expect("a child of ours");
            child.wait().expect("a child of ours");
        }
    }

    /// Sends the manager a signal and waits for its end.
    pub fn stop_manager(&self, signal: Signal) -> std::process::ExitStatus {
        let mut child = self.lock_manager().take().expect("a running manager");
        kill(Pid::from_raw(child.id() as i32), signal).expect("a child of ours");
        let mut status = None;
        eventually("the manager ends after a signal", || {
            status = child.try_wait().expect("a child of ours");
            status.is_some()
        });
        status.expect("it ended")
    }

    /// Process id of the manager.
    pub fn manager_pid(&self) -> u32 {
        self.lock_manager().as_ref().expect("a running manager").id()
    }

    /// Whether the manager still runs.
    pub fn manager_runs(&self) -> bool {
        let mut manager = self.lock_manager();
        manager.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Process id of a site's postmaster, if it runs.
    pub fn postmaster(&self, site: &str) -> Option<i32> {
        let port = self.site(site).port.to_string();
        let of_port = |file: &PathBuf| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            (lines.get(3).map(|l| l.trim()) == Some(port.as_str())).then(|| lines[0].parse().ok())
        };
        let pid: i32 = pid_files(&self.data()).iter().find_map(of_port)??;
        let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        cwd.starts_with(self.folder.path()).then_some(pid)
    }

    /// From now on commits wait for a standby that doesn't exist, but those of the session returned and of others
    /// with `synchronous_commit = local`.
    pub fn require_standby(&self) -> Session {
        let mut direct = self.direct("primary");
        direct.run("SET synchronous_commit = local");
        direct.run("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
        direct.run("SELECT pg_reload_conf()");
        eventually("the setting is there", || {
            direct.value("SHOW synchronous_standby_names") == "nobody"
        });
        direct
    }

    /// Ends that.
    pub fn require_no_standby(&self) {
        let mut direct = self.direct("primary");
        direct.run("ALTER SYSTEM RESET synchronous_standby_names");
        direct.run("SELECT pg_reload_conf()");
    }

    /// Runs a statement again and again until its commit waits for the standby: it is in the log, and hidden. (The
    /// first may be too early for the setting.)
    pub fn hide_commit(&self, text: &'static str) -> std::thread::JoinHandle<()> {
        let (mut session, is_hidden) = (self.connect(), Arc::new(AtomicBool::new(false)));
        let was_last = is_hidden.clone();
        let waiting = std::thread::spawn(move || {
            while !was_last.load(Ordering::SeqCst) {
                session.run(text);
            }
        });
        self.until_active("wait_event = 'SyncRep'");
        is_hidden.store(true, Ordering::SeqCst);
        waiting
    }

    /// kill -9 of a site's postmaster.
    pub fn kill_site(&self, site: &str) {
        let pid = self.postmaster(site).unwrap_or_else(|| panic!("{site} doesn't run"));
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("a server of ours");
    }

    /// Stops every process of a site (SIGSTOP) until the guard is dropped.
    pub fn freeze(&self, site: &str) -> Frozen {
        let postmaster = self.postmaster(site).unwrap_or_else(|| panic!("{site} doesn't run"));
        let mut frozen = Frozen(vec![postmaster]);
        self.remember_frozen(&frozen);
        frozen.signal(Signal::SIGSTOP); // so that it makes no more children
        let children = format!("/proc/{postmaster}/task/{postmaster}/children");
        let children = std::fs::read_to_string(children).expect("its children");
        frozen.0.extend(children.split_whitespace().map(|pid| pid.parse::<i32>().expect("a pid")));
        self.remember_frozen(&frozen);
        frozen.signal(Signal::SIGSTOP);
        frozen
    }

    /// Stops one server process (SIGSTOP) until the guard is dropped.
    pub fn freeze_process(&self, pid: i32) -> Frozen {
        let frozen = Frozen(vec![pid]);
        self.remember_frozen(&frozen);
        frozen.signal(Signal::SIGSTOP);
        frozen
    }

    /// The reaper lets them go on, however this process ends.
    fn remember_frozen(&self, frozen: &Frozen) {
        let path = self.folder.path().join("frozen.pids");
        let mut file = File::options().create(true).append(true).open(path).expect("own folder");
        frozen.0.iter().for_each(|pid| writeln!(file, "{pid}").expect("own folder"));
    }

    /// How many lines of `hihooi.log` hold all these words.
    pub fn logged(&self, words: &[&str]) -> usize {
        let log = std::fs::read_to_string(self.data().join("hihooi.log")).expect("the log");
        log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }

    /// kill -9 of the manager and of every server.
    pub fn kill_everything(&self) {
        self.kill_manager();
        for site in self.sites() {
            if self.postmaster(&site.name).is_some() {
                self.kill_site(&site.name);
            }
        }
    }

    /// Sends a signal to the manager without waiting, such as SIGSTOP.
    pub fn signal_manager(&self, signal: Signal) {
        kill(Pid::from_raw(self.manager_pid() as i32), signal).expect("a child of ours");
    }
}

/// A site whose processes are stopped. They go on when this is dropped.
pub struct Frozen(Vec<i32>);

impl Frozen {
    fn signal(&self, signal: Signal) {
        for &pid in &self.0 {
            let _ = kill(Pid::from_raw(pid), signal); // one may have ended meanwhile
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.signal(Signal::SIGCONT);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() && self.is_hihooi() {
            eprintln!("the manager's log:\n{}", self.log_tail());
        }
        self.kill_manager();
    }
}

/// Tells once when the child printed its ready line; goes on reading so that it never blocks.
fn ready_line(child: &mut Child) -> Receiver<()> {
    let stdout = child.stdout.take().expect("piped");
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if line.starts_with("hihooi: ready at postgres://") {
                // Nobody listens any more if the test has given up.
                let _ = sender.send(());
            }
        }
    });
    receiver
}

fn pid_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let inner = entries.flat_map(|entry| {
        let path = entry.path();
        let own = path.join("postmaster.pid");
        let below = if own.exists() || !path.is_dir() { vec![] } else { pid_files(&path) };
        own.exists().then_some(own).into_iter().chain(below).collect::<Vec<_>>()
    });
    inner.collect()
}

/// What pg_dump says a schema is made of; what hihooi itself sets differently on replicas (the
/// replica identity of keyless tables, disabled ALWAYS triggers) is left out.
fn definitions(port: u16, schema: &str) -> String {
    let dump = succeed(tool("pg_dump", port).args(["--schema-only", "--schema", schema]));
    let ours = |line: &&str| {
        let words = ["REPLICA IDENTITY", "ENABLE ALWAYS TRIGGER", "DISABLE TRIGGER"];
        !words.iter().any(|word| line.contains(word))
            && !line.starts_with("--")
            && !line.starts_with('\\')
            && !line.is_empty()
    };
    dump.lines().filter(ours).collect::<Vec<_>>().join("\n")
}
