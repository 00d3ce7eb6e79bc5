-- Users' event triggers: what they define is nested in what fired them; replicas don't run them.

-- case: one that grants
CREATE ROLE follow_ro;
CREATE FUNCTION g() RETURNS event_trigger LANGUAGE plpgsql AS $$ DECLARE c record; BEGIN
  FOR c IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE object_type = 'table' LOOP
    EXECUTE format('GRANT SELECT ON %s TO follow_ro', c.object_identity);
  END LOOP;
END $$;
CREATE EVENT TRIGGER follow_g ON ddl_command_end WHEN TAG IN ('CREATE TABLE', 'CREATE TABLE AS', 'SELECT INTO') EXECUTE FUNCTION g();
CREATE TABLE t (id int PRIMARY KEY);
CREATE TABLE c AS SELECT 1 AS x;
SELECT 1 AS x INTO i;
DO $$ BEGIN CREATE TABLE n (id int PRIMARY KEY); END $$;
INSERT INTO t VALUES (1);
INSERT INTO n VALUES (1);
-- finally
DROP EVENT TRIGGER follow_g;
DROP OWNED BY follow_ro;
DROP ROLE follow_ro;

-- case: one that enables row level security and adds a column
CREATE FUNCTION g() RETURNS event_trigger LANGUAGE plpgsql AS $$ DECLARE c record; BEGIN
  FOR c IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE object_type = 'table' LOOP
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', c.object_identity);
    EXECUTE format('ALTER TABLE %s ADD COLUMN added_at timestamptz DEFAULT now()', c.object_identity);
  END LOOP;
END $$;
CREATE EVENT TRIGGER follow_g ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION g();
CREATE TABLE t (id int PRIMARY KEY);
CREATE TABLE keyless (id int);
INSERT INTO t VALUES (1);
INSERT INTO keyless VALUES (1);
UPDATE keyless SET id = 2;
-- finally
DROP EVENT TRIGGER follow_g;

-- case: one that sorts before ours
CREATE TABLE log (n serial PRIMARY KEY, tag text);
CREATE FUNCTION g() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO :schema.log (tag) VALUES (tg_tag);
  EXECUTE format('CREATE TABLE IF NOT EXISTS :schema.hist_%s (id int PRIMARY KEY)', (SELECT count(*) FROM :schema.log));
END $$;
CREATE EVENT TRIGGER " follow_first" ON ddl_command_end WHEN TAG IN ('ALTER TABLE', 'CREATE VIEW') EXECUTE FUNCTION g();
CREATE TABLE t (id int PRIMARY KEY);
ALTER TABLE t ADD x int;
CREATE VIEW v AS SELECT * FROM t;
ALTER TABLE t RENAME TO u;
INSERT INTO u VALUES (1, 1);
-- finally
DROP EVENT TRIGGER " follow_first";

-- case: one at ddl_command_start
CREATE TABLE log (n serial PRIMARY KEY, tag text);
CREATE FUNCTION g() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO :schema.log (tag) VALUES (tg_tag);
  CREATE TABLE IF NOT EXISTS :schema.before_it (id int PRIMARY KEY);
END $$;
CREATE EVENT TRIGGER follow_start ON ddl_command_start WHEN TAG IN ('ALTER TABLE', 'DROP TABLE') EXECUTE FUNCTION g();
CREATE TABLE t (id int PRIMARY KEY);
ALTER TABLE t ADD x int;
INSERT INTO t VALUES (1, 1);
DROP TABLE t;
INSERT INTO before_it VALUES (1);
-- finally
DROP EVENT TRIGGER follow_start;

-- case: one at sql_drop
CREATE TABLE log (n serial PRIMARY KEY, what text);
CREATE FUNCTION g() RETURNS event_trigger LANGUAGE plpgsql AS $$ DECLARE r record; BEGIN
  FOR r IN SELECT * FROM pg_event_trigger_dropped_objects() WHERE object_type = 'table' LOOP
    INSERT INTO :schema.log (what) VALUES (r.object_identity);
    EXECUTE format('CREATE TABLE :schema.%I (id int PRIMARY KEY)', 'dropped_' || r.object_name);
  END LOOP;
END $$;
CREATE EVENT TRIGGER follow_drop ON sql_drop EXECUTE FUNCTION g();
CREATE TABLE t (id int PRIMARY KEY);
CREATE TEMP TABLE tt (id int);
DROP TABLE t, tt;
INSERT INTO dropped_t VALUES (1);
-- finally
DROP EVENT TRIGGER follow_drop;

