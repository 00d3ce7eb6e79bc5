//! The command line. Every key of the configuration file has an option and an environment variable `HIHOOI_*`.
//! Options take precedence over variables, and variables over the file.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use hihooi_replication::schedule::Method;

use crate::bench::BenchCommand;
use crate::check_history::CheckHistoryArgs;
use crate::config::{Config, Database, Level, Listen, SiteConfig, TlsMode, User};
use crate::connect::SslArgs;
use crate::logging::LogFormat;
use crate::plan::PlanCommand;

/// Replication middleware for PostgreSQL: one port, many servers, strictly consistent.
#[derive(Parser, Debug)]
#[command(name = "hihooi", version, about, propagate_version = true, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "Examples:
  hihooi up                            a primary and two replicas on this machine
  psql -h 127.0.0.1 -p 6432 -U postgres postgres
  psql -h 127.0.0.1 -p 6432 -U postgres hihooi -c 'SHOW REPLICAS'
  curl http://127.0.0.1:9432/metrics   what Prometheus gets
  hihooi status                        whether it runs, and how its servers are
  hihooi verify                        compares the replicas with the primary
  hihooi stop
  hihooi serve --config DIR/hihooi.toml";

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Create (the first time) and run a whole cluster on this machine
    #[command(after_help = UP_EXAMPLES)]
    Up(UpArgs),
    /// Run the manager for servers that are already running
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Stop the `up` or `serve` that runs on a data directory
    #[command(after_help = STOP_EXAMPLES)]
    Stop(StopArgs),
    /// Tell whether hihooi runs on a data directory, and how its servers are
    #[command(after_help = STATUS_EXAMPLES)]
    Status(StatusArgs),
    /// Compare the replicas with the primary through a running manager
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyArgs),
    /// Rebuild the replicas of a stopped cluster, as copies of its primary
    #[command(after_help = REBUILD_EXAMPLES)]
    Rebuild(RebuildArgs),
    /// Check whether servers meet hihooi's requirements, and say what to change
    #[command(after_help = CHECK_EXAMPLES)]
    Check(ServeArgs),
    /// Check a recorded history against an isolation level, and show why it fails
    #[command(after_help = crate::check_history::EXAMPLES)]
    CheckHistory(CheckHistoryArgs),
    /// Predict what a cluster would do before building it
    Plan {
        /// What to predict.
        #[command(subcommand)]
        command: PlanCommand,
    },
    /// Put a running cluster under load, and check what it does
    Bench {
        /// What to do.
        #[command(subcommand)]
        command: BenchCommand,
    },
    /// Print a script that completes hihooi's options in a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write the pages of all commands
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// Write hihooi.1 and a page for each command to this directory
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

const UP_EXAMPLES: &str = "Examples:
  hihooi up
  hihooi up --replicas 3 --listen 127.0.0.1:7000 --data /srv/hihooi
  hihooi up --pg-bin /usr/lib/postgresql/15/bin
  hihooi up --listen 0.0.0.0:6432 --hba-file hba.conf --tls-cert-file server.crt --tls-key-file server.key

The first `up` on a data directory creates the cluster; later ones start the same cluster again.
Unless told otherwise, all ports listen on loopback only, and no password is asked for. The superuser and the
database are called `postgres`. Ctrl-C stops the cluster; a second Ctrl-C stops it immediately.

Exit status: 0 stopped as requested, 1 failed (the last line says why).";

const SERVE_EXAMPLES: &str = "Examples:
  hihooi serve --config ./hihooi-data/hihooi.toml
  hihooi serve --data /var/lib/hihooi \\
    --site name=primary,role=primary,host=10.0.0.1,port=5432 \\
    --site name=replica1,role=replica,host=10.0.0.2,port=5432

Exit status: 0 stopped as requested, 1 failed (the last line says why).";

const STOP_EXAMPLES: &str = "Examples:
  hihooi stop
  hihooi stop --data /srv/hihooi --timeout 300
  hihooi stop --immediate

