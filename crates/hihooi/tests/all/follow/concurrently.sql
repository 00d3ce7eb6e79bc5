-- CONCURRENTLY: several transactions, failures that leave something, and DETACH.

-- case: create and drop index
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a');
CREATE INDEX CONCURRENTLY i ON t (v);
CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS i ON t (v);
CREATE INDEX CONCURRENTLY ON t (v);
REINDEX INDEX CONCURRENTLY i;
REINDEX TABLE CONCURRENTLY t;
DROP INDEX CONCURRENTLY i;
DROP INDEX CONCURRENTLY IF EXISTS i;
INSERT INTO t VALUES (2, 'b');

-- case: a failed one stays invalid
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a'), (2, 'a');
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY i ON t (v);
INSERT INTO t VALUES (3, 'b');

-- case: a failed one is dropped
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a'), (2, 'a');
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY i ON t (v);
DROP INDEX i;
INSERT INTO t VALUES (3, 'a');
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY i ON t (v);
DROP INDEX CONCURRENTLY i;
INSERT INTO t VALUES (4, 'a');

-- case: a failed one is reindexed
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a'), (2, 'a');
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY i ON t (v);
DELETE FROM t WHERE id = 2;
REINDEX INDEX i;
INSERT INTO t VALUES (3, 'b');
-- error: 23505
INSERT INTO t VALUES (4, 'b');

-- case: a failed one is reindexed concurrently
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a'), (2, 'a');
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY i ON t (v);
-- error: 23505
REINDEX INDEX CONCURRENTLY i;
DELETE FROM t WHERE id = 2;
REINDEX INDEX CONCURRENTLY i;
INSERT INTO t VALUES (3, 'b');

-- case: a failed one becomes the primary key
CREATE TABLE t (id int NOT NULL, v text);
INSERT INTO t VALUES (1, 'a'), (1, 'b');
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY i ON t (id);
-- error: 55000
ALTER TABLE t ADD PRIMARY KEY USING INDEX i;
DELETE FROM t WHERE v = 'b';
REINDEX INDEX i;
ALTER TABLE t ADD PRIMARY KEY USING INDEX i;
UPDATE t SET v = 'x';
INSERT INTO t VALUES (2, 'y');

-- case: a failed one is renamed, set, then replaced
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a'), (2, 'a');
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY i ON t (v);
ALTER INDEX i RENAME TO j;
ALTER INDEX j SET (fillfactor = 50);
CREATE INDEX i ON t (v);
INSERT INTO t VALUES (3, 'b');

-- case: a failed one that fails again under its name
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a'), (2, 'a');
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY i ON t (v);
-- error: 42P07
CREATE UNIQUE INDEX CONCURRENTLY i ON t (v);
CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS i ON t (v);
DROP INDEX IF EXISTS i;
CREATE INDEX CONCURRENTLY IF NOT EXISTS i ON t (v);
INSERT INTO t VALUES (3, 'b');

-- case: failed over an expression
CREATE TABLE t (id int PRIMARY KEY, v int);
INSERT INTO t VALUES (1, 0);
-- error: 22012
CREATE INDEX CONCURRENTLY i ON t ((1 / v));
DELETE FROM t;
INSERT INTO t VALUES (2, 5);
DROP INDEX i;
INSERT INTO t VALUES (3, 0);

-- case: failed, then its table is dropped or truncated
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE TABLE u (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a'), (2, 'a');
INSERT INTO u VALUES (1, 'a'), (2, 'a');
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY i ON t (v);
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY ui ON u (v);
DROP TABLE t;
TRUNCATE u;
INSERT INTO u VALUES (1, 'a');
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1);

-- case: failed by cancellation
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a');
-- session: 2
BEGIN;
INSERT INTO t VALUES (2, 'b');
-- session: 1
SET statement_timeout = '700ms';
-- error: 57014
CREATE INDEX CONCURRENTLY i ON t (v);
RESET statement_timeout;
-- session: 2
COMMIT;
-- session: 1
DROP INDEX i;
CREATE INDEX CONCURRENTLY i ON t (v);
INSERT INTO t VALUES (3, 'c');