-- case: one at sql_drop that alters what has just lost something
CREATE FUNCTION g() RETURNS event_trigger LANGUAGE plpgsql AS $$ DECLARE d record; BEGIN
  IF current_setting('follow.busy', true) = 'yes' THEN RETURN; END IF;
  PERFORM set_config('follow.busy', 'yes', true);
  -- (Not all releases tell the schema_name of a default.)
  FOR d IN SELECT * FROM pg_event_trigger_dropped_objects() WHERE original AND address_names[1] = ':schema' LOOP
    IF d.object_type = 'table column' THEN
      EXECUTE format('ALTER TABLE :schema.%I ADD COLUMN %I text DEFAULT now()', d.address_names[2], d.address_names[3]);
      EXECUTE format('COMMENT ON TABLE :schema.%I IS ''lost %s''', d.address_names[2], d.address_names[3]);
      EXECUTE format('UPDATE :schema.%I SET u = u + 1', d.address_names[2]);
    ELSIF d.object_type = 'table constraint' THEN
      EXECUTE format('ALTER TABLE :schema.%I ADD PRIMARY KEY (w)', d.address_names[2]);
    ELSIF d.object_type = 'default value' THEN
      EXECUTE 'ALTER TABLE :schema.t DROP COLUMN w, ALTER u SET DEFAULT 7';
    END IF;
  END LOOP;
  PERFORM set_config('follow.busy', 'no', true);
END $$;
CREATE EVENT TRIGGER follow_drop ON sql_drop EXECUTE FUNCTION g();
CREATE TABLE t (id int PRIMARY KEY, v int, w int, u int DEFAULT 1);
INSERT INTO t VALUES (1, 1, 1), (2, 2, 2);
ALTER TABLE t DROP COLUMN v, ADD COLUMN x float8 DEFAULT random();
INSERT INTO t (id, w) VALUES (3, 30);
ALTER TABLE t DROP CONSTRAINT t_pkey;
UPDATE t SET x = 0 WHERE w = 30;
ALTER TABLE t ALTER u DROP DEFAULT;
UPDATE t SET x = 1 WHERE id = 1;
DELETE FROM t WHERE id = 2;
BEGIN;
SAVEPOINT s;
ALTER TABLE t DROP COLUMN v;
ROLLBACK TO s;
ALTER TABLE t ALTER u DROP DEFAULT, ADD COLUMN w int;
INSERT INTO t (id) VALUES (4);
COMMIT;
DO $$ BEGIN
  FOR i IN 1..3 LOOP
    ALTER TABLE :schema.t DROP COLUMN v;
    INSERT INTO :schema.t (id) VALUES (10 + i);
  END LOOP;
END $$;
-- expect: 4 rows, 7 of one
SELECT format('%s rows, %s of one', count(*), min(u)) FROM t WHERE id > 3;
-- finally
DROP EVENT TRIGGER follow_drop;

-- case: one at sql_drop that drops more within the command
CREATE ROLE follow_a;
CREATE TABLE log (tag text);
CREATE FUNCTION g() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
  IF current_setting('follow.busy', true) = 'yes' THEN RETURN; END IF;
  PERFORM set_config('follow.busy', 'yes', true);
  INSERT INTO :schema.log VALUES (tg_tag);
  DROP OWNED BY follow_a;
  CREATE OR REPLACE VIEW :schema.tags AS SELECT DISTINCT tag FROM :schema.log;
  DROP VIEW :schema.tags;
  PERFORM set_config('follow.busy', 'no', true);
END $$;
CREATE EVENT TRIGGER follow_drop ON sql_drop EXECUTE FUNCTION g();
CREATE TYPE pair AS (a int, b int);
CREATE TABLE t (id int PRIMARY KEY, v int CHECK (v > 0), p pair);
CREATE TABLE child (t int REFERENCES t, UNIQUE (t));
CREATE TABLE u (id int PRIMARY KEY);
INSERT INTO t VALUES (1, 1, '(1,2)');
GRANT SELECT ON t, u TO follow_a;
ALTER TABLE u OWNER TO follow_a;
ALTER TABLE t DROP CONSTRAINT t_pkey CASCADE;
UPDATE t SET v = 2;
INSERT INTO child VALUES (5);
GRANT INSERT ON t TO follow_a;
ALTER TYPE pair DROP ATTRIBUTE b;
ALTER DEFAULT PRIVILEGES IN SCHEMA :schema GRANT SELECT ON TABLES TO follow_a;
ALTER DEFAULT PRIVILEGES IN SCHEMA :schema REVOKE SELECT ON TABLES FROM follow_a;
CREATE TABLE u (id int PRIMARY KEY);
ALTER TABLE u OWNER TO follow_a;
DROP OWNED BY follow_a;
CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
ALTER TABLE p DETACH PARTITION p1 CONCURRENTLY;
ALTER TABLE p1 DROP CONSTRAINT p1_pkey;
INSERT INTO p1 VALUES (1);
UPDATE p1 SET id = 2;
-- finally
DROP EVENT TRIGGER follow_drop;
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: one at table_rewrite
CREATE TABLE log (n serial PRIMARY KEY, what text);
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1), (2);
CREATE FUNCTION g() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO :schema.log (what) VALUES (pg_event_trigger_table_rewrite_oid()::regclass::text);
  CREATE TABLE IF NOT EXISTS :schema.by_rewrite (id int PRIMARY KEY);
