//! The operator's log: where it goes, what it tells, and in which form.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use hihooi_postgres::cluster::file_error;
use serde::{Deserialize, Serialize};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::config::BadConfig;
use crate::failure::Result;

/// What a log file tells unless told otherwise.
const FILE_DEFAULT: &str = "info";
/// What standard error does.
const STDERR_DEFAULT: &str = "warn";

/// The operator's log.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Logging {
    /// What it tells: a level, or a filter such as `hihooi_server=debug`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// How it is written.
    pub format: LogFormat,
}

/// How the operator's log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// Lines that are JSON objects: timestamp, level, target, message, and what else an event has.
    Json,
}

/// The filter in force, once there is a log.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

impl Logging {
    /// Nothing was said of it.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Logging::default()
    }

    /// Checks the filter.
    ///
    /// # Errors
    /// One line that says what is wrong with it.
    pub fn check(&self) -> std::result::Result<(), BadConfig> {
        self.filter_or(FILE_DEFAULT).map(drop)
    }

    fn filter_or(&self, default: &str) -> std::result::Result<EnvFilter, BadConfig> {
        let filter = self.filter.as_deref().unwrap_or(default);
        EnvFilter::try_new(filter)
            .map_err(|error| BadConfig::new(format!("log.filter {filter:?} (--log): {error}")))
    }

    fn filter(&self) -> std::result::Result<EnvFilter, BadConfig> {
        let is_file = LOG.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        self.filter_or(if is_file { FILE_DEFAULT } else { STDERR_DEFAULT })
    }

    /// Sends the operator's log to a file, or to standard error.
    ///
    /// # Errors
    /// A bad filter or a file that can't be written.
    pub fn begin(&self, file: Option<&Path>) -> Result<()> {
        let writer = match file {
            Some(path) => {
                let file = open_log(path)?;
                *LOG.lock().unwrap_or_else(PoisonError::into_inner) = Some((path.to_owned(), file));
                BoxMakeWriter::new(|| ToLog)
            }
            None => BoxMakeWriter::new(std::io::stderr),
        };
        let (filter, handle) = reload::Layer::new(self.filter()?);
        let registry = tracing_subscriber::registry().with(filter);
        let lines = fmt::layer().with_writer(writer).with_ansi(false);
        match self.format {
            LogFormat::Json => registry.with(lines.json().flatten_event(true)).init(),
            LogFormat::Text if file.is_none() && goes_to_the_journal() => {
                registry.with(lines.without_time()).init();
            }
            LogFormat::Text => registry.with(lines).init(),
        }
        let _ = FILTER.set(handle); // there is one log in a process
        Ok(())
    }

    /// Has the log tell what this says from now on.
    pub fn reload(&self) {
        if let (Some(handle), Ok(filter)) = (FILTER.get(), self.filter()) {
            let _ = handle.reload(filter); // the process ends
        }
    }
}

/// As it is written.
impl std::fmt::Display for LogFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        })
    }
}

/// Whether standard error is systemd's journal, which has times of its own (systemd.exec, `$JOURNAL_STREAM`).
fn goes_to_the_journal() -> bool {
    let Ok(file) = nix::sys::stat::fstat(std::io::stderr()) else { return false };
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    stream == format!("{}:{}", file.st_dev, file.st_ino)
}

/// The operator's log, if it is a file.
static LOG: Mutex<Option<(PathBuf, File)>> = Mutex::new(None);

/// Writes to the operator's log.
struct ToLog;

impl Write for ToLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match &mut *LOG.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((_, file)) => file.write(bytes),
            None => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn open_log(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    Ok(opened.map_err(|error| file_error("write", path, &error))?)
}

/// Opens the log file anew: it may have been moved away. Goes on with the old one if that fails.
pub fn open_log_anew() {
    let opened = match &mut *LOG.lock().unwrap_or_else(PoisonError::into_inner) {
        Some((path, file)) => open_log(path).map(|anew| *file = anew),
        None => return,
    };
    match opened {
        Ok(()) => {
            tracing::info!("SIGHUP: the log file is reopened")
        }
        Err(failure) => tracing::error!("SIGHUP: the log file can't be reopened: {failure}"),
    }
}