-- case: drop concurrently cancelled half way
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE INDEX i ON t (v);
-- session: 2
BEGIN;
INSERT INTO t VALUES (2, 'b');
-- session: 1
SET statement_timeout = '700ms';
-- error: 57014
DROP INDEX CONCURRENTLY i;
RESET statement_timeout;
-- session: 2
COMMIT;
-- session: 1
INSERT INTO t VALUES (3, 'c');
DROP INDEX i;
INSERT INTO t VALUES (4, 'c');

-- case: failed with an error of another kind leaves nothing
CREATE TABLE t (id int PRIMARY KEY, v text);
-- error: 42703
CREATE INDEX CONCURRENTLY i ON t (nosuch);
BEGIN;
-- error: 25001
CREATE INDEX CONCURRENTLY i ON t (v);
ROLLBACK;
-- error: 25001
DO $$ BEGIN CREATE INDEX CONCURRENTLY i ON t (v); END $$;
INSERT INTO t VALUES (1, 'a');

-- case: writes go on while an index is built
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t SELECT g, 'x' || g FROM generate_series(1, 500) g;
-- session: 2
BEGIN;
INSERT INTO t VALUES (1000, 'open');
-- session: 1
-- background
CREATE UNIQUE INDEX CONCURRENTLY i ON t (v);
-- session: 3
INSERT INTO t VALUES (1001, 'between');
CREATE TABLE other (id int PRIMARY KEY);
INSERT INTO other VALUES (1);
-- session: 2
COMMIT;
-- session: 1
INSERT INTO t VALUES (1002, 'after');

-- case: schemas swap their names beside an open writer
CREATE SCHEMA follow_s1;
CREATE SCHEMA follow_s2;
CREATE TABLE follow_s1.t (id int PRIMARY KEY);
CREATE TABLE follow_s2.t (id int PRIMARY KEY);
-- session: 2
BEGIN;
INSERT INTO follow_s1.t VALUES (1);
-- session: 1
-- background
BEGIN; ALTER SCHEMA follow_s1 RENAME TO follow_s3; ALTER SCHEMA follow_s2 RENAME TO follow_s1; COMMIT;
-- session: 2
INSERT INTO follow_s1.t VALUES (2);
COMMIT;
-- session: 1
INSERT INTO follow_s1.t VALUES (3);
INSERT INTO follow_s3.t VALUES (4);
-- expect: 3
SELECT count(*) FROM follow_s3.t;
-- finally
DROP SCHEMA follow_s1 CASCADE;
DROP SCHEMA follow_s3 CASCADE;

-- case: values of an enum swap their names beside an open writer
CREATE TYPE e AS ENUM ('a', 'b');
CREATE DOMAIN d AS e;
CREATE TABLE t (id int PRIMARY KEY, v d, w e[]);
INSERT INTO t VALUES (0, 'a', '{a,b}');
-- session: 2
BEGIN;
INSERT INTO t VALUES (1, 'a', '{a}');
-- session: 3
ALTER TYPE e ADD VALUE 'c';
-- session: 1
-- background
BEGIN; ALTER TYPE e RENAME VALUE 'a' TO 'x'; ALTER TYPE e RENAME VALUE 'b' TO 'a'; ALTER TYPE e RENAME VALUE 'x' TO 'b'; COMMIT;
-- session: 2
INSERT INTO t VALUES (2, 'b', '{b}');
COMMIT;
-- session: 1
INSERT INTO t VALUES (3, 'a', '{c}');

-- case: a composite type changes beside an open writer
CREATE TYPE c AS (x int, y text);
CREATE TABLE t (id int PRIMARY KEY, v c, w c[]);
-- session: 2
BEGIN;
INSERT INTO t VALUES (1, ROW(1, 'q'), ARRAY[ROW(2, 'r')]::c[]);
-- session: 1
-- background
ALTER TYPE c DROP ATTRIBUTE y, ADD ATTRIBUTE z text;
-- session: 2
COMMIT;
-- session: 1
INSERT INTO t VALUES (2, ROW(1, 'q'), NULL);

