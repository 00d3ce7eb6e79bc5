-- Rights on objects: commands that name no object in their events.

-- case: grant and revoke on every kind of object
CREATE ROLE follow_a;
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE VIEW v AS SELECT * FROM t;
CREATE MATERIALIZED VIEW m AS SELECT 1 AS x;
CREATE SEQUENCE s;
CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE PROCEDURE p() LANGUAGE sql AS '';
CREATE AGGREGATE ag(int) (SFUNC = int4pl, STYPE = int);
CREATE TYPE e AS ENUM ('a');
CREATE DOMAIN d AS int;
GRANT ALL ON t, v, m TO follow_a WITH GRANT OPTION;
GRANT USAGE, SELECT ON SEQUENCE s TO follow_a;
GRANT EXECUTE ON FUNCTION f(int) TO follow_a;
GRANT EXECUTE ON PROCEDURE p() TO follow_a;
GRANT EXECUTE ON ROUTINE ag(int) TO follow_a;
GRANT USAGE ON TYPE e TO follow_a;
GRANT USAGE ON DOMAIN d TO follow_a;
GRANT USAGE ON SCHEMA :schema TO follow_a;
GRANT USAGE ON LANGUAGE plpgsql TO follow_a;
REVOKE EXECUTE ON FUNCTION f(int) FROM PUBLIC;
REVOKE GRANT OPTION FOR SELECT ON t FROM follow_a;
REVOKE DELETE, TRUNCATE ON t FROM follow_a;
INSERT INTO t VALUES (1);
-- finally
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: columns
CREATE ROLE follow_a;
CREATE TABLE t (id int PRIMARY KEY, v text, w text);
GRANT SELECT (id, v), UPDATE (w) ON t TO follow_a;
REVOKE SELECT (v) ON t FROM follow_a;
GRANT INSERT (id) ON t TO PUBLIC;
ALTER TABLE t RENAME w TO x;
INSERT INTO t VALUES (1);
-- finally
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: all in schema
CREATE ROLE follow_a;
GRANT SELECT ON ALL TABLES IN SCHEMA :schema TO follow_a;
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE SEQUENCE s;
CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE PROCEDURE p() LANGUAGE sql AS '';
GRANT SELECT ON ALL TABLES IN SCHEMA :schema TO follow_a;
GRANT ALL ON ALL SEQUENCES IN SCHEMA :schema TO follow_a;
GRANT ALL ON ALL FUNCTIONS IN SCHEMA :schema TO follow_a;
GRANT ALL ON ALL PROCEDURES IN SCHEMA :schema TO follow_a;
REVOKE ALL ON ALL ROUTINES IN SCHEMA :schema FROM PUBLIC;
INSERT INTO t VALUES (1);
-- finally
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: granted again, revoked where there was nothing
CREATE ROLE follow_a;
CREATE TABLE t (id int PRIMARY KEY);
GRANT SELECT ON t TO follow_a;
GRANT SELECT ON t TO follow_a;
REVOKE UPDATE ON t FROM follow_a;
REVOKE ALL ON t FROM PUBLIC;
GRANT ALL ON t TO postgres;
INSERT INTO t VALUES (1);
-- finally
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: chain of grants, granted by, cascade
CREATE ROLE follow_a LOGIN;
CREATE ROLE follow_b LOGIN;
CREATE ROLE follow_c;
CREATE TABLE t (id int PRIMARY KEY);
GRANT USAGE ON SCHEMA :schema TO follow_a, follow_b;
GRANT SELECT ON t TO follow_a WITH GRANT OPTION;
-- as: follow_a
GRANT SELECT ON t TO follow_b WITH GRANT OPTION;
-- as: follow_b
GRANT SELECT ON t TO follow_c GRANTED BY CURRENT_USER;
-- as: postgres
-- check
-- error: 2BP01
REVOKE SELECT ON t FROM follow_a;
REVOKE GRANT OPTION FOR SELECT ON t FROM follow_b CASCADE;
-- check
REVOKE SELECT ON t FROM follow_a CASCADE;
INSERT INTO t VALUES (1);
-- finally
DROP OWNED BY follow_a, follow_b, follow_c;
DROP ROLE follow_a, follow_b, follow_c;

