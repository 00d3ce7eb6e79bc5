// Drizzle's migrations and query builder, over node-postgres.
import assert from "node:assert";
import { asc, count, eq, like, sql, sum } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { migrate } from "drizzle-orm/node-postgres/migrator";
import { bigserial, index, integer, jsonb, pgEnum, pgTable, text } from "drizzle-orm/pg-core";
import pg from "pg";
import { equal, POOL_SIZE, range, refused, ROUNDS, run, settings, sleep, trusting, WORKERS } from "./outline.mjs";

const mood = pgEnum("drizzle_mood", ["sad", "happy"]);
const accounts = pgTable("drizzle_accounts", {
  id: bigserial({ mode: "number" }).primaryKey(),
  owner: text().notNull().unique(),
  balance: integer().notNull().default(0),
  mood: mood(),
  notes: jsonb().default({}),
}, (table) => [index("drizzle_accounts_balance").on(table.balance)]);

// Everything else is in libpq's environment variables.
const pool = new pg.Pool({ ...settings, max: POOL_SIZE });
const db = drizzle(pool);
const balance = async (owner, on = db) =>
  (await on.select({ balance: accounts.balance }).from(accounts).where(eq(accounts.owner, owner)))[0]?.balance;
const ada = eq(accounts.owner, "ada"), bob = eq(accounts.owner, "bob"), shared = eq(accounts.owner, "shared");

await run({
  async login() {
    for (const [other, code] of [[{ ...settings, password: "wrong" }, "28P01"], [{ ssl: false }, "28000"],
      [trusting("OTHER_SSLROOTCERT"), "UNABLE_TO_VERIFY_LEAF_SIGNATURE"]]) {
      await refused(drizzle(new pg.Pool(other)).execute("SELECT 1"), code);
    }
    await db.execute("SELECT 1");
  },

  async migration() {
    for (const what of ["SCHEMA IF EXISTS drizzle", "TABLE IF EXISTS drizzle_accounts", "TYPE IF EXISTS drizzle_mood"]) {
      await db.execute(`DROP ${what} CASCADE`);
    }
    await migrate(db, { migrationsFolder: "node/migrations" });
    await migrate(db, { migrationsFolder: "node/migrations" }); // nothing to do any more
    const { rows } = await db.execute("SELECT count(*)::int AS columns FROM information_schema.columns "
      + "WHERE table_name = 'drizzle_accounts'");
    equal(rows, [{ columns: 5 }]);
    equal((await db.execute("SELECT id FROM drizzle.__drizzle_migrations ORDER BY id")).rows, [{ id: 1 }, { id: 2 }]);
  },

  async crud() {
    const made = await db.insert(accounts).values([["ada", 10], ["bob", 20], ["eve", 30]]
      .map(([owner, n]) => ({ owner, balance: n, mood: "happy", notes: { n } }))).returning();
    equal(await db.select().from(accounts).where(eq(accounts.id, made[1].id)), [made[1]]);
    equal([made[1].mood, made[1].notes], ["happy", { n: 20 }]);
    equal((await db.update(accounts).set({ balance: 25 }).where(bob)).rowCount, 1);
    equal((await db.delete(accounts).where(eq(accounts.owner, "eve"))).rowCount, 1);
    equal(await db.select({ owner: accounts.owner, balance: accounts.balance }).from(accounts).orderBy(asc(accounts.id)),
      [{ owner: "ada", balance: 10 }, { owner: "bob", balance: 25 }]);
  },

  async prepared() {
    const query = db.select({ balance: accounts.balance }).from(accounts)
      .where(eq(accounts.owner, sql.placeholder("owner"))).prepare("balance of");
    for (const _ of range(10)) {
      const found = await Promise.all(["ada", "bob", "nobody"].map((owner) => query.execute({ owner })));
      equal(found.map(([row]) => row?.balance), [10, 25, undefined]);
    }
  },

  async batch() {
    await db.insert(accounts).values(range(100).map((n) => ({ owner: `batch ${n}`, balance: n })));
    const totals = { count: count(), sum: sum(accounts.balance) };
    equal(await db.select(totals).from(accounts).where(like(accounts.owner, "batch%")), [{ count: 100, sum: "4950" }]);
  },

  async copy() {
    return "Drizzle has none";
  },

  async retry() {
    let attempts = 0;
    for (let done = false; !done;) {
      attempts += 1;
      try {
        await db.transaction(async (own) => {
          const found = await balance("ada", own);
          if (attempts === 1) { // another session is faster
            await db.update(accounts).set({ balance: sql`${accounts.balance} + 100` }).where(ada);
          }
          await own.update(accounts).set({ balance: found + 1 }).where(ada);
        }, { isolationLevel: "serializable" });
        done = true;
      } catch (error) {
        equal((error.cause ?? error).code, "40001");
      }
    }
    await db.transaction(async (own) => {
      // A transaction in one is a savepoint.
      await refused(own.transaction((inner) => inner.insert(accounts).values({ owner: "ada" })), "23505");
      await own.insert(accounts).values({ owner: "ada again" });
    });
    equal(attempts, 2);
    equal([await balance("ada"), await balance("ada again")], [111, 0]);
  },

  async cancel() {
    const began = Date.now();
    // Drizzle has no means of its own. SQL's looks for the statement in pg_stat_activity: that of the primary, so that
    // it must be one that writes.
    const statement = "UPDATE drizzle_accounts SET balance = 0 FROM pg_sleep(30) WHERE owner = 'bob'";
    await Promise.all([refused(db.execute(statement), "57014"), sleep(0.3).then(async () => {
      const { rows } = await db.execute(sql`SELECT pg_cancel_backend(pid) AS sent FROM pg_stat_activity
        WHERE query = ${statement} AND state = 'active'`);
      equal(rows, [{ sent: true }]);
    })]);
    assert(Date.now() - began < 10_000);
    equal((await db.execute("SELECT 1 AS one")).rows, [{ one: 1 }]);
    equal(await balance("bob"), 25);
    return "by pg_cancel_backend, Drizzle has nothing";
  },

  async pool() {
    equal(await Promise.all(range(20).map(() => balance("bob"))), Array(20).fill(25));
    assert(pool.totalCount <= POOL_SIZE);
    // A transaction that failed leaves nothing to who gets the connection next.
    await refused(db.transaction(async (own) => {
      await own.update(accounts).set({ balance: 0 }).where(bob);
      await own.execute("SELECT 1 / 0");
    }), "22012");
    equal(await balance("bob"), 25);
  },

  async together() {
    await db.insert(accounts).values({ owner: "shared" });
    await Promise.all(range(WORKERS).map(async () => {
      for (const _ of range(ROUNDS)) {
        const [written] = await db.update(accounts).set({ balance: sql`${accounts.balance} + 1` })
          .where(shared).returning();
        const read = await balance("shared");
        assert(read >= written.balance, `read ${read} after having written ${written.balance}`);
      }
    }));
    equal(await balance("shared"), WORKERS * ROUNDS);
  },
});
await pool.end();
