-- What tried to get at other roles' rights, or stopped replicas: found by attacking.

-- case: a cast of one's own runs with one's own rights when rows travel
CREATE ROLE follow_joe;
GRANT ALL ON SCHEMA :schema TO follow_joe;
SET ROLE follow_joe;
CREATE TYPE mood AS ENUM ('a', 'b');
CREATE FUNCTION evil(mood) RETURNS text LANGUAGE plpgsql AS $$ BEGIN BEGIN EXECUTE 'ALTER ROLE follow_joe SUPERUSER'; EXCEPTION WHEN OTHERS THEN NULL; END; RETURN 'b'; END $$;
CREATE CAST (mood AS text) WITH FUNCTION evil(mood);
CREATE TABLE t (id int PRIMARY KEY, m mood);
INSERT INTO t VALUES (1, 'a'), (2, NULL);
ALTER TABLE t ALTER id TYPE bigint;
CREATE TABLE k (m mood, j json, n int);
INSERT INTO k VALUES ('a', '{"x": 1}', 1);
UPDATE k SET n = 2;
DELETE FROM k;
CREATE MATERIALIZED VIEW m AS SELECT * FROM t;
RESET ROLE;
CREATE TABLE su (m mood, j json, n int);
INSERT INTO su VALUES ('a', '{"x": 1}', 1), ('b', NULL, 1);
UPDATE su SET n = 2;
SELECT 1 / (CASE WHEN rolsuper THEN 0 ELSE 1 END) FROM pg_roles WHERE rolname = 'follow_joe';
-- check
DROP OWNED BY follow_joe CASCADE;
DROP ROLE follow_joe;

-- case: a client for which no array has NULLs
CREATE ROLE follow_joe;
GRANT ALL ON SCHEMA :schema TO follow_joe;
SET ROLE follow_joe;
SET array_nulls = off;
CREATE TABLE n (a int PRIMARY KEY);
INSERT INTO n VALUES (1);
ALTER TABLE n ADD c float DEFAULT random();
RESET array_nulls;
RESET ROLE;
CREATE TABLE g (g int GENERATED ALWAYS AS (3) STORED);
INSERT INTO g DEFAULT VALUES;
UPDATE g SET g = DEFAULT;
DELETE FROM g;
DROP OWNED BY follow_joe CASCADE;
DROP ROLE follow_joe;

-- case: SQL functions of one name
CREATE ROLE follow_joe;
GRANT ALL ON SCHEMA :schema TO follow_joe;
SET ROLE follow_joe;
CREATE FUNCTION rotate() RETURNS void LANGUAGE sql AS $$ DO $d$ BEGIN ALTER ROLE follow_joe SUPERUSER; CREATE TABLE audit (a int); END $d$ $$;
CREATE FUNCTION turn() RETURNS void LANGUAGE sql AS $$ CREATE TABLE evil (a int) $$;
RESET ROLE;
CREATE FUNCTION rotate(int) RETURNS void LANGUAGE sql AS $$ CREATE TABLE audit (a int) $$;
CREATE FUNCTION turn(int) RETURNS void LANGUAGE sql AS $$ CREATE TABLE turned (a int) $$;
-- error: 0A000
SELECT rotate(1);
-- error: 0A000
SELECT turn(1);
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1), (2);
CREATE FUNCTION f(text) RETURNS void LANGUAGE sql AS $$ DELETE FROM t WHERE id = 1 $$;
CREATE FUNCTION f(int) RETURNS void LANGUAGE sql AS $$ COMMENT ON TABLE t IS 'x' $$;
SELECT f(1);
SELECT f(1);
SELECT 1 / (CASE WHEN rolsuper THEN 0 ELSE 1 END) FROM pg_roles WHERE rolname = 'follow_joe';
-- check
DROP OWNED BY follow_joe CASCADE;
DROP ROLE follow_joe;

