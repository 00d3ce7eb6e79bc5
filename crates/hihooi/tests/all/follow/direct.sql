-- Typed at the primary's own port: it takes the same way as what comes through hihooi.

-- case: tables, columns, indexes
CREATE TABLE t (id int PRIMARY KEY, v text);
-- direct
ALTER TABLE t ADD COLUMN n int DEFAULT 3;
CREATE TABLE d (id int PRIMARY KEY);
INSERT INTO d VALUES (1);
CREATE INDEX i ON t (v);
COMMENT ON TABLE t IS 'direct';
CREATE VIEW v AS SELECT * FROM d;
-- through
INSERT INTO t VALUES (1, 'a', 2);
INSERT INTO d VALUES (2);

-- case: create table as, select into, temporary, DO
CREATE TABLE t (id int PRIMARY KEY);
-- direct
CREATE TABLE c AS SELECT generate_series(1, 5) AS id;
SELECT 1 AS x INTO s;
CREATE TEMP TABLE t (id int);
ALTER TABLE t ADD y int;
DROP TABLE t;
DO $$ BEGIN ALTER TABLE t ADD z int DEFAULT 5; CREATE TABLE n AS SELECT 1 AS a; END $$;
UPDATE c SET id = 100 WHERE id = 1;
-- through
INSERT INTO t VALUES (1, 1);
INSERT INTO n VALUES (2);

-- case: rights and owners
CREATE ROLE follow_a;
CREATE TABLE t (id int PRIMARY KEY);
-- direct
GRANT SELECT ON t TO follow_a;
ALTER DEFAULT PRIVILEGES IN SCHEMA :schema GRANT SELECT ON TABLES TO follow_a;
CREATE TABLE u (id int PRIMARY KEY);
ALTER TABLE t OWNER TO follow_a;
-- through
INSERT INTO t VALUES (1);
-- finally
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: extensions and functions
CREATE TABLE t (id int PRIMARY KEY, v text);
-- direct
CREATE EXTENSION pg_trgm SCHEMA :schema;
CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.v := 'f'; RETURN NEW; END $$;
CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f();
-- through
INSERT INTO t VALUES (1, 'abc');

-- case: a whole migration in one transaction
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, '5');
-- direct
BEGIN;
ALTER TABLE t ADD n int;
UPDATE t SET n = v::int;
ALTER TABLE t DROP COLUMN v;
ALTER TABLE t ALTER n SET NOT NULL;
CREATE TYPE e AS ENUM ('a', 'b');
ALTER TABLE t ADD m e DEFAULT 'a';
DROP TABLE IF EXISTS nosuch;
COMMIT;
BEGIN;
DROP TABLE t;
ROLLBACK;
-- through
INSERT INTO t VALUES (2, 6);

-- case: beside an open block of a client
CREATE TABLE t (id int PRIMARY KEY);
CREATE TABLE u (id int PRIMARY KEY);
BEGIN;
INSERT INTO u VALUES (1);
ALTER TABLE u ADD x int;
-- session: 2
-- direct
ALTER TABLE t ADD y int;
CREATE TABLE w (id int PRIMARY KEY);
-- through
-- session: 1
INSERT INTO w VALUES (1);
COMMIT;
INSERT INTO t VALUES (1, 1);

-- case: explain analyze at the primary
CREATE TABLE t (id int PRIMARY KEY);
-- direct
EXPLAIN ANALYZE CREATE TABLE e AS SELECT 1 AS id;
EXPLAIN ANALYZE CREATE TABLE none AS SELECT 1 AS id WHERE false;
INSERT INTO e VALUES (2);
EXPLAIN ANALYZE CREATE TABLE gone AS SELECT generate_series(1, 100) AS id, 'x'::text COLLATE "C" AS v;
DROP TABLE gone;
EXPLAIN ANALYZE CREATE TABLE more AS SELECT generate_series(1, 100) AS id;
ALTER TABLE more ADD COLUMN v int DEFAULT 5;
ALTER TABLE more RENAME TO others;
CREATE INDEX ON others (v);
UPDATE others SET id = 0 WHERE id = 7;
BEGIN;
INSERT INTO t VALUES (10);
EXPLAIN ANALYZE SELECT * INTO s FROM e;
SAVEPOINT a;
EXPLAIN ANALYZE CREATE TABLE back AS SELECT 1 AS id;
ROLLBACK TO a;
COMMIT;
-- through
INSERT INTO e VALUES (3);
INSERT INTO t VALUES (2);
INSERT INTO none VALUES (2);
-- direct
-- eventually: 0
SELECT count(*) FROM pg_class c WHERE relnamespace = ':schema'::regnamespace AND relkind = 'r' AND relreplident = 'd'
  AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisprimary);
-- through
UPDATE e SET id = 7 WHERE id = 1;
DELETE FROM s WHERE id = 1;

