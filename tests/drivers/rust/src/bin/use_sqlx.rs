//! sqlx, with its migrations and its pool.

use std::time::{Duration, Instant};

use drivers::{CANCEL_S_MAX, POOL_SIZE, ROUNDS, Told, WORKERS, refused, run, variable};
use futures_util::TryStreamExt;
use futures_util::future::{join, join_all, try_join_all};
use sqlx::postgres::{PgConnectOptions, PgPoolCopyExt, PgPoolOptions, PgSslMode};
use sqlx::{Acquire, ConnectOptions, Error, PgExecutor, PgPool, query, query_as, query_scalar};

#[derive(Debug, PartialEq, sqlx::Type)]
#[sqlx(type_name = "sqlx_mood", rename_all = "lowercase")]
enum Mood {
    Sad,
    Happy,
}

const UPDATE: &str =
    "UPDATE sqlx_accounts SET balance = balance + $2 WHERE owner = $1 RETURNING balance";
const INSERT: &str = "INSERT INTO sqlx_accounts (owner) VALUES ($1)";

fn state(error: &Error) -> String {
    match error {
        Error::Database(error) => error.code().unwrap_or_default().into_owned(),
        _ => error.to_string(),
    }
}

async fn balance(on: impl PgExecutor<'_>, owner: &str) -> Option<i32> {
    let select = "SELECT balance FROM sqlx_accounts WHERE owner = $1";
    query_scalar(select).bind(owner).fetch_optional(on).await.expect(select)
}

async fn add(on: impl PgExecutor<'_>, owner: &str, amount: i32) -> Result<i32, Error> {
    query_scalar(UPDATE).bind(owner).bind(amount).fetch_one(on).await
}

struct Program {
    pool: PgPool,
}

impl Program {
    async fn totals(&self, like: &str) -> (i64, i64) {
        let select = "SELECT count(*), sum(balance) FROM sqlx_accounts WHERE owner LIKE $1";
        query_as(select).bind(like).fetch_one(&self.pool).await.expect(select)
    }

    async fn login(&self) -> Told {
        // Everything else is in libpq's environment variables, which sqlx reads as well.
        let options = PgConnectOptions::new();
        refused(options.clone().password("wrong").connect().await, "28P01", state);
        refused(options.clone().ssl_mode(PgSslMode::Disable).connect().await, "28000", state);
        let other = options.ssl_root_cert(variable("OTHER_SSLROOTCERT"));
        refused(other.connect().await, "UnknownIssuer", state);
        ""
    }

    async fn migration(&self) -> Told {
        for drop in [
            "DROP TABLE IF EXISTS sqlx_accounts, _sqlx_migrations",
            "DROP TYPE IF EXISTS sqlx_mood",
        ] {
            query(drop).execute(&self.pool).await.expect(drop);
        }
        // It takes an advisory lock, so that others don't migrate meanwhile.
        let migrations = sqlx::migrate!();
        migrations.run(&self.pool).await.expect("migrations");
        migrations.run(&self.pool).await.expect("nothing to do any more");
        let columns =
            "SELECT count(*) FROM information_schema.columns WHERE table_name = 'sqlx_accounts'";
        assert_eq!(query_scalar::<_, i64>(columns).fetch_one(&self.pool).await.expect(columns), 5);
        ""
    }

    async fn crud(&self) -> Told {
        // It asks the catalogs for the type of `mood` when it first meets it.
        let insert = "INSERT INTO sqlx_accounts (owner, balance, mood, notes) VALUES ($1, $2, $3, $4) RETURNING id";
        let mut ids: Vec<i64> = Vec::new();
        for (owner, balance) in [("ada", 10), ("bob", 20), ("eve", 30)] {
            let notes = sqlx::types::Json(vec![balance]);
            let made = query_scalar(insert).bind(owner).bind(balance).bind(Mood::Happy).bind(notes);
            ids.push(made.fetch_one(&self.pool).await.expect(insert));
        }
        let select = "SELECT owner, balance, mood, notes FROM sqlx_accounts WHERE id = $1";
        let found: (String, i32, Mood, sqlx::types::Json<Vec<i32>>) =
            query_as(select).bind(ids[1]).fetch_one(&self.pool).await.expect(select);
        assert_eq!(found, ("bob".to_owned(), 20, Mood::Happy, sqlx::types::Json(vec![20])));
        assert_eq!(add(&self.pool, "bob", 5).await.expect(UPDATE), 25);
        let delete = "DELETE FROM sqlx_accounts WHERE owner = 'eve'";
        assert_eq!(query(delete).execute(&self.pool).await.expect(delete).rows_affected(), 1);
        assert_eq!(self.totals("%").await, (2, 35));
        ""
    }

    async fn prepared(&self) -> Told {
        // It prepares every statement once at each connection.
        join_all((0..POOL_SIZE).map(|_| async {
            for (owner, expected) in
                [("ada", Some(10)), ("bob", Some(25)), ("nobody", None)].repeat(10)
            {
                assert_eq!(balance(&self.pool, owner).await, expected);
            }
        }))
        .await;
        ""
    }