END $$;
CREATE EVENT TRIGGER follow_rewrite ON table_rewrite EXECUTE FUNCTION g();
ALTER TABLE t ADD u uuid DEFAULT gen_random_uuid();
ALTER TABLE t ALTER id TYPE bigint;
INSERT INTO by_rewrite VALUES (1);
-- finally
DROP EVENT TRIGGER follow_rewrite;

-- case: one at table_rewrite that changes something
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1), (2);
CREATE TABLE parts (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);
CREATE TABLE part_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
CREATE TABLE part_2 PARTITION OF parts FOR VALUES FROM (10) TO (20);
INSERT INTO parts VALUES (1, 1), (11, 11);
CREATE TABLE todo (command text);
CREATE FUNCTION g() RETURNS event_trigger LANGUAGE plpgsql AS $$ DECLARE c record; BEGIN
  FOR c IN SELECT command FROM :schema.todo LOOP EXECUTE c.command; END LOOP;
END $$;
CREATE EVENT TRIGGER follow_rewritten ON table_rewrite EXECUTE FUNCTION g();
INSERT INTO todo VALUES ('COMMENT ON TABLE :schema.t IS $x$rewritten$x$');
-- error: 0A000
ALTER TABLE t ADD u uuid DEFAULT gen_random_uuid();
-- error: 0A000
ALTER TABLE t ADD x int DEFAULT 1, ALTER id TYPE bigint;
-- error: 0A000
ALTER TABLE parts ADD u uuid DEFAULT gen_random_uuid();
UPDATE todo SET command = 'COMMENT ON TABLE :schema.part_2 IS $x$rewritten$x$';
-- error: 0A000
ALTER TABLE parts ADD v uuid DEFAULT gen_random_uuid();
UPDATE todo SET command = 'CREATE INDEX ON :schema.t (id)';
-- error: 0A000
ALTER TABLE t ADD v uuid DEFAULT gen_random_uuid();
UPDATE todo SET command = 'ALTER INDEX IF EXISTS :schema.t_pkey RENAME TO t_key';
-- error: 0A000
ALTER TABLE parts ALTER n TYPE bigint;
UPDATE todo SET command = 'DROP INDEX :schema.other';
CREATE INDEX other ON t (id);
-- error: 0A000
ALTER TABLE t ADD v uuid DEFAULT gen_random_uuid();
UPDATE todo SET command = 'CREATE TABLE IF NOT EXISTS :schema.noted (id serial PRIMARY KEY, v text UNIQUE)';
ALTER TABLE t ADD v uuid DEFAULT gen_random_uuid();
ALTER TABLE parts ADD v uuid DEFAULT gen_random_uuid();
INSERT INTO noted (v) VALUES ('a');
UPDATE todo SET command = 'SELECT';
INSERT INTO t VALUES (3);
ALTER TABLE t ALTER id TYPE bigint;
INSERT INTO parts VALUES (2), (12);
-- finally
DROP EVENT TRIGGER follow_rewritten;

