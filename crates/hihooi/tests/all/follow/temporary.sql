-- Temporary objects: the primary's session has them, replicas never hear of them; what they hide
-- must not be hit at replicas, and what is permanent beside them must arrive.

-- case: drop a temporary table that hides a real one
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'real');
CREATE TEMP TABLE t (id int, v text);
DROP TABLE t;
INSERT INTO t VALUES (2, 'real again');
UPDATE t SET v = 'x' WHERE id = 1;

-- case: drop a temporary table that hides a real one, extended
CREATE TABLE t (id int PRIMARY KEY, v text);
-- extended
CREATE TEMP TABLE t (id int, v text);
-- extended
DROP TABLE t;
INSERT INTO t VALUES (2, 'real again');

-- case: drop both in one statement after another
CREATE TABLE t (id int PRIMARY KEY);
CREATE TEMP TABLE t (id int);
DROP TABLE t;
DROP TABLE t;
-- error: 42P01
DROP TABLE t;
CREATE TABLE t (id int PRIMARY KEY, again int);
INSERT INTO t VALUES (1, 1);

-- case: add a column to the hiding table
CREATE TABLE t (id int PRIMARY KEY);
CREATE TEMP TABLE t (id int);
ALTER TABLE t ADD COLUMN extra int DEFAULT 5;
INSERT INTO t VALUES (1, 1);
INSERT INTO :schema.t VALUES (1);

-- case: alter everything of the hiding table
CREATE TABLE t (id int PRIMARY KEY, v text NOT NULL DEFAULT 'r');
INSERT INTO t VALUES (1);
CREATE TEMP TABLE t (id int PRIMARY KEY, v text NOT NULL DEFAULT 'r');
ALTER TABLE t ALTER v DROP NOT NULL;
ALTER TABLE t ALTER v DROP DEFAULT, ALTER v TYPE varchar(3);
ALTER TABLE t DROP CONSTRAINT t_pkey;
ALTER TABLE t RENAME COLUMN v TO w;
ALTER TABLE t DROP COLUMN w;
ALTER TABLE t SET (fillfactor = 50);
ALTER TABLE t ADD CHECK (id > 5);
ALTER TABLE t ENABLE ROW LEVEL SECURITY;
ALTER TABLE t REPLICA IDENTITY FULL;
INSERT INTO :schema.t VALUES (2);

-- case: rename the hiding table
CREATE TABLE t (id int PRIMARY KEY);
CREATE TEMP TABLE t (id int);
ALTER TABLE t RENAME TO moved;
INSERT INTO t VALUES (1);
DROP TABLE moved;
INSERT INTO t VALUES (2);

-- case: truncate the hiding table
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1), (2);
CREATE TEMP TABLE t (id int);
INSERT INTO t VALUES (7);
TRUNCATE t;
INSERT INTO :schema.t VALUES (3);

-- case: truncate both in one statement
CREATE TABLE real (id int PRIMARY KEY);
INSERT INTO real VALUES (1), (2);
CREATE TEMP TABLE tt (id int);
INSERT INTO tt VALUES (7);
TRUNCATE tt, real;
INSERT INTO real VALUES (3);

-- case: indexes of the hiding table
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE INDEX i ON t (v);
CREATE TEMP TABLE t (id int, v text);
CREATE INDEX i ON t (v);
CREATE INDEX CONCURRENTLY i2 ON t (id);
REINDEX INDEX i;
REINDEX TABLE t;
ALTER INDEX i SET (fillfactor = 60);
COMMENT ON INDEX i IS 'temporary';
ALTER INDEX i RENAME TO j;
DROP INDEX j;
DROP INDEX CONCURRENTLY i2;
CLUSTER :schema.t USING t_pkey;
INSERT INTO :schema.t VALUES (1, 'a');

-- case: drop an index that is hidden
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE INDEX i ON t (v);
CREATE TEMP TABLE tt (v text);
CREATE INDEX i ON tt (v);
DROP INDEX i;
INSERT INTO t VALUES (1, 'a');

-- case: comments on temporary objects
CREATE TABLE t (id int PRIMARY KEY, v text);
COMMENT ON TABLE t IS 'real';
CREATE TEMP TABLE t (id int CONSTRAINT c CHECK (id > 0), v text);
COMMENT ON TABLE t IS 'temporary';
COMMENT ON COLUMN t.v IS 'temporary';
COMMENT ON CONSTRAINT c ON t IS 'temporary';
CREATE TYPE pg_temp.e AS ENUM ('a');
COMMENT ON TYPE pg_temp.e IS 'temporary';
CREATE DOMAIN pg_temp.d AS int CONSTRAINT dc CHECK (VALUE > 0);
COMMENT ON DOMAIN pg_temp.d IS 'temporary';
COMMENT ON CONSTRAINT dc ON DOMAIN pg_temp.d IS 'temporary';
INSERT INTO :schema.t VALUES (1, 'a');

-- case: rights on temporary tables
CREATE TABLE t (id int PRIMARY KEY);
CREATE TEMP TABLE t (id int, v text);
GRANT SELECT ON t TO PUBLIC;
GRANT INSERT (v) ON t TO PUBLIC;
REVOKE SELECT ON t FROM PUBLIC;
CREATE TEMP SEQUENCE s;
GRANT USAGE ON SEQUENCE s TO PUBLIC;
INSERT INTO :schema.t VALUES (1);

-- case: rights on a temporary and a real table at once
CREATE TABLE r (id int PRIMARY KEY);
CREATE TEMP TABLE tt (id int);
GRANT SELECT ON tt, r TO PUBLIC;
REVOKE ALL ON tt, r FROM PUBLIC;
GRANT UPDATE ON r, tt TO PUBLIC;
INSERT INTO r VALUES (1);

-- case: rights on all tables in pg_temp
CREATE TABLE t (id int PRIMARY KEY);
CREATE TEMP TABLE tt (id int);
DO $$ BEGIN EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO PUBLIC', pg_my_temp_schema()::regnamespace); END $$;
DO $$ BEGIN EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM PUBLIC', pg_my_temp_schema()::regnamespace); END $$;
INSERT INTO t VALUES (1);

-- case: trigger on a temporary table with a real function
CREATE TABLE log (n int);
CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log VALUES (NEW.id); RETURN NEW; END $$;
CREATE TEMP TABLE tt (id int);
CREATE TRIGGER tr BEFORE INSERT ON tt FOR EACH ROW EXECUTE FUNCTION f();
INSERT INTO tt VALUES (1);
ALTER TRIGGER tr ON tt RENAME TO tr2;
ALTER TABLE tt DISABLE TRIGGER tr2;
COMMENT ON TRIGGER tr2 ON tt IS 'c';
DROP TRIGGER tr2 ON tt;
INSERT INTO log VALUES (2);

-- case: trigger on the hiding table, the real one has one too
CREATE TABLE t (id int PRIMARY KEY);
CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f();
CREATE TEMP TABLE t (id int);
CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f();
DROP TRIGGER tr ON t;
INSERT INTO :schema.t VALUES (1);

-- case: rule on a temporary table
CREATE TABLE log (n int);
CREATE TEMP TABLE tt (id int);
CREATE RULE ru AS ON INSERT TO tt DO ALSO INSERT INTO log VALUES (NEW.id);
INSERT INTO tt VALUES (1);
ALTER RULE ru ON tt RENAME TO ru2;
COMMENT ON RULE ru2 ON tt IS 'c';
DROP RULE ru2 ON tt;
INSERT INTO log VALUES (2);