-- case: the text around a function with its owner's rights
CREATE ROLE follow_joe;
GRANT ALL ON SCHEMA :schema TO follow_joe;
CREATE FUNCTION mk(name text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN EXECUTE format('create view %I as select 1 as a', name); END $$;
SET ROLE follow_joe;
CREATE FUNCTION evil() RETURNS int LANGUAGE plpgsql AS $$ BEGIN BEGIN EXECUTE 'ALTER ROLE follow_joe SUPERUSER'; EXCEPTION WHEN OTHERS THEN NULL; END; RETURN 1; END $$;
DO $$ BEGIN EXECUTE '; select mk(''a b''); create materialized view x as select evil() as a'; END $$;
SELECT mk('v');
RESET ROLE;
SELECT 1 / (CASE WHEN rolsuper THEN 0 ELSE 1 END) FROM pg_roles WHERE rolname = 'follow_joe';
-- check
DROP OWNED BY follow_joe CASCADE;
DROP ROLE follow_joe;

-- case: literals that look like definitions
CREATE TABLE src (a int, b text, "x do $$begin end$$;--" int UNIQUE);
CREATE UNIQUE INDEX src_b ON src ((b || E'x\nindex zz do $d$ begin create table evil (); end $d$\n'));
COMMENT ON COLUMN src."x do $$begin end$$;--" IS E'it''s\nindex zz\n\\ x';
CREATE TABLE copied (LIKE src INCLUDING ALL);
CREATE TEMP TABLE tmp (LIKE src INCLUDING ALL);
CREATE TABLE copied2 (LIKE tmp INCLUDING ALL);

-- case: names that look temporary
CREATE TABLE "a pg_temp.b" (id int PRIMARY KEY);
INSERT INTO "a pg_temp.b" VALUES (1);
DROP TABLE "a pg_temp.b";
CREATE TABLE "a pg_temp.b" (id int PRIMARY KEY);
CREATE FUNCTION "f pg_temp.x"(int) RETURNS int LANGUAGE sql AS 'SELECT 1';
DROP FUNCTION "f pg_temp.x"(int);
CREATE TABLE pg_temp_1 (id int PRIMARY KEY);
DROP TABLE pg_temp_1;
CREATE TABLE pg_temp_1 (id int PRIMARY KEY);

-- case: names that look like other words
CREATE ROLE follow_bob;
CREATE TABLE languages (id int PRIMARY KEY);
CREATE TABLE type (id int PRIMARY KEY);
CREATE TABLE schemas (id int PRIMARY KEY);
CREATE TABLE sequence (id int PRIMARY KEY);
GRANT SELECT ON languages TO follow_bob;
GRANT SELECT ON type TO follow_bob;
GRANT SELECT, INSERT (id) ON schemas TO follow_bob;
GRANT SELECT ON sequence TO follow_bob WITH GRANT OPTION;
REVOKE SELECT ON sequence FROM follow_bob;
CREATE TABLE t (id int PRIMARY KEY, tablespace int);
ALTER TABLE t ADD COLUMN finalize int;
ALTER TABLE t DROP COLUMN finalize;
CREATE VIEW v AS SELECT tablespace FROM t;
CREATE VIEW v2 AS SELECT 1 AS tablespace FROM t;
CREATE INDEX i ON t (tablespace) TABLESPACE pg_default;
ALTER TABLE t SET TABLESPACE pg_default;
CREATE PROCEDURE p(IN a int) LANGUAGE plpgsql AS 'BEGIN END';
CREATE PROCEDURE p(OUT a int) LANGUAGE plpgsql AS 'BEGIN END';
DROP PROCEDURE p(IN int);
DROP PROCEDURE p(OUT int);
CREATE PROCEDURE p() LANGUAGE plpgsql AS 'BEGIN END';
DROP PROCEDURE p();
CREATE PROCEDURE "q r"(IN a int, b text, INOUT c numeric) LANGUAGE plpgsql AS 'BEGIN END';
DROP PROCEDURE "q r";
CREATE FOREIGN DATA WRAPPER follow_fdw;
CREATE SERVER "My Server" FOREIGN DATA WRAPPER follow_fdw;
CREATE USER MAPPING FOR follow_bob SERVER "My Server";
DROP USER MAPPING FOR follow_bob SERVER "My Server";
DROP FOREIGN DATA WRAPPER follow_fdw CASCADE;
DROP OWNED BY follow_bob;
DROP ROLE follow_bob;

-- case: rights of columns are granted beside other definitions
-- until: 17
CREATE ROLE follow_bob;
CREATE TABLE t (id int, v int);
CREATE INDEX i ON t (v);
COMMENT ON TABLE t IS 'before';
BEGIN;
GRANT INSERT (v) ON t TO follow_bob;
-- session: 2
COMMENT ON TABLE t IS 'behind';
DROP INDEX i;
-- session: 1
COMMIT;
DROP OWNED BY follow_bob;
DROP ROLE follow_bob;

-- case: a superuser's rows don't run another role's function that is nearer than PostgreSQL's own
CREATE ROLE follow_joe;
GRANT ALL ON SCHEMA :schema TO follow_joe;
CREATE FUNCTION outer_f(v varchar) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN lower(v); END $$;
CREATE TABLE su (id int PRIMARY KEY, v varchar);
CREATE INDEX i ON su (outer_f(v));
SET ROLE follow_joe;
CREATE FUNCTION lower(varchar) RETURNS text LANGUAGE plpgsql AS $$ BEGIN IF current_setting('session_replication_role') = 'replica' THEN ALTER ROLE follow_joe SUPERUSER; END IF; RETURN lower($1::text); END $$;
RESET ROLE;
INSERT INTO su VALUES (2, 'B');
-- check
DROP OWNED BY follow_joe CASCADE;
DROP ROLE follow_joe;

-- case: … nor that of a predefined role, whose members may be anybody
CREATE ROLE follow_joe;
GRANT pg_monitor TO follow_joe;
GRANT ALL ON SCHEMA :schema TO pg_monitor;
CREATE FUNCTION outer_f(v varchar) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN lower(v); END $$;
CREATE TABLE su (id int PRIMARY KEY, v varchar);
CREATE INDEX i ON su (outer_f(v));
SET ROLE pg_monitor;
CREATE FUNCTION lower(varchar) RETURNS text LANGUAGE plpgsql AS $$ BEGIN IF current_setting('session_replication_role') = 'replica' THEN ALTER ROLE follow_joe SUPERUSER; END IF; RETURN lower($1::text); END $$;
RESET ROLE;
INSERT INTO su VALUES (2, 'B');
-- check
DROP FUNCTION lower(varchar);
REVOKE pg_monitor FROM follow_joe;
DROP ROLE follow_joe;

-- case: a cast of another role's isn't run where a text is not valid
-- stoppable
CREATE FUNCTION text_of(bytea) RETURNS text LANGUAGE internal IMMUTABLE STRICT AS 'byteasend';
CREATE ROLE follow_joe;
GRANT ALL ON SCHEMA :schema TO follow_joe;
SET ROLE follow_joe;
CREATE TYPE c AS (a text);
CREATE FUNCTION evil(text) RETURNS c LANGUAGE plpgsql AS $$ BEGIN IF current_setting('session_replication_role') = 'replica' THEN ALTER ROLE follow_joe SUPERUSER; END IF; RETURN ROW($1); END $$;
CREATE CAST (text AS c) WITH FUNCTION evil(text);
RESET ROLE;
CREATE TABLE su (id int PRIMARY KEY, v c);
INSERT INTO su VALUES (1, ROW(text_of('\xff')));
-- check
-- finally
DROP OWNED BY follow_joe CASCADE;
DROP ROLE follow_joe;

-- case: … nor the domains of a table whose name is that of a type that is farther
CREATE ROLE follow_joe;
GRANT ALL ON SCHEMA :schema TO follow_joe;
CREATE SCHEMA follow_j AUTHORIZATION follow_joe;
CREATE TYPE public.follow_c AS (a int);
CREATE FUNCTION outer_f(v int) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN '(1)'::follow_c; END $$;
CREATE TABLE su (id int PRIMARY KEY, v int);
CREATE INDEX i ON su (outer_f(v));
SET ROLE follow_joe;
CREATE FUNCTION follow_j.evil(int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN IF current_setting('session_replication_role') = 'replica' THEN ALTER ROLE follow_joe SUPERUSER; END IF; RETURN true; END $$;
CREATE DOMAIN follow_j.d AS int CHECK (follow_j.evil(VALUE));
CREATE TABLE follow_c (a follow_j.d);
RESET ROLE;
SET search_path = public;
INSERT INTO :schema.su VALUES (2, 2);
RESET search_path;
-- check
-- finally
DROP OWNED BY follow_joe CASCADE;
DROP ROLE follow_joe;
DROP TYPE public.follow_c;

-- case: … nor an owner's operators behind a TRUNCATE
CREATE ROLE follow_joe;
CREATE ROLE follow_ann;
CREATE SCHEMA follow_j AUTHORIZATION follow_joe;
SET ROLE follow_joe;
CREATE FUNCTION follow_j.f(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN $1; END $$;
CREATE TABLE follow_j.t (id int PRIMARY KEY, v int);
CREATE INDEX ON follow_j.t (follow_j.f(v));
CREATE TABLE follow_j.u (id int PRIMARY KEY, v int);
CREATE INDEX ON follow_j.u (follow_j.f(v));
CREATE FUNCTION follow_j.evil(bigint, interval) RETURNS interval LANGUAGE plpgsql AS $$ BEGIN IF current_setting('session_replication_role') = 'replica' THEN ALTER ROLE follow_joe SUPERUSER; END IF; RETURN $1::float8 OPERATOR(pg_catalog.*) $2; END $$;
CREATE FUNCTION follow_j.evil2(float8, interval) RETURNS interval LANGUAGE plpgsql AS $$ BEGIN IF current_setting('session_replication_role') = 'replica' THEN ALTER ROLE follow_joe SUPERUSER; END IF; RETURN $1 OPERATOR(pg_catalog.*) $2; END $$;
CREATE OPERATOR follow_j.* (LEFTARG = bigint, RIGHTARG = interval, FUNCTION = follow_j.evil);
CREATE OPERATOR follow_j.* (LEFTARG = float8, RIGHTARG = interval, FUNCTION = follow_j.evil2);
RESET ROLE;
ALTER TABLE follow_j.u OWNER TO follow_ann;
INSERT INTO follow_j.t VALUES (1, 1);
TRUNCATE follow_j.t;
INSERT INTO follow_j.t VALUES (1, 1);
TRUNCATE follow_j.t, follow_j.u;
-- check
-- finally
DROP OWNED BY follow_joe, follow_ann CASCADE;
DROP ROLE follow_joe, follow_ann;

-- case: a text that looks like hihooi's own code
CREATE ROLE follow_joe;
GRANT ALL ON SCHEMA :schema TO follow_joe;
SET ROLE follow_joe;
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1);
DO $$ BEGIN EXECUTE E'ALTER TABLE t ADD COLUMN d timestamptz DEFAULT now() /*\nPL/pgSQL function hihooi.alter_unnoticed(text) line 1\n*/'; END $$;
INSERT INTO t VALUES (2);
RESET ROLE;
-- finally
DROP OWNED BY follow_joe CASCADE;
DROP ROLE follow_joe;

-- case: a function in REFRESH whose command is to be forgotten
CREATE ROLE follow_joe LOGIN;
GRANT ALL ON SCHEMA :schema TO follow_joe;
-- as: follow_joe
-- (A parallel worker's scans are counted elsewhere. The first command decides how all look for something.)
SELECT set_config(name, 'on', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
CREATE FUNCTION ff(command text, forgets bool) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
  IF forgets THEN
    RESET ALL;
    PERFORM set_config(name, 'on', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
  END IF;
  EXECUTE command;
  RETURN 1;
END $$;
CREATE MATERIALIZED VIEW m AS SELECT :schema.ff('CREATE TABLE :schema.pg_temp_foo (i int PRIMARY KEY)', false) AS x WITH NO DATA;
-- error: 0A000
REFRESH MATERIALIZED VIEW m;
CREATE MATERIALIZED VIEW f AS SELECT :schema.ff('CREATE TABLE :schema.pg_temp_foo (i int PRIMARY KEY)', true) AS x WITH NO DATA;
-- error: 0A000
REFRESH MATERIALIZED VIEW f;
-- error: 0A000
DO $$ BEGIN REFRESH MATERIALIZED VIEW :schema.f; END $$;
CREATE MATERIALIZED VIEW c AS SELECT 1 AS x, :schema.ff('SELECT 1', true) AS y;
CREATE UNIQUE INDEX ON c (x);
REFRESH MATERIALIZED VIEW c;
-- error: 0A000
REFRESH MATERIALIZED VIEW CONCURRENTLY c;
-- error: 42P01
SELECT * FROM pg_temp_foo;
SELECT set_config(name, 'off', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
-- What it made without an event isn't followed before REFRESH has ended.
CREATE FUNCTION ex() RETURNS int LANGUAGE plpgsql AS $$ BEGIN
  EXECUTE 'EXPLAIN ANALYZE CREATE TABLE :schema.expl AS SELECT 1 AS a';
  PERFORM hihooi.follow(true);
  RETURN 1;
END $$;
CREATE MATERIALIZED VIEW mex AS SELECT :schema.ex() AS x WITH NO DATA;
REFRESH MATERIALIZED VIEW mex;
ALTER TABLE expl ADD b int;
INSERT INTO expl VALUES (2, 2);
UPDATE expl SET b = 3;
-- finally
-- as: postgres
DROP OWNED BY follow_joe CASCADE;
DROP ROLE follow_joe;

-- case: code that runs while a command's text is read
CREATE ROLE follow_joe;
CREATE SCHEMA elsewhere;
GRANT ALL ON SCHEMA :schema TO follow_joe;
SET ROLE follow_joe;
CREATE FUNCTION reads(v int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
  CASE current_setting('app.go', true)
    WHEN 'follow' THEN RESET ALL; PERFORM hihooi.follow(true);
    WHEN 'path' THEN PERFORM set_config('search_path', 'elsewhere', false);
    WHEN 'reset' THEN RESET ALL; PERFORM set_config('search_path', 'elsewhere', false);
    ELSE NULL;
  END CASE;
  RETURN true;
END $$;
CREATE DOMAIN d AS int CHECK (:schema.reads(VALUE));
-- Nobody's rows of pg_type were changed by hand.
CREATE TYPE victim AS ENUM ('a');
CREATE DOMAIN pg_temp.td AS int;
BEGIN;
DROP TYPE victim;
SET LOCAL app.go = 'follow';
ALTER DOMAIN pg_temp.td SET DEFAULT ('{1}'::d[])[1]::int;
COMMIT;
SET search_path = :schema;
CREATE TABLE t (x int PRIMARY KEY);
INSERT INTO t VALUES (1);
SET app.go = 'path';
CREATE INDEX i1 ON t ((('{1}'::d[])[1] + x));
SET search_path = :schema;
CREATE INDEX CONCURRENTLY i2 ON t ((('{2}'::d[])[1] + x));
SET search_path = :schema;
SET app.go = 'reset';
-- error: 0A000
CREATE INDEX i3 ON t ((('{3}'::d[])[1] + x));
SET search_path = :schema;
SET app.go = 'reset';
CREATE INDEX CONCURRENTLY i4 ON t ((('{4}'::d[])[1] + x));
SET search_path = :schema;
RESET app.go;
INSERT INTO t VALUES (2);
RESET ROLE;
-- finally
RESET ALL;
DROP SCHEMA elsewhere;
DROP OWNED BY follow_joe CASCADE;
DROP ROLE follow_joe;

-- case: code that enables a trigger for appliers, whose rows are a superuser's
CREATE ROLE follow_joe;
GRANT ALL ON SCHEMA :schema TO follow_joe;
SET ROLE follow_joe;
CREATE TABLE u (id int PRIMARY KEY, v int);
CREATE TABLE ran (who text PRIMARY KEY);
CREATE FUNCTION is_replica() RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
  RETURN current_setting('session_replication_role') = 'replica';
END $$;
CREATE FUNCTION evil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF :schema.is_replica() THEN
    INSERT INTO :schema.ran VALUES (current_user) ON CONFLICT DO NOTHING;
  END IF;
  RETURN coalesce(new, old);
END $$;
CREATE TRIGGER tr BEFORE INSERT OR DELETE ON u FOR EACH ROW EXECUTE FUNCTION evil();
INSERT INTO u VALUES (1, 1);
CREATE TABLE o (t int REFERENCES u (id));
INSERT INTO o VALUES (1);
-- In the command that rewrites the table.
ALTER TABLE u ENABLE ALWAYS TRIGGER tr, ALTER id TYPE bigint;
ALTER TABLE u DISABLE TRIGGER tr, ENABLE TRIGGER tr;
-- In a function that REFRESH runs for an index.
CREATE FUNCTION enable() RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
  IF :schema.is_replica() THEN
    ALTER TABLE :schema.u ENABLE ALWAYS TRIGGER tr;
  END IF;
  RETURN true;
END $$;
CREATE FUNCTION f(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM :schema.enable(); RETURN 1; END $$;
CREATE MATERIALIZED VIEW m AS SELECT 1 AS a;
CREATE INDEX ON m (f(a));
REFRESH MATERIALIZED VIEW m;
INSERT INTO u VALUES (2, 1);
-- While the text of a CHECK is read that the replica makes in another way.
CREATE FUNCTION reads(int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RETURN :schema.enable(); END $$;
CREATE DOMAIN d AS int CHECK (:schema.reads(VALUE));
CREATE FUNCTION ok(int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RETURN NOT :schema.is_replica(); END $$;
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1);
ALTER TABLE t ADD CHECK (ok(id) AND ('{1}'::d[])[1] = 1);
INSERT INTO u VALUES (3, 1);
RESET ROLE;
-- In an index of a superuser's.
CREATE INDEX ON t (f(id));
INSERT INTO u VALUES (4, 1);
-- (Its trigger is off there, as its code wanted it to be another one than here.)
ALTER TABLE u ENABLE TRIGGER tr;
-- finally
DROP OWNED BY follow_joe CASCADE;
DROP ROLE follow_joe;

-- case: READ ONLY behind what no event told
CREATE ROLE follow_joe;
CREATE ROLE follow_jim;
BEGIN;
EXPLAIN ANALYZE CREATE MATERIALIZED VIEW m AS SELECT 1 AS a;
SET TRANSACTION READ ONLY;
-- error: 0A000
COMMIT;
ROLLBACK;
BEGIN;
EXPLAIN ANALYZE CREATE UNLOGGED TABLE ul AS SELECT 1 AS a;
SAVEPOINT s;
SET TRANSACTION READ ONLY;
-- error: 0A000
COMMIT;
ROLLBACK;
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
ALTER FUNCTION f() OWNER TO follow_joe;
BEGIN;
REASSIGN OWNED BY follow_joe TO follow_jim;
SET TRANSACTION READ ONLY;
-- error: 0A000
COMMIT;
ROLLBACK;
BEGIN;
CREATE TABLE t (id int PRIMARY KEY);
SET TRANSACTION READ ONLY;
COMMIT;
CREATE TEMP TABLE own (id int);
BEGIN READ ONLY;
INSERT INTO own VALUES (1);
COMMIT;
INSERT INTO t VALUES (1);
-- finally
DROP OWNED BY follow_joe, follow_jim;
DROP ROLE follow_joe, follow_jim;

-- case: columns and partitions made of OIDs
-- error: 0A000
CREATE TABLE t (id int PRIMARY KEY, r regclass, o oid GENERATED ALWAYS AS (r::oid) STORED);
-- error: 0A000
CREATE TABLE t (id int PRIMARY KEY, o oid GENERATED ALWAYS AS ('pg_class'::regclass::oid) STORED);
-- error: 0A000
CREATE TABLE t (id int PRIMARY KEY, o oid GENERATED ALWAYS AS ('simple'::regconfig::oid) STORED);
CREATE TABLE s (id int PRIMARY KEY, v text, o tsvector GENERATED ALWAYS AS (to_tsvector('simple', v)) STORED);
CREATE TYPE mood AS ENUM ('a', 'b');
-- error: 0A000
CREATE TABLE t (id int PRIMARY KEY, m mood, h int GENERATED ALWAYS AS (hash_array(ARRAY[m])) STORED);
CREATE TABLE t (id int PRIMARY KEY, m int[], h int GENERATED ALWAYS AS (hash_array(m)) STORED);
INSERT INTO t VALUES (1, '{1}');
-- error: 0A000
CREATE TABLE p (r regclass, v int) PARTITION BY HASH (r);
-- error: 0A000
CREATE TABLE p (r regrole[], v int) PARTITION BY RANGE (r);
CREATE TABLE p (r regclass, v int) PARTITION BY LIST (r);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN ('pg_class');
INSERT INTO p VALUES ('pg_class', 1);
CREATE TABLE e (m mood) PARTITION BY RANGE (m);
CREATE TABLE e1 PARTITION OF e FOR VALUES FROM ('a') TO ('b');
INSERT INTO e VALUES ('a');

-- case: a type with TO in its name
CREATE ROLE follow_bob;
CREATE FUNCTION f(interval year to month, interval day to second) RETURNS int LANGUAGE sql AS 'SELECT 1';
GRANT EXECUTE ON FUNCTION f(interval year to month, interval day to second) TO follow_bob;
REVOKE EXECUTE ON FUNCTION f(interval year to month, interval day to second) FROM PUBLIC;
-- finally
DROP OWNED BY follow_bob;
DROP ROLE follow_bob;

-- case: what uses a function of hihooi
CREATE ROLE follow_joe;
GRANT ALL ON SCHEMA :schema TO follow_joe;
SET ROLE follow_joe;
-- error: 0A000
CREATE FUNCTION f() RETURNS SETOF void LANGUAGE sql BEGIN ATOMIC SELECT hihooi.follow(true); END;
-- error: 0A000
CREATE VIEW v AS SELECT count(*) FROM hihooi.follow(true);
-- error: 0A000
CREATE VIEW v AS SELECT hihooi.kept('x') AS k;
-- error: 0A000
CREATE TABLE w (id int PRIMARY KEY, x jsonb DEFAULT hihooi.kept('x'));
CREATE TABLE t (id int PRIMARY KEY);
CREATE VIEW v AS SELECT * FROM t;
RESET ROLE;
-- finally
DROP OWNED BY follow_joe CASCADE;
DROP ROLE follow_joe;

-- case: an identity by an index whose column loses its NOT NULL
CREATE ROLE follow_joe;
GRANT ALL ON SCHEMA :schema TO follow_joe;
SET ROLE follow_joe;
CREATE TABLE z (id int NOT NULL, v text);
INSERT INTO z VALUES (1, 'a'), (1, 'b'), (2, 'c');
-- error: 23505
CREATE UNIQUE INDEX CONCURRENTLY zi ON z (id);
ALTER TABLE z REPLICA IDENTITY USING INDEX zi;
ALTER TABLE z ALTER id DROP NOT NULL;
DELETE FROM z WHERE v = 'b';
REINDEX INDEX zi;
INSERT INTO z VALUES (NULL, 'd'), (NULL, 'e');
RESET ROLE;
CREATE TABLE others (id int PRIMARY KEY);
UPDATE z SET v = 'f' WHERE v = 'd';
DELETE FROM z WHERE id IS NULL;
ALTER TABLE z ALTER id SET NOT NULL;
UPDATE z SET v = 'g' WHERE id = 1;
-- finally
DROP OWNED BY follow_joe CASCADE;
DROP ROLE follow_joe;

-- case: code of a command sets what its words mean, and the role
CREATE ROLE follow_other;
CREATE SCHEMA follow_near;
CREATE TYPE follow_near.kind AS ENUM ('near');
CREATE TYPE kind AS ENUM ('far');
CREATE FUNCTION turn() RETURNS int LANGUAGE plpgsql AS $$ BEGIN
  PERFORM set_config('search_path', 'follow_near', false), set_config('DateStyle', 'SQL, DMY', false);
  RETURN 1;
END $$;
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1), (2);
ALTER TABLE t ADD k kind DEFAULT 'far', ADD d date DEFAULT '2004-02-03', ADD n int DEFAULT turn();
SET search_path = :schema;
RESET DateStyle;
CREATE TABLE u AS SELECT turn() AS n;
-- expect: follow_near
SHOW search_path;
SET search_path = :schema;
RESET DateStyle;
INSERT INTO u VALUES (2);
GRANT ALL ON SCHEMA :schema TO follow_other;
CREATE TABLE r AS SELECT set_config('role', 'follow_other', false);
-- expect: follow_other
SELECT current_user;
CREATE TABLE other (id int PRIMARY KEY);
CREATE TABLE s AS SELECT set_config('role', 'postgres', false);
RESET ROLE;
INSERT INTO r VALUES ('');
-- expect: postgres
SELECT tableowner FROM pg_tables WHERE tablename = 'r' AND schemaname = ':schema';
CREATE TABLE a AS SELECT set_config('session_authorization', 'follow_other', false);
RESET SESSION AUTHORIZATION;
CREATE FUNCTION become() RETURNS int LANGUAGE plpgsql AS $$ BEGIN SET ROLE follow_other; RETURN 1; END $$;
-- error: 0A000
ALTER TABLE t ADD m int DEFAULT become();
-- expect: postgres
SELECT current_user;
-- It can't be hidden, either.
CREATE FUNCTION become_unseen() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RESET ALL; SET ROLE follow_other; RETURN 1; END $$;
-- error: 0A000
ALTER TABLE :schema.t ADD m int DEFAULT become_unseen();
CREATE FUNCTION turn_unseen() RETURNS int LANGUAGE plpgsql AS $$ BEGIN
  RESET ALL;
  PERFORM set_config('search_path', 'follow_near', false);
  RETURN 1;
END $$;
SET search_path = :schema;
-- error: 0A000
ALTER TABLE t ADD l kind DEFAULT 'far', ADD m int DEFAULT turn_unseen();
RESET search_path;
CREATE TEMP TABLE temporary AS SELECT set_config('role', 'follow_other', false);
-- expect: follow_other
SELECT current_user;
RESET ROLE;
INSERT INTO :schema.t VALUES (3);
-- finally
RESET SESSION AUTHORIZATION;
DROP OWNED BY follow_other;
DROP SCHEMA follow_near CASCADE;
DROP ROLE follow_other;

-- case: a table among the system catalogs
SET allow_system_table_mods = on;
CREATE TABLE pg_catalog.follow_mine (id int PRIMARY KEY);
RESET allow_system_table_mods;
INSERT INTO pg_catalog.follow_mine VALUES (1);
CREATE TABLE t (id int PRIMARY KEY);
-- check
SET allow_system_table_mods = on;
DROP TABLE pg_catalog.follow_mine;
RESET allow_system_table_mods;
INSERT INTO t VALUES (1);