-- case: a function that ALTER TABLE runs changes something
CREATE TABLE t (id int PRIMARY KEY, v int);
CREATE TABLE other (id int PRIMARY KEY);
INSERT INTO t VALUES (1, 1), (2, 2);
CREATE FUNCTION about_t(int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
  EXECUTE format('COMMENT ON TABLE :schema.t IS %L', $1); RETURN $1 + 1;
END $$;
CREATE FUNCTION about_other(int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
  EXECUTE format('COMMENT ON TABLE :schema.other IS %L', $1); RETURN $1 + 1;
END $$;
-- error: 0A000
ALTER TABLE t ALTER v TYPE bigint USING about_t(v);
-- error: 0A000
ALTER TABLE t ADD w int DEFAULT about_t(7);
-- error: 0A000
ALTER TABLE t ALTER v TYPE bigint USING about_other(v);
-- error: 0A000
ALTER TABLE t ADD w int DEFAULT about_other(7);
INSERT INTO t VALUES (3, 3);

-- case: code in the middle changes what the text names
CREATE TABLE t (id int PRIMARY KEY, v int);
CREATE TABLE other (id int PRIMARY KEY);
CREATE TABLE parts (id int) PARTITION BY LIST (id);
INSERT INTO t VALUES (1, 1);
CREATE TABLE todo (command text);
CREATE FUNCTION does_all() RETURNS void LANGUAGE plpgsql AS $$ DECLARE c record; BEGIN
  FOR c IN SELECT command FROM :schema.todo LOOP EXECUTE c.command; END LOOP;
END $$;
CREATE FUNCTION does(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM :schema.does_all(); RETURN $1; END $$;
INSERT INTO todo VALUES ('ALTER TABLE :schema.other RENAME TO another');
-- error: 0A000
CREATE INDEX i ON t (does(v));
-- error: 0A000
ALTER TABLE t ADD CHECK (does(v) > 0), ADD FOREIGN KEY (id) REFERENCES other;
-- error: 0A000
CREATE TABLE part_1 PARTITION OF parts FOR VALUES IN (does(1));
UPDATE todo SET command = 'DROP TABLE :schema.other';
-- error: 0A000
ALTER TABLE t ADD CHECK (does(v) > 0);
UPDATE todo SET command = 'GRANT SELECT ON :schema.other TO PUBLIC';
-- error: 0A000
ALTER TABLE t ADD CHECK (does(v) > 0);
UPDATE todo SET command = 'ALTER DEFAULT PRIVILEGES IN SCHEMA :schema GRANT SELECT ON TABLES TO PUBLIC';
-- error: 0A000
ALTER TABLE t ADD CHECK (does(v) > 0);
UPDATE todo SET command = 'COMMENT ON TABLE :schema.t IS $x$x$x$';
-- error: 0A000
ALTER TABLE t ADD CHECK (does(v) > 0);
UPDATE todo SET command = 'CREATE TEMP TABLE IF NOT EXISTS mine (a int); ALTER TABLE mine ADD IF NOT EXISTS b int; DROP TABLE mine';
ALTER TABLE t ADD CHECK (does(v) > 0);
UPDATE todo SET command = 'CREATE TABLE IF NOT EXISTS :schema.made (id serial PRIMARY KEY, t int REFERENCES :schema.other)';
ALTER TABLE t ADD CHECK (does(v) >= 1);
UPDATE todo SET command = 'SELECT';
INSERT INTO other VALUES (1);
INSERT INTO made (t) VALUES (1);
INSERT INTO t VALUES (2, 2);

-- case: one that alters what was just altered, by itself
CREATE FUNCTION g() RETURNS event_trigger LANGUAGE plpgsql AS $$ DECLARE c record; BEGIN
  IF current_setting('follow.busy', true) = 'yes' THEN RETURN; END IF;
  PERFORM set_config('follow.busy', 'yes', true);
  FOR c IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE object_type = 'table' LOOP
    EXECUTE format('ALTER TABLE %s ADD COLUMN IF NOT EXISTS version int DEFAULT 1', c.object_identity);
    EXECUTE format('COMMENT ON TABLE %s IS %L', c.object_identity, 'tagged ' || tg_tag);
  END LOOP;
  PERFORM set_config('follow.busy', 'no', true);
END $$;
CREATE EVENT TRIGGER follow_g ON ddl_command_end WHEN TAG IN ('CREATE TABLE', 'ALTER TABLE') EXECUTE FUNCTION g();
CREATE TABLE t (id int PRIMARY KEY);
ALTER TABLE t DROP COLUMN version;
ALTER TABLE t RENAME id TO id2;
INSERT INTO t VALUES (1, 1);
-- finally
DROP EVENT TRIGGER follow_g;

-- case: one that forbids
CREATE TABLE t (id int PRIMARY KEY);
CREATE FUNCTION g() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'forbidden'; END $$;
CREATE EVENT TRIGGER follow_no ON ddl_command_end WHEN TAG IN ('CREATE VIEW') EXECUTE FUNCTION g();
-- error: P0001
CREATE VIEW v AS SELECT 1 AS x;
DO $$ BEGIN
  BEGIN CREATE VIEW v AS SELECT 1 AS x; EXCEPTION WHEN raise_exception THEN NULL; END;
  ALTER TABLE t ADD x int;
END $$;
ALTER EVENT TRIGGER follow_no DISABLE;
CREATE VIEW v AS SELECT 1 AS x;
INSERT INTO t VALUES (1, 1);
-- finally
DROP EVENT TRIGGER follow_no;

-- case: event triggers themselves
CREATE ROLE follow_su SUPERUSER;
CREATE TABLE t (id int PRIMARY KEY);
CREATE FUNCTION g() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN END $$;
CREATE EVENT TRIGGER follow_a ON ddl_command_start EXECUTE FUNCTION g();
ALTER EVENT TRIGGER follow_a DISABLE;
ALTER EVENT TRIGGER follow_a ENABLE REPLICA;
ALTER EVENT TRIGGER follow_a ENABLE ALWAYS;
ALTER EVENT TRIGGER follow_a ENABLE;
COMMENT ON EVENT TRIGGER follow_a IS 'c';
ALTER EVENT TRIGGER follow_a OWNER TO follow_su;
ALTER EVENT TRIGGER follow_a RENAME TO follow_b;
INSERT INTO t VALUES (1);
-- check
ALTER EVENT TRIGGER follow_b OWNER TO postgres;
DO $$ BEGIN EXECUTE 'CREATE EVENT TRIGGER follow_c ON sql_drop EXECUTE FUNCTION g()'; ALTER EVENT TRIGGER follow_b DISABLE; END $$;
-- check
DO $$ BEGIN DROP EVENT TRIGGER follow_c; END $$;
DROP EVENT TRIGGER follow_b;
CREATE EVENT TRIGGER follow_d ON ddl_command_end EXECUTE FUNCTION g();
DROP FUNCTION g() CASCADE;
INSERT INTO t VALUES (2);
-- finally
DROP ROLE follow_su;

-- case: a trigger that is always enabled
CREATE TABLE log (n serial PRIMARY KEY, tag text);
CREATE FUNCTION g() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO :schema.log (tag) VALUES (tg_tag); END $$;
CREATE EVENT TRIGGER follow_always ON ddl_command_end EXECUTE FUNCTION g();
ALTER EVENT TRIGGER follow_always ENABLE ALWAYS;
CREATE TABLE t (id int PRIMARY KEY);
CREATE TEMP TABLE tt (id int);
GRANT SELECT ON t TO PUBLIC;
CREATE INDEX CONCURRENTLY i ON t (id);
INSERT INTO t VALUES (1);
-- finally
DROP EVENT TRIGGER follow_always;

-- case: session_replication_role = replica
SET session_replication_role = replica;
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE TABLE keyless (id int, v text);
INSERT INTO t VALUES (1, 'a');
INSERT INTO keyless VALUES (1, 'a');
UPDATE keyless SET v = 'b';
ALTER TABLE t ADD x int;
CREATE INDEX i ON t (v);
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
DO $$ BEGIN CREATE TABLE nested (id int PRIMARY KEY); END $$;
CREATE TABLE c AS SELECT * FROM t;
DROP INDEX i;
GRANT SELECT ON t TO PUBLIC;
RESET session_replication_role;
UPDATE keyless SET v = 'c';
DELETE FROM keyless;
INSERT INTO nested VALUES (1);

-- case: session_replication_role = replica by a function's setting and SET LOCAL
CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql SET session_replication_role = replica AS $$ BEGIN
  CREATE TABLE t (id int, v text);
  ALTER TABLE t ADD x int;
  INSERT INTO t VALUES (1, 'a', 2);
END $$;
SELECT f();
UPDATE t SET v = 'b';
BEGIN;
SET LOCAL session_replication_role = replica;
CREATE TABLE u (id int);
INSERT INTO u VALUES (1);
ALTER TABLE t DROP COLUMN x;
COMMIT;
UPDATE u SET id = 2;
INSERT INTO t VALUES (2, 'c');

-- case: session_replication_role = local
SET session_replication_role = local;
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a');
ALTER TABLE t ADD x int;
RESET session_replication_role;
UPDATE t SET x = 1;

-- case: a user trigger that logs with current_query
CREATE TABLE log (n serial PRIMARY KEY, q text, tag text, who text);
CREATE FUNCTION g() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO :schema.log (q, tag, who) VALUES (current_query(), tg_tag, current_user); END $$;
CREATE EVENT TRIGGER follow_log ON ddl_command_end EXECUTE FUNCTION g();
CREATE TABLE t (id int PRIMARY KEY);
ALTER TABLE t ADD x int DEFAULT 5;
CREATE TABLE c AS SELECT 1 AS a;
CREATE VIEW v AS SELECT * FROM t;
INSERT INTO t VALUES (1, 1);
-- finally
DROP EVENT TRIGGER follow_log;

-- case: an event trigger of the search path that the definer set
CREATE FUNCTION g() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$ DECLARE c record; BEGIN
  FOR c IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE object_type = 'table' LOOP
    EXECUTE format('CREATE INDEX ON %s (id)', c.object_identity);
  END LOOP;
END $$;
CREATE EVENT TRIGGER follow_idx ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION g();
CREATE ROLE follow_joe LOGIN;
GRANT ALL ON SCHEMA :schema TO follow_joe;
-- as: follow_joe
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1);
-- finally
-- as: postgres
DROP EVENT TRIGGER follow_idx;
DROP OWNED BY follow_joe;
DROP ROLE follow_joe;

-- case: an event trigger in several commands of one string
CREATE TABLE log (n serial PRIMARY KEY, tag text);
CREATE FUNCTION g() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO :schema.log (tag) VALUES (tg_tag); END $$;
CREATE EVENT TRIGGER follow_several ON ddl_command_end EXECUTE FUNCTION g();
CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY); INSERT INTO a VALUES (1); ALTER TABLE a ADD x int; DROP TABLE b;
DO $$ BEGIN EXECUTE 'CREATE TABLE c (id int PRIMARY KEY); CREATE TABLE d (id int PRIMARY KEY); DROP TABLE c'; END $$;
INSERT INTO d VALUES (1);
-- finally
DROP EVENT TRIGGER follow_several;

-- case: extension under a user's event trigger
CREATE TABLE log (n serial PRIMARY KEY, tag text, ext bool);
CREATE FUNCTION g() RETURNS event_trigger LANGUAGE plpgsql AS $$ DECLARE c record; BEGIN
  FOR c IN SELECT * FROM pg_event_trigger_ddl_commands() LOOP INSERT INTO :schema.log (tag, ext) VALUES (c.command_tag, c.in_extension); END LOOP;
END $$;
CREATE EVENT TRIGGER follow_ext ON ddl_command_end EXECUTE FUNCTION g();
CREATE EXTENSION pg_trgm SCHEMA :schema;
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE INDEX ON t USING gin (v gin_trgm_ops);
INSERT INTO t VALUES (1, 'abc');
-- finally
DROP EVENT TRIGGER follow_ext;

-- case: event triggers switched off by the setting
-- needs: 17
CREATE TABLE t (id int PRIMARY KEY);
CREATE TABLE unused (id int PRIMARY KEY);
CREATE FUNCTION unused() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION g() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$;
CREATE EVENT TRIGGER follow_broken ON ddl_command_start WHEN tag IN ('CREATE RULE') EXECUTE FUNCTION g();
SET event_triggers = off;
-- error: 0A000
ALTER TABLE t ADD x int;
-- error: 0A000
COMMENT ON TABLE t IS 'x';
-- error: 0A000
CREATE TYPE pair AS (a int, b int);
-- error: 0A000
DROP TABLE unused;
-- error: 0A000
DROP FUNCTION unused();
-- error: 0A000
CREATE TABLE a (id int); INSERT INTO a VALUES (1);
-- error: 0A000
DO $$ BEGIN ALTER TABLE t ADD x int; END $$;
INSERT INTO t VALUES (1);
CREATE ROLE follow_no_events;
DROP EVENT TRIGGER follow_broken;
DO $$ BEGIN INSERT INTO t VALUES (2); END $$;
RESET event_triggers;
ALTER TABLE t ADD y int;
INSERT INTO t VALUES (3, 3);
-- finally
DROP ROLE follow_no_events;

-- case: event triggers switched off for a role
-- needs: 17
CREATE ROLE follow_silent LOGIN;
ALTER ROLE follow_silent SET event_triggers = off;
GRANT ALL ON SCHEMA :schema TO follow_silent;
-- as: follow_silent
-- error: 0A000
CREATE TABLE theirs (id int PRIMARY KEY);
-- as: postgres
CREATE TABLE ours (id int PRIMARY KEY);
-- finally
DROP OWNED BY follow_silent;
DROP ROLE follow_silent;

-- case: a table with the name of the setting
CREATE TABLE event_triggers (id int PRIMARY KEY);
INSERT INTO event_triggers VALUES (1);
TRUNCATE event_triggers;
BEGIN; TRUNCATE event_triggers; COMMIT;
DO $$ BEGIN TRUNCATE event_triggers; END $$;
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) CREATE TABLE x AS SELECT * FROM event_triggers;
CREATE FUNCTION log_event_triggers() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN END $$;
CREATE EVENT TRIGGER follow_named ON ddl_command_end WHEN tag IN ('CREATE RULE') EXECUTE FUNCTION log_event_triggers();
CREATE ROLE follow_event_triggers;
GRANT SELECT ON event_triggers TO follow_event_triggers;
BEGIN; DROP OWNED BY follow_event_triggers; DROP ROLE follow_event_triggers; COMMIT;
INSERT INTO event_triggers VALUES (2);
-- finally
DROP EVENT TRIGGER follow_named;