-- case: policy on a temporary table
CREATE TABLE real (id int PRIMARY KEY);
CREATE TEMP TABLE tt (id int);
CREATE POLICY p ON tt USING (id > 0);
ALTER POLICY p ON tt USING (id > 1);
COMMENT ON POLICY p ON tt IS 'c';
ALTER POLICY p ON tt RENAME TO p2;
DROP POLICY p2 ON tt;
INSERT INTO real VALUES (1);

-- case: view over a temporary table
CREATE TABLE real (id int PRIMARY KEY);
CREATE TEMP TABLE tt (id int);
CREATE VIEW v AS SELECT * FROM tt;
CREATE OR REPLACE VIEW v AS SELECT id, 1 AS one FROM tt;
ALTER VIEW v ALTER id SET DEFAULT 5;
COMMENT ON VIEW v IS 'c';
GRANT SELECT ON v TO PUBLIC;
DROP VIEW v;
CREATE VIEW v AS SELECT * FROM real;
INSERT INTO real VALUES (1);

-- case: view over a temporary table in a named real schema fails
CREATE TABLE real (id int PRIMARY KEY);
CREATE TEMP TABLE tt (id int);
-- error: 42P16
CREATE VIEW :schema.v AS SELECT * FROM tt;
CREATE MATERIALIZED VIEW ok AS SELECT * FROM real;
INSERT INTO real VALUES (1);

-- case: temporary view that hides a real one
CREATE TABLE real (id int PRIMARY KEY);
CREATE VIEW v AS SELECT * FROM real;
CREATE TEMP VIEW v AS SELECT 1 AS id;
ALTER VIEW v RENAME COLUMN id TO x;
DROP VIEW v;
INSERT INTO v VALUES (1);

-- case: temporary recursive and mixed views
CREATE TABLE real (id int PRIMARY KEY);
CREATE TEMP TABLE tt (id int);
CREATE RECURSIVE VIEW r (n) AS SELECT id FROM tt UNION ALL SELECT n + 1 FROM r WHERE n < 3;
CREATE VIEW mix AS SELECT real.id FROM real JOIN tt USING (id);
CREATE VIEW over AS SELECT * FROM mix;
DROP VIEW over, mix, r;
CREATE VIEW mix AS SELECT * FROM real;
INSERT INTO real VALUES (1);

-- case: temporary sequence that hides a real one
CREATE SEQUENCE s INCREMENT 2;
CREATE TABLE real (id int PRIMARY KEY DEFAULT nextval('s'));
CREATE TEMP SEQUENCE s;
ALTER SEQUENCE s INCREMENT 9;
ALTER SEQUENCE s RESTART WITH 100;
DROP SEQUENCE s;
INSERT INTO real DEFAULT VALUES;

-- case: serial and identity of temporary tables
CREATE TABLE real (id int PRIMARY KEY);
CREATE TEMP TABLE tt (a serial, b int GENERATED ALWAYS AS IDENTITY, c int);
INSERT INTO tt (c) VALUES (1), (2);
ALTER TABLE tt ALTER b SET INCREMENT 5;
ALTER TABLE tt ALTER b DROP IDENTITY;
ALTER TABLE tt ADD d serial;
ALTER TABLE tt ADD e int GENERATED BY DEFAULT AS IDENTITY;
TRUNCATE tt RESTART IDENTITY;
INSERT INTO real VALUES (1);

-- case: functions in pg_temp
CREATE TABLE real (id int PRIMARY KEY);
CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE OR REPLACE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 2';
ALTER FUNCTION pg_temp.f() STABLE;
GRANT EXECUTE ON FUNCTION pg_temp.f() TO PUBLIC;
COMMENT ON FUNCTION pg_temp.f() IS 'c';
INSERT INTO real SELECT pg_temp.f();
ALTER FUNCTION pg_temp.f() RENAME TO g;
DROP FUNCTION pg_temp.g();
CREATE PROCEDURE pg_temp.p() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO real VALUES (5); END $$;
CALL pg_temp.p();
DROP ROUTINE pg_temp.p();
INSERT INTO real VALUES (6);

-- case: function with a temporary type as argument
CREATE TABLE real (id int PRIMARY KEY);
CREATE TEMP TABLE tt (a int);
CREATE FUNCTION f(x tt) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION g() RETURNS SETOF tt LANGUAGE sql AS 'SELECT 1';
DROP FUNCTION g();
DROP TABLE tt CASCADE;
INSERT INTO real VALUES (1);

-- case: function over temporary tables, body checked
CREATE TABLE real (id int PRIMARY KEY);
CREATE TEMP TABLE tt (a int);
CREATE FUNCTION f() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM tt';
CREATE FUNCTION g() RETURNS int LANGUAGE plpgsql AS $$ DECLARE r tt%ROWTYPE; BEGIN INSERT INTO real VALUES (9); RETURN 1; END $$;
SELECT g();
INSERT INTO real VALUES (1);

-- case: sql-standard function body over a temporary table
CREATE TABLE real (id int PRIMARY KEY);
CREATE TEMP TABLE tt (a int);
CREATE FUNCTION f() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT count(*) FROM tt; END;
INSERT INTO real VALUES (1);
DROP TABLE tt CASCADE;
INSERT INTO real VALUES (2);

-- case: types and domains in pg_temp
CREATE TABLE real (id int PRIMARY KEY);
CREATE TYPE pg_temp.e AS ENUM ('a', 'b');
ALTER TYPE pg_temp.e ADD VALUE 'c';
ALTER TYPE pg_temp.e RENAME VALUE 'a' TO 'z';
CREATE TYPE pg_temp.c AS (x int, y text);
ALTER TYPE pg_temp.c ADD ATTRIBUTE z int;
CREATE TYPE pg_temp.r AS RANGE (subtype = int);
CREATE DOMAIN pg_temp.d AS int CHECK (VALUE > 0);
ALTER DOMAIN pg_temp.d SET DEFAULT 4;
ALTER DOMAIN pg_temp.d ADD CONSTRAINT two CHECK (VALUE < 100);
ALTER DOMAIN pg_temp.d DROP CONSTRAINT two;
GRANT USAGE ON TYPE pg_temp.e TO PUBLIC;
DROP DOMAIN pg_temp.d;
DROP TYPE pg_temp.e, pg_temp.c;
INSERT INTO real VALUES (1);

-- case: real table with a column of a temporary type, session ends
CREATE TYPE pg_temp.e AS ENUM ('a', 'b');
-- refused
CREATE TABLE real (id int PRIMARY KEY, m pg_temp.e);
-- error: 42P01
INSERT INTO real VALUES (1, 'a');
-- reconnect
CREATE TABLE real (id int PRIMARY KEY);
INSERT INTO real VALUES (2);
UPDATE real SET id = 3 WHERE id = 2;

-- case: real column of a temporary type added
CREATE TABLE real (id int PRIMARY KEY);
INSERT INTO real VALUES (1);
CREATE DOMAIN pg_temp.d AS int CHECK (VALUE > 0) DEFAULT 7;
-- refused
ALTER TABLE real ADD COLUMN x pg_temp.d;
-- error: 42703
ALTER TABLE real DROP COLUMN x;
INSERT INTO real VALUES (3);

-- case: drop a temporary type cascading to a real column
CREATE TYPE pg_temp.e AS ENUM ('a', 'b');
CREATE TABLE real (id int PRIMARY KEY);
BEGIN;
SAVEPOINT s;
-- refused
ALTER TABLE real ADD m pg_temp.e;
ROLLBACK TO s;
INSERT INTO real VALUES (1);
COMMIT;
-- error: 42703
SELECT m FROM real;
DROP TYPE pg_temp.e CASCADE;
INSERT INTO real VALUES (2);

