-- Replica identity: what the user chose is remembered; FULL is in force where it must be.

-- case: nothing, then a key appears
CREATE TABLE t (id int, v text);
ALTER TABLE t REPLICA IDENTITY NOTHING;
-- expect: f
SELECT relreplident FROM pg_class WHERE oid = 't'::regclass;
-- expect: n
SELECT choice FROM hihooi.identity WHERE relation = 't'::regclass;
INSERT INTO t VALUES (1, 'a');
UPDATE t SET v = 'b';
DELETE FROM t;
ALTER TABLE t ADD PRIMARY KEY (id);
-- The choice can't be in force while replicas have to find rows, and is still known.
-- expect: n
SELECT choice FROM hihooi.identity WHERE relation = 't'::regclass;
INSERT INTO t VALUES (2, 'a');
UPDATE t SET v = 'b';
-- check
ALTER TABLE t REPLICA IDENTITY DEFAULT;
-- expect: d
SELECT relreplident FROM pg_class WHERE oid = 't'::regclass;
UPDATE t SET v = 'c';

-- case: nothing with a key
CREATE TABLE t (id int PRIMARY KEY, v text);
ALTER TABLE t REPLICA IDENTITY NOTHING;
INSERT INTO t VALUES (1, 'a');
UPDATE t SET v = 'b';
DELETE FROM t;

