//! All black-box tests: one program, since they are linked with the same harness. Each module asks for
//! a process of its own (a shared cluster, ports): `scripts/test` runs it so, and so does
//! `cargo test -p hihooi --test all freshness::`.

mod harness;
mod recorder;

mod admin;
mod authentication;
mod balancing;
mod blocks;
mod check_history;
mod configuration;
mod crash;
mod crowd;
mod ddl;
mod divergence;
mod documentation;
mod follow;
mod frameworks;
mod freshness;
mod frozen;
mod hostile;
mod identity;
mod items;
mod live_history;
mod locks;
mod long_fork;
mod max_apply_delay;
mod metrics;
mod operations;
mod operator;
mod overlooked;
mod passwords;
mod plan_balance;
mod plan_isolation;
mod plan_scale_out;
mod pools;
mod prefix;
mod prepared;
mod privilege;
mod rebuild;
mod rebuilding;
mod recovery;
mod set_aside;
mod settings;
mod snapshots;
mod stopping;
mod sync;
mod tls;
mod tls_servers;
mod tools;
mod transparency;
mod types;
mod unix_sockets;
mod up_errors;
mod upgrade;
mod versions;