-- case: discard temp with a real column of a temporary type
CREATE DOMAIN pg_temp.d AS text;
-- refused
CREATE TABLE real (id int PRIMARY KEY, m pg_temp.d, n int);
CREATE TABLE real (id int PRIMARY KEY, n int);
INSERT INTO real VALUES (1, 2);
DISCARD TEMP;
INSERT INTO real VALUES (2, 3);

-- case: real default that calls a pg_temp function
CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 41';
-- refused
CREATE TABLE real (id int PRIMARY KEY, n int DEFAULT pg_temp.f());
-- error: 42P01
INSERT INTO real (id) VALUES (1);
CREATE TABLE real (id int PRIMARY KEY, n int);
-- refused
ALTER TABLE real ADD m int DEFAULT pg_temp.f() + 1;
-- error: 42703
INSERT INTO real (id, m) VALUES (2, 2);
-- refused
ALTER TABLE real ALTER n SET DEFAULT pg_temp.f();
INSERT INTO real (id) VALUES (2);
-- expect: t
SELECT n IS NULL FROM real;
-- reconnect
INSERT INTO real (id) VALUES (3);

-- case: real check that calls a pg_temp function
CREATE FUNCTION pg_temp.ok(int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT $1 > 0';
-- refused
CREATE TABLE real (id int PRIMARY KEY CHECK (pg_temp.ok(id)));
-- error: 42P01
INSERT INTO real VALUES (1);
CREATE TABLE real (id int PRIMARY KEY);
-- refused
ALTER TABLE real ADD CHECK (pg_temp.ok(id));
INSERT INTO real VALUES (-1);

-- case: real index on a pg_temp function
CREATE TABLE real (id int PRIMARY KEY);
CREATE FUNCTION pg_temp.f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1';
CREATE INDEX i ON real (pg_temp.f(id));
INSERT INTO real VALUES (1);
DROP INDEX i;
CREATE INDEX i ON real (pg_temp.f(id));
-- reconnect
INSERT INTO real VALUES (2);
CREATE INDEX i ON real (id);

-- case: real trigger that calls a pg_temp function, session ends
CREATE TABLE real (id int PRIMARY KEY, n int);
CREATE FUNCTION pg_temp.tf() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.n := 5; RETURN NEW; END $$;
CREATE TRIGGER tr BEFORE INSERT ON real FOR EACH ROW EXECUTE FUNCTION pg_temp.tf();
INSERT INTO real VALUES (1);
ALTER TRIGGER tr ON real RENAME TO tr2;
ALTER TABLE real DISABLE TRIGGER tr2;
ALTER TABLE real ENABLE TRIGGER tr2;
-- reconnect
INSERT INTO real VALUES (2);

-- case: drop a pg_temp trigger function cascade
CREATE TABLE real (id int PRIMARY KEY, n int);
CREATE FUNCTION pg_temp.tf() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.n := 5; RETURN NEW; END $$;
CREATE TRIGGER tr BEFORE INSERT ON real FOR EACH ROW EXECUTE FUNCTION pg_temp.tf();
INSERT INTO real VALUES (1);
DROP FUNCTION pg_temp.tf() CASCADE;
INSERT INTO real VALUES (2);

-- case: real trigger dropped by its name while its function is temporary
CREATE TABLE real (id int PRIMARY KEY, n int);
CREATE FUNCTION pg_temp.tf() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.n := 5; RETURN NEW; END $$;
CREATE TRIGGER tr BEFORE INSERT ON real FOR EACH ROW EXECUTE FUNCTION pg_temp.tf();
DROP TRIGGER tr ON real;
INSERT INTO real VALUES (2);

-- case: view over a pg_temp function, session ends
CREATE TABLE real (id int PRIMARY KEY);
CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE VIEW v AS SELECT id, pg_temp.f() AS one FROM real;
CREATE VIEW w AS SELECT * FROM v;
-- reconnect
INSERT INTO real VALUES (1);
CREATE VIEW v AS SELECT id FROM real;

-- case: policy that calls a pg_temp function
CREATE TABLE real (id int PRIMARY KEY);
CREATE FUNCTION pg_temp.f(int) RETURNS bool LANGUAGE sql AS 'SELECT true';
CREATE POLICY p ON real USING (pg_temp.f(id));
DROP POLICY p ON real;
CREATE POLICY p ON real USING (pg_temp.f(id));
-- reconnect
INSERT INTO real VALUES (1);

-- case: casts, operators, aggregates of pg_temp
CREATE TABLE real (id int PRIMARY KEY);
CREATE TYPE pg_temp.c AS (x int);
CREATE FUNCTION pg_temp.to_int(pg_temp.c) RETURNS int LANGUAGE sql AS 'SELECT $1.x';
CREATE CAST (pg_temp.c AS int) WITH FUNCTION pg_temp.to_int(pg_temp.c);
COMMENT ON CAST (pg_temp.c AS int) IS 'c';
CREATE OPERATOR pg_temp.### (LEFTARG = int, RIGHTARG = int, FUNCTION = int4pl);
ALTER OPERATOR pg_temp.### (int, int) SET (RESTRICT = NONE);
CREATE AGGREGATE pg_temp.ag(int) (SFUNC = int4pl, STYPE = int, INITCOND = '0');
CREATE TEXT SEARCH DICTIONARY pg_temp.td (TEMPLATE = simple);
CREATE TEXT SEARCH CONFIGURATION pg_temp.tc (COPY = simple);
CREATE COLLATION pg_temp.co FROM "C";
DROP AGGREGATE pg_temp.ag(int);
DROP OPERATOR pg_temp.### (int, int);
DROP CAST (pg_temp.c AS int);
DROP TEXT SEARCH CONFIGURATION pg_temp.tc;
DROP COLLATION pg_temp.co;
INSERT INTO real VALUES (1);

-- case: statistics in a real schema on a temporary table
CREATE TABLE real (a int PRIMARY KEY, b int);
CREATE TEMP TABLE tt (a int, b int);
CREATE STATISTICS :schema.st ON a, b FROM tt;
ALTER STATISTICS :schema.st SET STATISTICS 50;
COMMENT ON STATISTICS :schema.st IS 'c';
ALTER STATISTICS :schema.st RENAME TO st2;
DROP STATISTICS :schema.st2;
CREATE STATISTICS :schema.st ON a, b FROM tt;
INSERT INTO real VALUES (1, 1);
-- reconnect
CREATE STATISTICS :schema.st ON a, b FROM real;
INSERT INTO real VALUES (2, 1);

-- case: statistics without a schema on a temporary table
CREATE TABLE real (a int PRIMARY KEY, b int);
CREATE TEMP TABLE tt (a int, b int);
CREATE STATISTICS st ON a, b FROM tt;
DROP STATISTICS st;
INSERT INTO real VALUES (1, 1);

-- case: drop of temporary and real in one statement
CREATE TABLE r1 (id int PRIMARY KEY);
CREATE TABLE keep (id int PRIMARY KEY);
CREATE TABLE tt (id int);
CREATE TEMP TABLE tt (id int);
DROP TABLE tt, r1;
INSERT INTO keep VALUES (1);
INSERT INTO tt VALUES (1);

-- case: drop of temporary and real of other kinds
CREATE TABLE keep (id int PRIMARY KEY);
CREATE VIEW v1 AS SELECT 1 AS x;
CREATE SEQUENCE s1;
CREATE TYPE e1 AS ENUM ('a');
CREATE FUNCTION f1() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE INDEX i1 ON keep (id);
CREATE TEMP VIEW v2 AS SELECT 1 AS x;
CREATE TEMP SEQUENCE s2;
CREATE TYPE pg_temp.e2 AS ENUM ('a');
CREATE FUNCTION pg_temp.f2() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE TEMP TABLE tt (id int);
CREATE INDEX i2 ON tt (id);
DROP VIEW v2, v1;
DROP SEQUENCE s1, s2;
DROP TYPE e1, pg_temp.e2;
DROP FUNCTION pg_temp.f2(), f1();
DROP INDEX i2, i1;
INSERT INTO keep VALUES (1);

-- case: drop of a real table cascades to a temporary view
CREATE TABLE real (id int PRIMARY KEY);
CREATE TABLE keep (id int PRIMARY KEY);
CREATE TEMP VIEW v AS SELECT * FROM real;
-- error: 2BP01
DROP TABLE real;
DROP TABLE real CASCADE;
INSERT INTO keep VALUES (1);

-- case: drop of a real column cascades to a temporary view
CREATE TABLE real (id int PRIMARY KEY, n int);
CREATE TEMP VIEW v AS SELECT n FROM real;
ALTER TABLE real DROP COLUMN n CASCADE;
INSERT INTO real VALUES (1);

-- case: temporary child of a real table
CREATE TABLE parent (id int PRIMARY KEY, v text);
CREATE TEMP TABLE kid (w int) INHERITS (parent);
INSERT INTO kid VALUES (1, 'k', 2);
INSERT INTO parent VALUES (2, 'p');
ALTER TABLE parent ADD COLUMN n int DEFAULT 3;
UPDATE parent SET v = 'both';
ALTER TABLE parent RENAME COLUMN v TO vv;
DELETE FROM parent WHERE id = 1;
TRUNCATE parent;
INSERT INTO parent VALUES (5, 'p', 6);
DROP TABLE kid;
INSERT INTO parent VALUES (6, 'p', 6);

-- case: real parent with a temporary child is dropped
CREATE TABLE parent (id int PRIMARY KEY, v text);
CREATE TABLE keep (id int PRIMARY KEY);
CREATE TEMP TABLE kid (w int) INHERITS (parent);
ALTER TABLE kid NO INHERIT parent;
ALTER TABLE kid INHERIT parent;
DROP TABLE parent CASCADE;
INSERT INTO keep VALUES (1);

-- case: temporary partitioned table
CREATE TABLE real (id int PRIMARY KEY);
CREATE TEMP TABLE p (id int, k int) PARTITION BY LIST (k);
CREATE TEMP TABLE p1 PARTITION OF p FOR VALUES IN (1);
CREATE TEMP TABLE p2 (id int, k int);
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES IN (2);
INSERT INTO p VALUES (1, 1), (2, 2);
UPDATE p SET k = 3 - k;
ALTER TABLE p DETACH PARTITION p2;
DROP TABLE p;
INSERT INTO real VALUES (1);

-- case: on commit drop and delete rows
CREATE TABLE real (id int PRIMARY KEY);
BEGIN;
CREATE TEMP TABLE tt (id int) ON COMMIT DROP;
INSERT INTO tt VALUES (1);
INSERT INTO real SELECT * FROM tt;
COMMIT;
CREATE TEMP TABLE td (id int) ON COMMIT DELETE ROWS;
INSERT INTO td VALUES (1);
ALTER TABLE td ADD x int;
INSERT INTO real VALUES (2);

-- case: on commit drop of a table that hides
CREATE TABLE real (id int PRIMARY KEY);
BEGIN;
CREATE TEMP TABLE real (id int) ON COMMIT DROP;
ALTER TABLE real ADD x int;
COMMIT;
ALTER TABLE real ADD y int;
INSERT INTO real VALUES (1, 1);

-- case: discard all and session end
CREATE TABLE real (id int PRIMARY KEY);
CREATE TEMP TABLE real (id int);
CREATE INDEX ON real (id);
DISCARD ALL;
SET search_path = :schema, public;
ALTER TABLE real ADD y int;
CREATE TEMP TABLE real (id int);
-- reconnect
ALTER TABLE real ADD z int;
INSERT INTO real VALUES (1, 1, 1);

-- case: reindex, vacuum, analyze, cluster of temporary tables
CREATE TABLE real (id int PRIMARY KEY);
CREATE TEMP TABLE tt (id int PRIMARY KEY);
VACUUM tt;
VACUUM FULL tt;
ANALYZE tt;
CLUSTER tt USING tt_pkey;
CLUSTER tt;
ALTER TABLE tt CLUSTER ON tt_pkey;
REINDEX TABLE tt;
REINDEX TABLE CONCURRENTLY tt;
INSERT INTO real VALUES (1);

-- case: rewrites of temporary tables
CREATE TABLE real (id int PRIMARY KEY);
CREATE TEMP TABLE tt (id int PRIMARY KEY, n text);
INSERT INTO tt VALUES (1, '2');
ALTER TABLE tt ALTER n TYPE int USING n::int + (random() * 0)::int;
ALTER TABLE tt ADD u uuid DEFAULT gen_random_uuid();
ALTER TABLE tt ADD c timestamptz DEFAULT clock_timestamp();
INSERT INTO real VALUES (1);

-- case: rewrites of the hiding table
CREATE TABLE t (id int PRIMARY KEY, n text);
INSERT INTO t VALUES (1, 'no number');
CREATE TEMP TABLE t (id int PRIMARY KEY, n text);
INSERT INTO t VALUES (1, '2');
ALTER TABLE t ALTER n TYPE int USING n::int;
ALTER TABLE t ADD u uuid DEFAULT gen_random_uuid();
INSERT INTO :schema.t VALUES (2, 'none');

-- case: temporary tables in a block with real ones, rolled back and not
CREATE TABLE t (id int PRIMARY KEY);
BEGIN;
CREATE TEMP TABLE t (id int);
DROP TABLE t;
ALTER TABLE t ADD a int;
ROLLBACK;
BEGIN;
CREATE TEMP TABLE t (id int);
ALTER TABLE t ADD b int;
DROP TABLE t;
ALTER TABLE t ADD c int;
COMMIT;
INSERT INTO t VALUES (1, 1);

-- case: savepoint brings the hiding table back
CREATE TABLE t (id int PRIMARY KEY);
CREATE TEMP TABLE t (id int);
BEGIN;
SAVEPOINT s;
DROP TABLE t;
ALTER TABLE t ADD lost int;
ROLLBACK TO s;
ALTER TABLE t ADD temporary int;
COMMIT;
INSERT INTO :schema.t VALUES (1);

-- case: explicit pg_temp in front of names
CREATE TABLE t (id int PRIMARY KEY);
CREATE TABLE pg_temp.t (id int);
ALTER TABLE pg_temp.t ADD x int;
CREATE INDEX ON pg_temp.t (x);
COMMENT ON TABLE pg_temp.t IS 'x';
DROP TABLE pg_temp.t;
INSERT INTO t VALUES (1);

-- case: pg_temp last in the search path
CREATE TABLE t (id int PRIMARY KEY);
CREATE TEMP TABLE t (id int);
SET search_path = :schema, public, pg_temp;
ALTER TABLE t ADD x int;
INSERT INTO t VALUES (1, 1);
DROP TABLE t;
ALTER TABLE t ADD temporary int;
CREATE TABLE t (id int PRIMARY KEY, second int);
INSERT INTO t VALUES (1, 2);

-- case: pg_temp first in the search path
SET search_path = pg_temp, :schema, public;
CREATE TABLE t (id int PRIMARY KEY);
CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE VIEW v AS SELECT 1 AS x;
CREATE SEQUENCE s;
CREATE TYPE e AS ENUM ('a');
CREATE TABLE :schema.t (id int PRIMARY KEY);
INSERT INTO t VALUES (1);
INSERT INTO :schema.t VALUES (2);
DROP TABLE t;
ALTER TABLE t ADD y int;
INSERT INTO t VALUES (3, 3);

-- case: temporary table of an ordinary role
CREATE ROLE follow_joe LOGIN;
GRANT USAGE, CREATE ON SCHEMA :schema TO follow_joe;
-- as: follow_joe
CREATE TABLE t (id int PRIMARY KEY);
CREATE TEMP TABLE t (id int);
CREATE INDEX ON t (id);
ALTER TABLE t ADD x int;
CREATE TEMP VIEW v AS SELECT * FROM t;
CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1';
DROP TABLE t CASCADE;
INSERT INTO t VALUES (1);
-- finally
-- as: postgres
DROP OWNED BY follow_joe;
DROP ROLE follow_joe;

-- case: drop owned with temporary tables
CREATE ROLE follow_joe LOGIN;
GRANT USAGE, CREATE ON SCHEMA :schema TO follow_joe;
CREATE TABLE keep (id int PRIMARY KEY);
-- as: follow_joe
CREATE TABLE mine (id int PRIMARY KEY);
CREATE TEMP TABLE tt (id int);
DROP OWNED BY follow_joe;
-- as: postgres
INSERT INTO keep VALUES (1);
-- finally
DROP OWNED BY follow_joe;
DROP ROLE follow_joe;

-- case: temporary tables in DO and functions
CREATE TABLE t (id int PRIMARY KEY);
DO $$ BEGIN
  CREATE TEMP TABLE t (id int);
  ALTER TABLE t ADD x int;
  INSERT INTO t VALUES (1, 1);
  INSERT INTO :schema.t SELECT id FROM pg_temp.t;
  DROP TABLE pg_temp.t;
  ALTER TABLE :schema.t ADD y int;
END $$;
INSERT INTO t VALUES (2, 2);

-- case: temporary table as, and into real
CREATE TABLE real (id int PRIMARY KEY);
INSERT INTO real SELECT generate_series(1, 5);
CREATE TEMP TABLE tt AS SELECT * FROM real;
SELECT * INTO TEMP t2 FROM real;
CREATE TEMP TABLE t3 (LIKE real INCLUDING ALL);
INSERT INTO real SELECT id + 10 FROM tt;
DELETE FROM real USING tt WHERE real.id = tt.id AND tt.id < 3;
UPDATE real SET id = real.id + 100 FROM t2 WHERE t2.id = real.id;

-- case: temporary typed table, foreign keys between temporary tables
CREATE TABLE real (id int PRIMARY KEY);
CREATE TYPE ct AS (a int, b text);
CREATE TEMP TABLE tt OF ct (PRIMARY KEY (a));
CREATE TEMP TABLE fk (a int REFERENCES tt);
ALTER TYPE ct ADD ATTRIBUTE c int CASCADE;
INSERT INTO tt VALUES (1, 'x', 2);
INSERT INTO fk VALUES (1);
TRUNCATE tt CASCADE;
ALTER TABLE tt NOT OF;
INSERT INTO real VALUES (1);

-- case: temporary table in a prepared transaction fails
CREATE TABLE real (id int PRIMARY KEY);
BEGIN;
CREATE TEMP TABLE tt (id int);
INSERT INTO real VALUES (1);
-- error: 0A000
PREPARE TRANSACTION 'follow_temp';
INSERT INTO real VALUES (2);

-- case: set schema in and out of pg_temp fails
CREATE TABLE real (id int PRIMARY KEY);
CREATE TEMP TABLE tt (id int);
-- error: 0A000
ALTER TABLE tt SET SCHEMA :schema;
-- error: 0A000
ALTER TABLE real SET SCHEMA pg_temp;
INSERT INTO real VALUES (1);

-- case: foreign table and materialized view that a temporary table hides
CREATE MATERIALIZED VIEW m AS SELECT 1 AS x;
CREATE TEMP TABLE m (x int);
ALTER TABLE m ADD y int;
DROP TABLE m;
REFRESH MATERIALIZED VIEW m;
CREATE TEMP TABLE m (x int);
DROP MATERIALIZED VIEW :schema.m;
CREATE TABLE :schema.m (id int PRIMARY KEY);
INSERT INTO :schema.m VALUES (1);

-- case: temporary object of another session
CREATE TABLE t (id int PRIMARY KEY);
CREATE TEMP TABLE t (id int);
-- session: 2
ALTER TABLE t ADD x int;
CREATE TEMP TABLE t (id int);
-- session: 1
DROP TABLE t;
ALTER TABLE t ADD y int;
-- session: 2
ALTER TABLE t ADD z int;
DROP TABLE t;
INSERT INTO t VALUES (1, 1, 1);

-- case: superuser drops another session's temporary table by its schema
CREATE TABLE t (id int PRIMARY KEY);
CREATE TEMP TABLE tt (id int);
-- session: 2
DO $$ DECLARE n text; BEGIN
  SELECT c.oid::regclass INTO n FROM pg_class c WHERE relname = 'tt' AND relpersistence = 't' ORDER BY c.oid DESC LIMIT 1;
  EXECUTE 'DROP TABLE ' || n;
END $$;
INSERT INTO t VALUES (1);

-- case: same statement text means temporary, then real
CREATE TABLE t (id int PRIMARY KEY);
CREATE FUNCTION add(n int) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('ALTER TABLE t ADD c%s int', n); END $$;
CREATE TEMP TABLE t (id int);
SELECT add(1);
DROP TABLE t;
SELECT add(1);
SELECT add(2);
INSERT INTO t VALUES (1, 2, 3);

-- case: create table if not exists beside a temporary one
CREATE TEMP TABLE t (id int);
CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY);
CREATE TEMP TABLE IF NOT EXISTS t (id int);
INSERT INTO :schema.t VALUES (1);
DROP TABLE IF EXISTS t;
DROP TABLE IF EXISTS t;
DROP TABLE IF EXISTS t;
CREATE TABLE t (id int PRIMARY KEY, last int);
INSERT INTO t VALUES (1, 1);