-- case: a table whose row type is a column's type changes beside an open writer
CREATE TABLE r (x int, y text);
CREATE TABLE t (id int PRIMARY KEY, v r, w r[]);
INSERT INTO t VALUES (0, ROW(1, 'p'), NULL);
-- session: 2
BEGIN;
INSERT INTO t VALUES (1, ROW(1, 'q'), ARRAY[ROW(2, 'r')]::r[]);
-- session: 1
-- background
ALTER TABLE r ADD z int;
-- session: 2
COMMIT;
-- session: 1
INSERT INTO t VALUES (2, ROW(1, 'q', 3), NULL);

-- case: writes go on while an index is dropped
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE UNIQUE INDEX i ON t (v);
-- session: 2
BEGIN;
INSERT INTO t VALUES (1000, 'open');
-- session: 1
-- background
DROP INDEX CONCURRENTLY i;
-- session: 3
CREATE TABLE other (id int PRIMARY KEY);
INSERT INTO other VALUES (1);
-- session: 2
COMMIT;
-- session: 1
INSERT INTO t VALUES (1002, 'open');

-- case: a dropped index is invalid when what is behind it in its pipeline fails
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE INDEX i ON t (v);
INSERT INTO t VALUES (1, 'a');
-- error: 42P07
-- pipeline: 2
DROP INDEX CONCURRENTLY i;
CREATE TABLE t (id int);
ALTER TABLE t ADD COLUMN w int;
-- check
INSERT INTO t VALUES (2, 'b');
REINDEX INDEX i;
-- check
INSERT INTO t VALUES (3, 'c');
DROP INDEX i;

-- case: a dropped index is invalid when its DROP is given up
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE UNIQUE INDEX i ON t (v);
-- session: 2
BEGIN;
INSERT INTO t VALUES (1000, 'open');
-- session: 1
SET lock_timeout = '200ms';
-- error: 55P03
DROP INDEX CONCURRENTLY i;
-- session: 2
COMMIT;
-- (What looks every two seconds may be noting it just now: then it comes behind what other sessions do.)
-- eventually: 1
SELECT count(*) FROM hihooi.invalid WHERE relation = 't'::regclass;
-- check
-- session: 1
INSERT INTO t VALUES (1, 'a');
DROP INDEX CONCURRENTLY i;

-- case: one that fails on a materialized view
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a'), (2, 'a');
CREATE MATERIALIZED VIEW m AS SELECT id, v FROM t;
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY i ON m (v);
CREATE INDEX j ON m (id);
-- check
DELETE FROM t WHERE id = 2;
REFRESH MATERIALIZED VIEW m;
-- check
REINDEX INDEX i;

-- case: a materialized view is refreshed right behind one that fails at the primary itself
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a'), (2, 'a');
CREATE MATERIALIZED VIEW m AS SELECT id, v FROM t;
-- direct
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY i ON m (v);
UPDATE t SET v = id::text;
REFRESH MATERIALIZED VIEW m;
-- through
-- check
REINDEX INDEX i;

-- case: concurrent index of an ordinary role, extended
CREATE ROLE follow_joe LOGIN;
GRANT USAGE, CREATE ON SCHEMA :schema TO follow_joe;
-- as: follow_joe
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a'), (2, 'a');
-- extended
CREATE INDEX CONCURRENTLY i ON t (v);
-- error: 23505
-- extended
CREATE UNIQUE INDEX CONCURRENTLY u ON t (v);
-- extended
DROP INDEX CONCURRENTLY u;
INSERT INTO t VALUES (3, 'a');
-- finally
-- as: postgres
DROP OWNED BY follow_joe;
DROP ROLE follow_joe;