-- case: event triggers switched off within a transaction
-- needs: 17
CREATE TABLE t (id int PRIMARY KEY);
BEGIN;
CREATE TABLE before (id int PRIMARY KEY);
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) CREATE TABLE explained AS SELECT 1 AS a;
SET LOCAL event_triggers = off;
INSERT INTO t VALUES (1);
SET LOCAL event_triggers = on;
CREATE TABLE behind (id int PRIMARY KEY);
COMMIT;
BEGIN;
SET LOCAL event_triggers = off;
ALTER TABLE t ADD x int;
-- error: 0A000
COMMIT;
BEGIN;
SET LOCAL event_triggers = off;
ALTER TABLE t ADD x int;
-- error: 0A000
SET LOCAL event_triggers = on;
ROLLBACK;
-- error: 0A000
SET event_triggers = off; ALTER TABLE t ADD x int; RESET event_triggers;
-- error: 0A000
SET event_triggers = off; ALTER TABLE t ADD x int; SET event_triggers = on; CREATE TABLE c (id int PRIMARY KEY);
-- error: 0A000
DO $$ BEGIN SET LOCAL event_triggers = off; ALTER TABLE t ADD x int; SET LOCAL event_triggers = on; END $$;
CREATE FUNCTION silently() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
  PERFORM set_config('event_triggers', 'off', true); ALTER TABLE :schema.t ADD x int;
