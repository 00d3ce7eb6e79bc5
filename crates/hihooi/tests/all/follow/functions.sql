-- Functions, types, operators and what else stands in catalogs.

-- case: argument default that reads
CREATE TABLE conf (v int);
INSERT INTO conf VALUES (1);
CREATE FUNCTION reads() RETURNS int LANGUAGE sql STABLE AS 'SELECT v FROM conf';
CREATE FUNCTION f(a int DEFAULT reads()) RETURNS int LANGUAGE sql STABLE AS 'SELECT a';
SELECT f();
UPDATE conf SET v = 2;
-- expect: 2
SELECT f();
-- session: 2
UPDATE conf SET v = 3;
-- session: 1
-- expect: 3
SELECT f();

-- case: argument default that writes
CREATE TABLE log (n serial PRIMARY KEY);
CREATE FUNCTION writes() RETURNS int LANGUAGE sql AS 'INSERT INTO log DEFAULT VALUES RETURNING n';
CREATE FUNCTION f(a int DEFAULT writes()) RETURNS int LANGUAGE sql STABLE AS 'SELECT a';
SELECT f();
SELECT f();
-- expect: 2
SELECT count(*) FROM log;

-- case: argument default that defines
CREATE FUNCTION defines() RETURNS int LANGUAGE plpgsql AS $$ BEGIN CREATE TABLE IF NOT EXISTS made (id int PRIMARY KEY); RETURN 1; END $$;
CREATE FUNCTION f(a int DEFAULT defines()) RETURNS int LANGUAGE sql STABLE AS 'SELECT a';
SELECT f();
INSERT INTO made VALUES (1);

-- case: signatures, sets, procedures, aggregates
CREATE FUNCTION f(INOUT a int, OUT b text, VARIADIC c int[]) LANGUAGE plpgsql AS $$ BEGIN b := 'x'; END $$;
CREATE OR REPLACE FUNCTION f(INOUT a int, OUT b text, VARIADIC c int[]) LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE LEAKPROOF SECURITY DEFINER AS $$ BEGIN b := 'y'; END $$;
CREATE FUNCTION s() RETURNS SETOF int LANGUAGE sql ROWS 5 AS 'VALUES (1), (2)';
CREATE PROCEDURE p(INOUT a int, b text DEFAULT 'x') LANGUAGE plpgsql AS $$ BEGIN a := a + 1; END $$;
CREATE AGGREGATE ag(int) (SFUNC = int4pl, STYPE = int, INITCOND = '5', COMBINEFUNC = int4pl, PARALLEL = safe);
CREATE AGGREGATE hyp(float8 ORDER BY anyelement) (SFUNC = ordered_set_transition, STYPE = internal, FINALFUNC = percentile_disc_final, FINALFUNC_EXTRA);
ALTER FUNCTION f SET work_mem = '5MB';
ALTER FUNCTION f RESET ALL;
ALTER FUNCTION f COST 9 STRICT;
ALTER PROCEDURE p(int, text) RENAME TO pp;
ALTER AGGREGATE ag(int) RENAME TO agg;
ALTER FUNCTION s() DEPENDS ON EXTENSION plpgsql;
ALTER FUNCTION s() NO DEPENDS ON EXTENSION plpgsql;
COMMENT ON FUNCTION f IS 'c';
COMMENT ON AGGREGATE agg(int) IS 'c';
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t SELECT agg(x) FROM s() x;

-- case: composite types and what hangs on them
CREATE TYPE c AS (a int, b text);
CREATE TABLE t (id int PRIMARY KEY, x c, y c[]);
CREATE TABLE typed OF c;
CREATE FUNCTION f(c) RETURNS c LANGUAGE sql AS 'SELECT $1';
INSERT INTO t VALUES (1, '(1,x)', '{"(2,y)"}');
INSERT INTO typed VALUES (1, 'x');
-- error: 0A000
ALTER TYPE c ALTER ATTRIBUTE a TYPE bigint;
ALTER TYPE c ADD ATTRIBUTE d int CASCADE;
ALTER TYPE c RENAME ATTRIBUTE b TO bb CASCADE;
COMMENT ON COLUMN c.bb IS 'c';
COMMENT ON TYPE c IS 'c';
INSERT INTO t VALUES (2, '(1,x,3)', '{"(2,y,4)"}');
ALTER TYPE c DROP ATTRIBUTE bb CASCADE;
UPDATE t SET x = '(9,9)' WHERE id = 1;
ALTER TYPE c RENAME TO cc;
INSERT INTO typed VALUES (2, 3);

