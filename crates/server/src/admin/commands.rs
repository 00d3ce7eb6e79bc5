//! The commands of the admin database, in one table: what is typed, what it answers, and what it is
//! for. Parsing, `SHOW HELP`, the error about an unknown command and docs/admin.md all come from it.

use super::words;

/// What a command does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// `SHOW REPLICAS`.
    Replicas,
    /// `SHOW SERVERS`.
    Servers,
    /// `SHOW POOLS`.
    Pools,
    /// `SHOW CLIENTS`.
    Clients,
    /// `SHOW STATS`.
    Stats,
    /// `SHOW CONFIG`.
    Config,
    /// `SHOW VERSION`.
    Version,
    /// `SHOW HELP`.
    Help,
    /// `PAUSE REPLICA`.
    Pause,
    /// `RESUME REPLICA`.
    Resume,
    /// `VERIFY`.
    Verify,
}

/// A command.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Command {
    /// What is typed: keywords in upper case, `name` for an argument.
    pub syntax: &'static str,
    /// What it does.
    pub action: Action,
    /// What it is for, a sentence.
    pub help: &'static str,
    /// The columns of its answer, each with what it tells; none for what only does something.
    pub columns: &'static [(&'static str, &'static str)],
}

impl Command {
    /// The names of the columns.
    pub(super) fn column_names(&self) -> Vec<&'static str> {
        self.columns.iter().map(|(name, _)| *name).collect()
    }

    /// The argument that these words give, empty if it takes none; `None` if they are another
    /// command.
    fn argument<'a>(&self, words: &'a [String]) -> Option<&'a str> {
        let mut argument = "";
        let syntax: Vec<&str> = self.syntax.split(' ').collect();
        if syntax.len() != words.len() {
            return None;
        }
        for (wanted, word) in syntax.into_iter().zip(words) {
            match wanted {
                "name" => argument = word,
                keyword if keyword.eq_ignore_ascii_case(word) => {}
                _ => return None,
            }
        }
        Some(argument)
    }
}

/// The command of a text, and its argument.
pub(super) fn find(text: &str) -> Option<(&'static Command, String)> {
    let words = words(text);
    COMMANDS.iter().find_map(|command| Some((command, command.argument(&words)?.to_owned())))
}

