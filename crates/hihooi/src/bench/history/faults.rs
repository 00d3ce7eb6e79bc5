//! Faults that are injected while sessions run: each kind repeatedly, concurrently with the others.
//!
//! A process that was stopped (SIGSTOP) is continued even if this process dies: a helper process, which is
//! informed before the stop, continues it as soon as the pipe between the two closes. A thread that was stopped
//! (ptrace) is continued by the kernel then.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::ValueEnum;
use hihooi_postgres::cluster::pidfile::{self, Occupant};
use hihooi_postgres::cluster::plain;
use hihooi_postgres::connection::{Address, Connection, Login};
use hihooi_postgres::tls::{Connector, Mode, Settings};
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use rand::RngExt;
use rand_pcg::Pcg64;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::APPLICATION;
use super::recording::PRIMARY;
use crate::data_dir::DataDir;
use crate::failure::{Failure, Result};
use crate::holder::Holder;

/// The first of each kind comes after so many milliseconds.
const FIRST_MS: Range<u64> = 50..300;
/// How long a replica stays paused, milliseconds.
const PAUSED_MS: Range<u64> = 20..2_000;
/// How long a replica's processes stay stopped, milliseconds. The longest is beyond `sites.timeout_ms`, unless that is
/// set to more.
const FROZEN_MS: Range<u64> = 20..3_000;
/// How long hihooi's log isn't written, milliseconds.
const SLOW_LOG_MS: Range<u64> = 5..1_500;
/// How long commits wait for a standby, milliseconds.
const HIDDEN_MS: Range<u64> = 5..300;
/// How long a killed replica, or hihooi, may take to serve again before the next fault, milliseconds.
const RESTART_MS_MAX: u64 = 20_000;
/// How often it is looked whether replicas have caught up, which makes a minute.
const CATCH_UP_TRIES_MAX: usize = 1_200;
/// Pause between two looks.
const CATCH_UP_EVERY: Duration = Duration::from_millis(50);
/// How often it is tried to take a fault back.
const UNDO_TRIES_MAX: usize = 100;
/// Pause between two tries.
const UNDO_EVERY: Duration = Duration::from_millis(300);
/// Server processes of our sessions that are ended at once, at most.
const BACKENDS_MAX: u64 = 4;

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Fault {
    /// PAUSE REPLICA for a moment: it stays behind, and still serves reads
    Pause,
    /// SIGSTOP to all processes of a replica for a moment (--data)
    Freeze,
    /// SIGKILL to a replica's postmaster, which `hihooi up` starts again (--data)
    KillReplica,
    /// SIGKILL to hihooi, which something else must start again, for example systemd (--data)
    KillHihooi,
    /// Stop the thread that writes hihooi's log for a moment (--data)
    SlowLog,
    /// End hihooi's replication connection at the primary
    Walsender,
    /// End server processes that run our sessions' statements, at any server
    Backends,
    /// End the connections by which a replica gets changes
    Appliers,
    /// Have commits wait for a standby that isn't there for a moment: they are logged, and not visible
    Standby,
    /// Sessions use different values of synchronous_commit
    Commit,
}

impl Fault {
    /// Its name, as the command line has it.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether it acts on processes of this machine.
    fn needs_data(self) -> bool {
        matches!(self, Fault::Freeze | Fault::KillReplica | Fault::KillHihooi | Fault::SlowLog)
    }

    /// Pause between two of the kind, milliseconds, if it is one of so many kinds: replicas shall serve most of the
    /// time, also behind a fault after which they catch up or get their share back little by little.
    fn every_ms(self, kinds: usize) -> Range<u64> {
        let alone = match self {
            Fault::KillReplica | Fault::KillHihooi => 2_000..8_000,
            Fault::Walsender => 500..5_000,
            Fault::Pause | Fault::Freeze | Fault::SlowLog | Fault::Appliers => 200..2_000,
            Fault::Backends => 100..1_000,
            Fault::Standby | Fault::Commit => 50..500,
        };
        let times = (kinds as u64 / 2).max(1);
        alone.start * times..alone.end * times
    }
}

/// A server of the cluster.
#[derive(Clone, Debug)]
struct Server {
    name: String,
    address: Address,
}

/// What faults act on.
pub struct Target {
    admin: Login,
    servers: Vec<Server>,
    data: Option<DataDir>,
    user: String,
    database: String,
}