-- case: detach partition concurrently
CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20);
INSERT INTO p VALUES (1, 'a'), (11, 'b');
ALTER TABLE p DETACH PARTITION p1 CONCURRENTLY;
INSERT INTO p1 VALUES (5, 'alone');
INSERT INTO p VALUES (12, 'c');

-- case: detach concurrently that is cancelled, then finalized
CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
INSERT INTO p VALUES (1, 'a');
-- session: 2
BEGIN;
SELECT * FROM p FOR UPDATE;
-- session: 1
SET statement_timeout = '700ms';
-- error: 57014
ALTER TABLE p DETACH PARTITION p1 CONCURRENTLY;
RESET statement_timeout;
-- session: 2
COMMIT;
-- session: 1
ALTER TABLE p DETACH PARTITION p1 FINALIZE;
INSERT INTO p1 VALUES (5, 'alone');

-- case: detach concurrently that fails
CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE TABLE d PARTITION OF p DEFAULT;
-- error: 55000
ALTER TABLE p DETACH PARTITION p1 CONCURRENTLY;
BEGIN;
-- error: 25001
ALTER TABLE p DETACH PARTITION p1 CONCURRENTLY;
ROLLBACK;
INSERT INTO p VALUES (1);

-- case: invalid index of a partitioned table made valid by attaching
CREATE TABLE p (id int, v text) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE INDEX pi ON ONLY p (v);
CREATE INDEX CONCURRENTLY p1i ON p1 (v);
ALTER INDEX pi ATTACH PARTITION p1i;
INSERT INTO p VALUES (1, 'a');

-- case: refresh concurrently that fails
CREATE TABLE src (id int, v text);
INSERT INTO src VALUES (1, 'a');
CREATE MATERIALIZED VIEW m AS SELECT * FROM src;
CREATE UNIQUE INDEX ON m (id);
INSERT INTO src VALUES (1, 'b');
-- error: 23505
REFRESH MATERIALIZED VIEW CONCURRENTLY m;
DELETE FROM src WHERE v = 'b';
REFRESH MATERIALIZED VIEW CONCURRENTLY m;
INSERT INTO src VALUES (2, 'b');

-- case: replica identity using an index that is dropped concurrently
CREATE TABLE t (id int NOT NULL, v text);
CREATE UNIQUE INDEX i ON t (id);
ALTER TABLE t REPLICA IDENTITY USING INDEX i;
INSERT INTO t VALUES (1, 'a');
DROP INDEX CONCURRENTLY i;
UPDATE t SET v = 'b';
DELETE FROM t;

-- case: typed directly at the primary
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a'), (2, 'a');
-- direct
CREATE INDEX CONCURRENTLY i ON t (v);
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY u ON t (v);
DROP INDEX CONCURRENTLY i;
DROP INDEX u;
-- through
INSERT INTO t VALUES (3, 'a');

-- case: an invalid index of a partition is attached, then made valid
-- needs: 15
CREATE TABLE p (a int, b int) PARTITION BY RANGE (a);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE INDEX pi ON ONLY p ((a / b));
INSERT INTO p VALUES (1, 0);
-- error: 22012
CREATE INDEX CONCURRENTLY p1i ON p1 ((a / b));
ALTER INDEX pi ATTACH PARTITION p1i;
-- check
DELETE FROM p;
REINDEX INDEX CONCURRENTLY p1i;
ALTER INDEX pi ATTACH PARTITION p1i;
INSERT INTO p VALUES (2, 1);

