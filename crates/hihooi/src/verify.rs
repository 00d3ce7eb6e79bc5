//! `hihooi verify`: makes the running manager compare the replicas with the primary, through the admin
//! database, and prints the result.

use crate::admin_client::{Admin, Table};
use crate::cli::VerifyArgs;
use crate::data_dir::DataDir;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::process;

/// The column of a result row that tells whether its replica is equal.
const VERDICT_COLUMN: &str = "result";
/// What it says then.
const EQUAL: &str = "equal";

/// Runs the command; the exit status is 0 equal, 1 different, 2 not compared.
#[must_use]
pub fn run(args: &VerifyArgs) -> Exit {
    match process::block_on(verify(args)) {
        Ok(are_equal) => Exit::answer(are_equal),
        Err(failure) => {
            eprintln!("hihooi: {failure}");
            Exit::Unknown
        }
    }
}

async fn verify(args: &VerifyArgs) -> Result<bool> {
    let application = "hihooi verify";
    let mut admin = match &args.data {
        Some(data) => Admin::at(&DataDir::new(data)?, application, None).await?,
        None => Admin::connect(args.ssl.address(&args.listen)?, &args.user, application).await?,
    };
    let table = admin.query("VERIFY").await?;
    print!("{}", table.to_text());
    are_equal(&table)
}

fn are_equal(table: &Table) -> Result<bool> {
    let at = table.columns.iter().position(|column| column == VERDICT_COLUMN);
    let at = at.ok_or_else(|| Failure::new("the manager sent no result"))?;
    Ok(table.rows.iter().all(|row| row.get(at).is_some_and(|value| value == EQUAL)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[[&str; 2]]) -> Table {
        Table {
            columns: vec!["replica".to_owned(), VERDICT_COLUMN.to_owned()],
            rows: rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect(),
        }
    }

    #[test]
    fn one_different_replica_makes_the_whole_different() {
        let equal = [["replica1", "equal"], ["replica2", "equal"]];
        assert_eq!(are_equal(&table(&equal)), Ok(true));
        let different = [["replica1", "equal"], ["replica2", "different"]];
        assert_eq!(are_equal(&table(&different)), Ok(false));
        assert!(are_equal(&Table::default()).is_err(), "no result is no equality");
    }
}
