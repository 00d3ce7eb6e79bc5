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

-- case: reassign owned, explain analyze, event triggers at the primary
-- stoppable
CREATE ROLE follow_a;
CREATE TABLE t (id int PRIMARY KEY);
ALTER TABLE t OWNER TO follow_a;
-- direct
REASSIGN OWNED BY follow_a TO postgres;
EXPLAIN ANALYZE CREATE TABLE e AS SELECT 1 AS id;
-- through
-- sleep: 3
INSERT INTO e VALUES (2);
INSERT INTO t VALUES (2);
-- finally
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: failed concurrent index at the primary
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a'), (2, 'a');
-- direct
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY i ON t (v);
-- through
DROP INDEX i;
INSERT INTO t VALUES (3, 'a');