-- case: grant without the right to is a warning
CREATE ROLE follow_a LOGIN;
CREATE ROLE follow_b;
CREATE TABLE t (id int PRIMARY KEY);
GRANT USAGE ON SCHEMA :schema TO follow_a;
GRANT SELECT ON t TO follow_a;
-- as: follow_a
GRANT UPDATE ON t TO follow_b;
GRANT ALL ON t TO follow_b;
-- error: 42501
GRANT SELECT ON pg_authid TO follow_b;
-- as: postgres
INSERT INTO t VALUES (1);
-- finally
DROP OWNED BY follow_a, follow_b;
DROP ROLE follow_a, follow_b;

-- case: default privileges of every kind
CREATE ROLE follow_a;
CREATE ROLE follow_b;
ALTER DEFAULT PRIVILEGES IN SCHEMA :schema GRANT SELECT, INSERT ON TABLES TO follow_a;
ALTER DEFAULT PRIVILEGES IN SCHEMA :schema GRANT USAGE ON SEQUENCES TO follow_a;
ALTER DEFAULT PRIVILEGES IN SCHEMA :schema GRANT EXECUTE ON FUNCTIONS TO follow_a;
ALTER DEFAULT PRIVILEGES IN SCHEMA :schema GRANT USAGE ON TYPES TO follow_a;
ALTER DEFAULT PRIVILEGES FOR ROLE follow_b GRANT ALL ON TABLES TO follow_a WITH GRANT OPTION;
ALTER DEFAULT PRIVILEGES FOR ROLE follow_b REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
ALTER DEFAULT PRIVILEGES FOR ROLE follow_b GRANT USAGE ON SCHEMAS TO follow_a;
CREATE TABLE t (id serial PRIMARY KEY);
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE TYPE e AS ENUM ('a');
GRANT USAGE, CREATE ON SCHEMA :schema TO follow_b;
SET ROLE follow_b;
CREATE TABLE :schema.bt (id int PRIMARY KEY);
RESET ROLE;
-- check
ALTER DEFAULT PRIVILEGES IN SCHEMA :schema REVOKE INSERT ON TABLES FROM follow_a;
ALTER DEFAULT PRIVILEGES IN SCHEMA :schema REVOKE ALL ON TYPES FROM follow_a;
INSERT INTO t DEFAULT VALUES;
-- finally
DROP OWNED BY follow_a, follow_b;
DROP ROLE follow_a, follow_b;

-- case: default privileges are committed while another transaction is open that has created objects
CREATE ROLE follow_a;
CREATE ROLE follow_b;
ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO follow_b;
ALTER DEFAULT PRIVILEGES GRANT DELETE ON TABLES TO follow_b;
GRANT USAGE, CREATE ON SCHEMA :schema TO follow_a;
-- session: 2
BEGIN;
CREATE TABLE t (id serial PRIMARY KEY, n int GENERATED ALWAYS AS IDENTITY);
CREATE TABLE made AS SELECT 1 AS one;
CREATE VIEW v AS SELECT * FROM t;
CREATE MATERIALIZED VIEW m AS SELECT 1 AS one;
CREATE SEQUENCE s;
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE PROCEDURE p() LANGUAGE sql AS 'SELECT 1';
CREATE AGGREGATE g(int) (SFUNC = int4pl, STYPE = int);
CREATE TYPE e AS ENUM ('a');
CREATE TYPE c AS (a int);
CREATE DOMAIN d AS int;
CREATE SCHEMA follow_made;
SET LOCAL ROLE follow_a;
CREATE TABLE :schema.of_a (id int);
-- session: 1
ALTER DEFAULT PRIVILEGES GRANT SELECT, UPDATE ON TABLES TO follow_a WITH GRANT OPTION;
ALTER DEFAULT PRIVILEGES REVOKE DELETE ON TABLES FROM follow_b;
ALTER DEFAULT PRIVILEGES GRANT USAGE ON SEQUENCES TO follow_a;
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO follow_a;
ALTER DEFAULT PRIVILEGES REVOKE USAGE ON TYPES FROM PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT USAGE ON TYPES TO follow_a;
ALTER DEFAULT PRIVILEGES REVOKE USAGE ON SCHEMAS FROM follow_b;
ALTER DEFAULT PRIVILEGES GRANT CREATE ON SCHEMAS TO follow_a;
ALTER DEFAULT PRIVILEGES FOR ROLE follow_a GRANT ALL ON TABLES TO PUBLIC;
-- session: 2
COMMIT;
-- check
INSERT INTO t DEFAULT VALUES;
-- finally
DROP SCHEMA IF EXISTS follow_made;
ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT USAGE ON TYPES TO PUBLIC;
DROP OWNED BY follow_a, follow_b;
DROP ROLE follow_a, follow_b;