-- case: temporary objects of every kind end with their session
CREATE TABLE real (id int PRIMARY KEY);
CREATE DOMAIN pg_temp.a AS text;
-- reconnect
CREATE DOMAIN pg_temp.a AS int;
-- reconnect
CREATE TYPE pg_temp.a AS ENUM ('x');
-- reconnect
CREATE TYPE pg_temp.a AS (x int);
-- reconnect
CREATE TYPE pg_temp.a AS RANGE (subtype = int);
-- reconnect
CREATE FUNCTION pg_temp.a() RETURNS int LANGUAGE sql AS 'SELECT 1';
-- reconnect
CREATE PROCEDURE pg_temp.a() LANGUAGE sql AS '';
-- reconnect
CREATE AGGREGATE pg_temp.a(int) (SFUNC = int4pl, STYPE = int);
-- reconnect
CREATE OPERATOR pg_temp.### (LEFTARG = int, RIGHTARG = int, FUNCTION = int4pl);
-- reconnect
CREATE COLLATION pg_temp.a FROM "C";
-- reconnect
CREATE TEXT SEARCH CONFIGURATION pg_temp.a (COPY = simple);
-- reconnect
CREATE TEXT SEARCH DICTIONARY pg_temp.a (TEMPLATE = simple);
-- reconnect
CREATE OPERATOR FAMILY pg_temp.a USING btree;
-- reconnect
CREATE CONVERSION pg_temp.a FOR 'LATIN1' TO 'UTF8' FROM iso8859_1_to_utf8;
-- reconnect
SET search_path = pg_temp, :schema; CREATE SEQUENCE a;
-- reconnect
DO $$ BEGIN CREATE TEMP TABLE a (id int); END $$;
-- reconnect
DO $$ BEGIN CREATE DOMAIN pg_temp.a AS int; END $$;
-- reconnect
SELECT 1 AS x INTO TEMP a;
-- reconnect
CREATE TEMP VIEW a AS SELECT 1 AS x;
-- reconnect
-- expect: 0
SELECT count(*) FROM pg_depend WHERE refclassid = 'pg_namespace'::regclass AND refobjid::regnamespace::text ~ '^pg_temp';
INSERT INTO real VALUES (1);

