-- Blocks, savepoints, concurrent sessions, two-phase commit.

-- case: rolled back to savepoints, in every depth
CREATE TABLE t (id int PRIMARY KEY);
BEGIN;
ALTER TABLE t ADD a int;
SAVEPOINT s1;
ALTER TABLE t ADD b int;
SAVEPOINT s2;
ALTER TABLE t ADD c int;
CREATE TABLE gone (id int);
ROLLBACK TO s2;
ALTER TABLE t ADD d int;
RELEASE s2;
ROLLBACK TO s1;
ALTER TABLE t ADD e int;
INSERT INTO t VALUES (1, 2, 3);
COMMIT;
INSERT INTO t VALUES (2, 2, 3);

-- case: an error within, then back to the savepoint
CREATE TABLE t (id int PRIMARY KEY);
BEGIN;
ALTER TABLE t ADD a int;
SAVEPOINT s;
-- error: 42701
ALTER TABLE t ADD a int;
ROLLBACK TO s;
-- error: 42P07
CREATE TABLE t (id int);
ROLLBACK TO s;
INSERT INTO t VALUES (1, 1);
COMMIT;
INSERT INTO t VALUES (2, 1);

-- case: rows and definitions mixed over savepoints
CREATE TABLE t (id int PRIMARY KEY, v int);
INSERT INTO t VALUES (1, 1);
BEGIN;
UPDATE t SET v = 2;
SAVEPOINT a;
ALTER TABLE t RENAME v TO w;
UPDATE t SET w = 3;
INSERT INTO t VALUES (2, 2);
ROLLBACK TO a;
UPDATE t SET v = v + 10;
SAVEPOINT b;
ALTER TABLE t ALTER v TYPE text;
UPDATE t SET v = v || 'x';
RELEASE b;
INSERT INTO t VALUES (3, 'y');
COMMIT;
UPDATE t SET v = 'z' WHERE id = 3;

-- case: created, dropped, created again with other columns
BEGIN;
CREATE TABLE t (a int);
INSERT INTO t VALUES (1);
SAVEPOINT s;
DROP TABLE t;
CREATE TABLE t (b text);
INSERT INTO t VALUES ('x');
ROLLBACK TO s;
INSERT INTO t VALUES (2);
COMMIT;
UPDATE t SET a = a + 1;

-- case: failed block leaves nothing
CREATE TABLE t (id int PRIMARY KEY);
BEGIN;
ALTER TABLE t ADD lost int;
CREATE TABLE gone (id int);
-- error: 22012
SELECT 1/0;
-- error: 25P02
ALTER TABLE t ADD more int;
COMMIT;
INSERT INTO t VALUES (1);

-- case: deferred error at commit
CREATE TABLE pk (id int PRIMARY KEY);
CREATE TABLE fk (id int PRIMARY KEY, r int REFERENCES pk DEFERRABLE INITIALLY DEFERRED);
BEGIN;
CREATE TABLE gone (id int);
ALTER TABLE pk ADD lost int;
INSERT INTO fk VALUES (1, 99);
-- error: 23503
COMMIT;
INSERT INTO pk VALUES (1);

-- case: two-phase commit with definitions
CREATE TABLE t (id int PRIMARY KEY);
BEGIN;
ALTER TABLE t ADD a int DEFAULT 3;
CREATE TABLE u (id int PRIMARY KEY);
INSERT INTO u VALUES (1);
PREPARE TRANSACTION 'follow_2pc';
-- session: 2
CREATE TABLE other (id int PRIMARY KEY);
INSERT INTO other VALUES (1);
-- session: 1
COMMIT PREPARED 'follow_2pc';
INSERT INTO t VALUES (1, 1);
BEGIN;
CREATE TABLE gone (id int);
ALTER TABLE t ADD lost int;
PREPARE TRANSACTION 'follow_2pc';
ROLLBACK PREPARED 'follow_2pc';
INSERT INTO t VALUES (2, 1);

-- case: two-phase commit with DO and roles
CREATE TABLE t (id int PRIMARY KEY);
BEGIN;
DO $$ BEGIN ALTER TABLE t ADD u uuid DEFAULT gen_random_uuid(); CREATE ROLE follow_2pc; GRANT SELECT ON t TO follow_2pc; END $$;
INSERT INTO t VALUES (1);
PREPARE TRANSACTION 'follow_2pc';
COMMIT PREPARED 'follow_2pc';
INSERT INTO t VALUES (2);
-- finally
DROP OWNED BY follow_2pc;
DROP ROLE follow_2pc;

