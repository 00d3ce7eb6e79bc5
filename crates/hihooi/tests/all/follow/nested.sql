-- Commands within commands: DO, functions, procedures, triggers, strings of several commands.

-- case: DO with static commands
DO $$ BEGIN
  CREATE TABLE t (id int PRIMARY KEY, v text);
  INSERT INTO t VALUES (1, 'a');
  ALTER TABLE t ADD COLUMN n int DEFAULT 3;
  UPDATE t SET n = 4;
  CREATE INDEX ON t (v);
END $$;
INSERT INTO t VALUES (2, 'b', 5);

-- case: DO with EXECUTE format in a loop
DO $$ BEGIN
  FOR i IN 1..5 LOOP
    EXECUTE format('CREATE TABLE %I (id int PRIMARY KEY, v text DEFAULT %L)', 'part ' || i, 'it''s ' || i);
    EXECUTE format('INSERT INTO %I VALUES (%s)', 'part ' || i, i);
  END LOOP;
END $$;
INSERT INTO "part 3" VALUES (10);

-- case: DO with several commands in one string
DO $$ BEGIN
  EXECUTE 'CREATE TABLE a (id int PRIMARY KEY); CREATE INDEX ai ON a (id); INSERT INTO a VALUES (1); ALTER TABLE a ADD b int DEFAULT 2; CREATE TABLE c AS SELECT * FROM a';
END $$;
INSERT INTO a VALUES (2, 3);
INSERT INTO c VALUES (2, 3);

-- case: several equal commands in one string
DO $$ BEGIN
  EXECUTE 'CREATE TABLE a (id int); DROP TABLE a; CREATE TABLE a (id int); DROP TABLE a; CREATE TABLE a (id int PRIMARY KEY)';
  EXECUTE 'CREATE TABLE IF NOT EXISTS a (id int); CREATE TABLE IF NOT EXISTS b (id int); ALTER TABLE a ADD x int';
END $$;
INSERT INTO a VALUES (1, 1);

-- case: several commands in one string, some temporary
DO $$ BEGIN
  EXECUTE 'CREATE TEMP TABLE tt (id int); CREATE TABLE r (id int PRIMARY KEY); DROP TABLE tt; ALTER TABLE r ADD x int; CREATE TEMP TABLE r (id int); ALTER TABLE r ADD y int';
END $$;
INSERT INTO :schema.r VALUES (1, 1);

-- case: several commands in one string that end in an error that is caught
DO $$ BEGIN
  BEGIN
    EXECUTE 'CREATE TABLE gone (id int); SELECT 1/0';
  EXCEPTION WHEN division_by_zero THEN
    CREATE TABLE kept (id int PRIMARY KEY);
  END;
  CREATE TABLE gone (other text);
END $$;
INSERT INTO gone VALUES ('x');
INSERT INTO kept VALUES (1);