-- case: like of a temporary table
CREATE TEMP TABLE tt (id int PRIMARY KEY, v text DEFAULT 'd' NOT NULL CHECK (v <> ''), g int GENERATED ALWAYS AS (id * 2) STORED, UNIQUE (v));
COMMENT ON COLUMN tt.v IS 'commented';
CREATE INDEX ON tt (lower(v)) WHERE id > 3;
CREATE STATISTICS st ON id, v FROM tt;
CREATE TABLE c (LIKE tt INCLUDING ALL);
CREATE TABLE c2 (LIKE tt);
CREATE TABLE c3 (x int, LIKE tt INCLUDING DEFAULTS INCLUDING INDEXES, y int);
INSERT INTO c (id) VALUES (1);
INSERT INTO c3 (x, id) VALUES (1, 2);

-- case: like of a temporary table with serial and identity
CREATE TEMP TABLE tt (a int GENERATED BY DEFAULT AS IDENTITY, b text);
CREATE TABLE c (LIKE tt INCLUDING ALL);
INSERT INTO c (b) VALUES ('x');
CREATE TEMP TABLE ts (a serial, b text);
-- The default is the next value of a temporary sequence.
-- refused
CREATE TABLE c2 (LIKE ts INCLUDING DEFAULTS);
-- error: 42P01
INSERT INTO c2 (a, b) VALUES (7, 'x');
CREATE TABLE c2 (LIKE ts);
-- reconnect
-- error: 23502
INSERT INTO c2 (b) VALUES ('y');
INSERT INTO c2 (a, b) VALUES (8, 'y');