-- case: enums in one transaction and across
CREATE TYPE e AS ENUM ('b', 'd');
CREATE TABLE t (id int PRIMARY KEY, m e DEFAULT 'b');
ALTER TYPE e ADD VALUE 'a' BEFORE 'b';
ALTER TYPE e ADD VALUE IF NOT EXISTS 'a';
ALTER TYPE e ADD VALUE 'c' AFTER 'b';
ALTER TYPE e RENAME VALUE 'd' TO 'dd';
INSERT INTO t SELECT row_number() OVER (), m FROM unnest(enum_range(NULL::e)) m;
BEGIN;
ALTER TYPE e ADD VALUE 'z';
COMMIT;
INSERT INTO t VALUES (100, 'z');
DO $$ BEGIN ALTER TYPE e ADD VALUE 'y' BEFORE 'z'; CREATE TYPE e2 AS ENUM ('q'); CREATE TABLE t2 (m e2); INSERT INTO t2 VALUES ('q'); END $$;
INSERT INTO t VALUES (101, 'y');
CREATE INDEX ON t (m);

-- case: enum replaced as migrations do
CREATE TYPE e AS ENUM ('a', 'b');
CREATE TABLE t (id int PRIMARY KEY, m e DEFAULT 'a');
INSERT INTO t VALUES (1, 'a'), (2, 'b');
BEGIN;
ALTER TYPE e RENAME TO e_old;
CREATE TYPE e AS ENUM ('a', 'b', 'c');
ALTER TABLE t ALTER m DROP DEFAULT;
ALTER TABLE t ALTER m TYPE e USING m::text::e;
ALTER TABLE t ALTER m SET DEFAULT 'c';
DROP TYPE e_old;
COMMIT;
INSERT INTO t VALUES (3);