END $$;
-- error: 0A000
SELECT silently();
BEGIN;
SELECT set_config(name, 'off', true) FROM (SELECT 'event_' || 'triggers') s (name);
ALTER TABLE t ADD x int;
-- error: 0A000
COMMIT;
SHOW event_triggers;
BEGIN;
CREATE ROLE follow_without;
CREATE TABLE theirs (id int PRIMARY KEY);
ALTER TABLE theirs OWNER TO follow_without;
SELECT set_config(name, 'off', true) FROM (SELECT 'app.' || 'x') s (name);
REASSIGN OWNED BY follow_without TO postgres;
ALTER TABLE theirs ADD y int;
COMMIT;
INSERT INTO t VALUES (2);
-- finally
DROP OWNED BY follow_without;
DROP ROLE follow_without;

-- case: a superuser switches ours off in a function
-- stoppable
CREATE TABLE t (id int PRIMARY KEY);
DO $$ DECLARE r record; BEGIN
  FOR r IN SELECT evtname FROM pg_event_trigger WHERE evtname ~ 'hihooi' LOOP EXECUTE format('ALTER EVENT TRIGGER %I DISABLE', r.evtname); END LOOP;
  ALTER TABLE t ADD x int;
  CREATE TABLE keyless (id int);
  FOR r IN SELECT evtname FROM pg_event_trigger WHERE evtname ~ 'hihooi' LOOP EXECUTE format('ALTER EVENT TRIGGER %I ENABLE ALWAYS', r.evtname); END LOOP;
