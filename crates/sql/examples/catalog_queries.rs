//! Prints the catalog queries as a psql script, to try them by hand on any server version.

use hihooi_sql::catalog_queries::{BUILTINS, BUILTINS_STATE, QUERIES, SETTINGS};

fn main() {
    for (name, value) in SETTINGS {
        println!("SET {name} = '{value}';");
    }
    println!("BEGIN ISOLATION LEVEL REPEATABLE READ;\n{BUILTINS_STATE};");
    for query in QUERIES.iter().chain([&BUILTINS]) {
        println!("\\echo == {} ({})\n{};", query.name, query.columns.join(", "), query.sql);
    }
    println!("COMMIT;");
}