-- case: like of temporary tables with constraints as PostgreSQL 18 has them
-- needs: 18
CREATE TEMP TABLE a (a int CONSTRAINT foo NOT NULL NO INHERIT, b int CONSTRAINT bar NOT NULL);
CREATE TABLE ta (LIKE a);
CREATE TEMP TABLE b (e int CONSTRAINT ee CHECK (e > 0) NOT ENFORCED);
CREATE TABLE tb (LIKE b INCLUDING CONSTRAINTS);
CREATE TEMP TABLE c (e int PRIMARY KEY, g int GENERATED ALWAYS AS (e * 2));
CREATE TABLE tc (LIKE c INCLUDING ALL);
INSERT INTO ta VALUES (1, 1);
INSERT INTO tb VALUES (-1);
INSERT INTO tc VALUES (1);

-- case: temporary objects that are altered, renamed, commented on and dropped beside real ones
CREATE OPERATOR FAMILY f USING btree;
CREATE TEXT SEARCH CONFIGURATION c (COPY = simple);
CREATE TEXT SEARCH DICTIONARY d (TEMPLATE = simple);
CREATE CONVERSION v FOR 'LATIN1' TO 'UTF8' FROM iso8859_1_to_utf8;
CREATE TYPE e AS ENUM ('real');
CREATE DOMAIN m AS int;
CREATE COLLATION l FROM "C";
CREATE ROLE follow_joe;
GRANT ALL ON SCHEMA :schema TO follow_joe;
CREATE OPERATOR FAMILY pg_temp.f USING btree;
ALTER OPERATOR FAMILY pg_temp.f USING btree ADD OPERATOR 1 < (int, bigint);
ALTER OPERATOR FAMILY pg_temp.f USING btree RENAME TO g;
CREATE OPERATOR CLASS pg_temp.c FOR TYPE int USING btree FAMILY pg_temp.g AS OPERATOR 1 <, FUNCTION 1 btint4cmp(int, int);
COMMENT ON OPERATOR CLASS pg_temp.c USING btree IS 'x';
ALTER OPERATOR CLASS pg_temp.c USING btree OWNER TO follow_joe;
ALTER OPERATOR FAMILY pg_temp.g USING btree DROP OPERATOR 1 (int, bigint);
DROP OPERATOR FAMILY pg_temp.g USING btree CASCADE;
CREATE TEXT SEARCH CONFIGURATION pg_temp.c (COPY = simple);
ALTER TEXT SEARCH CONFIGURATION pg_temp.c DROP MAPPING FOR url;
COMMENT ON TEXT SEARCH CONFIGURATION pg_temp.c IS 'x';
ALTER TEXT SEARCH CONFIGURATION pg_temp.c RENAME TO other;
DROP TEXT SEARCH CONFIGURATION pg_temp.other;
CREATE TEXT SEARCH DICTIONARY pg_temp.d (TEMPLATE = simple);
ALTER TEXT SEARCH DICTIONARY pg_temp.d (accept = false);
DROP TEXT SEARCH DICTIONARY pg_temp.d;
CREATE CONVERSION pg_temp.v FOR 'LATIN1' TO 'UTF8' FROM iso8859_1_to_utf8;
ALTER CONVERSION pg_temp.v RENAME TO w;
COMMENT ON CONVERSION pg_temp.w IS 'x';
DROP CONVERSION pg_temp.w;
CREATE TYPE pg_temp.e AS ENUM ('a');
ALTER TYPE pg_temp.e ADD VALUE 'b';
ALTER TYPE pg_temp.e RENAME VALUE 'a' TO 'c';
ALTER TYPE pg_temp.e OWNER TO follow_joe;
GRANT USAGE ON TYPE pg_temp.e TO follow_joe;
ALTER TYPE pg_temp.e RENAME TO e2;
DROP TYPE pg_temp.e2;
CREATE DOMAIN pg_temp.m AS int;
ALTER DOMAIN pg_temp.m ADD CONSTRAINT pos CHECK (VALUE > 0);
ALTER DOMAIN pg_temp.m SET DEFAULT 5;
COMMENT ON CONSTRAINT pos ON DOMAIN pg_temp.m IS 'x';
DROP DOMAIN pg_temp.m;
CREATE COLLATION pg_temp.l FROM "POSIX";
ALTER COLLATION pg_temp.l RENAME TO l2;
DROP COLLATION pg_temp.l2;
CREATE AGGREGATE pg_temp.total(int) (SFUNC = int4pl, STYPE = int);
ALTER AGGREGATE pg_temp.total(int) RENAME TO total2;
ALTER ROUTINE pg_temp.total2(int) OWNER TO follow_joe;
DROP AGGREGATE pg_temp.total2(int);
CREATE OPERATOR pg_temp.### (LEFTARG = int, RIGHTARG = int, FUNCTION = int4pl);
ALTER OPERATOR pg_temp.### (int, int) OWNER TO follow_joe;
DROP OPERATOR pg_temp.### (int, int);
ALTER TYPE e ADD VALUE 'more';
ALTER DOMAIN m SET DEFAULT 7;
-- finally
DROP OWNED BY follow_joe;
DROP ROLE follow_joe;