impl Target {
    /// The cluster behind the admin database, and its data directory if that is on this machine.
    ///
    /// # Errors
    /// The servers of the cluster can't be told, or a fault needs what isn't given.
    pub async fn find(
        admin: Login,
        database: &str,
        data: Option<DataDir>,
        faults: &[Fault],
    ) -> Result<Target> {
        let mut target = Target {
            user: admin.user.clone(),
            admin,
            servers: Vec::new(),
            data,
            database: database.to_owned(),
        };
        target.servers = target.ask_servers().await?;
        target.check(faults)?;
        if faults.contains(&Fault::Standby) {
            target.check_no_standby().await?;
        }
        Ok(target)
    }

    async fn ask_servers(&self) -> Result<Vec<Server>> {
        let rows = self.command("SHOW SERVERS").await?;
        let server = |row: BTreeMap<String, String>| {
            let port = row["port"].parse().map_err(Failure::new)?;
            // As hihooi's own connections.
            let mode = if row["tls"].is_empty() { Mode::Prefer } else { Mode::Require };
            let tls = Connector::new(Settings { mode, ..Settings::default() });
            let address = Address { host: row["host"].clone(), port, tls };
            Ok(Server { name: row["site"].clone(), address })
        };
        rows.into_iter().map(server).collect()
    }

    fn check(&self, faults: &[Fault]) -> Result<()> {
        let Some(fault) = faults.iter().find(|fault| fault.needs_data()) else { return Ok(()) };
        let fault = fault.name();
        let Some(data) = &self.data else {
            return Err(Failure::new(format!(
                "--faults {fault} needs --data, the data directory of `hihooi up` on this machine"
            )));
        };
        for server in &self.servers {
            let found = pidfile::occupant(&data.file(&server.name));
            if !matches!(found, Occupant::Server { port, .. } if port == server.address.port) {
                return Err(Failure::new(format!(
                    "--faults {fault}: {} doesn't run in {}; --data must be the data directory of \
                     this cluster's `hihooi up`",
                    server.name,
                    data.path().display()
                )));
            }
        }
        Ok(())
    }

    /// The setting that `standby` changes must be the default, to which it is reset.
    async fn check_no_standby(&self) -> Result<()> {
        let primary = self.server(PRIMARY)?;
        let standbys = "SHOW synchronous_standby_names";
        match self.at(primary, standbys).await?.as_str() {
            "" => Ok(()),
            names => Err(Failure::new(format!(
                "--faults standby: synchronous_standby_names is {names:?} at the primary, and must be \
                 empty"
            ))),
        }
    }

    /// Waits until the replicas have all that was committed before: at `weak-si` they would show tables of an earlier
    /// recording. Those that aren't read don't matter.
    ///
    /// # Errors
    /// One doesn't have it after 60 s, for example since it is paused.
    pub async fn caught_up(&self) -> Result<()> {
        let number = |row: &BTreeMap<String, String>, column: &str| row[column].parse::<u64>().ok();
        let mut needed = None;
        for _ in 0..CATCH_UP_TRIES_MAX {
            let replicas = self.command("SHOW REPLICAS").await?;
            let end = |row| Some(number(row, "applied")? + number(row, "lag_entries")?);
            // A replica that applies more while it is looked at makes the sum too large.
            needed = replicas.iter().filter_map(end).chain(needed).min();
            let is_read = |row: &&BTreeMap<String, String>| {
                !matches!(row["state"].as_str(), "failed" | "different")
            };
            let mut read = replicas.iter().filter(is_read);
            if needed.is_some() && read.all(|row| number(row, "applied") >= needed) {
                return Ok(());
            }
            sleep(CATCH_UP_EVERY).await;
        }
        Err(Failure::new("a replica doesn't apply the new tables within 60 s: see SHOW REPLICAS"))
    }

    /// The rows of an admin command.
    ///
    /// # Errors
    /// hihooi can't be asked, or refuses.
    pub async fn command(&self, text: &str) -> Result<Vec<BTreeMap<String, String>>> {
        let failed = |error| Failure::new(format!("{text}: {error}"));
        let mut admin = Connection::open(&self.admin).await.map_err(failed)?;
        let answer = admin.query(text).await.map_err(failed)?;
        admin.close().await;
        let record = |row: Vec<Option<String>>| {
            let values = row.into_iter().map(Option::unwrap_or_default);
            answer.columns.iter().cloned().zip(values).collect()
        };
        Ok(answer.rows.into_iter().map(record).collect())
    }

