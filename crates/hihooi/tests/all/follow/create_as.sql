-- Tables that are made with their rows: the definition travels, the rows come in the stream, once.

-- case: create table as, of every form
CREATE TABLE src AS SELECT g AS id, g * 2 AS n FROM generate_series(1, 20) g;
CREATE TABLE c1 AS TABLE src WITH NO DATA;
CREATE TABLE c2 (a, b) WITH (fillfactor = 50) AS VALUES (1, 'x'), (2, 'y');
SELECT * INTO c3 FROM src WHERE id > 15;
CREATE TABLE c4 AS WITH w AS (SELECT * FROM src) SELECT * FROM w;
CREATE TABLE c5 AS SELECT random() AS r, clock_timestamp() AS at, gen_random_uuid() AS u FROM src;
UPDATE c5 SET r = 2;
DELETE FROM c3 WHERE id = 16;
INSERT INTO c1 VALUES (1, 2);

-- case: from a temporary table
CREATE TEMP TABLE tt (id int, v text);
INSERT INTO tt VALUES (1, 'a'), (2, 'b');
CREATE TABLE c AS SELECT * FROM tt;
INSERT INTO c VALUES (3, 'c');
UPDATE c SET v = 'd' WHERE id = 1;

-- case: select into from a temporary table
CREATE TEMP TABLE tt (id int, v text);
INSERT INTO tt VALUES (1, 'a'), (2, 'b');
SELECT * INTO c FROM tt;
SELECT id INTO TABLE c2 FROM tt;
INSERT INTO c VALUES (3, 'c');

-- case: table of a temporary table, with no data
CREATE TEMP TABLE tt (id int, v text);
CREATE TABLE c AS TABLE tt WITH NO DATA;
INSERT INTO c VALUES (3, 'c');

-- case: like a temporary table that hides a real one
CREATE TABLE t (id int PRIMARY KEY);
CREATE TEMP TABLE t (other text, more int);
CREATE TABLE c (LIKE t);
CREATE TABLE c2 AS SELECT * FROM t;
INSERT INTO c VALUES ('x', 1);
INSERT INTO c2 VALUES ('x', 1);

-- case: inherits from a temporary table fails
CREATE TEMP TABLE tt (id int);
-- error: 42809
CREATE TABLE c () INHERITS (tt);
CREATE TABLE c (id int PRIMARY KEY);
INSERT INTO c VALUES (1);

-- case: of a temporary composite type
CREATE TYPE pg_temp.c AS (a int, b text);
-- refused
CREATE TABLE typed OF pg_temp.c (PRIMARY KEY (a));
-- error: 42P01
INSERT INTO typed VALUES (1, 'x');
-- reconnect
CREATE TABLE typed (id int PRIMARY KEY);
INSERT INTO typed VALUES (1);

-- case: a column of temporary type in create table as
CREATE TYPE pg_temp.e AS ENUM ('a', 'b');
-- refused
CREATE TABLE c AS SELECT 1 AS id, 'a'::pg_temp.e AS m;
-- error: 42P01
INSERT INTO c VALUES (2, 'b');
-- reconnect
CREATE TABLE c AS SELECT 1 AS id;
INSERT INTO c VALUES (3);

-- case: bound parameters
-- extended
-- params: 5
CREATE TABLE c AS SELECT g AS id FROM generate_series(1, $1::int) g;
-- extended
-- params: hello
CREATE TABLE c2 AS SELECT $1::text AS v;
-- extended
-- params: 3
SELECT id INTO c3 FROM c WHERE id > $1::int;
-- extended
-- params: 1
CREATE TABLE c4 AS SELECT $1::int AS a WITH NO DATA;
INSERT INTO c VALUES (100);
INSERT INTO c3 VALUES (100);
INSERT INTO c4 VALUES (100);

-- case: bound parameters with quotes and dollars
-- extended
-- params: it's $1 \ "x"
CREATE TABLE c AS SELECT $1::text AS v, '$1' AS w, $$x$1$$ AS z;
INSERT INTO c VALUES ('a', 'b', 'c');