-- case: explain analyze at the primary, beside other transactions
-- direct
-- (Before hihooi looks by itself.)
EXPLAIN ANALYZE CREATE TABLE a AS SELECT 1 AS id; EXPLAIN ANALYZE CREATE TABLE b AS SELECT 1 AS id; COMMIT; BEGIN; CREATE TABLE other (id int PRIMARY KEY);
-- session: 2
SET lock_timeout = '1s';
-- error: 55P03
DROP TABLE a;
EXPLAIN ANALYZE CREATE TABLE c AS SELECT generate_series(1, 20) AS id;
BEGIN;
LOCK TABLE c IN SHARE MODE;
-- sleep: 12
COMMIT;
-- session: 1
COMMIT;
-- session: 2
DROP TABLE a;
ALTER TABLE b RENAME TO bb;
CREATE TABLE a (id int PRIMARY KEY, v text);
INSERT INTO a VALUES (1, 'a');
-- through
INSERT INTO bb VALUES (2);
-- direct
-- eventually: 0
SELECT count(*) FROM pg_class c WHERE relnamespace = ':schema'::regnamespace AND relkind = 'r' AND relreplident = 'd'
  AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisprimary);

-- case: explain analyze at the primary, of a role and its rights
CREATE ROLE follow_a;
GRANT ALL ON SCHEMA :schema TO follow_a;
ALTER DEFAULT PRIVILEGES FOR ROLE follow_a GRANT SELECT ON TABLES TO PUBLIC;
CREATE DOMAIN d AS int;
-- direct
SET ROLE follow_a;
EXPLAIN ANALYZE CREATE TABLE e WITH (fillfactor = 70) AS SELECT generate_series(1, 40)::d AS id, ARRAY['x'] AS a;
RESET ROLE;
-- through
INSERT INTO e VALUES (2, NULL);
-- finally
DROP OWNED BY follow_a CASCADE;
DROP ROLE follow_a;

-- case: reassign owned at the primary, of what was made just before
CREATE ROLE follow_a;
CREATE ROLE follow_b;
GRANT ALL ON SCHEMA :schema TO follow_a, follow_b;
CREATE TABLE z (id int PRIMARY KEY);
-- direct
SET ROLE follow_a;
CREATE TABLE t (id serial PRIMARY KEY, v text);
CREATE TABLE u AS SELECT 1 AS id;
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE TYPE e AS ENUM ('a');
EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1 AS id;
RESET ROLE;
REASSIGN OWNED BY follow_a TO follow_b;
ALTER TABLE t ADD n int;
ALTER TABLE u ADD n int;
ALTER TABLE x ADD n int;
ALTER TYPE e ADD VALUE 'b';
COMMENT ON FUNCTION f() IS 'b has it';
-- through
INSERT INTO t (v) VALUES ('a');
INSERT INTO z VALUES (1);
-- finally
DROP OWNED BY follow_b CASCADE;
DROP OWNED BY follow_a CASCADE;
DROP ROLE follow_a, follow_b;

-- case: reassign owned at the primary
CREATE ROLE follow_a;
CREATE ROLE follow_b;
GRANT ALL ON SCHEMA :schema TO follow_a, follow_b;
CREATE TABLE t (id serial PRIMARY KEY, v text);
CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (9);
CREATE VIEW v AS SELECT * FROM t;
CREATE MATERIALIZED VIEW m AS SELECT 1 AS id;
CREATE SEQUENCE s;
CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE PROCEDURE f() LANGUAGE sql AS 'SELECT 1';
CREATE AGGREGATE a(int) (SFUNC = int4pl, STYPE = int);
CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq);
CREATE OPERATOR CLASS oc FOR TYPE int USING hash AS OPERATOR 1 ===;
CREATE TYPE e AS ENUM ('a');
CREATE TYPE c AS (a int);
CREATE TYPE r AS RANGE (SUBTYPE = int);
CREATE DOMAIN d AS int[];
CREATE COLLATION co FROM "C";
CREATE CONVERSION cv FOR 'UTF8' TO 'LATIN1' FROM utf8_to_iso8859_1;
CREATE TEXT SEARCH DICTIONARY di (TEMPLATE = simple);
CREATE TEXT SEARCH CONFIGURATION tc (COPY = simple);
CREATE STATISTICS st ON id, v FROM t;
CREATE SCHEMA follow_s;
CREATE FOREIGN DATA WRAPPER follow_w;
CREATE SERVER follow_server FOREIGN DATA WRAPPER follow_w;
DO $$ DECLARE command text; BEGIN
  FOREACH command IN ARRAY '{TABLE t,TABLE p,TABLE p1,VIEW v,MATERIALIZED VIEW m,SEQUENCE s,FUNCTION f(int),PROCEDURE f(),AGGREGATE a(int),
    "OPERATOR === (int, int)",OPERATOR CLASS oc USING hash,OPERATOR FAMILY oc USING hash,TYPE e,TYPE c,TYPE r,DOMAIN d,COLLATION co,CONVERSION cv,
    TEXT SEARCH DICTIONARY di,TEXT SEARCH CONFIGURATION tc,STATISTICS st,SCHEMA follow_s,SERVER follow_server}'::text[] LOOP
    EXECUTE format('ALTER %s OWNER TO follow_a', command);
  END LOOP;