-- case: ranges, casts, operators, classes
CREATE TYPE r AS RANGE (subtype = float8, subtype_diff = float8mi, multirange_type_name = mr);
CREATE TABLE t (id int PRIMARY KEY, a r, b mr);
INSERT INTO t VALUES (1, '[1,2)', '{[1,2)}');
CREATE TYPE v AS (x int);
CREATE FUNCTION cmp(v, v) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT btint4cmp($1.x, $2.x)';
CREATE FUNCTION lt(v, v) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT $1.x < $2.x';
CREATE FUNCTION eq(v, v) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT $1.x = $2.x';
CREATE OPERATOR <<< (LEFTARG = v, RIGHTARG = v, FUNCTION = lt, COMMUTATOR = >>>);
CREATE OPERATOR ==== (LEFTARG = v, RIGHTARG = v, FUNCTION = eq, COMMUTATOR = ====);
CREATE FUNCTION neg(v) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT -($1.x)';
CREATE OPERATOR !!! (RIGHTARG = v, FUNCTION = neg);
CREATE OPERATOR FAMILY fam USING btree;
CREATE OPERATOR CLASS cls FOR TYPE v USING btree FAMILY fam AS OPERATOR 1 <<<, OPERATOR 3 ====, FUNCTION 1 cmp(v, v);
CREATE OPERATOR >>> (LEFTARG = v, RIGHTARG = v, FUNCTION = lt, COMMUTATOR = <<<);
CREATE OPERATOR FAMILY fam2 USING btree;
ALTER OPERATOR FAMILY fam2 USING btree ADD OPERATOR 5 >>> (v, v), OPERATOR 3 ==== (v, v);
ALTER OPERATOR FAMILY fam2 USING btree DROP OPERATOR 5 (v, v);
CREATE CAST (v AS text) WITH INOUT AS ASSIGNMENT;
COMMENT ON OPERATOR !!! (NONE, v) IS 'c';
COMMENT ON OPERATOR CLASS cls USING btree IS 'c';
COMMENT ON CAST (v AS text) IS 'c';
ALTER OPERATOR CLASS cls USING btree RENAME TO cls2;
ALTER OPERATOR ==== (v, v) SET (RESTRICT = eqsel);
CREATE TABLE k (x v);
CREATE INDEX ON k (x cls2);
INSERT INTO k VALUES ('(1)');
CREATE FUNCTION less(int, int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT $1 < $2';
CREATE OPERATOR <<< (LEFTARG = int, RIGHTARG = int, FUNCTION = less, COMMUTATOR = >>>);
CREATE OPERATOR >>> (LEFTARG = int, RIGHTARG = int, FUNCTION = less);
DROP OPERATOR >>> (int, int);
COMMENT ON OPERATOR <<< (int, int) IS 'its commutator is gone';

-- case: text search, collations, conversions
CREATE TEXT SEARCH DICTIONARY td (TEMPLATE = simple, STOPWORDS = english);
CREATE TEXT SEARCH CONFIGURATION tc (COPY = simple);
ALTER TEXT SEARCH CONFIGURATION tc ALTER MAPPING FOR asciiword WITH td, simple;
ALTER TEXT SEARCH CONFIGURATION tc DROP MAPPING FOR url;
ALTER TEXT SEARCH CONFIGURATION tc ADD MAPPING FOR url WITH td;
ALTER TEXT SEARCH CONFIGURATION tc ALTER MAPPING REPLACE td WITH simple;
ALTER TEXT SEARCH DICTIONARY td (ACCEPT = false);
COMMENT ON TEXT SEARCH CONFIGURATION tc IS 'c';
CREATE COLLATION co (locale = 'C');
ALTER COLLATION co RENAME TO coll;
CREATE CONVERSION conv FOR 'LATIN1' TO 'UTF8' FROM iso8859_1_to_utf8;
CREATE TABLE t (id int PRIMARY KEY, v text COLLATE coll);
CREATE INDEX ON t USING gin (to_tsvector('tc', v));
INSERT INTO t VALUES (1, 'a b');

-- case: text search configuration unqualified in an index
CREATE TEXT SEARCH CONFIGURATION tc (COPY = english);
SET default_text_search_config = tc;
CREATE TABLE t (id int PRIMARY KEY, v text, ts tsvector GENERATED ALWAYS AS (to_tsvector('tc', v)) STORED);
CREATE FUNCTION vec(text) RETURNS tsvector LANGUAGE sql IMMUTABLE AS 'SELECT to_tsvector($1)';
CREATE INDEX ON t USING gin (vec(v));
INSERT INTO t VALUES (1, 'running cats');

-- case: views of every kind
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE VIEW a AS SELECT * FROM t WITH CASCADED CHECK OPTION;
CREATE VIEW b (x, y) WITH (security_barrier) AS SELECT id, v FROM t WHERE id > 0 WITH LOCAL CHECK OPTION;
CREATE OR REPLACE VIEW b (x, y, z) AS SELECT id, v, 1 FROM t;
ALTER VIEW b SET (security_barrier = false);
ALTER VIEW b RENAME y TO yy;
ALTER VIEW b ALTER yy SET DEFAULT 'd';
CREATE RULE ins AS ON INSERT TO b DO INSTEAD INSERT INTO t VALUES (NEW.x, NEW.yy);
CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM t WHERE id = OLD.x; RETURN OLD; END $$;
CREATE TRIGGER tr INSTEAD OF DELETE ON b FOR EACH ROW EXECUTE FUNCTION f();
INSERT INTO b (x) VALUES (1), (2);
DELETE FROM b WHERE x = 1;
INSERT INTO a VALUES (3, 'c');
COMMENT ON VIEW b IS 'c';
COMMENT ON COLUMN b.z IS 'c';
COMMENT ON RULE ins ON b IS 'c';
DROP VIEW b;
CREATE VIEW b AS SELECT a.id FROM a JOIN t USING (id) GROUP BY a.id HAVING count(*) > 0;

-- case: view with security_invoker
-- needs: 15
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE VIEW a WITH (security_invoker = true) AS SELECT * FROM t;
ALTER VIEW a RESET (security_invoker);
INSERT INTO a VALUES (1, 'a');

-- case: triggers
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE TABLE log (n serial PRIMARY KEY, v text);
CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log (v) VALUES (tg_name || tg_op || coalesce(tg_argv[0], '-')); RETURN NULL; END $$;
CREATE TRIGGER a AFTER INSERT OR UPDATE OF v OR DELETE ON t FOR EACH ROW WHEN (pg_trigger_depth() < 3) EXECUTE FUNCTION f('arg', 'it''s');
CREATE TRIGGER b AFTER INSERT ON t REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION f();
CREATE OR REPLACE TRIGGER a AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION f('replaced');
CREATE CONSTRAINT TRIGGER c AFTER UPDATE ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION f();
CREATE TRIGGER d BEFORE TRUNCATE ON t EXECUTE FUNCTION f();
INSERT INTO t VALUES (1, 'a');
UPDATE t SET v = 'b';
ALTER TABLE t DISABLE TRIGGER USER;
UPDATE t SET v = 'c';
ALTER TABLE t ENABLE REPLICA TRIGGER a;
ALTER TABLE t ENABLE ALWAYS TRIGGER b;
INSERT INTO t VALUES (2, 'a');
ALTER TRIGGER a ON t RENAME TO aa;
ALTER TRIGGER aa ON t DEPENDS ON EXTENSION plpgsql;
COMMENT ON TRIGGER aa ON t IS 'c';
TRUNCATE t;
DROP TRIGGER b ON t;
INSERT INTO t VALUES (3, 'a');

-- case: sequences
CREATE SEQUENCE s AS smallint START 5 MINVALUE -3 MAXVALUE 50 INCREMENT -2 CYCLE CACHE 3;
CREATE TABLE t (id int PRIMARY KEY DEFAULT nextval('s'), b bigserial);
INSERT INTO t DEFAULT VALUES;
INSERT INTO t DEFAULT VALUES;
ALTER SEQUENCE s AS bigint INCREMENT 3 NO CYCLE RESTART;
ALTER SEQUENCE s OWNED BY t.id;
ALTER SEQUENCE s RENAME TO ss;
SELECT setval('ss', 20);
COMMENT ON SEQUENCE ss IS 'c';
INSERT INTO t DEFAULT VALUES;
ALTER SEQUENCE ss OWNED BY NONE;
TRUNCATE t RESTART IDENTITY;
INSERT INTO t DEFAULT VALUES;
ALTER TABLE t DROP COLUMN b;
INSERT INTO t DEFAULT VALUES;

-- case: identity columns
CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text);
INSERT INTO t (v) VALUES ('a');
INSERT INTO t OVERRIDING SYSTEM VALUE VALUES (50, 'b');
ALTER TABLE t ALTER id SET GENERATED BY DEFAULT SET INCREMENT 5 RESTART WITH 100;
INSERT INTO t (v) VALUES ('c');
UPDATE t SET id = 200 WHERE id = 50;
ALTER TABLE t ALTER id DROP IDENTITY IF EXISTS;
ALTER TABLE t ALTER id ADD GENERATED ALWAYS AS IDENTITY (START 1000);
INSERT INTO t (v) VALUES ('d');