-- case: drop owned takes rights only
CREATE ROLE follow_a;
CREATE TABLE t (id int PRIMARY KEY);
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
GRANT ALL ON t TO follow_a;
GRANT ALL ON FUNCTION f() TO follow_a;
GRANT ALL ON SCHEMA :schema TO follow_a;
GRANT CONNECT ON DATABASE postgres TO follow_a;
ALTER DEFAULT PRIVILEGES IN SCHEMA :schema GRANT SELECT ON TABLES TO follow_a;
DROP OWNED BY follow_a;
DROP OWNED BY follow_a;
DROP ROLE follow_a;
INSERT INTO t VALUES (1);

-- case: drop owned takes objects
CREATE ROLE follow_a;
GRANT ALL ON SCHEMA :schema TO follow_a;
SET ROLE follow_a;
CREATE TABLE mine (id int PRIMARY KEY);
CREATE VIEW v AS SELECT * FROM mine;
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
RESET ROLE;
CREATE TABLE t (id int PRIMARY KEY);
-- error: 2BP01
DROP ROLE follow_a;
DROP OWNED BY follow_a CASCADE;
DROP ROLE follow_a;
INSERT INTO t VALUES (1);

-- case: reassign owned
CREATE ROLE follow_a;
CREATE ROLE follow_b;
GRANT ALL ON SCHEMA :schema TO follow_a, follow_b;
SET ROLE follow_a;
CREATE TABLE mine (id serial PRIMARY KEY);
CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (9);
CREATE TYPE e AS ENUM ('a');
CREATE TYPE c AS (a int);
CREATE DOMAIN d AS int[];
CREATE TYPE r AS RANGE (SUBTYPE = int);
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE PROCEDURE pr() LANGUAGE sql AS '';
CREATE PROCEDURE pr(a int, OUT b int, c int) LANGUAGE sql AS 'SELECT 1';
CREATE PROCEDURE pr(a int, b int, OUT c int, INOUT d int) LANGUAGE sql AS 'SELECT 1, 2';
RESET ROLE;
REASSIGN OWNED BY follow_a TO follow_b;
INSERT INTO mine DEFAULT VALUES;
-- finally
DROP OWNED BY follow_a, follow_b;
DROP ROLE follow_a, follow_b;

-- case: owners of everything
CREATE ROLE follow_a;
GRANT ALL ON SCHEMA :schema TO follow_a;
CREATE TABLE t (id serial PRIMARY KEY);
CREATE VIEW v AS SELECT * FROM t;
CREATE MATERIALIZED VIEW m AS SELECT 1 AS x;
CREATE SEQUENCE s;
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE TYPE e AS ENUM ('a');
CREATE TYPE c AS (a int);
CREATE DOMAIN d AS int;
CREATE COLLATION co FROM "C";
CREATE STATISTICS st ON id, (id + 1) FROM t;
CREATE TEXT SEARCH CONFIGURATION tc (COPY = simple);
CREATE TEXT SEARCH DICTIONARY td (TEMPLATE = simple);
CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = int4pl);
CREATE SCHEMA follow_owned;
ALTER TABLE t OWNER TO follow_a;
ALTER VIEW v OWNER TO follow_a;
ALTER MATERIALIZED VIEW m OWNER TO follow_a;
ALTER SEQUENCE s OWNER TO follow_a;
ALTER FUNCTION f() OWNER TO follow_a;
ALTER TYPE e OWNER TO follow_a;
ALTER TYPE c OWNER TO follow_a;
ALTER DOMAIN d OWNER TO follow_a;
ALTER COLLATION co OWNER TO follow_a;
ALTER STATISTICS st OWNER TO follow_a;
ALTER TEXT SEARCH CONFIGURATION tc OWNER TO follow_a;
ALTER TEXT SEARCH DICTIONARY td OWNER TO follow_a;
ALTER OPERATOR === (int, int) OWNER TO follow_a;
ALTER SCHEMA follow_owned OWNER TO follow_a;
INSERT INTO t DEFAULT VALUES;
-- finally
DROP OWNED BY follow_a CASCADE;
DROP ROLE follow_a;

