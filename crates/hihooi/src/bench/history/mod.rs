//! `hihooi bench history`: records what many sessions of a running cluster see while faults are injected, and
//! checks it against the guarantees of a consistency level (docs/consistency.md).
//!
//! - [`workload`]: the transactions, drawn at random; [`client`]: a session, which runs and records them.
//! - [`faults`]: what happens meanwhile.
//! - [`recording`]: the history and its parts; [`promise`]: which isolation level each part must satisfy.

mod client;
mod faults;
mod promise;
mod recording;
mod report;
mod tables;
mod workload;

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Args;
use hihooi_postgres::connection::{Connection, Login};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::client::{Client, Counts, Shared};
use self::faults::{Fault, Injected, Target};
use self::recording::Record;
use self::workload::Draw;
use crate::config::{Level, Listen};
use crate::connect::SslArgs;
use crate::data_dir::DataDir;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::print;
use crate::signals::Signals;

pub const EXAMPLES: &str = "Examples:
  hihooi bench history --level gssi
  hihooi bench history --level strict --transactions 100000 --faults pause,backends,walsender,commit
  hihooi bench history --level session --data ./hihooi-data --faults freeze,kill-replica --out session.jsonl
  hihooi bench history --level weak-si --judge gssi --faults pause      what weak-si doesn't guarantee

Sessions run random transactions on two tables, hihooi_history_lists and hihooi_history_registers, which are
dropped at the end: reads by key, by range and of the whole table, single statements and blocks, READ COMMITTED
and REPEATABLE READ, by the simple and the extended protocol. What they saw is checked against the guarantees of
the level (docs/consistency.md), with the levels of `hihooi check-history`.

Don't inject faults into a cluster in production use: other clients' statements are delayed, or fail. --user must
be able to log in to the servers as a superuser, without a password. Ctrl-C ends the recording early and checks it;
a second one doesn't wait for running statements, and nothing is checked. If the command is killed, processes that
it stopped are continued, but a replica may remain paused (RESUME REPLICA), and synchronous_standby_names may remain
set at the primary (fault standby: ALTER SYSTEM RESET).

Exit status: 0 the guarantees were kept, 1 they were violated, 2 this could not be determined.";

/// Most sessions.
const SESSIONS_MAX: u64 = 40;
/// Most transactions: they are kept in memory, some hundred bytes each.
const TRANSACTIONS_MAX: u64 = 10_000_000;
/// `application_name` of the sessions.
const APPLICATION: &str = "hihooi bench history";
/// How often progress is reported.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Arguments of `bench history`.
#[derive(Args, Debug)]
pub struct HistoryArgs {
    /// Consistency level of the sessions: sync, strict, gssi, rsi-pc, session or weak-si
    #[arg(long, value_name = "LEVEL")]
    pub level: Level,
    /// Faults to inject meanwhile, comma-separated
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub faults: Vec<Fault>,
    /// Address of the running hihooi, or of a plain PostgreSQL server
    #[arg(long, env = "HIHOOI_LISTEN", value_name = "ADDR", default_value_t)]
    pub listen: Listen,
    /// Role to connect as; for faults one of admin_users, and a superuser
    #[arg(long, value_name = "NAME", default_value = "postgres")]
    pub user: String,
    /// The replicated database
    #[arg(long, value_name = "NAME", default_value = "postgres")]
    pub database: String,
    /// Sessions
    #[arg(long, value_name = "N", default_value_t = 12,
          value_parser = clap::value_parser!(u64).range(1..=SESSIONS_MAX))]
    pub sessions: u64,
    /// Transactions in all
    #[arg(long, value_name = "N", default_value_t = 5_000,
          value_parser = clap::value_parser!(u64).range(1..=TRANSACTIONS_MAX))]
    pub transactions: u64,
    /// Rows of each table that are in use at a time
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(i64).range(1..=1_000))]
    pub keys: i64,
    /// Seed of the random transactions and faults; their timing differs from run to run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Data directory of `hihooi up`, for faults that act on processes
    #[arg(long, env = "HIHOOI_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Write the history to this file, for `hihooi check-history`, and parts with violations to files beside it
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Check against the guarantees of this level instead of the sessions' level
    #[arg(long, value_name = "LEVEL")]
    pub judge: Option<Level>,
    /// Encryption of the sessions.
    #[command(flatten)]
    pub ssl: SslArgs,
}