END $$;
INSERT INTO t VALUES (1, 1);

-- case: a superuser drops ours in a function
-- stoppable
CREATE TABLE t (id int PRIMARY KEY);
DO $$ DECLARE r record; BEGIN
  FOR r IN SELECT evtname FROM pg_event_trigger WHERE evtname ~ 'hihooi' LOOP EXECUTE format('DROP EVENT TRIGGER %I', r.evtname); END LOOP;
  ALTER TABLE t ADD x int;
END $$;
INSERT INTO t VALUES (1, 1);

-- case: commands that run in front of a GRANT
CREATE ROLE follow_a;
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE TABLE u (id int PRIMARY KEY);
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION before() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
  IF current_setting('app.inside', true) = 'y' THEN RETURN; END IF;
  PERFORM set_config('app.inside', 'y', true);
  CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 2';
  ALTER TABLE u ADD IF NOT EXISTS n int;
  GRANT DELETE ON u TO follow_a;
  COMMENT ON TABLE u IS 'u';
  PERFORM set_config('app.inside', '', true);
END $$;
CREATE EVENT TRIGGER follow_e ON ddl_command_start WHEN TAG IN ('GRANT', 'REVOKE') EXECUTE FUNCTION before();
GRANT UPDATE (id) ON t TO follow_a WITH GRANT OPTION;
GRANT SELECT ON ALL TABLES IN SCHEMA :schema TO follow_a;
REVOKE UPDATE (id) ON t FROM follow_a;
INSERT INTO t VALUES (1);
DROP EVENT TRIGGER follow_e;
-- (This name sorts behind that of ours.)
CREATE EVENT TRIGGER "öfter" ON ddl_command_start WHEN TAG IN ('GRANT', 'REVOKE') EXECUTE FUNCTION before();
ALTER TABLE u DROP n;
GRANT UPDATE (id) ON t TO follow_a WITH GRANT OPTION;
REVOKE UPDATE (id) ON t FROM follow_a;
INSERT INTO t VALUES (2);
-- finally
DROP EVENT TRIGGER IF EXISTS follow_e;
DROP EVENT TRIGGER "öfter";
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: one in front of a command changes the settings in which that runs
CREATE SCHEMA follow_other;
CREATE FUNCTION elsewhere() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
  SET search_path = follow_other;
  SET DateStyle = 'SQL, DMY';