END $$;
-- direct
REASSIGN OWNED BY follow_a TO follow_b;
-- sleep: 3
INSERT INTO t (v) VALUES ('a');
-- check
REASSIGN OWNED BY follow_b TO postgres;
-- through
-- sleep: 3
INSERT INTO t (v) VALUES ('b');
-- check
ALTER TABLE t OWNER TO follow_a;
DO $$ BEGIN REASSIGN OWNED BY follow_a TO follow_b; COMMIT; END $$;
-- sleep: 3
INSERT INTO t (v) VALUES ('c');
-- finally
DROP OWNED BY follow_a, follow_b CASCADE;
DROP SCHEMA IF EXISTS follow_s CASCADE;
DROP FOREIGN DATA WRAPPER follow_w CASCADE;
DROP ROLE follow_a, follow_b;

-- case: reassigned at the primary while others change the owner
CREATE ROLE follow_a;
CREATE ROLE follow_b;
CREATE TABLE t (id int PRIMARY KEY);
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
ALTER TABLE t OWNER TO follow_a;
ALTER FUNCTION f() OWNER TO follow_a;
-- direct
REASSIGN OWNED BY follow_a TO follow_b;
BEGIN;
ALTER FUNCTION f() OWNER TO postgres;
-- sleep: 3
ALTER TABLE t OWNER TO follow_a;
COMMIT;
BEGIN;
ALTER FUNCTION f() OWNER TO follow_a;
REASSIGN OWNED BY follow_b TO postgres;
REASSIGN OWNED BY follow_a TO postgres;
-- sleep: 3
ROLLBACK;
REASSIGN OWNED BY follow_a TO follow_b;
-- through
-- sleep: 3
INSERT INTO t VALUES (1);
-- finally
DROP OWNED BY follow_a, follow_b;
DROP ROLE follow_a, follow_b;

-- case: reassigned, and at once other commands at the primary
CREATE ROLE follow_a;
CREATE ROLE follow_b;
GRANT ALL ON SCHEMA :schema TO follow_a, follow_b;
CREATE TABLE t (id int PRIMARY KEY);
CREATE TABLE u (id int PRIMARY KEY);
CREATE TABLE v (id int PRIMARY KEY);
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
ALTER TABLE t OWNER TO follow_a;
ALTER TABLE u OWNER TO follow_a;
ALTER TABLE v OWNER TO follow_a;
ALTER FUNCTION f() OWNER TO follow_a;
ALTER SCHEMA public OWNER TO follow_a;
-- sleep: 3
-- direct
REASSIGN OWNED BY follow_a TO follow_b;
DROP OWNED BY follow_a;
INSERT INTO t VALUES (1);
-- check
GRANT ALL ON SCHEMA :schema TO follow_a;
-- sleep: 3
BEGIN;
REASSIGN OWNED BY follow_b TO follow_a;
COMMIT;
COMMENT ON TABLE t IS 'x';
SET ROLE follow_a;
ALTER TABLE u ADD v int;
DROP TABLE v;
RESET ROLE;
-- check
-- sleep: 3
CREATE ROLE follow_c;
REASSIGN OWNED BY follow_a TO follow_c;
DROP OWNED BY follow_a;
DROP ROLE follow_a;
-- sleep: 3
-- check
CREATE TABLE w (id int PRIMARY KEY);
ALTER TABLE w OWNER TO follow_c;
CREATE ROLE follow_d;
REASSIGN OWNED BY follow_c TO follow_d;
DROP OWNED BY follow_c;
DROP ROLE follow_c;
INSERT INTO w VALUES (1);
-- through
-- sleep: 3
INSERT INTO t VALUES (2);
DO $$ BEGIN REASSIGN OWNED BY follow_b, follow_d TO postgres; COMMIT; END $$;
COMMENT ON FUNCTION f() IS 'x';
GRANT SELECT ON t TO PUBLIC;
-- finally
ALTER SCHEMA public OWNER TO pg_database_owner;
DROP OWNED BY follow_b, follow_d;
DROP ROLE follow_b, follow_d;

-- case: failed concurrent index at the primary
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a'), (2, 'a');
-- direct
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY i ON t (v);
-- through
DROP INDEX i;
INSERT INTO t VALUES (3, 'a');

-- case: who may own a wrapper or an event trigger no more owns it still when owners are told
CREATE ROLE follow_a SUPERUSER;
CREATE FOREIGN DATA WRAPPER follow_w;
CREATE FUNCTION follow_f() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE EVENT TRIGGER follow_t ON ddl_command_start WHEN tag IN ('ALTER OPERATOR') EXECUTE FUNCTION follow_f();
ALTER FOREIGN DATA WRAPPER follow_w OWNER TO follow_a;
ALTER EVENT TRIGGER follow_t OWNER TO follow_a;
ALTER ROLE follow_a NOSUPERUSER;
-- sleep: 3
-- check
-- finally
DROP EVENT TRIGGER follow_t;
DROP FOREIGN DATA WRAPPER follow_w;
DROP ROLE follow_a;