-- case: an index of a partitioned table takes over an invalid one
CREATE TABLE p (a int, b int) PARTITION BY RANGE (a);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (a);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (a);
CREATE TABLE p11 PARTITION OF p1 FOR VALUES FROM (0) TO (5);
CREATE TABLE p12 PARTITION OF p1 FOR VALUES FROM (5) TO (10);
CREATE TABLE p21 PARTITION OF p2 FOR VALUES FROM (10) TO (20);
INSERT INTO p VALUES (1, 0), (6, 1), (11, 1);
-- error: 22012
CREATE INDEX CONCURRENTLY p11i ON p11 ((a / b));
CREATE INDEX p12i ON p12 ((a / b));
CREATE INDEX pi ON p ((a / b));
-- check
COMMENT ON TABLE p1 IS 'x';
COMMENT ON TABLE p12 IS 'x';
CREATE TABLE p22 (a int, b int);
ALTER TABLE p DETACH PARTITION p2;
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20);
DELETE FROM p WHERE b = 0;
REINDEX INDEX CONCURRENTLY p11i;
COMMENT ON TABLE p11 IS 'x';
COMMENT ON TABLE p1 IS 'y';
INSERT INTO p VALUES (2, 1);
-- check
ALTER INDEX p1_expr_idx ATTACH PARTITION p11i;
COMMENT ON TABLE p IS 'x';
DROP INDEX pi;
COMMENT ON TABLE p11 IS 'y';

-- case: an index of a partitioned table takes over one that was given up, though it could be built
CREATE TABLE p (a int, b int) PARTITION BY RANGE (a);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
INSERT INTO p VALUES (1, 0);
-- error: 22012
CREATE UNIQUE INDEX CONCURRENTLY p1i ON p1 (a, (a / b));
DELETE FROM p;
CREATE UNIQUE INDEX pi ON p (a, (a / b));
INSERT INTO p VALUES (1, 0), (1, 0);
COMMENT ON TABLE p1 IS 'x';
-- check
DELETE FROM p;
REINDEX INDEX CONCURRENTLY p1i;
INSERT INTO p VALUES (1, 1);
-- check
DROP TABLE p1;
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (0) TO (10);
INSERT INTO p VALUES (1, 1);

-- case: an index of a partitioned table takes over an invalid one, tables of several roles, a function's name that is shadowed
CREATE ROLE follow_a;
CREATE ROLE follow_b;
GRANT ALL ON SCHEMA :schema TO follow_a, follow_b;
CREATE FUNCTION array_length(int[], int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 7';
CREATE TABLE p (k int, a int[], b int) PARTITION BY LIST (k);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2);
INSERT INTO p VALUES (1, '{1}', 0), (2, '{1}', 1);
-- error: 22012
CREATE INDEX CONCURRENTLY p1i ON p1 ((pg_catalog.array_length(a, 1) / b));
ALTER TABLE p OWNER TO follow_a;
ALTER TABLE p1 OWNER TO follow_b;
ALTER TABLE p2 OWNER TO follow_b;
SET ROLE follow_a;
CREATE INDEX pi ON p ((pg_catalog.array_length(a, 1) / b));
-- check
SET ROLE follow_b;
DELETE FROM p1;
REINDEX INDEX CONCURRENTLY p1i;
INSERT INTO p1 VALUES (1, '{1,2}', 1);
COMMENT ON TABLE p1 IS 'x';
-- check
RESET ROLE;
ALTER INDEX pi ATTACH PARTITION p1i;
REINDEX TABLE p2;
INSERT INTO p VALUES (2, '{1}', 2);
-- check
DROP OWNED BY follow_a, follow_b CASCADE;
DROP ROLE follow_a, follow_b;

-- case: owners are reassigned, then an invalid index is made valid, in one transaction
CREATE ROLE follow_a;
CREATE ROLE follow_b;
GRANT ALL ON SCHEMA :schema TO follow_a, follow_b;
CREATE TABLE p (a int, b int) PARTITION BY RANGE (a);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
INSERT INTO p VALUES (1, 1), (1, 2);
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY p1i ON p1 (a);
CREATE UNIQUE INDEX pi ON p (a);
ALTER TABLE p OWNER TO follow_a;
ALTER TABLE p1 OWNER TO follow_a;
DELETE FROM p;
BEGIN;
REASSIGN OWNED BY follow_a TO follow_b;
REINDEX INDEX p1i;
COMMIT;
INSERT INTO p VALUES (2, 1);
-- check
DROP OWNED BY follow_a, follow_b CASCADE;
DROP ROLE follow_a, follow_b;