-- case: two sessions define in turn and commit in the other order
CREATE TABLE base (id int PRIMARY KEY);
BEGIN;
CREATE TABLE a (id int PRIMARY KEY);
INSERT INTO a VALUES (1);
-- session: 2
BEGIN;
CREATE TABLE b (id int PRIMARY KEY);
INSERT INTO b VALUES (1);
CREATE ROLE follow_second;
-- session: 1
INSERT INTO base VALUES (1);
-- session: 2
GRANT SELECT ON b TO follow_second;
COMMIT;
-- session: 1
ALTER TABLE a ADD x int;
COMMIT;
INSERT INTO a VALUES (2, 2);
-- finally
DROP OWNED BY follow_second;
DROP ROLE follow_second;

-- case: one waits for the other's definition
CREATE TABLE t (id int PRIMARY KEY, v int);
INSERT INTO t VALUES (1, 1);
BEGIN;
ALTER TABLE t ADD a int DEFAULT 5;
-- session: 2
-- background
ALTER TABLE t ADD b int DEFAULT 6;
-- session: 3
-- background
UPDATE t SET v = 2;
-- session: 1
UPDATE t SET a = 7;
COMMIT;
-- session: 2
INSERT INTO t VALUES (2, 2, 2, 2);

-- case: create if not exists by two at once
BEGIN;
CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY);
-- session: 2
-- error: 23505
-- background
CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY, other int);
-- session: 1
COMMIT;
-- session: 2
INSERT INTO t VALUES (1);

-- case: writers of an old definition beside a rename
CREATE TABLE t (id int PRIMARY KEY, v int);
-- session: 2
BEGIN;
INSERT INTO t VALUES (1, 1);
-- session: 1
-- background
ALTER TABLE t RENAME v TO w;
-- session: 2
INSERT INTO t VALUES (2, 2);
COMMIT;
-- session: 1
INSERT INTO t (id, w) VALUES (3, 3);

-- case: subtransactions by the hundred
CREATE TABLE t (id int PRIMARY KEY);
DO $$ BEGIN
  FOR i IN 1..120 LOOP
    BEGIN
      EXECUTE format('CREATE TABLE s%s (id int PRIMARY KEY)', i);
      INSERT INTO t VALUES (i);
      IF i % 3 = 0 THEN RAISE 'no'; END IF;
    EXCEPTION WHEN raise_exception THEN NULL;
    END;
  END LOOP;
END $$;
INSERT INTO s1 VALUES (1);

-- case: copy within a defining block
BEGIN;
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t SELECT g, 'x' FROM generate_series(1, 1000) g;
TRUNCATE t;
INSERT INTO t SELECT g, 'y' FROM generate_series(1, 500) g;
CREATE INDEX ON t (v);
ALTER TABLE t ADD n int DEFAULT 4;
COMMIT;
UPDATE t SET n = 5 WHERE id < 10;

-- case: read only, serializable, deferrable and isolation levels
CREATE TABLE t (id int PRIMARY KEY);
BEGIN ISOLATION LEVEL SERIALIZABLE;
ALTER TABLE t ADD a int;
CREATE TABLE u (id int PRIMARY KEY);
COMMIT;
BEGIN READ ONLY;
-- error: 25006
CREATE TABLE gone (id int);
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO t VALUES (1, 1);
ALTER TABLE t ADD b int DEFAULT 2;
CREATE TABLE c AS SELECT * FROM t;
COMMIT;
INSERT INTO t VALUES (2, 2, 2);

-- case: commit and chain
CREATE TABLE t (id int PRIMARY KEY);
BEGIN;
ALTER TABLE t ADD a int;
COMMIT AND CHAIN;
ALTER TABLE t ADD b int;
ROLLBACK AND CHAIN;
ALTER TABLE t ADD c int;
COMMIT;
INSERT INTO t VALUES (1, 2, 3);