    /// Runs SQL at a server, past hihooi; the first value.
    async fn at(&self, server: &Server, text: &str) -> Result<String> {
        let failed = |error| Failure::new(format!("{}: {error}", server.name));
        let login = Login::new(
            server.address.clone(),
            &self.user,
            &self.database,
            "hihooi bench history faults",
        );
        let mut session = Connection::open(&login).await.map_err(failed)?;
        let answer = session.query(text).await.map_err(failed)?;
        session.close().await;
        Ok(answer.value().unwrap_or_default().to_owned())
    }

    fn server(&self, name: &str) -> Result<&Server> {
        let found = self.servers.iter().find(|server| server.name == name);
        found.ok_or_else(|| Failure::new(format!("the cluster has no server {name}")))
    }
}

/// How often each fault was injected, and how often it couldn't be.
#[derive(Clone, Default, Debug)]
pub struct Injected {
    /// By the fault's name.
    pub done: BTreeMap<String, u64>,
    /// By the fault's name.
    pub failed: BTreeMap<String, u64>,
    /// Why the last one failed.
    pub why: Option<Failure>,
}

impl Injected {
    fn count(&mut self, fault: Fault, injected: Result<()>) {
        let count = match injected {
            Ok(()) => &mut self.done,
            // A server that is down refuses, which is no news.
            Err(why) => {
                self.why = Some(why);
                &mut self.failed
            }
        };
        *count.entry(fault.name()).or_default() += 1;
    }
}

/// Injects faults until it is over. What they changed is as before when it returns. `random` has a generator for each
/// number.
pub async fn inject(
    target: Arc<Target>,
    faults: &[Fault],
    random: impl Fn(u64) -> Pcg64,
    over: watch::Receiver<bool>,
) -> Injected {
    let injected = Arc::new(Mutex::new(Injected::default()));
    let mut kinds = JoinSet::new();
    // Sessions change `synchronous_commit` by themselves.
    for &fault in faults.iter().filter(|fault| **fault != Fault::Commit) {
        let every_ms = fault.every_ms(faults.len());
        let (injected, mut over) = (injected.clone(), over.clone());
        let mut injector = Injector { target: target.clone(), random: random(fault as u64) };
        kinds.spawn(async move {
            injector.pause(FIRST_MS).await;
            while !*over.borrow() {
                let done = injector.inject(fault).await;
                injected.lock().unwrap_or_else(PoisonError::into_inner).count(fault, done);
                tokio::select! {
                    () = injector.pause(every_ms.clone()) => {}
                    _ = over.wait_for(|over| *over) => {}
                }
            }
        });
    }
    kinds.join_all().await;
    std::mem::take(&mut *injected.lock().unwrap_or_else(PoisonError::into_inner))
}

struct Injector {
    target: Arc<Target>,
    random: Pcg64,
}

impl Injector {
    /// Waits for a random duration.
    async fn pause(&mut self, ms: Range<u64>) {
        sleep(self.duration(ms)).await;
    }

    /// A random duration; one of half as long is as likely.
    fn duration(&mut self, ms: Range<u64>) -> Duration {
        let (least, most) = ((ms.start as f64).ln(), (ms.end as f64).ln());
        let ms = self.random.random_range(least..most).exp();
        Duration::from_micros((ms * 1_000.0) as u64)
    }