Statements that are running have one second to finish. `up` then stops its servers, which roll back what is open and
write a checkpoint; `serve` leaves the servers alone. With --immediate, `up` stops them at once: the next start
recovers them from their WAL, and nothing that was committed is lost.

Exit status: 0 it has stopped, 1 it has not stopped in time, or can't be stopped, 3 it was not running.";

const STATUS_EXAMPLES: &str = "Examples:
  hihooi status
  hihooi status --data /srv/hihooi
  hihooi status --json

It asks the running process through the socket DIR/admin.sock, which only the user who started hihooi, and root,
can use. No password is needed.

Exit status: 0 the primary and all replicas serve, 1 it is running but not all of them serve, 2 it is running but
does not tell (starting, stopping, stuck), 3 it is not running.";

const VERIFY_EXAMPLES: &str = "Examples:
  hihooi verify
  hihooi verify --data /srv/hihooi           needs no password
  hihooi verify --listen 127.0.0.1:7000
  hihooi verify --listen db.example.com:6432 --sslmode verify-full --sslrootcert ca.crt

Exit status: 0 equal, 1 different, 2 not compared.";

const REBUILD_EXAMPLES: &str = "Examples:
  hihooi rebuild --data ./hihooi-data              show what would be removed and copied
  hihooi rebuild --data ./hihooi-data --yes

Use it if replicas can't apply changes any more, because the replication slot is lost or can't be
decoded, if `hihooi verify` found differences, or if a replica's data is damaged. Stop `hihooi up` before,
and start it again afterwards. The primary keeps all its data, and each server its configuration files.

Exit status: 0 rebuilt (or only shown), 1 failed.";

const CHECK_EXAMPLES: &str = "Examples:
  hihooi check --config ./hihooi-data/hihooi.toml

Exit status: 0 all servers are fit, 1 one is not fit or can't be reached.";

const COMPLETIONS_EXAMPLES: &str = "Examples:
  hihooi completions bash > /etc/bash_completion.d/hihooi
  hihooi completions zsh > /usr/local/share/zsh/site-functions/_hihooi
  hihooi completions fish > ~/.config/fish/completions/hihooi.fish";

const MAN_EXAMPLES: &str = "Examples:
  hihooi man | man -l -
  hihooi man --dir /usr/local/share/man/man1";

/// Arguments of `up`.
#[derive(Args, Clone, Debug)]
pub struct UpArgs {
    /// Number of replicas of the cluster; an existing one gets those that it lacks [default: 2 if it is new]
    #[arg(long, env = "HIHOOI_REPLICAS", value_name = "N")]
    pub replicas: Option<usize>,
    /// Directory of PostgreSQL's server programs [default: found on the PATH or where packages put it]
    #[arg(long, env = "HIHOOI_PG_BIN", value_name = "DIR")]
    pub pg_bin: Option<PathBuf>,
    /// User that runs the servers when started by root [default: postgres, else nobody]
    #[arg(long, env = "HIHOOI_OS_USER", value_name = "NAME")]
    pub os_user: Option<String>,
    /// Settings of the manager.
    #[command(flatten)]
    pub settings: Overrides,
}

/// Arguments of `serve` and `check`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Configuration file
    #[arg(long, env = "HIHOOI_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A server (repeatable; replaces those of the file): name=…,role=…,host=…,port=…,user=…,weight=…,
    /// tls=…,ca_file=…,cert_file=…,key_file=…
    #[arg(long = "site", env = "HIHOOI_SITES", value_delimiter = ';', value_name = "SITE")]
    pub sites: Vec<SiteConfig>,
    /// The replicated database [default: postgres]
    #[arg(long, env = "HIHOOI_DATABASE", value_name = "NAME")]
    pub database: Option<String>,
    /// Settings of the manager.
    #[command(flatten)]
    pub settings: Overrides,
}