-- case: temporary objects of every kind of an ordinary role
CREATE ROLE follow_joe LOGIN;
GRANT USAGE, CREATE ON SCHEMA :schema TO follow_joe;
-- as: follow_joe
CREATE TABLE t (id int PRIMARY KEY, n int);
CREATE TYPE e AS ENUM ('real');
CREATE TEMP TABLE t (id serial PRIMARY KEY, n int GENERATED ALWAYS AS IDENTITY, v text);
CREATE TYPE pg_temp.e AS ENUM ('a');
ALTER TYPE pg_temp.e ADD VALUE 'b';
CREATE DOMAIN pg_temp.d AS int CHECK (VALUE > 0);
ALTER DOMAIN pg_temp.d DROP CONSTRAINT d_check;
CREATE TEMP SEQUENCE s;
ALTER SEQUENCE s INCREMENT 2;
CREATE FUNCTION pg_temp.tf() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION pg_temp.tf();
ALTER TABLE t DISABLE TRIGGER tr;
CREATE RULE r AS ON DELETE TO t DO INSTEAD NOTHING;
ALTER RULE r ON t RENAME TO r2;
ALTER TABLE t ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON t USING (id > 0);
ALTER POLICY p ON t USING (true);
CREATE STATISTICS st ON id, v FROM t;
COMMENT ON RULE r2 ON t IS 'x';
GRANT SELECT ON t TO PUBLIC;
REVOKE ALL ON FUNCTION pg_temp.tf() FROM PUBLIC;
INSERT INTO t (v) VALUES ('temporary');
REINDEX TABLE t;
DROP TRIGGER tr ON t;
DROP RULE r2 ON t;
DROP POLICY p ON t;
ALTER TABLE t RENAME TO u;
INSERT INTO t VALUES (1, 1);
DROP TABLE u;
DROP TYPE pg_temp.e;
DROP DOMAIN pg_temp.d;
DROP FUNCTION pg_temp.tf();
DROP SEQUENCE s;
ALTER TYPE e ADD VALUE 'more';
UPDATE t SET n = 2;
-- finally
-- as: postgres
DROP OWNED BY follow_joe;
DROP ROLE follow_joe;