-- case: function of plpgsql
CREATE FUNCTION f(name text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
  EXECUTE format('CREATE TABLE %I (id int PRIMARY KEY, at timestamptz DEFAULT now())', name);
  EXECUTE format('INSERT INTO %I VALUES (1)', name);
END $$;
SELECT f('one');
SELECT f('two'), f('three');
SELECT f(n) FROM (VALUES ('four'), ('five')) v(n);
INSERT INTO one VALUES (2);
INSERT INTO five VALUES (2);

-- case: function of sql
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS $$
  CREATE TABLE a (id int PRIMARY KEY);
  CREATE INDEX ai ON a (id);
  ALTER TABLE a ADD n int DEFAULT 1;
  SELECT 1;
$$;
SELECT f();
INSERT INTO a VALUES (1, 2);

-- case: function of sql with arguments, temporary and real
CREATE FUNCTION f(x int) RETURNS int LANGUAGE sql AS $$
  CREATE TEMP TABLE tmp (id int);
  CREATE TABLE real (id int PRIMARY KEY);
  DROP TABLE IF EXISTS tmp;
  COMMENT ON TABLE real IS 'x';
  GRANT SELECT ON real TO PUBLIC;
  SELECT 1;
$$;
SELECT f(5);
INSERT INTO real VALUES (1);

-- case: function of sql with a body in quotes and comments
CREATE FUNCTION f() RETURNS void LANGUAGE sql AS '
  -- a comment; with a semicolon
  CREATE TABLE a (id int PRIMARY KEY, v text DEFAULT ''it''''s; here'') /* another; one */;
  CREATE VIEW v AS SELECT * FROM a;
';
SELECT f();
INSERT INTO a VALUES (1);

-- case: overloaded functions of sql in two schemas
CREATE SCHEMA follow_other;
CREATE FUNCTION f(int) RETURNS void LANGUAGE sql AS 'CREATE TABLE a_int (id int PRIMARY KEY)';
CREATE FUNCTION f(text) RETURNS void LANGUAGE sql AS 'CREATE TABLE a_text (id int PRIMARY KEY)';
CREATE FUNCTION follow_other.f(int) RETURNS void LANGUAGE sql AS 'CREATE TABLE a_other (id int PRIMARY KEY)';
-- error: 0A000
SELECT f(1);
-- error: 0A000
SELECT follow_other.f(1);
CREATE OR REPLACE FUNCTION follow_other.f(int) RETURNS void LANGUAGE plpgsql AS 'BEGIN CREATE TABLE a_other (id int PRIMARY KEY); END';
SELECT follow_other.f(1);
DROP FUNCTION f(int);
CREATE FUNCTION follow_other.f(text) RETURNS void LANGUAGE sql AS 'CREATE TABLE a_text (id int PRIMARY KEY)';
SELECT f('x');
INSERT INTO a_text VALUES (1);
INSERT INTO a_other VALUES (1);
DROP SCHEMA follow_other CASCADE;

-- case: functions in functions
CREATE FUNCTION one(n int) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('CREATE TABLE t%s (id int PRIMARY KEY)', n); END $$;
CREATE FUNCTION two(n int) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM one(n); ALTER TABLE base ADD COLUMN x int; PERFORM one(n + 1); END $$;
CREATE TABLE base (id int PRIMARY KEY);
DO $$ BEGIN PERFORM two(1); END $$;
INSERT INTO t1 VALUES (1);
INSERT INTO t2 VALUES (1);
INSERT INTO base VALUES (1, 1);

-- case: recursion
CREATE FUNCTION r(n int) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
  EXECUTE format('CREATE TABLE t%s (id int PRIMARY KEY)', n);
  IF n > 0 THEN PERFORM r(n - 1); END IF;
  EXECUTE format('ALTER TABLE t%s ADD x int', n);
END $$;
SELECT r(3);
INSERT INTO t0 VALUES (1, 1);
INSERT INTO t3 VALUES (1, 1);

-- case: procedure that commits
CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN
  CREATE TABLE a (id int PRIMARY KEY);
  INSERT INTO a VALUES (1);
  COMMIT;
  CREATE TABLE b (id int PRIMARY KEY);
  ROLLBACK;
  ALTER TABLE a ADD x int;
  COMMIT;
  CREATE TABLE c (id int PRIMARY KEY);
END $$;
CALL p();
INSERT INTO a VALUES (2, 2);
INSERT INTO c VALUES (2);

-- case: DO that commits
DO $$ BEGIN
  CREATE TABLE a (id int PRIMARY KEY);
  COMMIT;
  FOR i IN 1..3 LOOP
    INSERT INTO a VALUES (i);
    EXECUTE format('CREATE TABLE a%s (id int PRIMARY KEY)', i);
    IF i = 2 THEN ROLLBACK; ELSE COMMIT; END IF;
  END LOOP;
END $$;
INSERT INTO a3 VALUES (1);

-- case: procedure of sql
CREATE PROCEDURE p(n int) LANGUAGE sql AS $$ CREATE TABLE a (id int PRIMARY KEY); ALTER TABLE a ADD x int $$;
CALL p(1);
INSERT INTO a VALUES (2, 2);

-- case: trigger that defines
CREATE TABLE tenants (name text PRIMARY KEY);
CREATE FUNCTION make() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  EXECUTE format('CREATE TABLE %I (id int PRIMARY KEY)', 'tenant_' || NEW.name);
  EXECUTE format('INSERT INTO %I VALUES (1)', 'tenant_' || NEW.name);
  RETURN NEW;
END $$;
CREATE TRIGGER tr BEFORE INSERT ON tenants FOR EACH ROW EXECUTE FUNCTION make();
INSERT INTO tenants VALUES ('a'), ('b');
COMMENT ON TABLE tenant_a IS 'x';
INSERT INTO tenant_b VALUES (2);

-- case: deferred constraint trigger that defines at commit
CREATE TABLE t (id int PRIMARY KEY);
CREATE FUNCTION make() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  EXECUTE format('CREATE TABLE %I (id int PRIMARY KEY)', 'late_' || NEW.id);
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER tr AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION make();
BEGIN;
INSERT INTO t VALUES (1);
INSERT INTO t VALUES (2);
COMMIT;
INSERT INTO t VALUES (3);
INSERT INTO late_1 VALUES (1);
INSERT INTO late_3 VALUES (1);

-- case: partition made by a function, then filled
CREATE TABLE p (id int, k date) PARTITION BY RANGE (k);
CREATE FUNCTION ensure(d date) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
  EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF p FOR VALUES FROM (%L) TO (%L)', 'p_' || to_char(d, 'YYYYMM'), d, (d + interval '1 month')::date);
END $$;
DO $$ BEGIN PERFORM ensure(date '2026-01-01'); INSERT INTO p VALUES (1, '2026-01-05'); PERFORM ensure(date '2026-01-01'); END $$;
INSERT INTO p VALUES (2, '2026-01-06');

-- case: caught exception undoes a definition
CREATE TABLE t (id int PRIMARY KEY);
DO $$ BEGIN
  BEGIN
    ALTER TABLE t ADD lost int;
    CREATE TABLE gone (id int);
    RAISE EXCEPTION 'no';
  EXCEPTION WHEN OTHERS THEN
    ALTER TABLE t ADD kept int;
  END;
  BEGIN
    ALTER TABLE t ADD kept int;
  EXCEPTION WHEN duplicate_column THEN
    NULL;
  END;
END $$;
INSERT INTO t VALUES (1, 2);

-- case: an error undoes all of it
CREATE TABLE t (id int PRIMARY KEY);
-- error: P0001
DO $$ BEGIN ALTER TABLE t ADD lost int; CREATE TABLE gone (id int); RAISE EXCEPTION 'no'; END $$;
INSERT INTO t VALUES (1);

-- case: random and clock decide what is made
DO $$ DECLARE n int := 1 + floor(random() * 1000000)::int; BEGIN
  EXECUTE format('CREATE TABLE t_%s (id int PRIMARY KEY, v int DEFAULT %s)', n, n);
  EXECUTE format('INSERT INTO t_%s VALUES (1)', n);
  EXECUTE format('CREATE TABLE %I (id int)', 'at_' || extract(epoch FROM clock_timestamp()) || pg_backend_pid());
  EXECUTE format('CREATE TABLE %I (id int)', gen_random_uuid());
END $$;
CREATE TABLE last (id int PRIMARY KEY);
INSERT INTO last VALUES (1);

-- case: names from sequences and catalogs
CREATE SEQUENCE s START 40;
CREATE TABLE base (id int PRIMARY KEY);
DO $$ DECLARE r record; BEGIN
  EXECUTE 'CREATE TABLE n' || nextval('s') || ' (id int)';
  EXECUTE 'CREATE TABLE n' || nextval('s') || ' (id int)';
  FOR r IN SELECT relname FROM pg_class WHERE relnamespace = ':schema'::regnamespace AND relkind = 'r' ORDER BY oid LOOP
    EXECUTE format('ALTER TABLE %I ADD seen int', r.relname);
  END LOOP;
  EXECUTE 'COMMENT ON TABLE base IS ' || quote_literal((SELECT oid::text FROM pg_class WHERE relname = 'base' LIMIT 1));
END $$;
INSERT INTO n40 VALUES (1, 1);

-- case: set search_path within DO and functions
CREATE SCHEMA follow_path;
DO $$ BEGIN
  CREATE TABLE here (id int PRIMARY KEY);
  SET search_path = follow_path;
  CREATE TABLE there (id int PRIMARY KEY);
  PERFORM set_config('search_path', ':schema', false);
  CREATE TABLE back (id int PRIMARY KEY);
END $$;
CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql SET search_path = follow_path AS $$ BEGIN CREATE TABLE own (id int PRIMARY KEY); ALTER TABLE there ADD x int; END $$;
SELECT f();
INSERT INTO follow_path.own VALUES (1);
INSERT INTO follow_path.there VALUES (1, 1);
INSERT INTO back VALUES (1);
-- finally
DROP SCHEMA follow_path CASCADE;

-- case: security definer defines as its owner
CREATE ROLE follow_joe LOGIN;
GRANT USAGE ON SCHEMA :schema TO follow_joe;
CREATE TABLE base (id int PRIMARY KEY);
CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN CREATE TABLE :schema.made (id int PRIMARY KEY); ALTER TABLE :schema.base ADD x int; GRANT ALL ON :schema.made TO follow_joe; END $$;
-- as: follow_joe
SELECT f();
INSERT INTO made VALUES (1);
-- finally
-- as: postgres
DROP OWNED BY follow_joe;
DROP ROLE follow_joe;

-- case: security definer of an ordinary role called by the superuser
CREATE ROLE follow_joe LOGIN;
GRANT USAGE, CREATE ON SCHEMA :schema TO follow_joe;
-- as: follow_joe
CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN CREATE TABLE :schema.made (id int PRIMARY KEY); END $$;
CREATE FUNCTION g() RETURNS void LANGUAGE sql SECURITY DEFINER AS 'CREATE TABLE :schema.made2 (id int PRIMARY KEY)';
-- as: postgres
SELECT f(), g();
INSERT INTO made VALUES (1);
INSERT INTO made2 VALUES (1);
-- finally
DROP OWNED BY follow_joe;
DROP ROLE follow_joe;

-- case: set role within DO
CREATE ROLE follow_joe;
GRANT USAGE, CREATE ON SCHEMA :schema TO follow_joe;
DO $$ BEGIN
  CREATE TABLE mine (id int PRIMARY KEY);
  SET ROLE follow_joe;
  CREATE TABLE his (id int PRIMARY KEY);
  RESET ROLE;
  CREATE TABLE mine2 (id int PRIMARY KEY);
  SET LOCAL ROLE follow_joe;
  CREATE VIEW his_view AS SELECT * FROM his;
END $$;
INSERT INTO his VALUES (1);
-- finally
DROP OWNED BY follow_joe;
DROP ROLE follow_joe;

-- case: definitions between rows of one DO
CREATE TABLE t (id int PRIMARY KEY, a int);
INSERT INTO t VALUES (1, 1);
DO $$ BEGIN
  UPDATE t SET a = 2;
  ALTER TABLE t RENAME a TO b;
  UPDATE t SET b = b + 1;
  ALTER TABLE t ALTER b TYPE text;
  UPDATE t SET b = b || 'x';
  ALTER TABLE t DROP COLUMN b;
  ALTER TABLE t ADD c float8 DEFAULT random();
  UPDATE t SET c = c + 1;
  DROP TABLE t;
  CREATE TABLE t (other text PRIMARY KEY);
  INSERT INTO t VALUES ('new');
END $$;
INSERT INTO t VALUES ('more');

-- case: called by SELECT, INSERT, UPDATE, VALUES, EXECUTE, cursors, COPY
CREATE FUNCTION f(n text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('CREATE TABLE %I (id int PRIMARY KEY)', n); RETURN 1; END $$;
CREATE TABLE t (id int);
INSERT INTO t VALUES (f('by_insert'));
UPDATE t SET id = f('by_update');
DELETE FROM t WHERE id = f('by_delete');
VALUES (f('by_values'));
PREPARE p AS SELECT f('by_execute');
EXECUTE p;
BEGIN;
DECLARE c CURSOR FOR SELECT f('by_cursor');
FETCH c;
COMMIT;
COPY (SELECT f('by_copy')) TO STDOUT;
EXPLAIN ANALYZE SELECT f('by_explain');
-- extended
-- params: by_extended
SELECT f($1);
CREATE VIEW v AS SELECT f('by_view') AS x;
SELECT * FROM v;
INSERT INTO by_copy VALUES (1);
INSERT INTO by_view VALUES (1);

-- case: called by a default, a check, a rule
CREATE FUNCTION f(n text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('CREATE TABLE IF NOT EXISTS %I (id int PRIMARY KEY)', n); RETURN 1; END $$;
CREATE TABLE d (id int PRIMARY KEY, x int DEFAULT f('by_default'));
INSERT INTO d (id) VALUES (1);
CREATE TABLE r (id int PRIMARY KEY);
CREATE RULE ru AS ON INSERT TO r DO ALSO SELECT f('by_rule');
INSERT INTO r VALUES (1);
INSERT INTO by_default VALUES (1);
INSERT INTO by_rule VALUES (1);

-- case: everything in one DO
DO $$ BEGIN
  CREATE TYPE mood AS ENUM ('a', 'b');
  CREATE DOMAIN pos AS int CHECK (VALUE > 0);
  CREATE SEQUENCE s INCREMENT 3;
  CREATE TABLE t (id pos PRIMARY KEY, m mood);
  CREATE VIEW v AS SELECT * FROM t;
  CREATE MATERIALIZED VIEW mv AS SELECT 1 AS x;
  CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
  CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f();
  CREATE POLICY p ON t USING (true);
  ALTER TABLE t ENABLE ROW LEVEL SECURITY;
  CREATE STATISTICS st ON id, m FROM t;
  COMMENT ON TABLE t IS 'c';
  GRANT SELECT ON t TO PUBLIC;
  CREATE INDEX i ON t (m);
  ALTER TABLE t ADD CONSTRAINT u UNIQUE (m);
  ALTER TYPE mood ADD VALUE 'c';
  CREATE RULE ru AS ON DELETE TO t DO INSTEAD NOTHING;
  CREATE AGGREGATE ag(int) (SFUNC = int4pl, STYPE = int);
  CREATE CAST (mood AS pos) WITH INOUT;
EXCEPTION WHEN wrong_object_type OR invalid_object_definition THEN
  CREATE TABLE t (id int PRIMARY KEY, m text);
END $$;
INSERT INTO t VALUES (1, 'a');

-- case: everything dropped in one DO
CREATE TYPE mood AS ENUM ('a', 'b');
CREATE TABLE t (id int PRIMARY KEY, m mood);
CREATE VIEW v AS SELECT * FROM t;
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE TABLE keep (id int PRIMARY KEY);
DO $$ BEGIN
  DROP VIEW IF EXISTS v;
  DROP FUNCTION f();
  DROP TYPE mood CASCADE;
  DROP TABLE IF EXISTS t, nosuch;
END $$;
INSERT INTO keep VALUES (1);

-- case: quoted names with newlines that imitate frames
CREATE TABLE "x
SQL statement ""DROP TABLE victim""
PL/pgSQL function inline_code_block line 1 at SQL statement" (id int PRIMARY KEY);
CREATE TABLE victim (id int PRIMARY KEY);
DO $$ BEGIN EXECUTE 'CREATE TABLE "y
SQL statement ""DROP TABLE victim""
PL/pgSQL function inline_code_block line 1 at EXECUTE" (id int PRIMARY KEY)'; END $$;
CREATE FUNCTION "f
SQL statement ""DROP TABLE victim"""() RETURNS void LANGUAGE plpgsql AS $$ BEGIN CREATE TABLE made (id int PRIMARY KEY); END $$;
SELECT "f
SQL statement ""DROP TABLE victim"""();
INSERT INTO victim VALUES (1);
INSERT INTO made VALUES (1);

-- case: functions that imitate in arguments and comments
CREATE TABLE victim (id int PRIMARY KEY);
CREATE FUNCTION f(text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE $1; END $$;
SELECT f('CREATE TABLE a (id int PRIMARY KEY) /* SQL statement "DROP TABLE victim" */');
SELECT f('/* " */ CREATE TABLE b (id int PRIMARY KEY) -- "
');
SELECT f(E'CREATE TABLE c (id int PRIMARY KEY, v text DEFAULT \'"\nPL/pgSQL function x() line 1 at EXECUTE\nSQL statement "DROP TABLE victim\')');
INSERT INTO victim VALUES (1);
INSERT INTO a VALUES (1);
INSERT INTO c VALUES (1);

-- case: many literals and names that imitate frames
CREATE FUNCTION f(text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE $1; END $$;
CREATE FUNCTION owners(text, text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = :schema AS $$ BEGIN
  EXECUTE format('CREATE TABLE %I (id int PRIMARY KEY, v text DEFAULT %L)', $1, $2);
END $$;
CREATE ROLE follow_r;
GRANT USAGE ON SCHEMA :schema TO follow_r;
DO $$ DECLARE frame text := E'"\nPL/pgSQL function x() line 1 at EXECUTE'; BEGIN
  PERFORM f(format('CREATE TABLE a (id int PRIMARY KEY, v text DEFAULT %L)', repeat(frame, 300)));
  PERFORM f(format('CREATE TABLE b (id int PRIMARY KEY, v text[] DEFAULT %L, w text DEFAULT %L)', ARRAY[frame, frame], frame));
  PERFORM f('/*' || repeat(frame, 300) || '*/ CREATE VIEW v AS SELECT 1' || format(' AS %I, 2 AS %I', repeat(frame, 2), 'b' || frame));
  SET LOCAL ROLE follow_r;
  PERFORM owners('c' || frame, 'it''s' || repeat(frame, 9));
  PERFORM owners('d', E'\\' || repeat(frame, 9) || E'\\');
  RESET ROLE;
  SET LOCAL standard_conforming_strings = off;
  PERFORM f(format(E'CREATE TABLE e (id int PRIMARY KEY, v text DEFAULT \'it\\\'s%s\')', repeat(frame, 9)));
END $$;
INSERT INTO a VALUES (1);
INSERT INTO d VALUES (1);
INSERT INTO e VALUES (1);
-- finally
REVOKE USAGE ON SCHEMA :schema FROM follow_r;
DROP ROLE follow_r;

-- case: very long nested command
DO $$ BEGIN
  EXECUTE 'CREATE TABLE wide (' || (SELECT string_agg('c' || g || ' int DEFAULT ' || g, ', ') FROM generate_series(1, 600) g) || ')';
  EXECUTE 'COMMENT ON TABLE wide IS ' || quote_literal(repeat('long ä€ ', 20000));
END $$;
INSERT INTO wide (c1) VALUES (1);

-- case: many commands in one transaction
DO $$ BEGIN
  FOR i IN 1..150 LOOP
    EXECUTE format('CREATE TABLE m%s (id int PRIMARY KEY)', i);
    EXECUTE format('INSERT INTO m%s VALUES (%s)', i, i);
  END LOOP;
END $$;
INSERT INTO m150 VALUES (1);

-- case: lastval isn't disturbed
CREATE TABLE t (id serial PRIMARY KEY);
BEGIN;
INSERT INTO t DEFAULT VALUES;
CREATE TABLE u (id int PRIMARY KEY);
DO $$ BEGIN CREATE TABLE w (id int PRIMARY KEY); IF lastval() <> 1 THEN RAISE 'lastval is %', lastval(); END IF; END $$;
DO $$ BEGIN IF lastval() <> 1 THEN RAISE 'lastval is %', lastval(); END IF; END $$;
COMMIT;
INSERT INTO u VALUES (1);

-- case: found and row counts aren't disturbed
DO $$ DECLARE n int; BEGIN
  CREATE TABLE t AS SELECT generate_series(1, 5) AS id;
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n <> 5 THEN RAISE 'row count is %', n; END IF;
  UPDATE t SET id = id + 1;
  IF NOT FOUND THEN RAISE 'not found'; END IF;
END $$;
INSERT INTO t VALUES (100);

-- case: a function redefined within the function that runs
CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
  CREATE TABLE first_body (id int PRIMARY KEY);
  EXECUTE 'CREATE OR REPLACE FUNCTION f() RETURNS void LANGUAGE plpgsql AS ''BEGIN CREATE TABLE second_body (id int PRIMARY KEY); END''';
END $$;
SELECT f();
SELECT f();
INSERT INTO second_body VALUES (1);

-- case: DO in another quoting and language clause
DO LANGUAGE plpgsql 'BEGIN CREATE TABLE a (id int PRIMARY KEY, v text DEFAULT ''x''); END';
DO E'BEGIN\nCREATE TABLE b (id int PRIMARY KEY, v text DEFAULT \'x\');\nEND';
DO $body$ BEGIN CREATE TABLE c (id int PRIMARY KEY, v text DEFAULT $$x$$); END $body$ LANGUAGE plpgsql;
INSERT INTO a VALUES (1);
INSERT INTO b VALUES (1);
INSERT INTO c VALUES (1);

-- case: dblink-like second connection isn't needed for a nested grant and default privileges
CREATE ROLE follow_joe;
DO $$ BEGIN
  GRANT USAGE ON SCHEMA :schema TO follow_joe;
  ALTER DEFAULT PRIVILEGES IN SCHEMA :schema GRANT SELECT ON TABLES TO follow_joe;
  CREATE TABLE t (id int PRIMARY KEY);
  GRANT UPDATE (id) ON t TO follow_joe;
  REVOKE SELECT ON t FROM follow_joe;
END $$;
INSERT INTO t VALUES (1);
-- finally
DROP OWNED BY follow_joe;
DROP ROLE follow_joe;

-- case: serializable transactions define beside each other
CREATE TABLE a (id int PRIMARY KEY);
CREATE TABLE b (id int);
-- direct
VACUUM ANALYZE hihooi.note, hihooi.rewrite;
-- through
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) FROM a;
DROP TABLE b;
-- session: 2
BEGIN ISOLATION LEVEL SERIALIZABLE;
CREATE TABLE c (id int PRIMARY KEY);
ALTER TABLE c ADD v int DEFAULT 1;
DROP TABLE c;
CREATE TABLE d (id int PRIMARY KEY);
COMMIT;
-- session: 1
CREATE TABLE e (id int PRIMARY KEY);
ALTER TABLE e ADD v text;
DROP TABLE a;
COMMIT;
INSERT INTO e VALUES (1, 'x');

-- case: a function in SQL that changes itself in front of its DDL
CREATE FUNCTION replaced() RETURNS void LANGUAGE sql AS $$
  CREATE OR REPLACE FUNCTION replaced() RETURNS void LANGUAGE sql AS 'SELECT';
  CREATE TABLE a (id int PRIMARY KEY);
$$;
CREATE FUNCTION renamed() RETURNS void LANGUAGE sql AS $$
  ALTER FUNCTION renamed() RENAME TO other;
  CREATE TABLE b (id int PRIMARY KEY);
$$;
CREATE FUNCTION renamed(int) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION by_another() RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'DROP FUNCTION dropped()'; END $$;
CREATE FUNCTION dropped() RETURNS void LANGUAGE sql AS $$
  SELECT by_another();
  CREATE TABLE c (id int PRIMARY KEY);
$$;
SELECT replaced();
SELECT renamed();
SELECT dropped();
INSERT INTO a VALUES (1);
INSERT INTO b VALUES (1);
INSERT INTO c VALUES (1);

-- case: a function in SQL that puts other DDL in its own place
CREATE FUNCTION f() RETURNS void LANGUAGE sql AS $$
  CREATE OR REPLACE FUNCTION f() RETURNS void LANGUAGE sql AS 'SELECT; CREATE TABLE b (id int PRIMARY KEY)';
  CREATE TABLE a (id int PRIMARY KEY);
$$;
-- refused
SELECT f();

-- case: what no event tells of while nobody counts
CREATE ROLE follow_a;
CREATE ROLE follow_b;
CREATE TABLE t (id int PRIMARY KEY);
ALTER TABLE t OWNER TO follow_a;
SET track_counts = off;
BEGIN;
REASSIGN OWNED BY follow_a TO follow_b;
ALTER TABLE t ADD v int;
COMMIT;
-- check
BEGIN;
REASSIGN OWNED BY follow_b TO follow_a;
COMMIT;
REASSIGN OWNED BY follow_a TO follow_b;
-- check
DO $$ BEGIN EXECUTE 'EXPLAIN ANALYZE CREATE TABLE c AS SELECT 1 AS a'; CREATE ROLE follow_x; GRANT follow_a TO follow_x; END $$;
INSERT INTO c VALUES (2);
-- check
EXPLAIN ANALYZE SELECT 1 AS a INTO d;
INSERT INTO d VALUES (2);
DO $$ BEGIN ALTER ROLE follow_x SET work_mem = '1MB'; CREATE TABLE k (a int); INSERT INTO k VALUES (1); END $$;
UPDATE k SET a = 2;
SET track_counts = on;
UPDATE c SET a = 3;
-- finally
DROP OWNED BY follow_a, follow_b, follow_x;
DROP ROLE follow_a, follow_b, follow_x;
