//! The output of `plan balance`, as text or as JSON.

use std::fmt::Write as _;

use hihooi_balance::ServerId;
use hihooi_balance::overlap::Figures;
use hihooi_balance::workload::Workload;
use serde_json::{Value, json};

/// How many of a server's transactions the text names.
const NAMES_MAX: usize = 8;

/// Up to how many servers the text has the matrix.
const MATRIX_SERVERS_MAX: usize = 16;

/// What one policy made of the workload.
pub struct Result {
    /// Its name, for mpf with the factor.
    pub policy: String,
    /// A server per transaction.
    pub assigned: Vec<ServerId>,
    /// What that is worth.
    pub figures: Figures,
}

/// All that is to be printed.
pub struct Report {
    /// Number of servers.
    pub servers: usize,
    /// Order of assignment.
    pub order: String,
    /// Seed of the order and of drawn servers.
    pub seed: u64,
    /// What was assigned.
    pub workload: Workload,
    /// By policy.
    pub results: Vec<Result>,
    /// A table of the policies instead of each one's details.
    pub compare: bool,
}

impl Report {
    /// For a person, or as JSON.
    pub fn printed(&self, json: bool) -> String {
        if json { format!("{:#}\n", self.json()) } else { self.text() }
    }

    fn share(&self, weight: u64) -> f64 {
        let whole = self.workload.weight();
        #[allow(clippy::cast_precision_loss)] // a share to be printed
        if whole == 0 { 0.0 } else { weight as f64 / whole as f64 }
    }

    fn text(&self) -> String {
        if self.compare {
            self.comparison()
        } else {
            self.results.iter().map(|result| self.details(result)).collect()
        }
    }

    fn comparison(&self) -> String {
        let mut text = self.heading("all");
        text +=
            "\n               load per server    servers with  overlapping  conflicting weight\n";
        text += "policy         lowest  highest    updates       ratio, mean  across servers\n";
        for result in &self.results {
            let (lowest, highest) = self.extremes(&result.figures);
            let _ = writeln!(
                text,
                "{:<13} {:>7}  {:>7}    {:<12}  {:>11}  {:>18}",
                result.policy,
                percent(lowest),
                percent(highest),
                result.figures.updating_servers(),
                optional(result.figures.mean_overlap()),
                optional(result.figures.across),
            );
        }
        text
    }

    fn heading(&self, policy: &str) -> String {
        format!(
            "policy: {policy}, servers: {}, transactions: {}, order: {}, seed: {}\n",
            self.servers,
            self.workload.transactions.len(),
            self.order,
            self.seed
        )
    }

    fn extremes(&self, figures: &Figures) -> (f64, f64) {
        let lowest = figures.load.iter().copied().min().unwrap_or(0);
        let highest = figures.load.iter().copied().max().unwrap_or(0);
        (self.share(lowest), self.share(highest))
    }

    fn details(&self, result: &Result) -> String {
        let figures = &result.figures;
        let mut text = self.heading(&result.policy);
        text += "\nserver     load  updates  transactions\n";
        for server in 0..self.servers {
            let _ = writeln!(
                text,
                "{:>6}  {:>7}  {:>7}  {}",
                server + 1,
                percent(self.share(figures.load[server])),
                percent(self.share(figures.update_load[server])),
                self.names(result, server),
            );
        }
        text += &matrix(figures);
        let (lowest, highest) = self.extremes(figures);
        let _ = writeln!(text, "\nload: {} to {}", percent(lowest), percent(highest));
        let updating = figures.updating_servers();
        let _ = writeln!(text, "servers with updates: {updating} of {}", self.servers);
        let _ = writeln!(text, "overlapping ratio, mean: {}", optional(figures.mean_overlap()));
        let across = optional(figures.across);
        let _ = writeln!(text, "conflicting weight across servers: {across}");
        text
    }

    /// The heaviest of a server's transactions and how many more there are.
    fn names(&self, result: &Result, server: usize) -> String {
        let all = self.workload.transactions.iter().zip(&result.assigned);
        let mut here: Vec<_> = all
            .filter(|(_, at)| at.index() == server)
            .map(|(transaction, _)| transaction)
            .collect();
        here.sort_by_key(|transaction| std::cmp::Reverse(transaction.weight));
        let names: Vec<&str> = here.iter().take(NAMES_MAX).map(|t| t.name.as_str()).collect();
        let more = here.len() - names.len();
        let names = names.join(" ");
        match (more, here.len()) {
            (_, 0) => "-".to_owned(),
            (0, _) => names,
            _ => format!("{names} and {more} more"),
        }
    }

    fn json(&self) -> Value {
        let results: Vec<Value> = self.results.iter().map(|result| self.result(result)).collect();
        json!({
            "servers": self.servers,
            "transactions": self.workload.transactions.len(),
            "order": self.order,
            "seed": self.seed,
            "results": results,
        })
    }

    fn result(&self, result: &Result) -> Value {
        let figures = &result.figures;
        let shares = |weights: &[u64]| -> Vec<f64> {
            weights.iter().map(|&weight| self.share(weight)).collect()
        };
        let mut value = json!({
            "policy": result.policy,
            "load": shares(&figures.load),
            "update_load": shares(&figures.update_load),
            "servers_with_updates": figures.updating_servers(),
            "overlapping_ratio": figures.overlap,
            "overlapping_ratio_mean": figures.mean_overlap(),
            "conflicting_weight_across_servers": figures.across,
        });
        if !self.compare {
            value["assignment"] = self.assignment(result);
        }
        value
    }

    fn assignment(&self, result: &Result) -> Value {
        let all = self.workload.transactions.iter().zip(&result.assigned);
        all.map(|(transaction, server)| {
            json!({
                "transaction": transaction.name,
                "weight": self.share(transaction.weight.get()),
                "read_only": transaction.update.is_none(),
                "server": server.index() + 1,
            })
        })
        .collect()
    }
}

fn matrix(figures: &Figures) -> String {
    let servers = figures.overlap.len();
    if servers > MATRIX_SERVERS_MAX {
        return format!("\noverlapping ratios of {servers} servers: --json has them\n");
    }
    let mut text =
        "\noverlapping ratio: the row's update weight that conflicts with the column\n".to_owned();
    let columns = (1..=servers).fold(String::new(), |line, server| line + &format!("{server:>8}"));
    text += &format!("      {columns}\n");
    for (row, ratios) in figures.overlap.iter().enumerate() {
        let cells: String = ratios.iter().map(|&r| format!("{:>8}", optional(r))).collect();
        let _ = writeln!(text, "{:>6}{cells}", row + 1);
    }
    text
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn optional(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), percent)
}