    async fn batch(&self) -> Told {
        // It has none; arrays become rows.
        let insert = "INSERT INTO sqlx_accounts (owner, balance) SELECT 'batch ' || n, n FROM unnest($1::int[]) n";
        let numbers: Vec<i32> = (0..100).collect();
        assert_eq!(
            query(insert).bind(numbers).execute(&self.pool).await.expect(insert).rows_affected(),
            100
        );
        assert_eq!(self.totals("batch%").await, (100, 4950));
        ""
    }

    async fn copy(&self) -> Told {
        let mut into = self
            .pool
            .copy_in_raw("COPY sqlx_accounts (owner, balance) FROM STDIN")
            .await
            .expect("COPY");
        for n in 0..1000 {
            into.send(format!("copy {n}\t{n}\n").as_bytes()).await.expect("COPY");
        }
        assert_eq!(into.finish().await.expect("COPY"), 1000);
        let out = "COPY (SELECT balance FROM sqlx_accounts WHERE owner LIKE 'copy%' ORDER BY balance) TO STDOUT";
        let out = self.pool.copy_out_raw(out).await.expect("COPY");
        let chunks: Vec<_> = out.map_ok(|bytes| bytes.to_vec()).try_collect().await.expect("COPY");
        let expected: String = (0..1000).map(|n| format!("{n}\n")).collect();
        assert_eq!(String::from_utf8(chunks.concat()).expect("text"), expected);
        ""
    }

    async fn retry(&self) -> Told {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut own =
                self.pool.begin_with("BEGIN ISOLATION LEVEL SERIALIZABLE").await.expect("BEGIN");
            balance(&mut *own, "ada").await.expect("a row");
            if attempts == 1 {
                // Another session is faster.
                add(&self.pool, "ada", 100).await.expect(UPDATE);
            }
            match add(&mut *own, "ada", 1).await {
                Ok(_) => break own.commit().await.expect("COMMIT"),
                Err(error) => assert_eq!(state(&error), "40001"),
            }
        }
        assert_eq!(attempts, 2);
        let mut own = self.pool.begin().await.expect("BEGIN");
        let mut inner = own.begin().await.expect("SAVEPOINT");
        refused(query(INSERT).bind("ada").execute(&mut *inner).await, "23505", state);
        inner.rollback().await.expect("ROLLBACK TO");
        query(INSERT).bind("ada again").execute(&mut *own).await.expect(INSERT);
        own.commit().await.expect("COMMIT");
        assert_eq!(
            (balance(&self.pool, "ada").await, balance(&self.pool, "ada again").await),
            (Some(111), Some(0))
        );
        ""
    }

    async fn cancel(&self) -> Told {
        // sqlx has no means of its own. SQL's looks for the statement in pg_stat_activity: that of the primary, so
        // that it must be one that writes.
        const SLOW: &str =
            "UPDATE sqlx_accounts SET balance = 0 FROM pg_sleep(30) WHERE owner = 'bob'";
        let began = Instant::now();
        let cancelled = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query = $1 AND state = 'active'";
            query_scalar::<_, bool>(cancel).bind(SLOW).fetch_all(&self.pool).await.expect(cancel)
        };
        let (slept, cancelled) = join(query(SLOW).execute(&self.pool), cancelled).await;
        refused(slept, "57014", state);
        assert_eq!(cancelled, [true]);
        assert!(began.elapsed() < Duration::from_secs(CANCEL_S_MAX));
        assert_eq!(balance(&self.pool, "bob").await, Some(25));
        "by pg_cancel_backend, sqlx has nothing"
    }

    async fn pool(&self) -> Told {
        let found = join_all((0..20).map(|_| balance(&self.pool, "bob"))).await;
        assert_eq!(found, [Some(25); 20]);
        assert!(self.pool.size() <= POOL_SIZE);
        // A transaction that failed leaves nothing to who gets the connection next.
        let mut own = self.pool.begin().await.expect("BEGIN");
        add(&mut *own, "bob", -25).await.expect(UPDATE);
        refused(query("SELECT 1 / 0").execute(&mut *own).await, "22012", state);
        drop(own);
        assert_eq!(
            join_all((0..POOL_SIZE).map(|_| balance(&self.pool, "bob"))).await,
            [Some(25); POOL_SIZE as usize]
        );
        ""
    }

    async fn together(&self) -> Told {
        query(INSERT).bind("shared").execute(&self.pool).await.expect(INSERT);
        let workers = (0..WORKERS).map(|_| {
            let pool = self.pool.clone();
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let written = add(&pool, "shared", 1).await.expect(UPDATE);
                    let read = balance(&pool, "shared").await.expect("a row");
                    assert!(read >= written, "read {read} after having written {written}");
                }
            })
        });
        try_join_all(workers).await.expect("all workers");
        assert_eq!(balance(&self.pool, "shared").await, Some(WORKERS * ROUNDS));
        ""
    }
}

#[tokio::main]
async fn main() {
    let options = PgPoolOptions::new().max_connections(POOL_SIZE);
    let pool = options.connect_with(PgConnectOptions::new()).await.expect("a connection");
    let program = Program { pool };
    run!(program);
}