-- case: bound parameter of an own type
CREATE TYPE mood AS ENUM ('sad', 'ok');
-- extended
-- params: ok
CREATE TABLE c AS SELECT $1::mood AS m;
INSERT INTO c VALUES ('sad');

-- case: execute
PREPARE p AS SELECT g AS id, random() AS r FROM generate_series(1, 5) g;
CREATE TABLE c AS EXECUTE p;
CREATE TABLE c2 AS EXECUTE p WITH NO DATA;
CREATE TABLE c3 (a) AS EXECUTE p WITH NO DATA;
INSERT INTO c VALUES (6, 6);
INSERT INTO c3 VALUES (6, 6);

-- case: execute with parameters
PREPARE p (int, text) AS SELECT g AS id, $2 AS v FROM generate_series(1, $1) g;
CREATE TABLE c AS EXECUTE p(3, 'x');
CREATE TABLE c2 (a, b) AS EXECUTE p(1 + 1, upper('x'));
INSERT INTO c VALUES (6, 'y');

-- case: execute with no data in a block
PREPARE p AS SELECT 1 AS a;
BEGIN;
CREATE TABLE t (a) AS EXECUTE p WITH NO DATA;
INSERT INTO t VALUES (1);
CREATE TABLE u AS EXECUTE p;
COMMIT;
INSERT INTO t VALUES (2);

-- case: execute over a temporary table
CREATE TEMP TABLE tt AS SELECT 1 AS a, 'x'::text AS b;
PREPARE p AS SELECT * FROM tt;
CREATE TABLE c AS EXECUTE p;
CREATE TEMP TABLE t2 AS EXECUTE p;
INSERT INTO c VALUES (2, 'y');

-- case: explain analyze
CREATE TABLE src (id int PRIMARY KEY);
INSERT INTO src SELECT generate_series(1, 5);
EXPLAIN ANALYZE CREATE TABLE c AS SELECT * FROM src;
EXPLAIN (ANALYZE, COSTS off, TIMING off) SELECT * INTO c2 FROM src;
INSERT INTO c VALUES (100);
UPDATE c2 SET id = 7 WHERE id = 5;

-- case: explain analyze of a temporary one, and in a block
BEGIN;
EXPLAIN ANALYZE CREATE TEMP TABLE c AS SELECT 1 AS a;
EXPLAIN ANALYZE CREATE TABLE d AS SELECT 1 AS a;
INSERT INTO d VALUES (2);
COMMIT;
BEGIN;
EXPLAIN ANALYZE CREATE TABLE gone AS SELECT 1 AS a;
ROLLBACK;
INSERT INTO d VALUES (3);

-- case: explain analyze nested in DO
DO $$ BEGIN
  EXECUTE 'EXPLAIN ANALYZE CREATE TABLE c AS SELECT 1 AS a';
  INSERT INTO c VALUES (2);
END $$;
INSERT INTO c VALUES (3);

-- case: explain analyze behind a refresh
CREATE MATERIALIZED VIEW m AS SELECT 1 AS a;
BEGIN;
REFRESH MATERIALIZED VIEW m;
EXPLAIN ANALYZE CREATE TABLE c AS SELECT 1 AS a;
COMMIT;
BEGIN;
REFRESH MATERIALIZED VIEW m;
DO $$ BEGIN EXECUTE 'EXPLAIN ANALYZE CREATE TABLE d AS SELECT 1 AS a'; END $$;
CREATE TABLE e (id int PRIMARY KEY);
COMMIT;
INSERT INTO c VALUES (2);
INSERT INTO d VALUES (2);

-- case: explain analyze in a trigger that was created just before, in the transaction or not
CREATE TABLE t (id int PRIMARY KEY);
CREATE TABLE u (id int PRIMARY KEY);
CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  EXECUTE format('EXPLAIN ANALYZE CREATE MATERIALIZED VIEW m%s AS SELECT 1 AS a', NEW.id);
  RETURN NEW;