END $$;
CREATE EVENT TRIGGER follow_path ON ddl_command_start WHEN TAG IN ('CREATE TABLE', 'REFRESH MATERIALIZED VIEW')
  EXECUTE FUNCTION elsewhere();
CREATE TABLE t (id int PRIMARY KEY, d date DEFAULT '02/03/2004');
INSERT INTO follow_other.t VALUES (1);
-- expect: 1
SELECT count(*) FROM follow_other.t WHERE d = make_date(2004, 3, 2);
-- finally
DROP EVENT TRIGGER follow_path;
DROP SCHEMA follow_other CASCADE;

-- case: one in front of REFRESH runs commands
CREATE FUNCTION before() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
  CREATE TABLE IF NOT EXISTS :schema.made (id int PRIMARY KEY);
  COMMENT ON TABLE :schema.made IS 'in front';
END $$;
CREATE MATERIALIZED VIEW m AS SELECT random() AS r;
CREATE EVENT TRIGGER follow_refresh ON ddl_command_start WHEN TAG IN ('REFRESH MATERIALIZED VIEW') EXECUTE FUNCTION before();
REFRESH MATERIALIZED VIEW m;
INSERT INTO made VALUES (1);
-- finally
DROP EVENT TRIGGER follow_refresh;

-- case: event triggers on login
-- needs: 17
CREATE TABLE logins (who text);
CREATE FUNCTION on_login() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN INSERT INTO :schema.logins VALUES (session_user); END $$;
CREATE EVENT TRIGGER follow_login ON login EXECUTE FUNCTION on_login();
COMMENT ON EVENT TRIGGER follow_login IS 'x';
-- reconnect
SELECT 1;
ALTER EVENT TRIGGER follow_login ENABLE ALWAYS;
-- reconnect
SELECT 1;
-- check
-- finally
DROP EVENT TRIGGER IF EXISTS follow_login;

-- case: one that is always enabled adds columns and grants, under session_replication_role = replica
CREATE ROLE follow_joe;
CREATE FUNCTION more() RETURNS event_trigger LANGUAGE plpgsql AS $$
DECLARE made record;
BEGIN
  FOR made IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE object_type = 'table' AND schema_name ~ '^(f_|r_)' LOOP
    EXECUTE format('ALTER TABLE %s ADD by_trigger int DEFAULT 7', made.object_identity);
    EXECUTE format('GRANT SELECT ON %s TO follow_joe', made.object_identity);
  END LOOP;
END $$;
CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $$ BEGIN CREATE TABLE nested (id int); INSERT INTO nested VALUES (1); RETURN 5; END $$;
CREATE EVENT TRIGGER follow_more ON ddl_command_end WHEN tag IN ('CREATE TABLE', 'CREATE TABLE AS') EXECUTE FUNCTION more();
ALTER EVENT TRIGGER follow_more ENABLE ALWAYS;
SET session_replication_role = replica;
CREATE TABLE k (id int);
CREATE TABLE c AS SELECT f() AS n;
INSERT INTO k VALUES (1), (2);
UPDATE k SET by_trigger = id;
UPDATE c SET n = 6;
UPDATE nested SET id = 2;
DELETE FROM k WHERE id = 1;
-- finally
DROP EVENT TRIGGER follow_more;
DROP OWNED BY follow_joe;
DROP ROLE follow_joe;