-- case: two sessions make indexes of one table beside each other
CREATE TABLE t (id int PRIMARY KEY, a int);
BEGIN;
CREATE INDEX ta ON t (a);
-- session: 2
BEGIN;
CREATE INDEX tb ON t (a, id);
COMMIT;
-- session: 1
CREATE INDEX tc ON t (a, id, a);
ALTER TABLE t ADD b int;
COMMIT;
-- session: 2
INSERT INTO t VALUES (1, 1);

-- case: the first one commits first
CREATE TABLE t (id int PRIMARY KEY, a int);
BEGIN;
CREATE INDEX ta ON t (a);
COMMENT ON INDEX ta IS 'a';
-- session: 2
BEGIN;
CREATE INDEX tb ON t (a, id);
-- session: 1
COMMIT;
-- session: 2
CREATE STATISTICS st ON id, a FROM t;
COMMIT;

-- case: DDL in a snapshot of before others' DDL
CREATE TABLE t (id int PRIMARY KEY, a int);
CREATE TABLE k (a int, b text);
INSERT INTO k VALUES (1, 'b');
CREATE SEQUENCE s;
-- session: 2
BEGIN;
COMMENT ON SEQUENCE s IS 'open';
-- session: 1
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM t;
-- Others' that are not committed, and what is the session's own, are in nobody's way.
CREATE TEMPORARY TABLE own (id int);
CREATE TABLE made (id int PRIMARY KEY);
ALTER TABLE made ADD v float DEFAULT random();
INSERT INTO made VALUES (1);
ALTER TABLE made ALTER id TYPE bigint;
-- session: 3
CREATE TABLE new (a int, b text);
INSERT INTO new VALUES (1, 'b');
-- session: 1
CREATE TEMPORARY TABLE another (id int);
DROP TABLE own;
ALTER TABLE made ADD w int DEFAULT 1;
CREATE INDEX ON made (w);
CREATE TABLE beside (id int PRIMARY KEY);
INSERT INTO beside VALUES (1);
SAVEPOINT s;
-- error: 40001
CREATE INDEX ON new (a);
ROLLBACK TO s;
-- error: 40001
ALTER TABLE new ALTER a TYPE bigint;
ROLLBACK TO s;
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT nextval('s');
-- session: 2
COMMIT;
-- session: 1
-- error: 40001
COMMENT ON TABLE t IS 't';
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT 1;
-- session: 3
ALTER TABLE k ADD c int;
-- session: 1
-- error: 40001
ALTER TABLE k ALTER a TYPE bigint;
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT 1;
-- session: 3
ALTER TABLE k RENAME a TO aa;
-- session: 1
-- error: 40001
ALTER TABLE k ALTER aa TYPE bigint;
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
ALTER TABLE k ALTER aa TYPE bigint;
DROP TABLE new;
GRANT SELECT ON t TO PUBLIC;
-- session: 3
INSERT INTO t VALUES (1, 1);
-- session: 1
CREATE INDEX ON t (a);
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT 1;
-- session: 3
GRANT SELECT ON k TO PUBLIC;
-- session: 1
-- error: 40001
ALTER TABLE k SET (fillfactor = 50);
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT nextval('s');
-- expect: 2
SELECT lastval();
CREATE INDEX ON k (b);
-- expect: 2
SELECT lastval();
COMMIT;