END $$;
-- sleep: 1
BEGIN;
CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f();
INSERT INTO t VALUES (1);
COMMIT;
CREATE TRIGGER g BEFORE INSERT ON u FOR EACH ROW EXECUTE FUNCTION f();
INSERT INTO u VALUES (2);
CREATE INDEX ON m1 (a);
CREATE INDEX ON m2 (a);

-- case: select into in parentheses
(SELECT 1 AS a INTO t);
((SELECT 2 AS a INTO t2));
INSERT INTO t VALUES (2);

-- case: select into in a union
SELECT 1 AS a INTO t UNION SELECT 2;
(SELECT 1 AS a INTO t2) UNION ALL (SELECT 2);
WITH w AS (SELECT 1 AS a) SELECT * INTO t3 FROM w;
INSERT INTO t VALUES (3);
INSERT INTO t2 VALUES (3);

-- case: unlogged
CREATE UNLOGGED TABLE u AS SELECT generate_series(1, 5) AS id;
INSERT INTO u VALUES (6);
-- check
-- expect: 6
SELECT count(*) FROM u;
SELECT * INTO UNLOGGED u2 FROM u;
CREATE TABLE l AS SELECT * FROM u;
INSERT INTO l VALUES (7);

-- case: if not exists
CREATE TABLE t (id int PRIMARY KEY);
CREATE TABLE IF NOT EXISTS t AS SELECT 5 AS id;
CREATE TABLE IF NOT EXISTS u AS SELECT 5 AS id;
INSERT INTO t VALUES (1);
INSERT INTO u VALUES (1);

-- case: over a function that defines
CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $$ BEGIN CREATE TABLE inner_t (id int PRIMARY KEY); INSERT INTO inner_t VALUES (1); RETURN 1; END $$;
CREATE TABLE outer_t AS SELECT f() AS x;
INSERT INTO outer_t VALUES (2);
INSERT INTO inner_t VALUES (2);