/// Arguments of `stop`.
#[derive(Args, Debug)]
pub struct StopArgs {
    /// Data directory of the `up` or `serve` [default: ./hihooi-data, for root /var/lib/hihooi]
    #[arg(long, env = "HIHOOI_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Wait for nothing: cut clients off, and have the servers of `up` end at once
    #[arg(long)]
    pub immediate: bool,
    /// How long to wait until it has ended, seconds
    #[arg(long, value_name = "S", default_value_t = 60)]
    pub timeout: u64,
}

/// Arguments of `status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// Data directory of the `up` or `serve` [default: ./hihooi-data, for root /var/lib/hihooi]
    #[arg(long, env = "HIHOOI_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `verify`.
#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// Data directory of the running manager, which is reached by its own user without a password, through
    /// DIR/admin.sock; --listen does not count then
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Address of the running manager
    #[arg(long, env = "HIHOOI_LISTEN", value_name = "ADDR", default_value_t)]
    pub listen: Listen,
    /// Role to connect as: one of admin_users
    #[arg(long, env = "HIHOOI_ADMIN_USER", value_name = "NAME", default_value = "postgres")]
    pub user: String,
    /// Encryption of the connection.
    #[command(flatten)]
    pub ssl: SslArgs,
}

/// Arguments of `rebuild`.
#[derive(Args, Debug)]
pub struct RebuildArgs {
    /// Data directory of the cluster [default: ./hihooi-data, for root /var/lib/hihooi]
    #[arg(long, env = "HIHOOI_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Do it; without this flag, only show what would be done
    #[arg(long)]
    pub yes: bool,
    /// Directory of PostgreSQL's server programs [default: found on the PATH or where packages put it]
    #[arg(long, env = "HIHOOI_PG_BIN", value_name = "DIR")]
    pub pg_bin: Option<PathBuf>,
    /// User that runs the servers when started by root [default: the owner of the primary's data]
    #[arg(long, env = "HIHOOI_OS_USER", value_name = "NAME")]
    pub os_user: Option<String>,
}