-- case: policies and row security
CREATE ROLE follow_a;
CREATE TABLE t (id int PRIMARY KEY, who text);
CREATE POLICY p ON t FOR SELECT TO follow_a USING (who = current_user);
CREATE POLICY q ON t AS RESTRICTIVE FOR ALL TO PUBLIC USING (id > 0) WITH CHECK (id < 1000);
ALTER TABLE t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER POLICY p ON t TO PUBLIC USING (true);
ALTER POLICY q ON t RENAME TO qq;
COMMENT ON POLICY qq ON t IS 'c';
INSERT INTO t VALUES (1, 'x');
ALTER TABLE t NO FORCE ROW LEVEL SECURITY;
DROP POLICY p ON t;
ALTER TABLE t DISABLE ROW LEVEL SECURITY;
INSERT INTO t VALUES (2, 'x');
-- finally
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: statistics
CREATE TABLE t (a int PRIMARY KEY, b int, c int);
CREATE STATISTICS s1 (ndistinct, dependencies, mcv) ON a, b FROM t;
CREATE STATISTICS s2 ON (a + b), (b % 3) FROM t;
ALTER STATISTICS s1 SET STATISTICS 77;
COMMENT ON STATISTICS s1 IS 'c';
ALTER STATISTICS s2 RENAME TO s3;
INSERT INTO t SELECT g, g % 3, g % 5 FROM generate_series(1, 100) g;
ANALYZE t;
ALTER TABLE t DROP COLUMN c;
DROP STATISTICS s3;
INSERT INTO t VALUES (1000, 1);