/// Runs the command: 0 the guarantees were kept, 1 they were violated, 2 this could not be determined.
pub fn run(args: &HistoryArgs) -> Exit {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let judged = runtime.map_err(Failure::new).and_then(|runtime| {
        let recorded = runtime.block_on(record(args))?;
        report(args, &recorded)
    });
    match judged {
        Ok(kept) => Exit::answer(kept),
        Err(failure) => {
            eprintln!("hihooi: {failure}");
            Exit::Unknown
        }
    }
}

/// What was recorded.
struct Recorded {
    /// In the order of their beginnings.
    records: Vec<Record>,
    counts: Counts,
    injected: Injected,
    /// Answers of replicas that were discarded, if that is known.
    discarded: Option<u64>,
    elapsed: Duration,
}

async fn record(args: &HistoryArgs) -> Result<Recorded> {
    let login = login(args, &args.database)?;
    let tells_route = tells_route(&login).await?;
    let target = target(args, tells_route).await?.map(Arc::new);
    tables::make(&login, args.transactions, args.keys).await?;
    let recorded = sessions(args, &login, target).await;
    let dropped = tables::drop(&login).await;
    let recorded = recorded?;
    dropped?;
    Ok(recorded)
}

/// As other clients connect: nothing is set but the name.
fn login(args: &HistoryArgs, database: &str) -> Result<Login> {
    Ok(Login {
        address: args.ssl.address(&args.listen)?,
        user: args.user.clone(),
        database: database.to_owned(),
        parameters: vec![("application_name".to_owned(), APPLICATION.to_owned())],
        secret: None,
        is_own: false,
    })
}

/// Whether the server is hihooi, which tells where statements ran.
async fn tells_route(login: &Login) -> Result<bool> {
    let failed = |error| Failure::new(format!("{}: {error}", login.address));
    let mut session = Connection::open(login).await.map_err(failed)?;
    let answer = session.query("SHOW hihooi.last_route").await;
    session.close().await;
    Ok(answer.is_ok())
}

async fn target(args: &HistoryArgs, is_hihooi: bool) -> Result<Option<Target>> {
    if !is_hihooi {
        return match args.faults.iter().find(|fault| **fault != Fault::Commit) {
            Some(fault) => Err(Failure::new(format!(
                "--faults {}: {} is not hihooi",
                fault.name(),
                args.listen
            ))),
            None => Ok(None),
        };
    }
    let admin = login(args, "hihooi")?;
    let data = args.data.as_deref().map(DataDir::new).transpose()?;
    Target::find(admin, &args.database, data, &args.faults).await.map(Some)
}

/// Runs all sessions, and faults beside them; then the final reads.
async fn sessions(
    args: &HistoryArgs,
    login: &Login,
    target: Option<Arc<Target>>,
) -> Result<Recorded> {
    if let Some(target) = &target {
        target.caught_up().await?;
    }
    let shared = Arc::new(Shared {
        login: login.clone(),
        level: args.level,
        transactions: args.transactions,
        changes_commit: args.faults.contains(&Fault::Commit),
        tells_route: target.is_some(),
        start: Instant::now(),
        stop: AtomicBool::new(false),
        begun: AtomicU64::new(0),
        next_value: AtomicI64::new(1),
        next_process: AtomicI64::new(1),
        counts: Mutex::default(),
    });
    let before = discarded(target.as_deref()).await;
    let (over, is_over) = watch::channel(false);
    let random =
        |number: u64| Pcg64::seed_from_u64(args.seed.wrapping_mul(1_000).wrapping_add(number));
    let running = async {
        let recorded = clients(args, &shared, random).await;
        over.send_replace(true);
        (recorded, shared.start.elapsed())
    };
    let faults = async {
        match target.clone() {
            Some(target) => {
                // Generators of sessions have numbers from 1 on.
                let random = |kind| random(100 + kind);
                faults::inject(target, &args.faults, random, is_over).await
            }
            None => Injected::default(),
        }
    };
    let ((records, elapsed), injected) = tokio::join!(running, faults);
    let mut records = records?;
    records.push(client::final_read(&shared).await?);
    records.sort_by_key(|record| record.transaction.invoked);
    let after = discarded(target.as_deref()).await;
    let discarded = before.zip(after).map(|(before, after)| after.saturating_sub(before));
    let counts = shared.counts().clone();
    Ok(Recorded { records, counts, injected, discarded, elapsed })
}

