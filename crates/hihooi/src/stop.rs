//! `hihooi stop`: stops the `up` or `serve` that runs on a data directory, and waits until it has ended.

use std::time::{Duration, Instant};

use hihooi_postgres::cluster::pidfile::{Occupant, occupant};
use rustix::process::Signal;

use crate::cli::StopArgs;
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::holder::Holder;
use crate::process::tell;

/// If it takes longer, what is waited for is told this often.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Runs the command.
#[must_use]
pub fn run(args: &StopArgs) -> Exit {
    stop(args).unwrap_or_else(|failure| {
        eprintln!("hihooi: {failure}");
        Exit::Failed
    })
}

fn stop(args: &StopArgs) -> Result<Exit> {
    let data = DataDir::new(&args.data.clone().unwrap_or_else(|| Config::default().data))?;
    let Some(holder) = Holder::find(&data)? else {
        eprintln!("hihooi: not running on {}", data.path().display());
        return Ok(Exit::NotRunning);
    };
    if holder.command == "rebuild" {
        return Err(Failure::new(format!(
            "process {} is rebuilding the replicas: wait for its end, or interrupt it with Ctrl-C and \
             repeat `hihooi rebuild` later",
            holder.pid
        )));
    }
    holder.signal(if args.immediate { Signal::QUIT } else { Signal::TERM })?;
    wait(&holder, &data, Duration::from_secs(args.timeout))?;
    tell(format!("stopped (process {})", holder.pid));
    Ok(Exit::Done)
}

fn wait(holder: &Holder, data: &DataDir, limit: Duration) -> Result<()> {
    let began = Instant::now();
    loop {
        let left = limit.saturating_sub(began.elapsed());
        if holder.wait(left.min(TELL_EVERY))? {
            return Ok(());
        }
        let (pid, for_s) = (holder.pid, began.elapsed().as_secs());
        let awaited = awaited(data);
        if began.elapsed() >= limit {
            return Err(Failure::new(format!(
                "process {pid} has not ended after {for_s} s ({awaited}). It goes on stopping: wait longer \
                 (--timeout), or use --immediate"
            )));
        }
        tell(format!("waiting for process {pid} to end, for {for_s} s now: {awaited}"));
    }
}

/// What a process that stops may be waiting for.
fn awaited(data: &DataDir) -> String {
    let Ok(config) = Config::read(&data.config()) else {
        return "it closes its connections".to_owned();
    };
    let runs = |name: &&str| matches!(occupant(&data.file(name)), Occupant::Server { .. });
    let running: Vec<&str> =
        config.sites.iter().map(|site| site.name.as_str()).filter(runs).collect();
    match running.is_empty() {
        true => "it closes its connections".to_owned(),
        false => format!("{} still running, a checkpoint may take minutes", running.join(", ")),
    }
}