/// The keys of the configuration file as flags and variables.
#[derive(Args, Clone, Debug, Default)]
pub struct Overrides {
    /// Addresses that clients connect to, comma-separated: host:port, or the directory of a Unix socket, such as
    /// /run/hihooi [default: 127.0.0.1:6432]
    #[arg(long, env = "HIHOOI_LISTEN", value_name = "ADDRS")]
    pub listen: Option<Listen>,
    /// Allow listen addresses that other machines can reach without --hba-file, so without passwords
    #[arg(long, env = "HIHOOI_INSECURE")]
    pub insecure: bool,
    /// Data directory [default: ./hihooi-data, for root /var/lib/hihooi]
    #[arg(long, env = "HIHOOI_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Roles that may use the admin database, comma-separated [default: postgres]
    #[arg(long, env = "HIHOOI_ADMIN_USERS", value_delimiter = ',', value_name = "NAMES")]
    pub admin_users: Option<Vec<String>>,
    /// What a role may do in the admin database (repeatable; replaces those of the file): name=…,admin=full or
    /// admin=read
    #[arg(long = "user", env = "HIHOOI_USERS", value_delimiter = ';', value_name = "USER")]
    pub users: Vec<User>,
    /// Rules that say who may connect and how clients prove who they are, as in pg_hba.conf [default: nobody is
    /// asked for a password]
    #[arg(long, env = "HIHOOI_HBA_FILE", value_name = "FILE")]
    pub hba_file: Option<PathBuf>,
    /// Maps from certificates' names to roles for these rules, as in pg_ident.conf
    #[arg(long, env = "HIHOOI_IDENT_FILE", value_name = "FILE")]
    pub ident_file: Option<PathBuf>,
    /// Query for a role's name and stored password (role: $1), asked at the primary instead of pg_authid
    #[arg(long, env = "HIHOOI_AUTH_QUERY", value_name = "QUERY")]
    pub auth_query: Option<String>,
    /// Whether clients may or must use TLS, once there is a certificate [default: prefer]
    #[arg(long, env = "HIHOOI_TLS_MODE", value_name = "MODE")]
    pub tls_mode: Option<TlsMode>,
    /// Certificate for clients' TLS connections, followed by those that certify it, in PEM
    #[arg(long, env = "HIHOOI_TLS_CERT_FILE", value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,
    /// Private key of the certificate, in PEM; only its owner may read it
    #[arg(long, env = "HIHOOI_TLS_KEY_FILE", value_name = "FILE")]
    pub tls_key_file: Option<PathBuf>,
    /// Authorities that certify clients, in PEM; a client's certificate is checked if it has one
    #[arg(long, env = "HIHOOI_TLS_CA_FILE", value_name = "FILE")]
    pub tls_ca_file: Option<PathBuf>,
    /// Server connections per user, database and site [default: 20]
    #[arg(long, env = "HIHOOI_POOL_SIZE", value_name = "N")]
    pub pool_size: Option<usize>,
    /// Longest wait for a server connection, milliseconds [default: 30000]
    #[arg(long, env = "HIHOOI_POOL_WAIT_MS_MAX", value_name = "MS")]
    pub pool_wait_ms_max: Option<u64>,
    /// Close server connections that were unused for this time, milliseconds; 0: never [default: 600000]
    #[arg(long, env = "HIHOOI_POOL_IDLE_MS_MAX", value_name = "MS")]
    pub pool_idle_ms_max: Option<u64>,
    /// Clients at once; 0: any number [default: 10000]
    #[arg(long, env = "HIHOOI_LIMITS_CLIENTS_MAX", value_name = "N")]
    pub limits_clients_max: Option<usize>,
    /// Clients of one role at once; 0: any number [default: 0]
    #[arg(long, env = "HIHOOI_LIMITS_CLIENTS_PER_USER_MAX", value_name = "N")]
    pub limits_clients_per_user_max: Option<usize>,
    /// Clients of one database at once; 0: any number [default: 0]
    #[arg(long, env = "HIHOOI_LIMITS_CLIENTS_PER_DATABASE_MAX", value_name = "N")]
    pub limits_clients_per_database_max: Option<usize>,
    /// How long a client may take until it has proved who it is, milliseconds [default: 60000]
    #[arg(long, env = "HIHOOI_LIMITS_LOGIN_MS_MAX", value_name = "MS")]
    pub limits_login_ms_max: Option<u64>,
    /// End sessions that were idle outside of a transaction for this time, milliseconds; 0: never [default: 0]
    #[arg(long, env = "HIHOOI_LIMITS_IDLE_MS_MAX", value_name = "MS")]
    pub limits_idle_ms_max: Option<u64>,
    /// End sessions that were idle in a transaction for this time, milliseconds; 0: never [default: 0]
    #[arg(long, env = "HIHOOI_LIMITS_TRANSACTION_IDLE_MS_MAX", value_name = "MS")]
    pub limits_transaction_idle_ms_max: Option<u64>,
    /// Consistency level of sessions that don't set it: sync, strict, gssi, rsi-pc, session or weak-si [default: gssi]
    #[arg(long, env = "HIHOOI_CONSISTENCY_DEFAULT", value_name = "LEVEL")]
    pub consistency_default: Option<Level>,
    /// How long a read may wait for a replica before it runs on the primary, milliseconds [default: 100]
    #[arg(long, env = "HIHOOI_CONSISTENCY_WAIT_MS", value_name = "MS")]
    pub consistency_wait_ms: Option<u64>,
    /// How long a commit at level sync waits for a replica, milliseconds; then the replica serves no reads [default: 1000]
    #[arg(long, env = "HIHOOI_CONSISTENCY_SYNC_TIMEOUT_MS", value_name = "MS")]
    pub consistency_sync_timeout_ms: Option<u64>,
    /// Address that serves metrics and health checks over HTTP; off: none [default: with up 127.0.0.1 and the port of
    /// --listen + 3000, else off]
    #[arg(long, env = "HIHOOI_METRICS_LISTEN", value_name = "ADDR")]
    pub metrics_listen: Option<String>,
    /// Run no statements on a replica that has not answered for this time, milliseconds [default: 2000]
    #[arg(long, env = "HIHOOI_SITES_TIMEOUT_MS", value_name = "MS")]
    pub sites_timeout_ms: Option<u64>,
    /// How long a read at a replica may delay changes there, milliseconds [default: 30000]
    #[arg(long, env = "HIHOOI_REPLICA_MAX_APPLY_DELAY_MS", value_name = "MS")]
    pub replica_max_apply_delay_ms: Option<u64>,
    /// Replace a replica that can't apply changes by a copy of the primary, where up runs the servers [default: true]
    #[arg(long, env = "HIHOOI_REPLICA_AUTO_REBUILD", value_name = "BOOL")]
    pub replica_auto_rebuild: Option<bool>,
    /// How a replica decides which transactions it applies in parallel: graph, or for comparison algorithm2
    /// or serial [default: graph]
    #[arg(long, env = "HIHOOI_APPLY_METHOD", value_name = "METHOD")]
    pub apply_method: Option<Method>,
    /// What to log: error, warn, info, debug, or a filter such as hihooi_server=debug [default: info with up, else warn]
    #[arg(long, env = "HIHOOI_LOG", value_name = "FILTER")]
    pub log: Option<String>,
    /// How to log: lines of text, or JSON objects, one a line [default: text]
    #[arg(long, env = "HIHOOI_LOG_FORMAT", value_name = "FORMAT", value_enum)]
    pub log_format: Option<LogFormat>,
}