-- case: grants in functions, DO and several at once
CREATE ROLE follow_a;
CREATE TABLE t (id int PRIMARY KEY);
CREATE TABLE u (id int PRIMARY KEY);
CREATE FUNCTION g() RETURNS void LANGUAGE plpgsql AS $$ DECLARE r record; BEGIN
  FOR r IN SELECT relname FROM pg_class WHERE relnamespace = ':schema'::regnamespace AND relkind = 'r' LOOP
    EXECUTE format('GRANT SELECT ON %I TO follow_a; GRANT INSERT ON %I TO PUBLIC; REVOKE INSERT ON %I FROM PUBLIC', r.relname, r.relname, r.relname);
  END LOOP;
END $$;
SELECT g();
DO $$ BEGIN GRANT ALL ON t TO follow_a; REVOKE SELECT ON u FROM follow_a; END $$;
GRANT SELECT ON t TO PUBLIC; GRANT SELECT ON u TO PUBLIC; REVOKE SELECT ON t FROM PUBLIC;
INSERT INTO t VALUES (1);
-- finally
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: grant in the transaction that made the object
CREATE ROLE follow_a;
BEGIN;
CREATE TABLE t (id int PRIMARY KEY);
GRANT SELECT ON t TO follow_a;
ALTER TABLE t ADD x int;
GRANT UPDATE (x) ON t TO follow_a;
SAVEPOINT s;
REVOKE ALL ON t FROM follow_a;
ROLLBACK TO s;
CREATE TABLE u (id int PRIMARY KEY);
GRANT SELECT ON ALL TABLES IN SCHEMA :schema TO PUBLIC;
COMMIT;
INSERT INTO t VALUES (1);
-- finally
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: rights on the database, tablespace, parameters
CREATE ROLE follow_a;
CREATE TABLE t (id int PRIMARY KEY);
GRANT CONNECT, CREATE ON DATABASE postgres TO follow_a;
REVOKE CREATE ON DATABASE postgres FROM follow_a;
GRANT CREATE ON TABLESPACE pg_default TO follow_a;
REVOKE CREATE ON TABLESPACE pg_default FROM follow_a;
INSERT INTO t VALUES (1);
-- finally
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: foreign data wrapper, server, mapping
CREATE ROLE follow_a;
CREATE TABLE t (id int PRIMARY KEY);
CREATE FOREIGN DATA WRAPPER follow_fdw;
CREATE SERVER follow_server FOREIGN DATA WRAPPER follow_fdw OPTIONS (host 'x');
GRANT USAGE ON FOREIGN DATA WRAPPER follow_fdw TO follow_a;
GRANT USAGE ON FOREIGN SERVER follow_server TO follow_a;
CREATE USER MAPPING FOR follow_a SERVER follow_server OPTIONS (password 'secret');
ALTER USER MAPPING FOR follow_a SERVER follow_server OPTIONS (SET password 'other');
CREATE FOREIGN TABLE ft (a int OPTIONS (x 'y')) SERVER follow_server OPTIONS (z 'w');
ALTER FOREIGN TABLE ft ADD COLUMN b text;
ALTER FOREIGN TABLE ft OPTIONS (SET z 'v');
GRANT SELECT ON ft TO follow_a;
COMMENT ON SERVER follow_server IS 'c';
INSERT INTO t VALUES (1);
-- finally
DROP FOREIGN DATA WRAPPER follow_fdw CASCADE;
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: rights on large objects
CREATE ROLE follow_a;
CREATE TABLE t (id int PRIMARY KEY);
SELECT lo_create(987001);
GRANT SELECT ON LARGE OBJECT 987001 TO follow_a;
REVOKE SELECT ON LARGE OBJECT 987001 FROM follow_a;
INSERT INTO t VALUES (1);
-- finally
SELECT lo_unlink(987001);
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: an ordinary owner revokes its own rights
CREATE ROLE follow_a LOGIN;
GRANT ALL ON SCHEMA :schema TO follow_a;
-- as: follow_a
CREATE TABLE t (id int PRIMARY KEY, v int CHECK (v > 0));
INSERT INTO t VALUES (1, 1);
REVOKE ALL ON t FROM follow_a;
ALTER TABLE t ADD x int DEFAULT 3;
CREATE INDEX ON t (v);
COMMENT ON TABLE t IS 'x';
-- as: postgres
INSERT INTO t VALUES (2, 2, 2);
REVOKE ALL ON SCHEMA :schema FROM follow_a;
INSERT INTO t VALUES (3, 2, 2);
-- finally
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: a role that lost its rights on the schema still owns
CREATE ROLE follow_a LOGIN;
GRANT ALL ON SCHEMA :schema TO follow_a;
-- as: follow_a
CREATE TABLE t (id int PRIMARY KEY);
-- as: postgres
REVOKE ALL ON SCHEMA :schema FROM follow_a;
GRANT USAGE ON SCHEMA :schema TO follow_a;
-- as: follow_a
ALTER TABLE t ADD x int;
-- error: 42501
CREATE TABLE u (id int);
ALTER TABLE t ADD u uuid DEFAULT gen_random_uuid();
INSERT INTO t VALUES (1);
-- finally
-- as: postgres
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: an ordinary role calls and writes whatever is ours
CREATE ROLE follow_a LOGIN;
GRANT ALL ON SCHEMA :schema TO follow_a;
CREATE TABLE victim (id int PRIMARY KEY);
-- as: follow_a
CREATE FUNCTION forge() RETURNS int LANGUAGE plpgsql AS $$ DECLARE r record; BEGIN
  FOR r IN SELECT format('SELECT %s(%s)', p.oid::regproc, (SELECT string_agg(format('NULL::%s', format_type(a, NULL)), ', ') FROM unnest(p.proargtypes) a)) AS call
      FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'hihooi' AND p.prorettype <> 'event_trigger'::regtype LOOP
    BEGIN EXECUTE r.call; EXCEPTION WHEN OTHERS THEN NULL; END;
  END LOOP;
  FOR r IN SELECT oid::regclass::text AS name FROM pg_class WHERE relnamespace = to_regnamespace('hihooi') AND relkind = 'r' LOOP
    BEGIN EXECUTE format('INSERT INTO %s SELECT * FROM %s', r.name, r.name); EXCEPTION WHEN OTHERS THEN NULL; END;
    BEGIN EXECUTE format('INSERT INTO %s DEFAULT VALUES', r.name); EXCEPTION WHEN OTHERS THEN NULL; END;
    BEGIN EXECUTE format('DELETE FROM %s', r.name); EXCEPTION WHEN OTHERS THEN NULL; END;
    BEGIN EXECUTE format('TRUNCATE %s', r.name); EXCEPTION WHEN OTHERS THEN NULL; END;
    BEGIN EXECUTE format('DROP TABLE %s', r.name); EXCEPTION WHEN OTHERS THEN NULL; END;
  END LOOP;
  PERFORM pg_logical_emit_message(true, 'hihooi', 'DROP TABLE victim');
  RETURN 1;