    async fn inject(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::Pause => self.pause_replica().await,
            Fault::Freeze => self.freeze().await,
            Fault::KillReplica => self.kill_replica().await,
            Fault::KillHihooi => self.kill_hihooi().await,
            Fault::SlowLog => self.slow_log().await,
            Fault::Walsender => self.end_walsender().await,
            Fault::Backends => self.end_backends().await,
            Fault::Appliers => self.end_appliers().await,
            Fault::Standby => self.hide_commits().await,
            Fault::Commit => Ok(()),
        }
    }

    fn replica(&mut self) -> Result<Server> {
        let replicas: Vec<&Server> =
            self.target.servers.iter().filter(|s| s.name != PRIMARY).collect();
        if replicas.is_empty() {
            return Err(Failure::new("the cluster has no replicas"));
        }
        Ok(replicas[self.random.random_range(0..replicas.len())].clone())
    }

    async fn pause_replica(&mut self) -> Result<()> {
        let name = self.replica()?.name;
        // One that isn't paused in time will be later.
        let paused = self.target.command(&format!("PAUSE REPLICA \"{name}\"")).await.map(drop);
        self.pause(PAUSED_MS).await;
        let resume = format!("RESUME REPLICA \"{name}\"");
        for _ in 0..UNDO_TRIES_MAX {
            if self.target.command(&resume).await.is_ok() {
                return paused;
            }
            sleep(UNDO_EVERY).await;
        }
        Err(Failure::new(format!("{name} stays paused: RESUME REPLICA fails")))
    }

    async fn freeze(&mut self) -> Result<()> {
        let directory = self.directory_of_replica()?;
        let mut frozen = Frozen::new()?;
        if let Occupant::Server { pid, .. } = pidfile::occupant(&directory) {
            frozen.stop(pid)?; // so that it starts no more processes
        }
        for pid in pidfile::processes(&directory) {
            frozen.stop(pid)?;
        }
        self.pause(FROZEN_MS).await;
        Ok(())
    }

    fn directory_of_replica(&mut self) -> Result<std::path::PathBuf> {
        let name = self.replica()?.name;
        let data = self.target.data.as_ref();
        Ok(data.ok_or_else(|| Failure::new("no data directory is known"))?.file(&name))
    }

    async fn kill_replica(&mut self) -> Result<()> {
        let directory = self.directory_of_replica()?;
        let Occupant::Server { pid, .. } = pidfile::occupant(&directory) else {
            return Err(Failure::new("the replica doesn't run"));
        };
        pidfile::signal(pid, Signal::SIGKILL);
        for _ in 0..RESTART_MS_MAX / 100 {
            sleep(Duration::from_millis(100)).await;
            let replicas = self.target.command("SHOW REPLICAS").await?;
            if replicas.iter().all(|replica| replica["state"] == "serving") {
                break;
            }
        }
        Ok(())
    }

    /// The process that runs hihooi.
    fn hihooi(&self) -> Result<Holder> {
        let data = self.target.data.as_ref();
        let data = data.ok_or_else(|| Failure::new("no data directory is known"))?;
        Holder::find(data)?.ok_or_else(|| Failure::new("hihooi doesn't run"))
    }

    async fn kill_hihooi(&mut self) -> Result<()> {
        self.hihooi()?.signal(rustix::process::Signal::KILL)?;
        for _ in 0..RESTART_MS_MAX / 100 {
            sleep(Duration::from_millis(100)).await;
            if self.target.command("SHOW SERVERS").await.is_ok() {
                return Ok(());
            }
        }
        Err(Failure::new("nothing starts hihooi again"))
    }

    async fn slow_log(&mut self) -> Result<()> {
        let writer = thread_named(self.hihooi()?.pid, hihooi_log::WRITER)?;
        let stopped = self.duration(SLOW_LOG_MS);
        // The thread that traces another is the only one that can let it go.
        let tracing = tokio::task::spawn_blocking(move || stop_thread(writer, stopped));
        tracing.await.map_err(Failure::new)?
    }

    async fn end_walsender(&mut self) -> Result<()> {
        let primary = self.target.server(PRIMARY)?;
        let text = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_replication WHERE application_name = '{}'",
            hihooi_postgres::setup::COLLECTOR_NAME
        );
        self.target.at(primary, &text).await.map(drop)
    }

    async fn end_backends(&mut self) -> Result<()> {
        let target = self.target.clone();
        let server = &target.servers[self.random.random_range(0..target.servers.len())];
        let text = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity \
             WHERE application_name = '{APPLICATION}' ORDER BY random() LIMIT {}) AS chosen",
            self.random.random_range(1..=BACKENDS_MAX)
        );
        match target.at(server, &text).await?.as_str() {
            "0" => Err(Failure::new(format!("{}: none of our statements there", server.name))),
            _ => Ok(()),
        }
    }

    async fn end_appliers(&mut self) -> Result<()> {
        let replica = self.replica()?;
        let text = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{}'",
            hihooi_postgres::apply::progress::APPLICATION
        );
        self.target.at(&replica, &text).await.map(drop)
    }

    async fn hide_commits(&mut self) -> Result<()> {
        let is_set =
            self.set_standbys("SET synchronous_standby_names = 'hihooi_bench_history'").await;
        self.pause(HIDDEN_MS).await;
        for _ in 0..UNDO_TRIES_MAX {
            if self.set_standbys("RESET synchronous_standby_names").await.is_ok() {
                return is_set;
            }
            sleep(UNDO_EVERY).await;
        }
        Err(Failure::new("synchronous_standby_names stays set at the primary: ALTER SYSTEM fails"))
    }

    async fn set_standbys(&self, what: &str) -> Result<()> {
        let primary = self.target.server(PRIMARY)?;
        self.target.at(primary, &format!("ALTER SYSTEM {what}")).await?;
        self.target.at(primary, "SELECT pg_reload_conf()").await.map(drop)
    }
}

