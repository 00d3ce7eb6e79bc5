//! `hihooi status`: whether hihooi runs on a data directory, and how its servers are. The lock tells whether it runs
//! (`holder.rs`), the admin database how its servers are.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::Value;

use crate::admin_client::{Admin, Table};
use crate::cli::StatusArgs;
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::exit::Exit;
use crate::failure::Result;
use crate::holder::Holder;
use crate::print;
use crate::process;

/// How long the manager may take for each answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// What a text has of each server.
const COLUMNS: [&str; 7] = ["site", "role", "state", "applied", "lag_entries", "lag_ms", "reason"];

/// Runs the command.
#[must_use]
pub fn run(args: &StatusArgs) -> Exit {
    let told = look(args).and_then(|status| {
        print::results(&if args.json { status.json() } else { status.text() })?;
        Ok(status.exit())
    });
    told.unwrap_or_else(|failure| {
        eprintln!("hihooi: {failure}");
        Exit::Unknown
    })
}

/// How it is.
#[derive(Serialize, Debug)]
struct Status {
    /// In one line.
    verdict: String,
    is_running: bool,
    /// Whether all servers serve, if that is known.
    is_well: Option<bool>,
    data: String,
    process: Option<i32>,
    /// Seconds since 1970.
    start_time_seconds: Option<u64>,
    version: Option<String>,
    listen: Option<String>,
    /// What SHOW SERVERS and SHOW REPLICAS tell, by column.
    sites: Vec<Site>,
}

type Site = BTreeMap<String, Value>;

fn look(args: &StatusArgs) -> Result<Status> {
    let data = DataDir::new(&args.data.clone().unwrap_or_else(|| Config::default().data))?;
    let mut status = Status {
        verdict: "not running".to_owned(),
        is_running: false,
        is_well: None,
        data: data.path().display().to_string(),
        process: None,
        start_time_seconds: None,
        version: None,
        listen: None,
        sites: Vec::new(),
    };
    let Some(holder) = Holder::find(&data)? else { return Ok(status) };
    status.is_running = true;
    status.process = Some(holder.pid);
    status.start_time_seconds =
        holder.since.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs());
    if holder.command == "rebuild" {
        status.verdict = "the replicas are being rebuilt".to_owned();
    } else if let Err(why) = process::block_on(status.ask(&data)) {
        status.verdict = format!("running, but it does not tell how its servers are: {why}");
    }
    Ok(status)
}

impl Status {
    /// Asks the manager.
    async fn ask(&mut self, data: &DataDir) -> Result<()> {
        let mut admin = Admin::at(data, "hihooi status", Some(ANSWER_LIMIT)).await?;
        let version = admin.query("SHOW VERSION").await?;
        let config = admin.query("SHOW CONFIG").await?;
        let servers = records(&admin.query("SHOW SERVERS").await?);
        let replicas = records(&admin.query("SHOW REPLICAS").await?);
        self.version = version.rows.first().and_then(|row| row.first()).cloned();
        let listen = config.rows.iter().find(|row| row[0] == "listen");
        self.listen = listen.map(|row| row[1].clone());
        self.sites = servers.into_iter().map(|server| with_replica(server, &replicas)).collect();
        self.judge();
        Ok(())
    }

    fn judge(&mut self) {
        let (replicas, primary): (Vec<&Site>, Vec<&Site>) =
            self.sites.iter().partition(|site| site["role"] == "replica");
        let serving = replicas.iter().filter(|site| serves(site)).count();
        self.verdict = format!("{serving} of {} replicas serve reads", replicas.len());
        self.is_well = Some(serving == replicas.len());
        if let Some(primary) = primary.iter().find(|site| !serves(site)) {
            let state = text(primary, "state");
            self.verdict = format!("the primary is {state}; {}", self.verdict);
            self.is_well = Some(false);
        }
    }

    fn exit(&self) -> Exit {
        match self.is_running {
            true => self.is_well.map_or(Exit::Unknown, Exit::answer),
            false => Exit::NotRunning,
        }
    }