-- case: something is dropped beside what is described
CREATE ROLE follow_dropped;
GRANT USAGE ON SCHEMA :schema TO follow_dropped;
CREATE TABLE gone (id int);
CREATE TABLE t (id int PRIMARY KEY, v text, w int DEFAULT 5);
CREATE INDEX i ON t (v);
CREATE FUNCTION unused() RETURNS int LANGUAGE sql AS 'SELECT 1';
BEGIN;
CREATE TABLE made (id int);
GRANT SELECT ON t TO PUBLIC;
-- session: 2
ALTER DEFAULT PRIVILEGES IN SCHEMA :schema GRANT SELECT ON TABLES TO follow_dropped;
DROP TABLE gone;
-- session: 1
COMMIT;
INSERT INTO made VALUES (1);
BEGIN;
COMMENT ON COLUMN t.v IS 'v';
-- session: 2
DROP FUNCTION unused();
-- session: 1
COMMIT;
CREATE SEQUENCE s_id_seq;
CREATE SEQUENCE k_id_seq;
CREATE TABLE old (id int CONSTRAINT new_pkey PRIMARY KEY);
BEGIN;
CREATE TABLE new (id int PRIMARY KEY);
CREATE TABLE s (id serial PRIMARY KEY);
CREATE TABLE k (id int GENERATED ALWAYS AS IDENTITY);
-- session: 2
DROP TABLE old;
DROP SEQUENCE s_id_seq;
DROP SEQUENCE k_id_seq;
-- session: 1
COMMIT;
INSERT INTO new VALUES (1);
INSERT INTO s DEFAULT VALUES;
INSERT INTO k DEFAULT VALUES;
-- A partition's index has a name that was free.
CREATE TABLE pt (k int) PARTITION BY LIST (k);
CREATE TABLE pt1 PARTITION OF pt FOR VALUES IN (1);
CREATE TABLE o (k int);
CREATE INDEX pt1_k_idx ON o (k);
BEGIN;
CREATE INDEX ON pt (k);
-- session: 2
DROP INDEX pt1_k_idx;
-- session: 1
COMMIT;
INSERT INTO pt VALUES (1);
-- Before 18, GRANT takes no lock that DROP INDEX waits for.
CREATE FUNCTION def() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE TABLE g (a int, b int DEFAULT def(), c int);
CREATE INDEX ON g (a);
BEGIN;
GRANT SELECT (c) ON g TO PUBLIC;
GRANT INSERT ON g TO PUBLIC;
-- session: 2
-- until: 17
DROP INDEX g_a_idx;
-- session: 1
COMMIT;
-- session: 2
DROP FUNCTION def() CASCADE;
-- session: 1
INSERT INTO g VALUES (1, 2, 3);
-- finally
ALTER DEFAULT PRIVILEGES IN SCHEMA :schema REVOKE SELECT ON TABLES FROM follow_dropped;
REVOKE ALL ON SCHEMA :schema FROM follow_dropped;
DROP OWNED BY follow_dropped;
DROP ROLE follow_dropped;

-- case: DROP OWNED waits for what others create and grant
CREATE ROLE follow_owned;
GRANT ALL ON SCHEMA :schema TO follow_owned;
CREATE TABLE t (id int PRIMARY KEY);
CREATE TABLE u (id int PRIMARY KEY);
GRANT SELECT ON u TO follow_owned;
BEGIN;
DROP OWNED BY follow_owned;
-- session: 2
-- background
GRANT SELECT ON t TO follow_owned;
-- session: 1
COMMIT;
-- session: 2
BEGIN;
GRANT ALL ON SCHEMA :schema TO follow_owned;
SET ROLE follow_owned;
CREATE TABLE own (id int PRIMARY KEY);
INSERT INTO own VALUES (1);
-- session: 1
-- background
DROP OWNED BY follow_owned;
-- session: 2
COMMIT;
-- session: 1
GRANT SELECT ON u TO follow_owned;
-- finally
DROP OWNED BY follow_owned;
DROP ROLE follow_owned;

-- case: an index that isn't valid is renamed
CREATE TABLE t (id int PRIMARY KEY, a int);
INSERT INTO t VALUES (1, 1), (2, 1);
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY tu ON t (a);
ALTER INDEX tu RENAME TO tuu;
DELETE FROM t WHERE id = 2;
REINDEX INDEX tuu;
-- sleep: 3
COMMENT ON INDEX tuu IS 'y';
ALTER INDEX tuu RENAME TO u;