/// A thread of a process, by its name.
fn thread_named(pid: i32, name: &str) -> Result<Pid> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).map_err(Failure::new)?;
    for task in tasks.filter_map(std::result::Result::ok) {
        let comm = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if comm.trim_end() == name
            && let Some(tid) = task.file_name().to_str().and_then(|tid| tid.parse().ok())
        {
            return Ok(Pid::from_raw(tid));
        }
    }
    Err(Failure::new(format!("process {pid} has no thread {name:?}")))
}

/// Stops a thread for a while, the others of its process not (manual page ptrace(2)).
fn stop_thread(thread: Pid, duration: Duration) -> Result<()> {
    let failed = |error| Failure::new(format!("ptrace: {error}"));
    ptrace::seize(thread, ptrace::Options::empty()).map_err(failed)?;
    ptrace::interrupt(thread).map_err(failed)?;
    waitpid(thread, Some(WaitPidFlag::__WALL)).map_err(failed)?;
    std::thread::sleep(duration);
    match ptrace::detach(thread, None) {
        // Its process was killed, and has not ended before this is known.
        Err(Errno::ESRCH) => waitpid(thread, Some(WaitPidFlag::__WALL)).map(drop).map_err(failed),
        detached => detached.map_err(failed),
    }
}

/// Processes that are stopped. They go on when this is dropped, or when this process ends.
struct Frozen(Option<Child>);

impl Frozen {
    fn new() -> Result<Frozen> {
        let mut helper = Command::new("sh");
        helper.args(["-c", "pids=$(cat); kill -CONT $pids 2>/dev/null"]).stdin(Stdio::piped());
        helper.stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C is for us.
        helper.process_group(0);
        let helper = helper.spawn().map_err(|error| Failure::new(format!("sh: {}", plain(&error))));
        Ok(Frozen(Some(helper?)))
    }

    fn stop(&mut self, pid: i32) -> Result<()> {
        let told = self.0.as_mut().and_then(|helper| helper.stdin.as_mut());
        let told = told.ok_or_else(|| Failure::new("the helper has no input"))?;
        writeln!(told, "{pid}").and_then(|()| told.flush()).map_err(Failure::new)?;
        pidfile::signal(pid, Signal::SIGSTOP);
        Ok(())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if let Some(mut helper) = self.0.take() {
            drop(helper.stdin.take());
            let _ = helper.wait(); // it has nothing to tell
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state_of(pid: u32) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
        stat.rsplit_once(')').expect("a name").1.trim_start().chars().next().expect("a state")
    }

    fn until(pid: u32, is_it: impl Fn(char) -> bool) {
        let seen = (0..12_000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            is_it(state_of(pid))
        });
        assert!(seen, "{}", state_of(pid));
    }

    #[test]
    fn a_stopped_thread_goes_on_and_others_meanwhile() {
        let mut process = Command::new("python3")
            .args(["-c", "import threading, time\nc = [0]\ndef count():\n while True: c[0] += 1; time.sleep(0.001)\n\
                t = threading.Thread(target=count); t.start(); open('/proc/self/task/%d/comm' % t.native_id, 'w').write('counts')\n\
                while True: print(c[0], flush=True); time.sleep(0.01)"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let lines = std::io::BufReader::new(process.stdout.take().expect("piped"));
        let mut numbers = std::io::BufRead::lines(lines)
            .map(|line| line.expect("text").parse::<u64>().expect("a number"));
        let pid = i32::try_from(process.id()).expect("pids are positive");
        numbers.find(|number| *number > 10);
        let thread = thread_named(pid, "counts").expect("it runs");
        let stopped = std::thread::spawn(move || stop_thread(thread, Duration::from_secs(2)));
        let mut same = 0;
        let mut last = 0;
        // A hundred lines take the other thread a second.
        numbers.find(|number| {
            same = if *number == last { same + 1 } else { 0 };
            last = *number;
            same == 100
        });
        stopped.join().expect("no panic").expect("ours");
        assert!(numbers.find(|number| *number > last).is_some());
        process.kill().expect("ours");
        process.wait().expect("ours");
    }

    #[test]
    fn stopped_processes_go_on() {
        let mut sleeper = Command::new("sleep").arg("300").spawn().expect("sleep");
        let pid = sleeper.id();
        let mut frozen = Frozen::new().expect("a helper");
        frozen.stop(i32::try_from(pid).expect("pids are positive")).expect("ours");
        until(pid, |state| state == 'T');
        drop(frozen);
        until(pid, |state| state != 'T');
        sleeper.kill().expect("ours");
        sleeper.wait().expect("ours");
    }
}