-- case: using index that is invalid, then valid
CREATE TABLE t (id int NOT NULL, v text);
INSERT INTO t VALUES (1, 'a'), (1, 'b');
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY i ON t (id);
ALTER TABLE t REPLICA IDENTITY USING INDEX i;
-- FULL is in force as long as the index can't be used, and the user's choice behind that.
-- expect: f
SELECT relreplident FROM pg_class WHERE oid = 't'::regclass;
UPDATE t SET id = 2 WHERE v = 'b';
-- check
-- (DDL of another session may be at the table's indexes just now, and does it then.)
REINDEX INDEX i;
-- eventually: i
SELECT relreplident FROM pg_class WHERE oid = 't'::regclass;
UPDATE t SET v = 'c' WHERE id = 1;
UPDATE t SET v = 'c' WHERE id = 2;
DROP INDEX i;
UPDATE t SET v = 'd';

-- case: using index of a partitioned table
CREATE TABLE p (id int NOT NULL, v text) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE UNIQUE INDEX pi ON ONLY p (id);

ALTER TABLE p REPLICA IDENTITY USING INDEX pi;
CREATE UNIQUE INDEX p1i ON p1 (id);
ALTER TABLE p1 REPLICA IDENTITY USING INDEX p1i;
ALTER INDEX pi ATTACH PARTITION p1i;
INSERT INTO p VALUES (1, 'a');
UPDATE p SET v = 'b';
DELETE FROM p;

-- case: full, default, index and back
CREATE TABLE t (id int PRIMARY KEY, u int NOT NULL UNIQUE, v text);
ALTER TABLE t REPLICA IDENTITY FULL;
INSERT INTO t VALUES (1, 1, 'a');
UPDATE t SET v = 'b';
ALTER TABLE t REPLICA IDENTITY USING INDEX t_u_key;
UPDATE t SET v = 'c';
ALTER TABLE t DROP CONSTRAINT t_u_key;
UPDATE t SET v = 'd';
ALTER TABLE t REPLICA IDENTITY DEFAULT;
UPDATE t SET v = 'e';
ALTER TABLE t DROP CONSTRAINT t_pkey;
UPDATE t SET v = 'f';
ALTER TABLE t ADD PRIMARY KEY (id);
UPDATE t SET v = 'g';

-- case: key dropped and added in DO
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a'), (2, 'b');
DO $$ BEGIN
  ALTER TABLE t DROP CONSTRAINT t_pkey;
  UPDATE t SET v = 'x';
  INSERT INTO t VALUES (1, 'dup');
  DELETE FROM t WHERE v = 'dup';
  ALTER TABLE t ADD PRIMARY KEY (id);
  UPDATE t SET v = 'y' WHERE id = 1;
END $$;
UPDATE t SET v = 'z' WHERE id = 2;

-- case: deferrable key and generated key
CREATE TABLE t (id int PRIMARY KEY DEFERRABLE, v text);
INSERT INTO t VALUES (1, 'a');
UPDATE t SET v = 'b';
CREATE TABLE g (id int, k int GENERATED ALWAYS AS (id * 2) STORED PRIMARY KEY, v text);
INSERT INTO g VALUES (1);
UPDATE g SET v = 'b';
DELETE FROM g;

-- case: the index dropped by a column
CREATE TABLE t (a int NOT NULL, b int NOT NULL, v text);
CREATE UNIQUE INDEX i ON t (a, b);
ALTER TABLE t REPLICA IDENTITY USING INDEX i;
INSERT INTO t VALUES (1, 1, 'x');
ALTER TABLE t DROP COLUMN b;
UPDATE t SET v = 'y';
DELETE FROM t;

-- case: identity chosen in functions and directly
CREATE TABLE t (id int, v text);
CREATE TABLE u (id int, v text);
DO $$ BEGIN ALTER TABLE t REPLICA IDENTITY NOTHING; END $$;
-- direct
ALTER TABLE :schema.u REPLICA IDENTITY NOTHING;
CREATE TABLE :schema.w (id int);
-- through
INSERT INTO t VALUES (1, 'a');
INSERT INTO u VALUES (1, 'a');
INSERT INTO w VALUES (1);
UPDATE t SET v = 'b';
UPDATE u SET v = 'b';
UPDATE w SET id = 2;

-- case: keyless tables made nested, under any setting
CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql SET session_replication_role = replica AS $$ BEGIN CREATE TABLE nested (id int); INSERT INTO nested VALUES (1); END $$;
SELECT f();
UPDATE nested SET id = 2;
CREATE TABLE c AS SELECT 1 AS id;
UPDATE c SET id = 2;
SELECT 1 AS id INTO s;
UPDATE s SET id = 2;
EXPLAIN ANALYZE CREATE TABLE e AS SELECT 1 AS id;
UPDATE e SET id = 2;
CREATE SCHEMA follow_id CREATE TABLE x (id int);
INSERT INTO follow_id.x VALUES (1);
UPDATE follow_id.x SET id = 2;
-- finally
DROP SCHEMA follow_id CASCADE;

-- case: keyless table of another role, moved and renamed
CREATE ROLE follow_a LOGIN;
GRANT ALL ON SCHEMA :schema TO follow_a;
-- as: follow_a
CREATE TABLE t (id int, v text);
INSERT INTO t VALUES (1, 'a');
ALTER TABLE t RENAME TO u;
UPDATE u SET v = 'b';
ALTER TABLE u REPLICA IDENTITY NOTHING;
UPDATE u SET v = 'c';
-- as: postgres
ALTER TABLE u OWNER TO postgres;
DELETE FROM u;
-- finally
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: unlogged and keyless, then logged
CREATE UNLOGGED TABLE t (id int, v text);
INSERT INTO t VALUES (1, 'a');
UPDATE t SET v = 'b';
ALTER TABLE t SET LOGGED;
UPDATE t SET v = 'c';
DELETE FROM t;

-- case: like, inherits and typed copy no identity
CREATE TABLE t (id int NOT NULL UNIQUE, v text);
ALTER TABLE t REPLICA IDENTITY USING INDEX t_id_key;
CREATE TABLE l (LIKE t INCLUDING ALL);
CREATE TABLE i () INHERITS (t);
INSERT INTO t VALUES (1, 'a');
INSERT INTO l VALUES (1, 'a');
INSERT INTO i VALUES (2, 'a');
UPDATE t SET v = 'b';
UPDATE l SET v = 'b';
DELETE FROM t;

-- case: serializable transactions make tables without keys beside each other
CREATE TABLE a (id int);
BEGIN ISOLATION LEVEL SERIALIZABLE;
CREATE TABLE b (id int);
INSERT INTO b VALUES (1);
PREPARE TRANSACTION 'follow_prepared';
CREATE TABLE c (id int);
BEGIN ISOLATION LEVEL SERIALIZABLE;
DROP TABLE c;
CREATE TABLE d (id int);
INSERT INTO d VALUES (1);
COMMIT;
COMMIT PREPARED 'follow_prepared';
UPDATE b SET id = 2;
UPDATE d SET id = 2;

-- case: generated columns, which PostgreSQL 18 publishes
CREATE TABLE t (id int PRIMARY KEY, n int, g int GENERATED ALWAYS AS (n * 2) STORED, v text);
INSERT INTO t (id, n) SELECT i, i FROM generate_series(1, 100) i;
UPDATE t SET n = n + 1;
UPDATE t SET v = repeat('x', 3000) || id WHERE id < 20;
UPDATE t SET n = 0, id = id + 200 WHERE id < 30;
DELETE FROM t WHERE g % 3 = 0;
CREATE TABLE k (n int, g float8 GENERATED ALWAYS AS (n / 3.0) STORED);
INSERT INTO k (n) SELECT i % 7 FROM generate_series(1, 50) i;
UPDATE k SET n = 9 WHERE n = 3;
DELETE FROM k WHERE n = 4;
INSERT INTO k (n) VALUES (NULL), (1);
UPDATE k SET n = 2 WHERE n IS NULL;
CREATE TABLE i (g int GENERATED ALWAYS AS (n + 1) STORED, id int GENERATED ALWAYS AS IDENTITY, n int);
INSERT INTO i (n) VALUES (1), (1), (2);
UPDATE i SET id = DEFAULT WHERE n = 2;
UPDATE i SET n = 3 WHERE id = 1;
CREATE TABLE o (g int GENERATED ALWAYS AS (1) STORED);
INSERT INTO o DEFAULT VALUES;
INSERT INTO o SELECT FROM generate_series(1, 40);
DELETE FROM o WHERE ctid = '(0,1)';
CREATE TABLE p (id int, n int, g int GENERATED ALWAYS AS (n * 2) STORED) PARTITION BY LIST (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
CREATE TABLE p2 (g int GENERATED ALWAYS AS (n * 2) STORED, n int, id int);
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES IN (2);
INSERT INTO p VALUES (1, 1), (2, 2);
UPDATE p SET id = 3 - id;

-- case: virtual generated columns
-- needs: 18
CREATE TABLE t (id int PRIMARY KEY, n int, g int GENERATED ALWAYS AS (n * 2));
INSERT INTO t (id, n) SELECT i, i FROM generate_series(1, 100) i;
UPDATE t SET n = n + 1;
DELETE FROM t WHERE g = 10;
ALTER TABLE t ADD h int GENERATED ALWAYS AS (n * 3);
INSERT INTO t (id, n) VALUES (200, 1);
CREATE TABLE k (n int, g int GENERATED ALWAYS AS (n * 2));
INSERT INTO k (n) VALUES (1);
-- error: 42P10
UPDATE k SET n = 2;
ALTER TABLE k ADD PRIMARY KEY (n);
UPDATE k SET n = 2;

-- case: keys without overlaps
-- needs: 18
CREATE TABLE t (r int4range, v int4range, x int, PRIMARY KEY (r, v WITHOUT OVERLAPS));
INSERT INTO t VALUES ('[1,5)', '[1,5)', 1), ('[2,6)', '[2,6)', 2), ('[3,7)', '[3,7)', 3);
DELETE FROM t WHERE x = 2;
UPDATE t SET v = '[2,4)' WHERE x = 1;
UPDATE t SET x = x + 1;
-- check
DELETE FROM t;
INSERT INTO t SELECT '[1,2)', int4range(i, i + 1), i FROM generate_series(1, 50) i;
UPDATE t SET v = int4range(x + 100, x + 101);
DELETE FROM t WHERE x % 2 = 0;
DO $$ BEGIN
  FOR i IN 1 .. 40 LOOP
    DELETE FROM t WHERE r = '[7,8)';
    INSERT INTO t VALUES ('[7,8)', int4range(i % 7, i % 7 + 10), i);
    COMMIT;
  END LOOP;
END $$;

-- case: full by choice, right behind what ended the one that hihooi gave
CREATE TABLE t (id int NOT NULL, v text);
ALTER TABLE t ADD PRIMARY KEY (id);
ALTER TABLE t REPLICA IDENTITY FULL;
-- expect: f
SELECT relreplident FROM pg_class WHERE oid = 't'::regclass;
CREATE TABLE u (id int NOT NULL, v text);
CREATE UNIQUE INDEX ui ON u (id);
ALTER TABLE u REPLICA IDENTITY USING INDEX ui;
ALTER TABLE u REPLICA IDENTITY FULL;
ALTER TABLE u ADD PRIMARY KEY (id);
-- expect: f
SELECT relreplident FROM pg_class WHERE oid = 'u'::regclass;
INSERT INTO t VALUES (1, 'a');
UPDATE t SET v = 'b';

-- case: full by choice, where hihooi has given it already
CREATE TABLE t (id int NOT NULL, v text);
ALTER TABLE t REPLICA IDENTITY FULL;
ALTER TABLE t ADD PRIMARY KEY (id);
-- expect: f
SELECT relreplident FROM pg_class WHERE oid = 't'::regclass;
INSERT INTO t VALUES (1, 'a');
UPDATE t SET v = 'b';
ALTER TABLE t REPLICA IDENTITY DEFAULT;
-- expect: d
SELECT relreplident FROM pg_class WHERE oid = 't'::regclass;

-- case: an identity by an index on a column whose NOT NULL is not valid
-- needs: 18
CREATE TABLE t (id int, a int);
INSERT INTO t VALUES (NULL, 1), (NULL, 2), (3, 3);
ALTER TABLE t ADD CONSTRAINT k NOT NULL id NOT VALID;
CREATE UNIQUE INDEX ti ON t (id);
ALTER TABLE t REPLICA IDENTITY USING INDEX ti;
DELETE FROM t WHERE a = 1;
UPDATE t SET id = 4 WHERE a = 2;
ALTER TABLE t VALIDATE CONSTRAINT k;
UPDATE t SET a = 5 WHERE id = 4;
SELECT 1 / (relreplident = 'i')::int FROM pg_class WHERE oid = 't'::regclass;

-- case: a key that goes with a parent's column, or a type's
CREATE TABLE par (a int NOT NULL, b int NOT NULL, c int);
CREATE TABLE ch (PRIMARY KEY (a), v text) INHERITS (par);
CREATE TABLE ix (v text) INHERITS (par);
CREATE UNIQUE INDEX ixb ON ix (b);
ALTER TABLE ix REPLICA IDENTITY USING INDEX ixb;
INSERT INTO ch VALUES (1, 2, 3, 'x');
INSERT INTO ix VALUES (1, 2, 3, 'x');
ALTER TABLE par DROP COLUMN a;
UPDATE ch SET v = '1';
BEGIN;
ALTER TABLE par DROP COLUMN b;
UPDATE ix SET v = '1';
COMMIT;
UPDATE ix SET v = '2';
CREATE TYPE ty AS (a int, b int);
CREATE TABLE tt OF ty (PRIMARY KEY (a));
INSERT INTO tt VALUES (1, 2);
ALTER TYPE ty DROP ATTRIBUTE a CASCADE;
UPDATE tt SET b = 3;
ALTER TABLE tt ADD PRIMARY KEY (b);
SELECT 1 / (relreplident = 'd')::int FROM pg_class WHERE oid = 'tt'::regclass;

-- case: FULL is chosen with comments in between
CREATE TABLE t (a int NOT NULL, v text);
ALTER TABLE t REPLICA /* not NOTHING */ IDENTITY -- but
  FULL;
ALTER TABLE t ADD PRIMARY KEY (a);
INSERT INTO t VALUES (1, 'a');
UPDATE t SET v = 'b';
SELECT 1 / (relreplident = 'f')::int FROM pg_class WHERE oid = 't'::regclass;