-- case: rights are granted beside an index
CREATE TABLE t (id int PRIMARY KEY, a int);
GRANT INSERT ON t TO PUBLIC;
BEGIN;
CREATE INDEX ta ON t (a);
-- session: 2
GRANT SELECT ON t TO PUBLIC;
GRANT UPDATE (a) ON t TO PUBLIC;
-- session: 1
COMMIT;
INSERT INTO t VALUES (1, 1);

-- case: a failed one becomes valid when its table is rewritten
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a'), (2, 'a');
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY i ON t (v);
DELETE FROM t WHERE id = 2;
ALTER TABLE t ALTER id TYPE bigint;
INSERT INTO t VALUES (3, 'b');
-- error: 23505
INSERT INTO t VALUES (4, 'b');
ALTER TABLE t ADD w float DEFAULT random();
DROP INDEX i;

-- case: failed ones become valid with a rewrite in a block, then are named
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a'), (2, 'a');
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY i ON t (v);
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY j ON t (lower(v));
BEGIN;
DELETE FROM t WHERE id = 2;
ALTER TABLE t ADD w float DEFAULT random(), ALTER v TYPE varchar(9);
ALTER INDEX i RENAME TO k;
COMMENT ON INDEX j IS 'found again';
COMMENT ON INDEX k IS 'by its name';
ROLLBACK;
BEGIN;
DELETE FROM t WHERE id = 2;
ALTER TABLE t ADD w float DEFAULT random(), ALTER v TYPE varchar(9);
ALTER INDEX i RENAME TO k;
COMMENT ON INDEX j IS 'found again';
COMMIT;
INSERT INTO t VALUES (3, 'b');

-- case: a failed one behind TRUNCATE, CLUSTER and VACUUM FULL
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a'), (2, 'a');
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY i ON t (v);
TRUNCATE t;
INSERT INTO t VALUES (1, 'a'), (2, 'b');
CLUSTER t USING t_pkey;
INSERT INTO t VALUES (3, 'c');
VACUUM FULL t;
INSERT INTO t VALUES (4, 'd');
REINDEX TABLE t;
-- error: 23505
INSERT INTO t VALUES (5, 'd');

-- case: a failed one with a comment and options is reindexed
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a'), (2, 'a');
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY i ON t (v, lower(v));
COMMENT ON INDEX i IS 'it''s "unique"';
ALTER INDEX i ALTER COLUMN 2 SET STATISTICS 500;
ALTER INDEX i SET (fillfactor = 60);
DELETE FROM t WHERE id = 2;
REINDEX INDEX i;
INSERT INTO t VALUES (3, 'b');
COMMENT ON INDEX i IS NULL;

-- case: PostgreSQL gives an index another name, since an invalid one has the first
CREATE TABLE t (a int, b int);
INSERT INTO t VALUES (1, 1), (1, 2);
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY ON t (a);
CREATE INDEX ON t (a);
INSERT INTO t VALUES (2, 1);
-- check
DELETE FROM t WHERE b = 2;
REINDEX INDEX CONCURRENTLY t_a_idx;
COMMENT ON TABLE t IS 'x';

-- case: detach concurrently of a partition whose bound has words of ours
CREATE TABLE p (a text, b int) PARTITION BY LIST (a);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN ('house of cards', 'not local inherited ');
CREATE TABLE p2 PARTITION OF p DEFAULT;
DROP TABLE p2;
INSERT INTO p VALUES ('house of cards', 1);
ALTER TABLE p DETACH PARTITION p1 CONCURRENTLY;
INSERT INTO p1 VALUES ('house of cards', 2);

-- case: an index whose DROP was given up at the primary itself is renamed at once
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE UNIQUE INDEX i ON t (v);
-- session: 2
BEGIN;
INSERT INTO t VALUES (1000, 'open');
-- session: 1
-- direct
SET lock_timeout = '200ms';
-- error: 55P03
DROP INDEX CONCURRENTLY i;
ALTER INDEX i RENAME TO j;
-- through
-- session: 2
COMMIT;
-- check
-- session: 1
INSERT INTO t VALUES (1, 'a');
DROP INDEX j;