-- case: constraints of every kind and their names
CREATE TABLE t (id int, a int, b int, CONSTRAINT pk PRIMARY KEY (id) INCLUDE (a), UNIQUE (a, b), CHECK (a > 0), CONSTRAINT named CHECK (b > 0) NO INHERIT);
ALTER TABLE t RENAME CONSTRAINT pk TO pk2;
ALTER TABLE t DROP CONSTRAINT t_a_check, ADD CONSTRAINT t_a_check CHECK (a > -1) NOT VALID;
CREATE UNIQUE INDEX ui ON t (b);
ALTER TABLE t ADD CONSTRAINT ub UNIQUE USING INDEX ui;
ALTER TABLE t ADD UNIQUE (b) DEFERRABLE;
COMMENT ON CONSTRAINT named ON t IS 'c';
INSERT INTO t VALUES (1, 1, 1);
ALTER TABLE t VALIDATE CONSTRAINT t_a_check;
ALTER TABLE t ADD FOREIGN KEY (a, b) REFERENCES t (a, b) MATCH FULL ON DELETE SET NULL;
INSERT INTO t VALUES (2, 2, 2);
ALTER TABLE t DROP CONSTRAINT pk2 CASCADE;
UPDATE t SET id = 5 WHERE id = 1;

-- case: unique nulls not distinct
-- needs: 15
CREATE TABLE t (id int PRIMARY KEY, v int UNIQUE NULLS NOT DISTINCT);
INSERT INTO t VALUES (1, NULL);
-- error: 23505
INSERT INTO t VALUES (2, NULL);

-- case: indexes of every kind
CREATE TABLE t (id int PRIMARY KEY, v text, p point, a int[]);
CREATE INDEX a ON t (v text_pattern_ops DESC NULLS LAST) INCLUDE (id) WITH (fillfactor = 50) WHERE id > 0;
CREATE INDEX b ON t USING hash (v);
CREATE INDEX c ON t USING gist (p);
CREATE INDEX d ON t USING gin (a);
CREATE INDEX e ON t USING brin (id) WITH (pages_per_range = 4);
CREATE INDEX f ON t ((lower(v) COLLATE "C"), (id + 1));
ALTER INDEX f ALTER COLUMN 2 SET STATISTICS 100;
ALTER INDEX a SET (fillfactor = 60);
ALTER INDEX b RENAME TO bb;
ALTER INDEX d DEPENDS ON EXTENSION plpgsql;
INSERT INTO t VALUES (1, 'A', '(1,2)', '{1}');
DROP INDEX bb, c;
INSERT INTO t VALUES (2, 'A', '(1,2)', '{1}');

-- case: rows behind a schema with another name
CREATE SCHEMA follow_s1;
CREATE TABLE follow_s1.t (id int PRIMARY KEY, v text);
INSERT INTO follow_s1.t VALUES (1);
ALTER SCHEMA follow_s1 RENAME TO follow_s2;
INSERT INTO follow_s2.t VALUES (2);
UPDATE follow_s2.t SET v = 1;
-- finally
DROP SCHEMA follow_s2 CASCADE;