-- case: over a function that defines, select into and execute
CREATE FUNCTION f(n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('CREATE TABLE t%s AS SELECT %s AS a', n, n); RETURN n; END $$;
SELECT f(1) AS x INTO c;
PREPARE p AS SELECT f(2) AS x;
CREATE TABLE c2 AS EXECUTE p;
EXPLAIN ANALYZE CREATE TABLE c3 AS SELECT f(3) AS x;
CREATE MATERIALIZED VIEW m AS SELECT 1 AS x;
INSERT INTO t1 VALUES (5);
INSERT INTO t3 VALUES (5);

-- case: over a function that writes
CREATE TABLE log (n int);
CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log VALUES (1); RETURN 1; END $$;
CREATE TABLE c AS SELECT f() AS x FROM generate_series(1, 3);
CREATE TABLE c2 AS WITH w AS (INSERT INTO log VALUES (2) RETURNING n) SELECT 1 AS one;
EXPLAIN ANALYZE CREATE TABLE c3 AS SELECT f() AS x;
INSERT INTO c VALUES (5);

-- case: over sequences
CREATE SEQUENCE s;
SELECT nextval('s');
CREATE TABLE c AS SELECT nextval('s') AS id FROM generate_series(1, 3);
CREATE TABLE d AS SELECT last_value FROM s;
INSERT INTO c VALUES (9);

-- case: over what only the primary knows
CREATE TABLE c AS SELECT pg_backend_pid() AS pid, inet_server_port() AS port, current_setting('port') AS p, pg_current_wal_lsn() AS lsn;
CREATE TABLE d AS SELECT oid, relname FROM pg_class WHERE relname = 'c';
CREATE TABLE e AS SELECT * FROM pg_stat_activity;
UPDATE c SET pid = 1;
UPDATE d SET oid = 1;

-- case: nested in plpgsql with variables
DO $$ DECLARE n int := 3; v text := 'x'; BEGIN
  CREATE TABLE c AS SELECT n AS a, v AS b;
  EXECUTE 'CREATE TABLE d AS SELECT $1 AS a' USING n;
EXCEPTION WHEN undefined_parameter THEN
  CREATE TABLE c AS SELECT n AS a;
END $$;
INSERT INTO c VALUES (5);

-- case: columns of many kinds
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN pos AS int CHECK (VALUE > 0);
CREATE COLLATION co FROM "C";
CREATE TABLE c AS SELECT 1::numeric(8,2) AS n, 'x'::varchar(7) AS v, 'y'::char(3) AS c, ARRAY[[1,2],[3,4]] AS arr, ROW(1, 'x')::pair AS p, 3::pos AS pos, B'101'::bit(3) AS bits, interval '1 day' AS i, 'a' COLLATE co AS co, now()::timestamptz(3) AS at, '1 2'::int2vector AS iv, 'x' AS unknown, NULL AS nul, "char" 'c' AS ch;
INSERT INTO c SELECT * FROM c;

-- case: names that need quotes
CREATE TABLE "Upper ""Case" AS SELECT 1 AS "a b", 2 AS "select", 3 AS "ä€";
INSERT INTO "Upper ""Case" VALUES (4, 5, 6);
SELECT 1 AS "x;y" INTO "semi;colon -- /* ' $$";
INSERT INTO "semi;colon -- /* ' $$" VALUES (2);

-- case: dropped in the transaction that made it
BEGIN;
CREATE TABLE c AS SELECT generate_series(1, 5) AS a;
DROP TABLE c;
CREATE TABLE c AS SELECT generate_series(1, 7) AS a, 'second' AS b;
UPDATE c SET b = 'third' WHERE a = 1;
COMMIT;
INSERT INTO c VALUES (1, 'x');

-- case: materialized views
CREATE TABLE src (id int PRIMARY KEY);
INSERT INTO src VALUES (1);
CREATE MATERIALIZED VIEW m AS SELECT id, 1 AS one FROM src;
CREATE MATERIALIZED VIEW m2 AS SELECT id FROM src WITH NO DATA;
CREATE UNIQUE INDEX ON m (id);
INSERT INTO src VALUES (2);
REFRESH MATERIALIZED VIEW m;
REFRESH MATERIALIZED VIEW CONCURRENTLY m;
REFRESH MATERIALIZED VIEW m2;
REFRESH MATERIALIZED VIEW m2 WITH NO DATA;
ALTER MATERIALIZED VIEW m RENAME COLUMN one TO eins;
ALTER MATERIALIZED VIEW m SET (fillfactor = 70);
COMMENT ON MATERIALIZED VIEW m IS 'c';
INSERT INTO src VALUES (3);

-- case: materialized view over volatile and own functions
CREATE TABLE src (id int PRIMARY KEY);
INSERT INTO src VALUES (1);
CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT $1 + 1';
CREATE MATERIALIZED VIEW m AS SELECT f(id) AS n FROM :schema.src;
INSERT INTO src VALUES (2);
REFRESH MATERIALIZED VIEW m;

-- case: materialized view refreshed in DO and functions
CREATE TABLE src (id int PRIMARY KEY);
INSERT INTO src VALUES (1);
CREATE MATERIALIZED VIEW m AS SELECT id FROM src;
CREATE UNIQUE INDEX ON m (id);
CREATE FUNCTION r() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN REFRESH MATERIALIZED VIEW m; RETURN NULL; END $$;
CREATE TRIGGER tr AFTER INSERT ON src FOR EACH STATEMENT EXECUTE FUNCTION r();
INSERT INTO src VALUES (2);
DO $$ BEGIN EXECUTE 'REFRESH MATERIALIZED VIEW CONCURRENTLY m'; END $$;
INSERT INTO src VALUES (3);

-- case: create schema with elements
CREATE SCHEMA follow_elements CREATE TABLE a (id int PRIMARY KEY) CREATE VIEW v AS SELECT * FROM a CREATE INDEX i ON a (id) CREATE SEQUENCE s GRANT SELECT ON a TO PUBLIC;
INSERT INTO follow_elements.a VALUES (1);
-- check
DROP SCHEMA follow_elements CASCADE;

-- case: keyless rows written at once
CREATE TABLE c AS SELECT g % 3 AS a, 'x' AS b FROM generate_series(1, 30) g;
UPDATE c SET b = 'y' WHERE a = 1;
DELETE FROM c WHERE a = 2;
ALTER TABLE c ADD id serial;
UPDATE c SET b = 'z' WHERE a = 0;

-- case: together with other statements
CREATE TABLE s (id int PRIMARY KEY); INSERT INTO s VALUES (1); CREATE TABLE c AS SELECT * FROM s; INSERT INTO c VALUES (2); SELECT * INTO d FROM c;
-- together: 3
CREATE TEMP TABLE tt AS SELECT 5 AS id;
CREATE TABLE e AS SELECT * FROM tt;
INSERT INTO e VALUES (6);

-- case: as a role that may not read at replicas
CREATE ROLE follow_joe LOGIN;
GRANT USAGE, CREATE ON SCHEMA :schema TO follow_joe;
CREATE TABLE secret (id int PRIMARY KEY);
INSERT INTO secret VALUES (1);
CREATE FUNCTION peek() RETURNS SETOF secret LANGUAGE sql SECURITY DEFINER AS 'SELECT * FROM :schema.secret';
-- as: follow_joe
CREATE TABLE c AS SELECT * FROM peek();
INSERT INTO c VALUES (2);
-- finally
-- as: postgres
DROP OWNED BY follow_joe;
DROP ROLE follow_joe;

-- case: explain analyze of execute and materialized views
PREPARE p AS SELECT 1 AS a;
EXPLAIN ANALYZE CREATE TABLE c AS EXECUTE p;
EXPLAIN ANALYZE VERBOSE CREATE MATERIALIZED VIEW m AS SELECT 1 AS x;
EXPLAIN CREATE TABLE none AS SELECT 1;
EXPLAIN (ANALYZE false) CREATE TABLE none AS SELECT 1;
INSERT INTO c VALUES (2);
REFRESH MATERIALIZED VIEW m;

-- case: truncated and altered in the transaction that made it
BEGIN;
CREATE TABLE c AS SELECT generate_series(1, 5) AS a;
ALTER TABLE c ADD b int DEFAULT 4;
TRUNCATE c;
INSERT INTO c VALUES (1, 2);
ALTER TABLE c RENAME TO d;
INSERT INTO d VALUES (2, 3);
CREATE INDEX ON d (a);
ALTER TABLE d ALTER a TYPE text;
COMMIT;
INSERT INTO d VALUES ('x', 1);

-- case: truncated in the transaction that made it
BEGIN;
CREATE TABLE c AS SELECT generate_series(1, 5) AS a;
ALTER TABLE c ADD b int DEFAULT 4;
TRUNCATE c;
INSERT INTO c VALUES (1, 2);
COMMIT;

-- case: renamed in the transaction that made it
BEGIN;
CREATE TABLE c AS SELECT generate_series(1, 5) AS a;
ALTER TABLE c RENAME TO d;
INSERT INTO d VALUES (2);
COMMIT;

-- case: rewritten in the transaction that made it
BEGIN;
CREATE TABLE c AS SELECT generate_series(1, 5) AS a;
INSERT INTO c VALUES (1);
ALTER TABLE c ALTER a TYPE text;
INSERT INTO c VALUES (2);
COMMIT;

-- case: a materialized view holds what the primary computed
CREATE TABLE src (id int PRIMARY KEY);
INSERT INTO src SELECT generate_series(1, 1000);
CREATE TYPE mood AS ENUM ('a', 'b');
CREATE TYPE pair AS (x int, y text);
CREATE MATERIALIZED VIEW m AS SELECT id, random() AS r, clock_timestamp() AS at, 'a'::mood AS "D ""d", ARRAY[id, NULL] AS a, ROW(id, 'x y')::pair AS rec FROM src;
CREATE UNIQUE INDEX ON m (id);
CREATE MATERIALIZED VIEW none AS SELECT FROM src;
CREATE MATERIALIZED VIEW later AS SELECT random() AS r WITH NO DATA;
REFRESH MATERIALIZED VIEW later;
INSERT INTO src VALUES (0);
REFRESH MATERIALIZED VIEW CONCURRENTLY m;
REFRESH MATERIALIZED VIEW none;
BEGIN;
REFRESH MATERIALIZED VIEW later;
REFRESH MATERIALIZED VIEW m;
SAVEPOINT s;
REFRESH MATERIALIZED VIEW later WITH NO DATA;
ROLLBACK TO s;
DELETE FROM src;
REFRESH MATERIALIZED VIEW none;
COMMIT;
ALTER MATERIALIZED VIEW m RENAME TO m2;
REFRESH MATERIALIZED VIEW m2;
EXPLAIN ANALYZE CREATE MATERIALIZED VIEW e AS SELECT random() AS r;
REFRESH MATERIALIZED VIEW e;

-- case: what committed meanwhile is not in it
CREATE TABLE src (id int PRIMARY KEY);
CREATE MATERIALIZED VIEW m AS SELECT id FROM src;
BEGIN;
REFRESH MATERIALIZED VIEW m;
-- session: 2
INSERT INTO src VALUES (1);
-- session: 1
COMMIT;

-- case: a materialized view of an ordinary role
CREATE ROLE follow_joe;
GRANT ALL ON SCHEMA :schema TO follow_joe;
CREATE TABLE src (id int PRIMARY KEY);
INSERT INTO src VALUES (1), (2);
GRANT SELECT ON src TO follow_joe;
SET ROLE follow_joe;
CREATE FUNCTION f(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 + 1; END';
CREATE MATERIALIZED VIEW m AS SELECT id, current_user AS who, pg_is_in_recovery() AS r, f(id) FROM src;
CREATE INDEX ON m (f(id));
REFRESH MATERIALIZED VIEW m;
RESET ROLE;
REVOKE SELECT ON src FROM follow_joe;
INSERT INTO src VALUES (3);
DROP OWNED BY follow_joe;
DROP ROLE follow_joe;

-- case: a materialized view whose types run code
CREATE ROLE follow_joe;
GRANT ALL ON SCHEMA :schema TO follow_joe;
SET ROLE follow_joe;
CREATE TYPE pair AS (x int, y text);
CREATE FUNCTION to_pair(text) RETURNS pair LANGUAGE plpgsql AS 'BEGIN RAISE ''not here''; END';
CREATE CAST (text AS pair) WITH FUNCTION to_pair(text) AS ASSIGNMENT;
CREATE FUNCTION even(int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 % 2 = 0 AND current_user = ''follow_joe''; END';
CREATE DOMAIN evens AS int CHECK (even(VALUE));
CREATE DOMAIN shorts AS varchar(3);
CREATE MATERIALIZED VIEW m AS SELECT ROW(1, 'x y')::pair AS p, 2::evens AS e, 'ab'::shorts AS s, ARRAY[4]::evens[] AS es;
REFRESH MATERIALIZED VIEW m;
RESET ROLE;
CREATE MATERIALIZED VIEW trees AS SELECT adbin FROM pg_attrdef WHERE adrelid = 0;
REFRESH MATERIALIZED VIEW trees;
DROP MATERIALIZED VIEW m;
DROP OWNED BY follow_joe CASCADE;
DROP ROLE follow_joe;

-- case: explain analyze of create table as, among others in one string
CREATE TABLE p (id int, a int, b text) PARTITION BY RANGE (id);
SET search_path = "$user", :schema, pg_temp; DROP TABLE p; EXPLAIN ANALYZE CREATE TABLE p AS SELECT 1 AS id, 2 AS a;
INSERT INTO p VALUES (1, 2);
BEGIN; SET LOCAL work_mem = '1MB'; EXPLAIN ANALYZE CREATE TABLE q AS SELECT 1 AS id; COMMIT;
INSERT INTO q VALUES (1);
BEGIN; SAVEPOINT s; EXPLAIN ANALYZE CREATE TABLE r AS SELECT 1 AS id; ROLLBACK TO s; EXPLAIN ANALYZE CREATE TABLE r AS SELECT 2 AS id; RELEASE s; COMMIT; INSERT INTO r VALUES (1);
BEGIN; EXPLAIN ANALYZE CREATE TABLE t AS SELECT 1 AS id; COMMIT AND CHAIN; INSERT INTO t VALUES (1);
COMMIT;
INSERT INTO t VALUES (2); RESET search_path; EXPLAIN ANALYZE CREATE TABLE :schema.u AS SELECT 1 AS id; SHOW work_mem;
INSERT INTO :schema.u VALUES (2);
BEGIN; EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1 AS id; SELECT * FROM x; COMMIT;
EXPLAIN ANALYZE CREATE TABLE y AS SELECT 1 AS id; SELECT * FROM y;
INSERT INTO x SELECT * FROM y;

-- case: DDL in a function that refresh runs
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1);
CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $$ BEGIN EXECUTE pg_catalog.current_setting('app.command', true); RETURN 1; END $$;
CREATE FUNCTION g() RETURNS int LANGUAGE sql AS 'COMMENT ON TABLE :schema.t IS ''c''; SELECT 1';
SET app.command = 'SELECT 1';
CREATE MATERIALIZED VIEW m AS SELECT f() AS v;
CREATE UNIQUE INDEX i ON m (v);
CREATE MATERIALIZED VIEW n AS SELECT g() AS v WITH NO DATA;
CREATE FUNCTION r() RETURNS void LANGUAGE plpgsql AS $$ BEGIN REFRESH MATERIALIZED VIEW CONCURRENTLY m; END $$;
SET app.command = 'CREATE TABLE :schema.other (id int)';
-- refused
REFRESH MATERIALIZED VIEW m;
-- refused
REFRESH MATERIALIZED VIEW CONCURRENTLY m;
-- refused
SELECT r();
SET app.command = 'GRANT SELECT ON :schema.t TO PUBLIC';
-- refused
DO $$ BEGIN REFRESH MATERIALIZED VIEW m; END $$;
SET app.command = 'DROP TABLE :schema.t';
-- refused
REFRESH MATERIALIZED VIEW m;
-- refused
REFRESH MATERIALIZED VIEW n;
SET app.command = 'INSERT INTO :schema.t VALUES (2)';
REFRESH MATERIALIZED VIEW CONCURRENTLY m;
SET app.command = 'DELETE FROM :schema.t WHERE id = 2';
SELECT r();
SET app.command = 'COMMENT ON TABLE :schema.t IS ''d''';
CREATE MATERIALIZED VIEW o AS SELECT f() AS v;
SET app.command = 'SELECT 1';
REFRESH MATERIALIZED VIEW o;
DO $$ BEGIN REFRESH MATERIALIZED VIEW CONCURRENTLY m; PERFORM r(); CREATE TABLE behind (id int); END $$;

-- case: explain analyze, and the next command, of an ordinary role
CREATE ROLE follow_a LOGIN;
GRANT ALL ON SCHEMA :schema TO follow_a;
-- as: follow_a
CREATE TABLE t (id int PRIMARY KEY);
BEGIN;
EXPLAIN ANALYZE CREATE TABLE c AS SELECT 1 AS a;
ALTER TABLE t ADD v int DEFAULT 1;
CREATE INDEX ON c (a);
COMMIT;
INSERT INTO t VALUES (1);
-- check
-- as: postgres
-- finally
DROP OWNED BY follow_a;
DROP ROLE follow_a;