impl Overrides {
    /// Overrides the values of `config` by those given.
    pub fn put_over(&self, config: &mut Config) {
        put(&self.listen, &mut config.listen);
        config.insecure |= self.insecure;
        put(&self.data, &mut config.data);
        put(&self.admin_users, &mut config.admin_users);
        if !self.users.is_empty() {
            config.users.clone_from(&self.users);
        }
        put_path(&self.hba_file, &mut config.auth.hba_file);
        put_path(&self.ident_file, &mut config.auth.ident_file);
        if self.auth_query.is_some() {
            config.auth.query.clone_from(&self.auth_query);
        }
        put(&self.tls_mode, &mut config.tls.mode);
        put_path(&self.tls_cert_file, &mut config.tls.cert_file);
        put_path(&self.tls_key_file, &mut config.tls.key_file);
        put_path(&self.tls_ca_file, &mut config.tls.ca_file);
        put(&self.pool_size, &mut config.pool.size);
        put(&self.pool_wait_ms_max, &mut config.pool.wait_ms_max);
        put(&self.pool_idle_ms_max, &mut config.pool.idle_ms_max);
        let limits = &mut config.limits;
        put(&self.limits_clients_max, &mut limits.clients_max);
        put(&self.limits_clients_per_user_max, &mut limits.clients_per_user_max);
        put(&self.limits_clients_per_database_max, &mut limits.clients_per_database_max);
        put(&self.limits_login_ms_max, &mut limits.login_ms_max);
        put(&self.limits_idle_ms_max, &mut limits.idle_ms_max);
        put(&self.limits_transaction_idle_ms_max, &mut limits.transaction_idle_ms_max);
        put(&self.consistency_default, &mut config.consistency.default);
        put(&self.consistency_wait_ms, &mut config.consistency.wait_ms);
        put(&self.consistency_sync_timeout_ms, &mut config.consistency.sync_timeout_ms);
        if self.metrics_listen.is_some() {
            config.metrics.listen.clone_from(&self.metrics_listen);
        }
        put(&self.log_format, &mut config.logging.format);
        if self.log.is_some() {
            config.logging.filter.clone_from(&self.log);
        }
        put(&self.sites_timeout_ms, &mut config.all_sites.timeout_ms);
        put(&self.replica_max_apply_delay_ms, &mut config.all_replicas.max_apply_delay_ms);
        put(&self.replica_auto_rebuild, &mut config.all_replicas.auto_rebuild);
        put(&self.apply_method, &mut config.apply.method);
    }
}