-- case: what replicas have doesn't come to depend on something temporary
CREATE TABLE real (id int PRIMARY KEY, v int);
CREATE TEMP TABLE tt (a int);
CREATE FUNCTION pg_temp.ok(int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT true';
CREATE FUNCTION pg_temp.tf() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE FUNCTION pg_temp.two() RETURNS int LANGUAGE sql AS 'SELECT 2';
CREATE FUNCTION pg_temp.add(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
CREATE TEXT SEARCH DICTIONARY pg_temp.dict (TEMPLATE = simple);
CREATE FUNCTION f() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
-- refused
CREATE OR REPLACE FUNCTION f() RETURNS bigint BEGIN ATOMIC SELECT count(*) FROM tt; END;
CREATE FUNCTION g(x int DEFAULT 1) RETURNS int LANGUAGE sql AS 'SELECT 1';
-- refused
CREATE OR REPLACE FUNCTION g(x int DEFAULT pg_temp.two()) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE PROCEDURE pr() LANGUAGE sql AS 'SELECT 1';
-- refused
CREATE OR REPLACE PROCEDURE pr() BEGIN ATOMIC INSERT INTO tt VALUES (1); END;
CREATE AGGREGATE ag(int) (SFUNC = int4pl, STYPE = int);
-- refused
CREATE OR REPLACE AGGREGATE ag(int) (SFUNC = pg_temp.add, STYPE = int);
CREATE VIEW v AS SELECT 1 AS n;
-- refused
CREATE OR REPLACE VIEW v AS SELECT pg_temp.two() AS n;
-- refused
ALTER VIEW v ALTER n SET DEFAULT pg_temp.two();
CREATE FUNCTION tf() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER tr BEFORE INSERT ON real FOR EACH ROW EXECUTE FUNCTION tf();
-- refused
CREATE OR REPLACE TRIGGER tr BEFORE INSERT ON real FOR EACH ROW EXECUTE FUNCTION pg_temp.tf();
CREATE RULE ru AS ON INSERT TO real DO ALSO SELECT 1;
-- refused
CREATE OR REPLACE RULE ru AS ON INSERT TO real DO ALSO INSERT INTO tt VALUES (1);
CREATE POLICY p ON real USING (v > 0);
-- refused
ALTER POLICY p ON real USING (pg_temp.ok(v));
CREATE TEXT SEARCH CONFIGURATION c (COPY = simple);
-- refused
ALTER TEXT SEARCH CONFIGURATION c ALTER MAPPING FOR asciiword WITH pg_temp.dict;
CREATE DOMAIN d AS int;
-- refused
ALTER DOMAIN d ADD CHECK (pg_temp.ok(VALUE));
-- refused
ALTER DOMAIN d SET DEFAULT pg_temp.two();
-- refused
DO $$ BEGIN
  CREATE VIEW w AS SELECT 1 AS n;
  CREATE OR REPLACE VIEW w AS SELECT pg_temp.two() AS n;
END $$;
DROP RULE ru ON real;
INSERT INTO real VALUES (1, 1);
-- reconnect
INSERT INTO real VALUES (2, 1);

-- case: what depends on something temporary does so as long as it exists
CREATE TABLE real (id int PRIMARY KEY, v int);
CREATE TEMP TABLE tt (a int);
CREATE FUNCTION pg_temp.ok(int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT true';
CREATE FUNCTION pg_temp.tf() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE FUNCTION f() RETURNS bigint BEGIN ATOMIC SELECT count(*) FROM tt; END;
COMMENT ON FUNCTION f() IS 'local';
ALTER FUNCTION f() SET work_mem = '1MB';
CREATE OR REPLACE FUNCTION f() RETURNS bigint BEGIN ATOMIC SELECT count(*) + 1 FROM tt; END;
-- refused
CREATE OR REPLACE FUNCTION f() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
CREATE VIEW v AS SELECT f();
CREATE VIEW w AS SELECT * FROM v;
CREATE OR REPLACE VIEW v AS SELECT f() + 1 AS f;
-- refused
CREATE OR REPLACE VIEW v AS SELECT 1::bigint AS f;
COMMENT ON VIEW w IS 'x';
CREATE TRIGGER tr BEFORE INSERT ON real FOR EACH ROW EXECUTE FUNCTION pg_temp.tf();
CREATE OR REPLACE TRIGGER tr BEFORE INSERT OR UPDATE ON real FOR EACH ROW EXECUTE FUNCTION pg_temp.tf();
CREATE FUNCTION tf() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
-- refused
CREATE OR REPLACE TRIGGER tr BEFORE INSERT ON real FOR EACH ROW EXECUTE FUNCTION tf();
CREATE RULE ru AS ON UPDATE TO real DO ALSO INSERT INTO tt VALUES (1);
-- refused
CREATE OR REPLACE RULE ru AS ON UPDATE TO real DO ALSO SELECT 1;
CREATE POLICY p ON real USING (pg_temp.ok(v));
ALTER POLICY p ON real USING (pg_temp.ok(id));
-- refused
ALTER POLICY p ON real USING (true);
ALTER POLICY p ON real TO CURRENT_USER;
DROP POLICY p ON real;
CREATE POLICY p ON real USING (true);
CREATE TRIGGER on_temporary BEFORE INSERT ON tt FOR EACH ROW EXECUTE FUNCTION pg_temp.tf();
CREATE OR REPLACE TRIGGER on_temporary BEFORE INSERT ON tt FOR EACH ROW EXECUTE FUNCTION tf();
ALTER TRIGGER on_temporary ON tt RENAME TO other;
DROP TABLE tt CASCADE;
CREATE FUNCTION f() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
COMMENT ON FUNCTION f() IS 'real';
CREATE VIEW v AS SELECT f();
COMMENT ON VIEW v IS 'real';
DROP TRIGGER tr ON real;
CREATE TRIGGER tr BEFORE INSERT ON real FOR EACH ROW EXECUTE FUNCTION tf();
INSERT INTO real VALUES (1, 1);
-- reconnect
ALTER TRIGGER tr ON real RENAME TO tr2;
CREATE TEMP TABLE tt (a int);
-- refused
CREATE OR REPLACE FUNCTION f() RETURNS bigint BEGIN ATOMIC SELECT count(*) FROM tt; END;
UPDATE real SET v = 2;

-- case: what would stay behind when the temporary part of it goes
CREATE TEMP TABLE tt (a int);
CREATE DOMAIN pg_temp.dd AS int;
CREATE COLLATION pg_temp.cc FROM "C";
CREATE FUNCTION pg_temp.ok(int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT true';
-- refused
CREATE TYPE c AS (a int, b tt);
-- refused
CREATE TYPE c AS (a int, b pg_temp.dd);
-- refused
CREATE TYPE c AS (a text COLLATE pg_temp.cc);
-- refused
CREATE DOMAIN d AS int CHECK (pg_temp.ok(VALUE));
CREATE TYPE c AS (a int);
CREATE TABLE real (id int PRIMARY KEY, c c);
-- refused
ALTER TYPE c ADD ATTRIBUTE b text COLLATE pg_temp.cc;
CREATE DOMAIN d AS pg_temp.dd;
CREATE DOMAIN e AS text COLLATE pg_temp.cc;
INSERT INTO real VALUES (1, ROW (1));
-- reconnect
CREATE DOMAIN d AS int;
CREATE DOMAIN e AS text;
ALTER TYPE c ADD ATTRIBUTE b d;
UPDATE real SET c = ROW (1, 2);

-- case: a superuser's objects that depend on temporary functions
CREATE TABLE real (id int NOT NULL PRIMARY KEY, a int NOT NULL);
CREATE FUNCTION pg_temp.et() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE EVENT TRIGGER follow_local ON ddl_command_end EXECUTE FUNCTION pg_temp.et();
CREATE TABLE other (id int PRIMARY KEY);
ALTER EVENT TRIGGER follow_local RENAME TO follow_local2;
CREATE OPERATOR CLASS pg_temp.oc FOR TYPE int USING btree AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 btint4cmp(int, int);
CREATE UNIQUE INDEX i ON real (a pg_temp.oc);
-- refused
ALTER TABLE real REPLICA IDENTITY USING INDEX i;
-- refused
ALTER TABLE real CLUSTER ON i;
CREATE FUNCTION pg_temp.cmp(int, bigint) RETURNS int LANGUAGE internal IMMUTABLE AS 'btint48cmp';
CREATE OPERATOR FAMILY fa USING btree;
-- refused
ALTER OPERATOR FAMILY fa USING btree ADD FUNCTION 1 (int, bigint) pg_temp.cmp(int, bigint);
CREATE FUNCTION pg_temp.val(text[], oid) RETURNS bool LANGUAGE internal AS 'postgresql_fdw_validator';
CREATE FOREIGN DATA WRAPPER follow_local VALIDATOR pg_temp.val;
-- refused
ALTER FOREIGN DATA WRAPPER follow_local NO VALIDATOR;
CREATE FOREIGN DATA WRAPPER follow_real;
-- refused
ALTER FOREIGN DATA WRAPPER follow_real VALIDATOR pg_temp.val;
CREATE SERVER pg_temp_1 FOREIGN DATA WRAPPER follow_real;
CREATE USER MAPPING FOR CURRENT_USER SERVER pg_temp_1;
DROP USER MAPPING FOR CURRENT_USER SERVER pg_temp_1;
DROP SERVER pg_temp_1;
DROP FOREIGN DATA WRAPPER follow_real;
CREATE FOREIGN DATA WRAPPER "pg_temp.x";
DROP FOREIGN DATA WRAPPER "pg_temp.x";
INSERT INTO real VALUES (1, 1);
-- reconnect
INSERT INTO real VALUES (2, 2);

-- case: permanent objects and such that depend on temporary ones by one command
CREATE TABLE real (id int PRIMARY KEY);
CREATE FUNCTION pg_temp.ok(int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT true';
CREATE FUNCTION pg_temp.cmp(int, int) RETURNS int LANGUAGE internal IMMUTABLE AS 'btint4cmp';
CREATE FUNCTION pg_temp.greater(int, int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT $1 > $2';
-- refused
CREATE SCHEMA follow_both CREATE VIEW v AS SELECT pg_temp.ok(1) CREATE TABLE x (a int);
-- refused
CREATE OPERATOR CLASS oc FOR TYPE int USING btree AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 pg_temp.cmp(int, int);
CREATE OPERATOR <<|< (LEFTARG = int, RIGHTARG = int, FUNCTION = int4lt, COMMUTATOR = OPERATOR(:schema.>|>>));
-- refused
CREATE OPERATOR >|>> (LEFTARG = int, RIGHTARG = int, FUNCTION = pg_temp.greater);
COMMENT ON OPERATOR <<|< (int, int) IS 'x';
INSERT INTO real VALUES (1);

-- case: parts in partitions that depend on something temporary, and what takes their place
CREATE TABLE parted (a int, b int) PARTITION BY RANGE (a);
CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (10);
CREATE FUNCTION pg_temp.f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1';
CREATE FUNCTION pg_temp.tf() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE INDEX i ON parted (pg_temp.f(b));
COMMENT ON INDEX part_f_idx IS 'x';
ALTER INDEX part_f_idx SET (fillfactor = 50);
CREATE TRIGGER tr AFTER INSERT ON parted FOR EACH ROW EXECUTE FUNCTION pg_temp.tf();
COMMENT ON TRIGGER tr ON part IS 'x';
CREATE TABLE real (id int PRIMARY KEY, v int);
CREATE INDEX j ON real (pg_temp.f(v));
REINDEX INDEX CONCURRENTLY j;
COMMENT ON INDEX j IS 'x';
INSERT INTO parted VALUES (1, 1);
INSERT INTO real VALUES (1, 1);
-- reconnect
INSERT INTO parted VALUES (2, 1);
INSERT INTO real VALUES (2, 1);

-- case: objects that depend on temporary ones among others
CREATE TABLE real (id int PRIMARY KEY);
CREATE TEMP TABLE tt (a int);
CREATE ROLE follow_joe;
GRANT ALL ON SCHEMA :schema TO follow_joe;
CREATE FUNCTION loc() RETURNS bigint BEGIN ATOMIC SELECT count(*) FROM tt; END;
CREATE FUNCTION per() RETURNS int LANGUAGE sql AS 'SELECT 1';
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA :schema TO follow_joe;
ALTER FUNCTION loc() OWNER TO follow_joe;
ALTER FUNCTION loc() RENAME TO loc2;
REASSIGN OWNED BY follow_joe TO CURRENT_USER;
-- refused
ALTER EXTENSION plpgsql ADD FUNCTION loc2();
ALTER FUNCTION loc2() DEPENDS ON EXTENSION plpgsql;
REVOKE ALL ON ALL ROUTINES IN SCHEMA :schema FROM PUBLIC;
DROP OWNED BY follow_joe;
GRANT ALL ON SCHEMA :schema TO follow_joe;
ALTER FUNCTION loc2() OWNER TO follow_joe;
INSERT INTO real VALUES (1);
DROP OWNED BY follow_joe;
INSERT INTO real VALUES (2);
-- finally
DROP ROLE follow_joe;