/// All commands, in the order in which help and documentation list them.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        syntax: "SHOW REPLICAS",
        action: Action::Replicas,
        help: "Lists the replicas: their state, how far they have applied the log, and how long \
               transactions take to become visible there.",
        columns: &[
            ("replica", "its name"),
            (
                "state",
                "`cloning` (its first copy is being made), `catching_up`, `serving`, `paused`, \
                 `failed` (not read), `different` (known to differ from the primary, hence not \
                 read)",
            ),
            ("applied", "the position in the log (TSID) up to which it has applied everything"),
            (
                "lag_entries",
                "transactions that the primary had committed when the command was sent and that \
                 are not applied there; NULL if the primary's position is not known",
            ),
            ("lag_ms", "how long ago the oldest of them was committed, in milliseconds"),
            (
                "apply_median_us",
                "microseconds from a transaction's commit at the primary until it was visible at \
                 the replica: the median of some thousand recent ones, to within 1 %",
            ),
            ("apply_p99_us", "the same, 99th percentile"),
            ("reason", "why it is in this state or behind; NULL if there is nothing to say"),
            ("weight", "its share of reads, compared with other replicas' (`[[site]]` weight)"),
            (
                "share_percent",
                "how much of its weight it gets now: less than 100 after it was away, 0 while it isn't read, or its \
                 reads fail or aren't answered (docs/routes.md)",
            ),
            (
                "slowdown",
                "how many times as long its reads take as these statements usually do; 1.00 if there were none \
                 lately",
            ),
        ],
    },
    Command {
        syntax: "SHOW SERVERS",
        action: Action::Servers,
        help: "Lists the PostgreSQL servers of the cluster.",
        columns: &[
            ("site", "the server's name"),
            ("role", "`primary` or `replica`"),
            ("host", "where it listens"),
            ("port", "where it listens"),
            ("state", "a replica's state; the primary's is `serving` or `unreachable`"),
            ("active", "statements of clients that run there now"),
        ],
    },
    Command {
        syntax: "SHOW POOLS",
        action: Action::Pools,
        help: "Lists the pools of server connections, one for each site, user and database.",
        columns: &[
            ("site", "the server's name"),
            ("user", "the role that its connections belong to"),
            ("database", "the database that they are connected to"),
            ("used", "connections that are used by sessions now"),
            ("idle", "connections that are open and free"),
            ("size", "the most that there may be (`pool.size`)"),
        ],
    },
    Command {
        syntax: "SHOW CLIENTS",
        action: Action::Clients,
        help: "Lists the sessions of clients and where they last ran.",
        columns: &[
            ("id", "the process number in the session's cancel key"),
            ("user", "the session's role"),
            ("database", "its database"),
            ("application_name", "as the client gave it when it connected"),
            ("address", "the client's address"),
            ("state", "`idle`, `active` or `in transaction`"),
            ("site", "where its statement runs now; NULL if none runs"),
            ("last_route", "where its previous statement ran and why (docs/routes.md)"),
            ("age_s", "seconds since it connected"),
        ],
    },
    Command {
        syntax: "SHOW STATS",
        action: Action::Stats,
        help: "Counts statements at each site since hihooi was started.",
        columns: &[
            ("site", "the server's name"),
            (
                "reads",
                "statements that only read; BEGIN, COMMIT and ROLLBACK don't count (a pipeline up to its Sync counts as one)",
            ),
            ("writes", "statements that write or may write"),
            ("commits", "transactions that wrote something and were committed"),
            ("errors", "statements that failed"),
            (
                "misjudged",
                "statements that were sent to a replica as reads and turned out to write; they \
                 ran on the primary instead",
            ),
            (
                "discarded",
                "answers of a replica that were discarded, since they may have shown two transactions in \
                 another order than the primary did; the reads ran again",
            ),
        ],
    },
    Command {
        syntax: "SHOW CONFIG",
        action: Action::Config,
        help: "Lists the settings that are in force.",
        columns: &[("key", "as in hihooi.toml"), ("value", "its value")],
    },
    Command {
        syntax: "SHOW VERSION",
        action: Action::Version,
        help: "Shows the version of hihooi.",
        columns: &[("version", "its version")],
    },
    Command {
        syntax: "SHOW HELP",
        action: Action::Help,
        help: "Lists these commands.",
        columns: &[("command", "what to type"), ("help", "what it is for")],
    },
    Command {
        syntax: "PAUSE REPLICA name",
        action: Action::Pause,
        help: "Stops applying changes at a replica; it still serves reads of rows that have not \
               changed since.",
        columns: &[],
    },
    Command {
        syntax: "RESUME REPLICA name",
        action: Action::Resume,
        help: "Applies changes at a replica again, and reads it again: after PAUSE REPLICA, or \
               after what made it fail or differ was repaired there.",
        columns: &[],
    },
    Command {
        syntax: "VERIFY",
        action: Action::Verify,
        help: "Compares the replicas with the primary at one position of the log, as `hihooi \
               verify` does: one row for an equal replica, else one for each difference.",
        columns: &[
            ("replica", "its name"),
            ("tsid", "the position in the log at which they were compared"),
            ("tables", "tables that were compared"),
            ("rows", "rows that were compared"),
            ("result", "`equal` or `different`"),
            ("object", "what differs"),
            ("detail", "how it differs"),
        ],
    },
];

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::path::{Path, PathBuf};

    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// docs/admin.md.
    fn page() -> String {
        let mut page = "# The admin database\n\n\
            Connect with any client to the database `hihooi`, as one of the roles in `admin_users`.\n\
            It understands the following commands instead of SQL. Keywords may be in lower case,\n\
            names are folded to lower case unless they stand in double quotes.\n"
            .to_owned();
        for command in COMMANDS {
            let _ = write!(page, "\n## {}\n\n{}\n", command.syntax, command.help);
            if !command.columns.is_empty() {
                page.push_str("\n| column | |\n|---|---|\n");
            }
            for (name, tells) in command.columns {
                let _ = writeln!(page, "| `{name}` | {tells} |");
            }
        }
        page
    }

    /// The documentation says what the table says; `HIHOOI_BLESS=1` writes it anew.
    #[test]
    fn the_documentation_is_this_table() {
        let file = root().join("docs/admin.md");
        if std::env::var_os("HIHOOI_BLESS").is_some() {
            std::fs::write(&file, page()).expect("docs/admin.md is written");
        }
        let known = std::fs::read_to_string(&file).expect("docs/admin.md");
        assert_eq!(known, page(), "docs/admin.md: run this test with HIHOOI_BLESS=1");
    }

    /// README.md has every command, and no other.
    #[test]
    fn the_readme_has_all_commands() {
        let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md");
        for command in COMMANDS {
            let quoted = format!("`{}`", command.syntax);
            assert!(readme.contains(&quoted), "README.md lacks {quoted}");
        }
        for quoted in readme.split('`').skip(1).step_by(2) {
            let is_ours = ["SHOW ", "PAUSE ", "RESUME ", "VERIFY"]
                .iter()
                .any(|word| quoted.starts_with(word));
            if is_ours && !quoted.contains("hihooi.") {
                assert!(find(quoted).is_some(), "README.md has `{quoted}`, which is no command");
            }
        }
    }

    #[test]
    fn commands_are_found_by_their_words() {
        for command in COMMANDS {
            let typed = command.syntax.replace(" name", " \"Replica1\"");
            for text in [&typed, &format!("  {} ; ", typed.replace("SHOW", "show"))] {
                let (found, argument) = find(text).expect("known");
                assert_eq!(found, command);
                assert_eq!(argument == "Replica1", typed != command.syntax, "{text}");
            }
        }
        assert_eq!(
            find("pause replica Replica1").map(|found| found.1).as_deref(),
            Some("replica1")
        );
        for wrong in ["", "SHOW", "SHOW NONSENSE", "PAUSE REPLICA", "VERIFY replica1", "RESUME"] {
            assert!(find(wrong).is_none(), "{wrong}");
        }
    }
}