impl ServeArgs {
    /// The configuration made from file, variables and options, checked.
    ///
    /// # Errors
    /// One line that says what is wrong where.
    pub fn config(&self) -> Result<Config, crate::config::BadConfig> {
        let mut config = match &self.config {
            Some(file) => Config::read(file)?,
            None => Config::default(),
        };
        self.settings.put_over(&mut config);
        if !self.sites.is_empty() {
            config.sites.clone_from(&self.sites);
        }
        if let Some(name) = &self.database {
            config.databases = vec![Database { name: name.clone() }];
        }
        config.check()?;
        Ok(config)
    }
}

/// A relative path counts from where the command runs, also when it is written to the file.
fn put_path(given: &Option<PathBuf>, target: &mut Option<PathBuf>) {
    if let Some(path) = given {
        *target = Some(std::path::absolute(path).unwrap_or_else(|_| path.clone()));
    }
}

fn put<T: Clone>(given: &Option<T>, target: &mut T) {
    if let Some(value) = given {
        *target = value.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    /// The exit statuses that a command's help tells: texts for 0 to 3.
    fn exit_statuses(help: &str) -> Option<[String; 4]> {
        let told =
            help.split_once("Exit status: ")?.1.trim().trim_end_matches('.').replace('\n', " ");
        let mut texts = <[String; 4]>::default();
        let mut last = 0;
        for part in told.split(", ") {
            match part.split_once(' ').and_then(|(n, text)| Some((n.parse::<usize>().ok()?, text)))
            {
                Some((status, text)) => (last, texts[status]) = (status, text.to_owned()),
                None => texts[last] += &format!(", {part}"),
            }
        }
        Some(texts)
    }

    /// docs/operating.md has the exit statuses that `--help` has.
    #[test]
    fn exit_statuses_are_documented() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let page = std::fs::read_to_string(root.join("docs/operating.md")).expect("a page");
        let cli = Cli::command();
        let of = |prefix: &str, command: &clap::Command| {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let texts = exit_statuses(&help)?.join(" | ").replace("  ", " ");
            Some(format!("| `{prefix} {}` | {texts} |", command.get_name()).replace("  ", " "))
        };
        let mut rows: Vec<String> =
            cli.get_subcommands().filter_map(|command| of("hihooi", command)).collect();
        let bench = cli.find_subcommand("bench").expect("a command");
        rows.extend(bench.get_subcommands().filter_map(|command| of("hihooi bench", command)));
        assert!(rows.len() > 8, "{rows:?}");
        for row in rows {
            assert!(page.contains(&row), "docs/operating.md lacks: {row}");
        }
    }

    #[test]
    fn flags_win_over_the_file() {
        let cli = Cli::parse_from(["hihooi", "up", "--pool-size", "7", "--listen", ":7000"]);
        let Command::Up(args) = cli.command else { panic!("not up") };
        let mut config = Config::default();
        args.settings.put_over(&mut config);
        assert_eq!((config.pool.size, config.listen.to_string().as_str()), (7, ":7000"));
        assert_eq!(config.pool.wait_ms_max, 30_000);
    }

    #[test]
    fn metrics_are_switched_off_by_a_flag() {
        let mut config = Config::default();
        config.metrics.listen = Some(":9000".to_owned());
        Overrides::default().put_over(&mut config);
        assert_eq!(config.metrics.address(), Some(":9000"));
        for off in ["off", ""] {
            let cli = Cli::parse_from(["hihooi", "up", "--metrics-listen", off]);
            let Command::Up(args) = cli.command else { panic!("not up") };
            args.settings.put_over(&mut config);
            assert_eq!(config.metrics.address(), None);
        }
    }
}
