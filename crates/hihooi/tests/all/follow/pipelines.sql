-- Pipelines of the extended protocol, as pgx, pgjdbc and libpq's pipeline mode send them.

-- case: definitions and rows in one pipeline
-- pipeline: 5
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a');
ALTER TABLE t ADD n int DEFAULT 3;
UPDATE t SET n = 4;
CREATE INDEX ON t (v);
INSERT INTO t VALUES (2, 'b', 5);

-- case: a block in a pipeline
CREATE TABLE t (id int PRIMARY KEY);
-- pipeline: 6
BEGIN;
ALTER TABLE t ADD a int;
CREATE TEMP TABLE t (id int);
ALTER TABLE t ADD b int;
DROP TABLE t;
COMMIT;
INSERT INTO t VALUES (1, 2);

-- case: a pipeline that fails in its middle
CREATE TABLE t (id int PRIMARY KEY);
-- error: 22012
-- pipeline: 4
CREATE TABLE gone (id int);
ALTER TABLE t ADD lost int;
SELECT 1/0;
CREATE TABLE never (id int);
INSERT INTO t VALUES (1);

-- case: temporary tables in a pipeline
CREATE TABLE t (id int PRIMARY KEY);
-- pipeline: 4
CREATE TEMP TABLE t (id int);
INSERT INTO t VALUES (7);
ALTER TABLE t ADD x int;
DROP TABLE t;
-- pipeline: 3
CREATE TEMP TABLE tt AS SELECT 5 AS id;
CREATE TABLE c AS SELECT * FROM tt;
INSERT INTO c VALUES (6);
INSERT INTO t VALUES (1);

-- case: create table as, select into and DO in a pipeline
-- pipeline: 5
CREATE TABLE c AS SELECT generate_series(1, 5) AS id;
SELECT * INTO d FROM c;
DO $$ BEGIN CREATE TABLE n (id int PRIMARY KEY); ALTER TABLE n ADD x int; END $$;
EXPLAIN ANALYZE CREATE TABLE e AS SELECT 1 AS a;
INSERT INTO n VALUES (1, 1);
INSERT INTO d VALUES (100);

-- case: volatile values in a pipeline
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t SELECT generate_series(1, 20);
-- pipeline: 4
ALTER TABLE t ADD u uuid DEFAULT gen_random_uuid();
ALTER TABLE t ADD s serial;
ALTER TABLE t ALTER s TYPE float8 USING random();
UPDATE t SET s = 0 WHERE id < 3;
INSERT INTO t (id) VALUES (100);

-- case: search_path set in a pipeline
CREATE SCHEMA follow_p1;
-- pipeline: 4
SET search_path = follow_p1;
CREATE TABLE t (id int PRIMARY KEY);
SET search_path = :schema;
CREATE TABLE t (id int PRIMARY KEY, here int);
INSERT INTO t VALUES (1, 1);
INSERT INTO follow_p1.t VALUES (1);
-- finally
DROP SCHEMA follow_p1 CASCADE;

-- case: roles and rights in a pipeline
CREATE TABLE t (id int PRIMARY KEY);
-- pipeline: 5
CREATE ROLE follow_a;
CREATE ROLE follow_b IN ROLE follow_a;
GRANT SELECT ON t TO follow_b;
ALTER ROLE follow_a SET work_mem = '5MB';
INSERT INTO t VALUES (1);
-- finally
DROP OWNED BY follow_b;
DROP ROLE follow_a, follow_b;