/// Runs all sessions to their end; the first failure stops them all.
async fn clients(
    args: &HistoryArgs,
    shared: &Arc<Shared>,
    random: impl Fn(u64) -> Pcg64,
) -> Result<Vec<Record>> {
    let mut signals = Signals::new()?;
    let mut running = JoinSet::new();
    for number in 1..=args.sessions {
        let draw = Draw::new(random(number), args.keys);
        running.spawn(Client::new(shared.clone(), draw).run());
    }
    let mut ticks = tokio::time::interval(PROGRESS_EVERY);
    ticks.tick().await;
    let (mut records, mut failed) = (Vec::new(), None);
    loop {
        tokio::select! {
            ended = running.join_next() => match ended {
                None => break,
                Some(ended) => match ended.map_err(Failure::new).and_then(|ended| ended) {
                    Ok(more) => records.extend(more),
                    Err(failure) => {
                        shared.stop.store(true, Ordering::Relaxed);
                        failed.get_or_insert(failure);
                    }
                },
            },
            () = signals.next() => {
                if shared.stop.swap(true, Ordering::Relaxed) {
                    return Err(Failure::new("interrupted"));
                }
                tell("interrupted: the sessions end, and the recording is checked");
            }
            _ = ticks.tick() => progress(args, shared),
        }
    }
    failed.map_or(Ok(records), Err)
}

fn progress(args: &HistoryArgs, shared: &Shared) {
    let counts = shared.counts();
    tell(&format!(
        "{} of {} transactions committed, {} failed, {} of unknown outcome; {} s",
        counts.committed,
        args.transactions,
        counts.all_failed(),
        counts.unknown,
        shared.start.elapsed().as_secs()
    ));
}

fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "hihooi: {text}"); // the terminal may be closed
}

/// Answers that hihooi has discarded so far, at all replicas.
async fn discarded(target: Option<&Target>) -> Option<u64> {
    let rows = target?.command("SHOW STATS").await.ok()?;
    Some(rows.iter().filter_map(|row| row["discarded"].parse::<u64>().ok()).sum())
}

/// Judges what was recorded, and prints that; whether the promise was kept.
fn report(args: &HistoryArgs, recorded: &Recorded) -> Result<bool> {
    if let Some(out) = &args.out {
        recording::write(&recorded.records, out)?;
    }
    if recorded.counts.committed == 0 {
        return Err(Failure::new(format!(
            "no transaction committed: {}",
            report::failures(&recorded.counts)
        )));
    }
    let level = args.judge.unwrap_or(args.level);
    let (judged, summary) = promise::judge(&recorded.records, level)?;
    let broken = judged.iter().filter(|judged| !judged.verdict.holds());
    let mut files = Vec::new();
    for (judged, out) in broken.zip(std::iter::repeat(args.out.as_deref())) {
        let Some(out) = out else { break };
        let file = out.with_added_extension(judged.part.name());
        recording::write(&judged.records, &file)?;
        files.push((judged.part, file));
    }
    print::results(&report::text(level, &judged, &summary, recorded, &files))?;
    Ok(judged.iter().all(|judged| judged.verdict.holds()))
}