-- case: implicit block of one string with a failing end
CREATE TABLE t (id int PRIMARY KEY);
-- error: 22012
ALTER TABLE t ADD lost int; CREATE TABLE gone (id int); SELECT 1/0;
ALTER TABLE t ADD a int; BEGIN; ALTER TABLE t ADD b int; COMMIT; ALTER TABLE t ADD c int;
INSERT INTO t VALUES (1, 2, 3, 4);

-- case: a procedure that rolls back its definitions
CREATE TABLE t (id int PRIMARY KEY);
CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN
  ALTER TABLE t ADD lost int;
  ROLLBACK;
  ALTER TABLE t ADD kept int;
  COMMIT;
  CREATE ROLE follow_lost;
  ROLLBACK;
  CREATE ROLE follow_kept;
END $$;
CALL p();
GRANT SELECT ON t TO follow_kept;
INSERT INTO t VALUES (1, 1);
-- finally
DROP OWNED BY follow_kept;
DROP ROLE follow_kept;

-- case: a long query, whose text the first note of a transaction holds, and parts of it that are rolled back
-- error: 22012
BEGIN; SAVEPOINT a; CREATE TABLE gone (id int PRIMARY KEY); /* xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx */ ROLLBACK TO a; CREATE TABLE a (id int PRIMARY KEY, v int); SAVEPOINT b; ALTER TABLE a ADD w int; ROLLBACK TO b; ALTER TABLE a ADD x int DEFAULT 7; CREATE INDEX ai ON a (x); COMMIT; CREATE TABLE b (id int PRIMARY KEY); INSERT INTO b VALUES (1); ALTER TABLE b ADD y float DEFAULT random(); SELECT 1 / 0;
CREATE TABLE c (id int PRIMARY KEY, note text DEFAULT 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'); CREATE INDEX ci ON c (note); COMMENT ON TABLE c IS 'of its own'; INSERT INTO c VALUES (1);
ALTER TABLE a ADD z text DEFAULT 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx';
INSERT INTO a VALUES (1, 2, 3);

-- case: a table is made, filled and renamed by one transaction
CREATE TABLE other (id int PRIMARY KEY);
BEGIN;
CREATE TABLE e (id int);
INSERT INTO e VALUES (5);
ALTER TABLE e RENAME TO e2;
CREATE TABLE keyed (id int PRIMARY KEY);
INSERT INTO keyed VALUES (1);
ALTER TABLE keyed RENAME TO k2;
CREATE TABLE made AS SELECT 1 AS one;
ALTER TABLE made RENAME TO m2;
ALTER TABLE other RENAME TO keyed;
INSERT INTO keyed VALUES (2);
COMMIT;
-- check
INSERT INTO e2 VALUES (6);
INSERT INTO k2 VALUES (6);
INSERT INTO m2 VALUES (6);

-- case: nobody drops or renames what an open transaction has come to use
CREATE FUNCTION f() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
CREATE FUNCTION g(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';
CREATE TYPE mood AS ENUM ('a', 'b');
CREATE DOMAIN d AS int;
CREATE TYPE level AS ENUM ('low', 'high');
CREATE SEQUENCE s;
CREATE SCHEMA follow_held;
BEGIN;
CREATE VIEW v AS SELECT f() AS f;
CREATE TABLE follow_held.h (id int PRIMARY KEY);
CREATE TABLE t (id int DEFAULT nextval('s') PRIMARY KEY, m mood, l level[], CHECK (g(id) > 0));
CREATE FUNCTION h(d) RETURNS int LANGUAGE sql AS 'SELECT 2';
-- session: 2
-- background
-- error: 2BP01
DROP FUNCTION f();
-- session: 3
-- background
ALTER FUNCTION g(int) RENAME TO g2;
-- session: 4
-- background
-- error: 2BP01
DROP TYPE mood;
-- session: 5
-- background
-- error: 2BP01
DROP DOMAIN d;
-- session: 6
-- background
-- error: 2BP01
DROP SEQUENCE s;
-- session: 7
-- background
ALTER TYPE level RENAME TO grade;
-- session: 8
-- background
ALTER SCHEMA follow_held RENAME TO follow_freed;
-- session: 1
INSERT INTO t (m) VALUES ('b');
COMMIT;
-- session: 2
SELECT 1;
-- session: 3
SELECT 1;
-- session: 4
SELECT 1;
-- session: 5
SELECT 1;
-- session: 6
SELECT 1;
-- session: 7
SELECT 1;
-- session: 8
SELECT 1;
-- session: 1
INSERT INTO t (m, l) VALUES ('a', '{low}'::grade[]);
INSERT INTO follow_freed.h VALUES (1);
-- expect: 1
SELECT f FROM v;
-- finally
DROP SCHEMA follow_freed CASCADE;

-- case: what comes to use what another transaction is dropping or renaming waits for that
CREATE FUNCTION f() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
CREATE TYPE mood AS ENUM ('a', 'b');
BEGIN;
DROP FUNCTION f();
ALTER TYPE mood RENAME TO temper;
-- session: 2
-- background
-- error: 40001
CREATE VIEW v AS SELECT f() AS f;
-- session: 3
-- background
-- error: 40001
CREATE TABLE t (id int PRIMARY KEY, m mood);
-- session: 4
BEGIN;
-- background
-- error: 40001
CREATE VIEW w AS SELECT f() AS f;
-- session: 1
COMMIT;
-- session: 2
SELECT 1;
-- session: 3
CREATE TABLE t (id int PRIMARY KEY, m temper);
INSERT INTO t VALUES (1, 'a');
-- session: 4
ROLLBACK;

-- case: what comes to use what isn't dropped after all goes on
CREATE FUNCTION f() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
BEGIN;
DROP FUNCTION f();
-- session: 2
-- background
CREATE VIEW v AS SELECT f() AS f;
-- session: 1
ROLLBACK;
-- session: 2
-- expect: 1
SELECT f FROM v;

-- case: nobody changes what the values of an open transaction are made of
CREATE TYPE inner_c AS (a int);
CREATE TYPE c AS (i inner_c);
CREATE TYPE e AS ENUM ('a', 'b');
CREATE TABLE r (id int PRIMARY KEY, a int);
CREATE TABLE old (id int PRIMARY KEY);
BEGIN;
CREATE TABLE new (id int PRIMARY KEY, c c[], e e, r r);
INSERT INTO new VALUES (1, ARRAY[ROW(ROW(1))::c], 'a', ROW(1, 2));
ALTER TABLE old ADD c c;
INSERT INTO old VALUES (1, ROW(ROW(1)));
-- session: 2
-- background
ALTER TYPE inner_c ADD ATTRIBUTE b int, DROP ATTRIBUTE a;
-- session: 3
-- background
ALTER TABLE r DROP COLUMN a, ADD a int;
-- session: 4
BEGIN;
-- background
ALTER TYPE e RENAME VALUE 'a' TO 't';
-- session: 1
COMMIT;
-- session: 2
SELECT 1;
-- session: 3
SELECT 1;
-- session: 4
ALTER TYPE e RENAME VALUE 'b' TO 'a';
ALTER TYPE e RENAME VALUE 't' TO 'b';
COMMIT;
-- session: 1
INSERT INTO new VALUES (2, ARRAY[ROW(ROW(1))::c], 'a', ROW(1, 2));

-- case: what comes to use a type that another transaction is changing waits for that
CREATE TYPE c AS (a int);
CREATE TYPE d AS (a int);
CREATE TYPE e AS ENUM ('a', 'b');
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
BEGIN;
ALTER TYPE c ADD ATTRIBUTE b int;
ALTER TYPE d RENAME ATTRIBUTE a TO b;
ALTER TYPE e RENAME VALUE 'a' TO 't';
DROP FUNCTION f();
-- session: 2
-- background
CREATE TABLE t2 (id int PRIMARY KEY, c c);
-- session: 3
-- background
-- error: 40001
CREATE TABLE t3 (id int PRIMARY KEY, e e DEFAULT 'a');
-- session: 4
-- background
-- error: 42703
CREATE VIEW v AS SELECT (NULL::d).a;
-- session: 5
SET lock_timeout = '100ms';
-- error: 55P03
CREATE VIEW v AS SELECT f();
-- session: 1
COMMIT;
-- session: 4
SELECT 1;
-- session: 2
INSERT INTO t2 VALUES (1, ROW(1, 2));
-- session: 3
CREATE TABLE t3 (id int PRIMARY KEY, e e DEFAULT 't');

-- case: what a command names keeps its name until the transaction ends
CREATE SCHEMA follow_kept;
CREATE VIEW follow_kept.v AS SELECT 1 AS one;
CREATE TABLE follow_kept.t (id int PRIMARY KEY, a int);
CREATE SCHEMA follow_used;
CREATE FUNCTION follow_used.f() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE TYPE t1 AS ENUM ('a');
CREATE TYPE t2 AS ENUM ('a');
CREATE TYPE t3 AS ENUM ('a');
CREATE FUNCTION f(t1) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION g(t2) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION compare(int, int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1 - $2';
CREATE TABLE rc (id int PRIMARY KEY);
CREATE TABLE rt (a int PRIMARY KEY);
BEGIN;
DROP VIEW follow_kept.v;
CREATE INDEX ON follow_kept.t (a);
ALTER FUNCTION follow_used.f() STABLE;
ALTER FUNCTION f(t1) STABLE;
DROP FUNCTION g(t2);
COMMENT ON TYPE t3 IS 'three';
CREATE OPERATOR CLASS kept FOR TYPE int USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 compare(int, int);
CREATE TABLE t (id int PRIMARY KEY, x regclass DEFAULT 'rc'::regclass);
CREATE FUNCTION takes(x rt) RETURNS int LANGUAGE sql AS 'SELECT x.a';
-- session: 2
-- background
ALTER SCHEMA follow_kept RENAME TO follow_other;
-- session: 3
-- background
ALTER SCHEMA follow_used RENAME TO follow_unused;
-- session: 4
-- background
ALTER TYPE t1 RENAME TO u1;
-- session: 5
-- background
ALTER TYPE t2 RENAME TO u2;
-- session: 6
-- background
ALTER TYPE t3 RENAME TO u3;
-- session: 7
-- background
ALTER FUNCTION compare(int, int) RENAME TO difference;
-- session: 8
-- background
ALTER TABLE rc RENAME TO rc2;
-- session: 9
-- background
ALTER TABLE rt RENAME a TO aa;
-- session: 1
COMMIT;
-- session: 2
SELECT 1;
-- session: 3
SELECT 1;
-- session: 4
SELECT 1;
-- session: 5
SELECT 1;
-- session: 6
SELECT 1;
-- session: 7
SELECT 1;
-- session: 8
SELECT 1;
-- session: 9
SELECT 1;
-- session: 1
CREATE VIEW follow_other.v AS SELECT 2 AS two;
-- finally
DROP SCHEMA follow_other, follow_unused CASCADE;

-- case: the role of an open transaction's commands, their owners and who has rights on them can't get another name
CREATE ROLE follow_by;
CREATE ROLE follow_owner;
CREATE ROLE follow_reader;
CREATE ROLE follow_policy;
GRANT ALL ON SCHEMA :schema TO follow_by;
CREATE TABLE t (id int PRIMARY KEY);
CREATE TABLE dropped (id int PRIMARY KEY);
CREATE TABLE p (id int PRIMARY KEY);
ALTER TABLE dropped OWNER TO follow_by;
BEGIN;
ALTER TABLE t OWNER TO follow_owner;
GRANT SELECT ON t TO follow_reader;
CREATE POLICY mine ON p TO follow_policy;
SET LOCAL ROLE follow_by;
DROP TABLE dropped;
-- session: 2
-- background
ALTER ROLE follow_by RENAME TO follow_by2;
-- session: 3
-- background
ALTER ROLE follow_owner RENAME TO follow_owner2;
-- session: 4
-- background
ALTER ROLE follow_reader RENAME TO follow_reader2;
-- session: 5
-- background
ALTER ROLE follow_policy RENAME TO follow_policy2;
-- session: 6
ALTER ROLE follow_by SET work_mem = '5MB';
-- session: 1
COMMIT;
-- session: 2
SELECT 1;
-- session: 3
SELECT 1;
-- session: 4
SELECT 1;
-- session: 5
SELECT 1;
-- session: 1
INSERT INTO t VALUES (1);
-- finally
DROP POLICY mine ON p;
DROP OWNED BY follow_by2, follow_owner2, follow_reader2, follow_policy2;
DROP ROLE follow_by2, follow_owner2, follow_reader2, follow_policy2;