-- case: rows in schemas that get other names
CREATE SCHEMA follow_s1;
CREATE TABLE follow_s1.t (id int PRIMARY KEY, v text);
INSERT INTO follow_s1.t VALUES (1);
BEGIN;
INSERT INTO follow_s1.t VALUES (2);
ALTER SCHEMA follow_s1 RENAME TO follow_s2;
INSERT INTO follow_s2.t VALUES (3);
CREATE SCHEMA follow_s1;
CREATE TABLE follow_s1.t (id int PRIMARY KEY);
INSERT INTO follow_s1.t VALUES (1);
INSERT INTO follow_s2.t SELECT n FROM generate_series(4, 40) n;
UPDATE follow_s2.t SET v = 'x' WHERE id < 3;
COMMIT;
INSERT INTO follow_s2.t VALUES (50);
INSERT INTO follow_s1.t VALUES (2);
BEGIN;
ALTER SCHEMA follow_s1 RENAME TO follow_s3;
ALTER SCHEMA follow_s2 RENAME TO follow_s1;
ALTER SCHEMA follow_s3 RENAME TO follow_s2;
DELETE FROM follow_s1.t WHERE id = 3;
INSERT INTO follow_s2.t VALUES (3);
COMMIT;
INSERT INTO follow_s1.t VALUES (51);
TRUNCATE follow_s2.t;
-- finally
DROP SCHEMA follow_s1 CASCADE;
DROP SCHEMA follow_s2 CASCADE;

-- case: schemas
CREATE ROLE follow_a;
CREATE SCHEMA follow_s1 AUTHORIZATION follow_a;
CREATE SCHEMA IF NOT EXISTS follow_s1;
CREATE TABLE follow_s1.t (id int PRIMARY KEY);
ALTER SCHEMA follow_s1 RENAME TO follow_s2;
COMMENT ON SCHEMA follow_s2 IS 'c';
CREATE TABLE u (id int PRIMARY KEY);
ALTER TABLE u SET SCHEMA follow_s2;
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
ALTER FUNCTION f() SET SCHEMA follow_s2;
CREATE TYPE e AS ENUM ('a');
ALTER TYPE e SET SCHEMA follow_s2;
INSERT INTO follow_s2.u VALUES (1);
-- check
DROP SCHEMA follow_s2 CASCADE;
-- finally
DROP ROLE follow_a;

-- case: languages and access methods
CREATE TABLE t (id int PRIMARY KEY);
CREATE LANGUAGE follow_lang HANDLER plpgsql_call_handler;
CREATE FUNCTION f() RETURNS int LANGUAGE follow_lang AS $$ BEGIN RETURN 1; END $$;
ALTER LANGUAGE follow_lang RENAME TO follow_lang2;
COMMENT ON LANGUAGE follow_lang2 IS 'c';
CREATE ACCESS METHOD follow_am TYPE TABLE HANDLER heap_tableam_handler;
COMMENT ON ACCESS METHOD follow_am IS 'c';
CREATE TABLE u (id int PRIMARY KEY) USING follow_am;
SET default_table_access_method = follow_am;
CREATE TABLE w (id int PRIMARY KEY);
INSERT INTO w VALUES (1);
INSERT INTO t VALUES (f());
-- finally
RESET default_table_access_method;
DROP TABLE u, w;
DROP ACCESS METHOD follow_am;
DROP LANGUAGE follow_lang2 CASCADE;

-- case: rename, drop and make again under the same names
CREATE TABLE a (id int PRIMARY KEY, v text);
CREATE TABLE b (id int PRIMARY KEY, n int);
INSERT INTO a VALUES (1, 'a');
INSERT INTO b VALUES (1, 2);
BEGIN;
ALTER TABLE a RENAME TO tmp;
ALTER TABLE b RENAME TO a;
ALTER TABLE tmp RENAME TO b;
INSERT INTO a VALUES (2, 3);
INSERT INTO b VALUES (2, 'x');
COMMIT;
DO $$ BEGIN ALTER TABLE a RENAME TO tmp; ALTER TABLE b RENAME TO a; INSERT INTO a VALUES (3, 'y'); ALTER TABLE tmp RENAME TO b; INSERT INTO b VALUES (3, 4); END $$;
DROP TABLE a;
CREATE TABLE a (id text PRIMARY KEY);
INSERT INTO a VALUES ('new');