END $$;
CREATE TABLE made AS SELECT forge() AS x;
SELECT forge();
INSERT INTO made VALUES (2);
-- as: postgres
INSERT INTO victim VALUES (1);
-- finally
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: code that runs in the definitions of a superuser and of others
CREATE ROLE follow_a LOGIN;
CREATE TABLE who (n serial, su bool);
GRANT ALL ON SCHEMA :schema TO follow_a;
GRANT ALL ON who, who_n_seq TO follow_a;
-- as: follow_a
CREATE FUNCTION hidden() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
  IF current_setting('is_superuser') = 'on' AND session_user <> 'postgres' THEN RAISE 'superuser'; END IF;
  IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN CREATE ROLE follow_evil SUPERUSER; END IF;
END $$;
CREATE FUNCTION evil(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM hidden(); RETURN $1; END $$;
CREATE TABLE t (id int PRIMARY KEY, n int DEFAULT evil(1) CHECK (evil(n) > 0));
CREATE INDEX ON t (evil(n));
INSERT INTO t VALUES (1, 1), (2, 2);
ALTER TABLE t ADD x int DEFAULT evil(3);
-- until: 16
ALTER TABLE t ALTER x TYPE bigint USING evil(n);
UPDATE t SET n = 5;
CREATE TABLE c AS SELECT evil(id) AS e FROM t;
-- until: 16
CREATE MATERIALIZED VIEW m AS SELECT evil(id) AS e FROM t;
-- until: 16
REFRESH MATERIALIZED VIEW m;
-- finally
-- as: postgres
DROP OWNED BY follow_a;
DROP ROLE follow_a;
DROP ROLE IF EXISTS follow_evil;

-- case: reassigned and changed in one block
CREATE ROLE follow_a LOGIN;
CREATE ROLE follow_b LOGIN;
GRANT ALL ON SCHEMA :schema TO follow_a, follow_b;
SET ROLE follow_a;
CREATE TABLE t (id int PRIMARY KEY);
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
RESET ROLE;
BEGIN;
INSERT INTO t VALUES (1);
REASSIGN OWNED BY follow_a TO follow_b;
SET LOCAL ROLE follow_b;
ALTER TABLE t ADD v int DEFAULT 3;
DROP FUNCTION f();
INSERT INTO t VALUES (2);
COMMIT;
INSERT INTO t VALUES (3);
-- finally
DROP OWNED BY follow_a, follow_b;
DROP ROLE follow_a, follow_b;

-- case: reassigned by code and among others
CREATE ROLE follow_a;
CREATE ROLE follow_b;
GRANT ALL ON SCHEMA :schema TO follow_a, follow_b;
CREATE TABLE t (id int PRIMARY KEY);
ALTER TABLE t OWNER TO follow_a;
DO $$ BEGIN REASSIGN OWNED BY follow_a TO follow_b; END $$;
-- check
REASSIGN OWNED BY follow_b TO follow_a; ALTER ROLE follow_a CONNECTION LIMIT 3; INSERT INTO t VALUES (1);
-- check
CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN REASSIGN OWNED BY follow_a TO follow_b; ALTER TABLE t ADD v int; END $$;
CALL p();
DO $$ BEGIN EXECUTE 'EXPLAIN ANALYZE CREATE TABLE c AS SELECT generate_series($1, 3) AS a' USING 1; END $$;
INSERT INTO c VALUES (7);
-- finally
DROP OWNED BY follow_a, follow_b;
DROP ROLE follow_a, follow_b;

-- case: nobody hides what was done
CREATE ROLE follow_a;
CREATE ROLE follow_b;
GRANT ALL ON SCHEMA :schema TO follow_a, follow_b;
CREATE TABLE t (id int PRIMARY KEY);
ALTER TABLE t OWNER TO follow_a;
BEGIN;
CREATE TABLE u (id int PRIMARY KEY);
REASSIGN OWNED BY follow_a TO follow_b;
SET LOCAL ROLE follow_b;
SAVEPOINT s;
-- error: 42501
SELECT current_setting('session_preload_libraries');
ROLLBACK TO s;
-- error: 42501
SELECT set_config('session_preload_libraries', '{}', true);
ROLLBACK TO s;
RESET ALL;
SET search_path = :schema;
ALTER TABLE t ADD v int DEFAULT 3;
COMMIT;
INSERT INTO t VALUES (3);
-- finally
DROP OWNED BY follow_a, follow_b;
DROP ROLE follow_a, follow_b;

-- case: default privileges that go, and come back in the same transaction
CREATE ROLE follow_a;
CREATE ROLE follow_b;
ALTER DEFAULT PRIVILEGES IN SCHEMA :schema GRANT SELECT ON TABLES TO follow_a, follow_b;
ALTER DEFAULT PRIVILEGES IN SCHEMA :schema REVOKE SELECT ON TABLES FROM follow_a, follow_b;
-- expect: 0
SELECT count(*) FROM pg_default_acl WHERE defaclnamespace = ':schema'::regnamespace;
BEGIN;
ALTER DEFAULT PRIVILEGES IN SCHEMA :schema GRANT SELECT ON TABLES TO follow_a, follow_b;
ALTER DEFAULT PRIVILEGES IN SCHEMA :schema REVOKE SELECT ON TABLES FROM follow_a, follow_b;
ALTER DEFAULT PRIVILEGES IN SCHEMA :schema GRANT INSERT ON TABLES TO follow_a;
SAVEPOINT s;
ALTER DEFAULT PRIVILEGES IN SCHEMA :schema REVOKE INSERT ON TABLES FROM follow_a;
ROLLBACK TO s;
COMMIT;
-- check
CREATE TABLE t (id int PRIMARY KEY);
BEGIN;
DROP OWNED BY follow_a;
ALTER DEFAULT PRIVILEGES IN SCHEMA :schema GRANT SELECT ON TABLES TO follow_b;
DROP OWNED BY follow_b;
DROP ROLE follow_a, follow_b;
COMMIT;
-- expect: 0
SELECT count(*) FROM pg_default_acl WHERE defaclnamespace = ':schema'::regnamespace;

-- case: an owner in between takes up the rights it has, and gives on those it granted
CREATE ROLE follow_a;
CREATE ROLE follow_b;
CREATE ROLE follow_c;
CREATE ROLE follow_d;
GRANT ALL ON SCHEMA :schema TO follow_a, follow_b, follow_c;
CREATE TABLE t (id int PRIMARY KEY, v text, w text);
CREATE SEQUENCE s;
CREATE VIEW v AS SELECT 1 AS one;
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE PROCEDURE p(a int) LANGUAGE sql AS 'SELECT 1';
CREATE TYPE e AS ENUM ('a');
CREATE DOMAIN d AS int;
ALTER TABLE t OWNER TO follow_a;
ALTER SEQUENCE s OWNER TO follow_a;
ALTER VIEW v OWNER TO follow_a;
ALTER FUNCTION f() OWNER TO follow_a;
ALTER PROCEDURE p(int) OWNER TO follow_a;
ALTER TYPE e OWNER TO follow_a;
ALTER DOMAIN d OWNER TO follow_a;
SET ROLE follow_a;
GRANT SELECT ON t TO follow_b WITH GRANT OPTION;
GRANT UPDATE (v, w) ON t TO follow_b WITH GRANT OPTION;
GRANT INSERT (w) ON t TO follow_d;
GRANT ALL ON SEQUENCE s TO follow_b WITH GRANT OPTION;
GRANT SELECT ON v TO follow_b;
GRANT EXECUTE ON FUNCTION f() TO follow_b WITH GRANT OPTION;
GRANT EXECUTE ON PROCEDURE p(int) TO follow_b;
GRANT USAGE ON TYPE e TO follow_b WITH GRANT OPTION;
REVOKE USAGE ON TYPE d FROM PUBLIC;
GRANT USAGE ON TYPE d TO follow_b;
SET ROLE follow_b;
GRANT SELECT ON t TO follow_d;
GRANT UPDATE (w) ON t TO follow_d;
GRANT EXECUTE ON FUNCTION f() TO follow_d;
RESET ROLE;
BEGIN;
REASSIGN OWNED BY follow_a TO follow_b;
REASSIGN OWNED BY follow_b TO follow_c;
COMMIT;
INSERT INTO t VALUES (1);
-- check
SET ROLE follow_c;
GRANT SELECT ON t TO follow_b;
GRANT UPDATE (v) ON t TO follow_b;
GRANT EXECUTE ON FUNCTION f() TO follow_b WITH GRANT OPTION;
RESET ROLE;
DO $$ BEGIN REASSIGN OWNED BY follow_c TO follow_b; REASSIGN OWNED BY follow_b TO follow_c; END $$;
INSERT INTO t VALUES (2);
-- check
-- direct
SET ROLE follow_c;
GRANT SELECT ON :schema.t TO follow_b;
GRANT EXECUTE ON FUNCTION :schema.f() TO follow_b;
RESET ROLE;
REASSIGN OWNED BY follow_c TO follow_b;
REASSIGN OWNED BY follow_b TO follow_a;
-- eventually: 1
SELECT count(*) FROM hihooi.owners WHERE object = ':schema.t'::regclass AND owner = 'follow_a'::regrole;
-- through
INSERT INTO t VALUES (3);
-- finally
DROP OWNED BY follow_a, follow_b, follow_c, follow_d CASCADE;
DROP ROLE follow_a, follow_b, follow_c, follow_d;