    fn json(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        text.expect("texts and numbers are always valid JSON") + "\n"
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n", self.verdict);
        let Some(process) = self.process else {
            let _ = writeln!(text, "no hihooi runs on {}", self.data);
            return text;
        };
        let version = self.version.as_deref().unwrap_or("hihooi");
        let _ = write!(text, "{version}, process {process}");
        if let Some(start) = self.start_time_seconds {
            let since = SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_secs(start));
            let _ = write!(text, ", for {}", spoken(since.unwrap_or_default()));
        }
        if let Some(listen) = &self.listen {
            let _ = write!(text, ", clients at {listen}");
        }
        let _ = writeln!(text, ", data in {}", self.data);
        if !self.sites.is_empty() {
            let columns = COLUMNS.map(str::to_owned).to_vec();
            let cells =
                |site: &Site| COLUMNS.iter().map(|column| self::text(site, column)).collect();
            let rows = self.sites.iter().map(cells).collect();
            let _ = write!(text, "\n{}", Table { columns, rows }.to_text());
        }
        text
    }
}

/// The rows by column; numbers are numbers, and what is empty is null.
fn records(table: &Table) -> Vec<Site> {
    let value = |text: &String| match text.as_str() {
        "" => Value::Null,
        text => text
            .parse::<u64>()
            .map(Value::from)
            .or_else(|_| text.parse::<f64>().map(Value::from))
            .unwrap_or_else(|_| text.into()),
    };
    let record = |row: &Vec<String>| {
        table.columns.iter().cloned().zip(row.iter().map(value)).collect::<Site>()
    };
    table.rows.iter().map(record).collect()
}

/// A server with what is known of it as a replica.
fn with_replica(mut server: Site, replicas: &[Site]) -> Site {
    if let Some(replica) = replicas.iter().find(|replica| replica["replica"] == server["site"]) {
        let further = replica.iter().filter(|(column, _)| *column != "replica");
        server.extend(further.map(|(column, value)| (column.clone(), value.clone())));
    }
    server
}

/// Whether clients' statements run there.
fn serves(site: &Site) -> bool {
    let gets_none = site.get("share_percent").is_some_and(|share| *share == 0);
    ["serving", "catching_up"].contains(&text(site, "state").as_str()) && !gets_none
}

fn text(site: &Site, column: &str) -> String {
    match site.get(column) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

/// A time in its two largest units.
fn spoken(time: Duration) -> String {
    let s = time.as_secs();
    match (s / 86_400, s / 3_600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, min, s) => format!("{min} min {s} s"),
        (0, h, min, _) => format!("{h} h {min} min"),
        (days, h, ..) => format!("{days} d {h} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(text: &str) -> Site {
        serde_json::from_str(text).expect("a record")
    }

    fn judged(sites: &[&str]) -> (String, Exit) {
        let mut status = Status {
            verdict: String::new(),
            is_running: true,
            is_well: None,
            data: String::new(),
            process: None,
            start_time_seconds: None,
            version: None,
            listen: None,
            sites: sites.iter().map(|text| site(text)).collect(),
        };
        status.judge();
        (status.verdict.clone(), status.exit())
    }

    #[test]
    fn all_is_well_when_all_serve() {
        let primary = r#"{"site": "primary", "role": "primary", "state": "serving"}"#;
        let away = r#"{"site": "primary", "role": "primary", "state": "unreachable"}"#;
        let good = r#"{"site": "r1", "role": "replica", "state": "serving", "share_percent": 100}"#;
        let behind =
            r#"{"site": "r2", "role": "replica", "state": "catching_up", "share_percent": 7}"#;
        let silent = r#"{"site": "r2", "role": "replica", "state": "serving", "share_percent": 0}"#;
        let paused =
            r#"{"site": "r2", "role": "replica", "state": "paused", "share_percent": 100}"#;
        let told = |sites: &[&str]| judged(sites);
        assert_eq!(told(&[primary]), ("0 of 0 replicas serve reads".to_owned(), Exit::Done));
        let all = ("2 of 2 replicas serve reads".to_owned(), Exit::Done);
        assert_eq!(told(&[primary, good, behind]), all);
        for bad in [silent, paused] {
            let one = ("1 of 2 replicas serve reads".to_owned(), Exit::Failed);
            assert_eq!(told(&[primary, good, bad]), one, "{bad}");
        }
        let headless = "the primary is unreachable; 1 of 1 replicas serve reads".to_owned();
        assert_eq!(told(&[away, good]), (headless, Exit::Failed));
    }

    #[test]
    fn times_have_two_units() {
        let spoken = |s| spoken(Duration::from_secs(s));
        assert_eq!([spoken(59), spoken(61), spoken(7_260)], ["59 s", "1 min 1 s", "2 h 1 min"]);
        assert_eq!(spoken(86_400 * 3 + 3_600), "3 d 1 h");
    }
}