-- case: comments, set and taken away, empty and long
CREATE TABLE t (id int PRIMARY KEY, v text);
COMMENT ON TABLE t IS 'a';
COMMENT ON TABLE t IS NULL;
COMMENT ON COLUMN t.v IS '';
COMMENT ON COLUMN t.id IS 'x';
COMMENT ON INDEX t_pkey IS 'y';
COMMENT ON CONSTRAINT t_pkey ON t IS 'z';
COMMENT ON TYPE t IS 'row type';
COMMENT ON SCHEMA :schema IS 'schema';
DO $$ BEGIN COMMENT ON TABLE t IS 'nested'; EXECUTE format('COMMENT ON COLUMN t.id IS %L', repeat('x', 10000)); END $$;
INSERT INTO t VALUES (1);

-- case: parse and plan dependent defaults
CREATE TABLE t (id int PRIMARY KEY, a text DEFAULT current_user, b text DEFAULT session_user, c date DEFAULT 'today', d timestamptz DEFAULT 'now', e regclass DEFAULT 'pg_class', f name DEFAULT current_schema, g text DEFAULT current_catalog);
INSERT INTO t (id) VALUES (1);
ALTER TABLE t ADD h timestamptz DEFAULT 'now', ADD i date DEFAULT 'tomorrow', ADD j timestamptz DEFAULT 'now'::timestamptz;
CREATE VIEW v AS SELECT 'now'::timestamptz AS at, 'today'::date AS d;
CREATE FUNCTION fn(x timestamptz DEFAULT 'now') RETURNS timestamptz LANGUAGE sql AS 'SELECT x';
INSERT INTO t (id) VALUES (2);

-- case: a moment that PostgreSQL computes when it parses
CREATE TABLE t (id int PRIMARY KEY, at timestamptz CHECK (at > 'now' OR at <= ' NOW '), d date, z time, p timestamp);
INSERT INTO t VALUES (1, now(), current_date - 100, localtime, localtimestamp);
ALTER TABLE t ADD CHECK (d <= 'today'), ADD CHECK (d >= date 'yesterday' - 3650), ADD CHECK (z <> time 'now'), ADD CHECK (p < 'tomorrow 10:00'::timestamp);
CREATE INDEX i ON t (d) WHERE at > 'now'::timestamptz;
CREATE INDEX j ON t (id) WHERE d < 'tomorrow' AND p > timestamp 'now';
CREATE DOMAIN past AS timestamptz DEFAULT 'now' CHECK (VALUE <= timestamptz 'tomorrow');
ALTER DOMAIN past ADD CHECK (VALUE <> 'now');
CREATE POLICY old ON t USING (at <= 'now');
CREATE FUNCTION g() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER tr BEFORE UPDATE ON t FOR EACH ROW WHEN (NEW.at > 'now') EXECUTE FUNCTION g();
CREATE VIEW v WITH (security_barrier) AS SELECT id, 'now'::timestamptz AS at FROM t WHERE d <= 'today';
CREATE OR REPLACE VIEW v WITH (security_barrier) AS SELECT id, timestamptz 'now' AS at FROM t WHERE d <= 'now';
CREATE RULE r AS ON DELETE TO t WHERE OLD.at < 'now' DO INSTEAD NOTHING;
SET TimeZone = 'Pacific/Kiritimati';
SET DateStyle = 'German, DMY';
ALTER TABLE t ADD CHECK (at <> 'now'), ADD CHECK (d <> 'today'), ADD CHECK (p <> E'now');
DO $$ BEGIN EXECUTE $x$CREATE INDEX k ON t (id) WHERE at <= 'now'::timestamptz$x$; END $$;
INSERT INTO t VALUES (2, now(), '01.02.2020', NULL, '01.02.2020');
