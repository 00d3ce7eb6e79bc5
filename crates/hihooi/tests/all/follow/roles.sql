-- Roles, memberships, settings: no event fires for them; they travel as full state.

-- case: create, alter, rename, drop
CREATE ROLE follow_a;
CREATE USER follow_b PASSWORD 'secret' CONNECTION LIMIT 3 VALID UNTIL '2040-01-01' IN ROLE follow_a;
CREATE GROUP follow_c ROLE follow_b ADMIN postgres;
ALTER ROLE follow_a CREATEDB CREATEROLE NOINHERIT BYPASSRLS REPLICATION;
ALTER ROLE follow_b PASSWORD 'other' NOLOGIN;
ALTER USER follow_b RENAME TO follow_d;
ALTER ROLE follow_a SUPERUSER;
ALTER ROLE follow_a NOSUPERUSER;
ALTER GROUP follow_c DROP USER follow_d;
COMMENT ON ROLE follow_a IS 'a role';
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1);
-- check
DROP ROLE follow_d, follow_c;
DROP ROLE IF EXISTS follow_a, follow_nosuch;
INSERT INTO t VALUES (2);

-- case: roles made in DO
CREATE TABLE t (id int PRIMARY KEY);
DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'follow_app') THEN
    CREATE ROLE follow_app LOGIN PASSWORD 'x';
  END IF;
  EXECUTE 'CREATE ROLE follow_ro NOLOGIN';
  GRANT follow_ro TO follow_app;
  ALTER ROLE follow_app SET work_mem = '7MB';
END $$;
GRANT SELECT ON t TO follow_ro;
ALTER TABLE t OWNER TO follow_app;
INSERT INTO t VALUES (1);
-- finally
DROP OWNED BY follow_app, follow_ro;
DROP ROLE follow_app, follow_ro;

-- case: roles made in DO and nothing else after
DO $$ BEGIN CREATE ROLE follow_app LOGIN PASSWORD 'x' CREATEDB; END $$;
-- check
DO $$ BEGIN ALTER ROLE follow_app NOCREATEDB CONNECTION LIMIT 5; COMMENT ON ROLE follow_app IS 'c'; END $$;
-- check
DO $$ BEGIN ALTER ROLE follow_app RENAME TO follow_app2; END $$;
-- check
DO $$ BEGIN DROP ROLE follow_app2; END $$;

-- case: changed again behind a note, in one transaction
CREATE ROLE follow_app CONNECTION LIMIT 1;
CREATE FUNCTION quiet() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE EVENT TRIGGER follow_quiet ON ddl_command_end WHEN TAG IN ('CREATE CONVERSION') EXECUTE FUNCTION quiet();
BEGIN;
ALTER ROLE follow_app CONNECTION LIMIT 2;
ALTER ROLE follow_app SET work_mem = '7MB';
ALTER EVENT TRIGGER follow_quiet DISABLE;
CREATE TABLE t (id int PRIMARY KEY);
ALTER ROLE follow_app CONNECTION LIMIT 3;
ALTER ROLE follow_app SET work_mem = '8MB';
ALTER EVENT TRIGGER follow_quiet ENABLE;
COMMIT;
-- finally
DROP EVENT TRIGGER follow_quiet;
DROP ROLE follow_app;

-- case: roles made in functions and used in the same transaction
CREATE FUNCTION tenant(n text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
  EXECUTE format('CREATE ROLE %I LOGIN', 'follow_' || n);
  EXECUTE format('CREATE TABLE %I (id int PRIMARY KEY)', n);
  EXECUTE format('ALTER TABLE %I OWNER TO %I', n, 'follow_' || n);
  EXECUTE format('GRANT USAGE ON SCHEMA :schema TO %I', 'follow_' || n);
END $$;
SELECT tenant('t1'), tenant('t2');
INSERT INTO t1 VALUES (1);
-- finally
DROP OWNED BY follow_t1, follow_t2;
DROP ROLE follow_t1, follow_t2;

-- case: memberships in DO and functions
CREATE ROLE follow_a;
CREATE ROLE follow_b;
CREATE ROLE follow_c;
DO $$ BEGIN GRANT follow_a TO follow_b WITH ADMIN OPTION; GRANT follow_b TO follow_c; END $$;
-- check
DO $$ BEGIN REVOKE ADMIN OPTION FOR follow_a FROM follow_b; REVOKE follow_b FROM follow_c; END $$;
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1);
-- finally
DROP ROLE follow_a, follow_b, follow_c;

-- case: settings of the superuser that disturb appliers
CREATE TABLE t (id int PRIMARY KEY);
ALTER ROLE postgres SET lock_timeout = '1ms';
ALTER ROLE postgres SET datestyle = 'German';
ALTER DATABASE postgres SET extra_float_digits = -5;
ALTER DATABASE postgres SET search_path = nosuch;
-- reconnect
SET search_path = :schema;
ALTER TABLE t ADD f float8, ADD d date;
INSERT INTO t VALUES (1, 0.1::float8 / 3, '2026-01-31');
ALTER TABLE t ADD r float8 DEFAULT random();
ALTER ROLE postgres RESET ALL;
ALTER DATABASE postgres RESET ALL;
-- reconnect
INSERT INTO t VALUES (2, 0.1::float8 / 3, '2026-01-31');

-- case: settings of the replicated database
CREATE TABLE t (id int PRIMARY KEY);
ALTER DATABASE postgres SET work_mem = '5MB';
ALTER DATABASE postgres SET follow.x = 'y';
COMMENT ON DATABASE postgres IS 'commented';
-- check
ALTER DATABASE postgres RESET work_mem;
ALTER DATABASE postgres RESET ALL;
COMMENT ON DATABASE postgres IS 'default administrative connection database';
INSERT INTO t VALUES (1);

-- case: roles in transactions that roll back, savepoints
CREATE TABLE t (id int PRIMARY KEY);
BEGIN;
CREATE ROLE follow_gone;
GRANT SELECT ON t TO follow_gone;
ROLLBACK;
BEGIN;
SAVEPOINT s;
CREATE ROLE follow_gone;
ROLLBACK TO s;
CREATE ROLE follow_kept;
GRANT SELECT ON t TO follow_kept;
COMMIT;
DO $$ BEGIN
  BEGIN CREATE ROLE follow_gone2; RAISE 'no'; EXCEPTION WHEN raise_exception THEN NULL; END;
  BEGIN CREATE ROLE follow_kept; EXCEPTION WHEN duplicate_object THEN NULL; END;
END $$;
INSERT INTO t VALUES (1);
-- finally
DROP OWNED BY follow_kept;
DROP ROLE follow_kept;

-- case: role made, used and dropped in one transaction
CREATE TABLE t (id int PRIMARY KEY);
BEGIN;
CREATE ROLE follow_brief;
GRANT SELECT ON t TO follow_brief;
ALTER TABLE t OWNER TO follow_brief;
ALTER TABLE t OWNER TO postgres;
REVOKE ALL ON t FROM follow_brief;
DROP ROLE follow_brief;
COMMIT;
DO $$ BEGIN
  CREATE ROLE follow_brief;
  GRANT UPDATE ON t TO follow_brief;
  ALTER TABLE t ADD x int;
  DROP OWNED BY follow_brief;
  DROP ROLE follow_brief;
END $$;
INSERT INTO t VALUES (1, 1);

-- case: role dropped and made again under its name in one transaction
CREATE ROLE follow_a CREATEDB;
CREATE TABLE t (id int PRIMARY KEY);
DO $$ BEGIN DROP ROLE follow_a; CREATE ROLE follow_a CREATEROLE; GRANT SELECT ON t TO follow_a; END $$;
INSERT INTO t VALUES (1);
-- finally
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: role renamed in a function while it owns
CREATE ROLE follow_a;
CREATE TABLE t (id int PRIMARY KEY);
ALTER TABLE t OWNER TO follow_a;
CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$ BEGIN ALTER ROLE follow_a RENAME TO follow_b; GRANT SELECT ON t TO follow_b; END $$;
SELECT f();
ALTER TABLE t ADD x int;
INSERT INTO t VALUES (1, 1);
-- check
DO $$ BEGIN ALTER ROLE follow_b RENAME TO follow_c; CREATE ROLE follow_b; ALTER TABLE t OWNER TO follow_b; END $$;
INSERT INTO t VALUES (2, 1);
-- finally
DROP OWNED BY follow_b, follow_c;
DROP ROLE follow_b, follow_c;

-- case: roles that swap their names
CREATE ROLE follow_a CREATEDB;
CREATE ROLE follow_b CREATEROLE;
CREATE TABLE ta (id int PRIMARY KEY);
CREATE TABLE tb (id int PRIMARY KEY);
ALTER TABLE ta OWNER TO follow_a;
ALTER TABLE tb OWNER TO follow_b;
DO $$ BEGIN
  ALTER ROLE follow_a RENAME TO follow_x;
  ALTER ROLE follow_b RENAME TO follow_a;
  ALTER ROLE follow_x RENAME TO follow_b;
END $$;
INSERT INTO ta VALUES (1);
-- finally
DROP OWNED BY follow_a, follow_b;
DROP ROLE follow_a, follow_b;

-- case: a role gets the name of one that was dropped in its transaction
CREATE ROLE follow_a CREATEDB;
CREATE ROLE follow_b CREATEROLE;
CREATE ROLE follow_c;
CREATE TABLE ta (id int PRIMARY KEY);
CREATE TABLE tb (id int PRIMARY KEY);
ALTER TABLE ta OWNER TO follow_a;
ALTER TABLE tb OWNER TO follow_b;
BEGIN;
REASSIGN OWNED BY follow_a TO follow_c;
DROP ROLE follow_a;
ALTER ROLE follow_b RENAME TO follow_a;
COMMIT;
INSERT INTO ta VALUES (1);
INSERT INTO tb VALUES (1);
-- check
ALTER ROLE follow_c RENAME TO follow_d;
COMMENT ON TABLE tb IS 'b';
-- finally
DROP OWNED BY follow_a, follow_d;
DROP ROLE follow_a, follow_d;

-- case: the same in two transactions at the primary itself
CREATE ROLE follow_a CREATEDB;
CREATE ROLE follow_b CREATEROLE;
CREATE TABLE tb (id int PRIMARY KEY);
ALTER TABLE tb OWNER TO follow_b;
-- direct
DROP ROLE follow_a;
ALTER ROLE follow_b RENAME TO follow_a;
-- through
INSERT INTO tb VALUES (1);
COMMENT ON TABLE tb IS 'b';
-- finally
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: the owner of an event trigger is a superuser no more
CREATE ROLE follow_a SUPERUSER;
CREATE FUNCTION told() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE EVENT TRIGGER follow_told ON ddl_command_end EXECUTE FUNCTION told();
BEGIN;
ALTER EVENT TRIGGER follow_told OWNER TO follow_a;
ALTER ROLE follow_a NOSUPERUSER;
COMMIT;
CREATE TABLE t (id int PRIMARY KEY);
-- check
ALTER EVENT TRIGGER follow_told RENAME TO follow_told2;
CREATE TABLE t2 (id int PRIMARY KEY);
-- finally
DROP EVENT TRIGGER follow_told2;
DROP ROLE follow_a;

-- case: a role is granted while it is dropped
CREATE ROLE follow_a;
CREATE ROLE follow_b;
CREATE ROLE follow_c;
BEGIN;
GRANT follow_a TO follow_b;
-- session: 2
DROP ROLE follow_b;
-- session: 1
COMMIT;
CREATE TABLE t (id int PRIMARY KEY);
BEGIN;
GRANT follow_c TO follow_a;
-- session: 2
DROP ROLE follow_c;
-- session: 1
COMMIT;
INSERT INTO t VALUES (1);
-- finally
DROP ROLE follow_a;

-- case: role with a name that needs quotes
CREATE ROLE "follow ""Ü' role";
CREATE TABLE t (id int PRIMARY KEY);
GRANT SELECT ON t TO "follow ""Ü' role";
ALTER TABLE t OWNER TO "follow ""Ü' role";
DO $$ BEGIN ALTER ROLE "follow ""Ü' role" SET work_mem = '5MB'; END $$;
INSERT INTO t VALUES (1);
-- finally
DROP OWNED BY "follow ""Ü' role";
DROP ROLE "follow ""Ü' role";

-- case: typed at the primary itself
CREATE TABLE t (id int PRIMARY KEY);
-- direct
CREATE ROLE follow_direct LOGIN;
GRANT SELECT ON :schema.t TO follow_direct;
ALTER TABLE :schema.t OWNER TO follow_direct;
-- through
INSERT INTO t VALUES (1);
-- finally
DROP OWNED BY follow_direct;
DROP ROLE follow_direct;

-- case: only typed at the primary itself, nothing else
-- direct
CREATE ROLE follow_direct LOGIN CREATEDB;
CREATE ROLE follow_direct2 IN ROLE follow_direct;
ALTER ROLE follow_direct SET work_mem = '5MB';
-- eventually: 1
SELECT count(*) FROM hihooi.told WHERE what = 'shared' AND hash = hihooi.hash_of_shared();
-- check
DROP ROLE follow_direct, follow_direct2;
-- eventually: 1
SELECT count(*) FROM hihooi.told WHERE what = 'shared' AND hash = hihooi.hash_of_shared();

-- case: roles by prepared statements and pipelines of one string
CREATE TABLE t (id int PRIMARY KEY);
-- extended
CREATE ROLE follow_a;
-- together: 4
CREATE ROLE follow_b;
GRANT follow_a TO follow_b;
GRANT SELECT ON t TO follow_b;
INSERT INTO t VALUES (1);
-- extended
ALTER ROLE follow_a CREATEDB;
-- finally
DROP OWNED BY follow_b;
DROP ROLE follow_a, follow_b;

-- case: direct changes of catalogs of roles
CREATE ROLE follow_a;
CREATE TABLE t (id int PRIMARY KEY);
UPDATE pg_authid SET rolcreatedb = true WHERE rolname = 'follow_a';
INSERT INTO t VALUES (1);
-- finally
DROP ROLE follow_a;

-- case: predefined roles and public
CREATE ROLE follow_a;
CREATE TABLE t (id int PRIMARY KEY);
GRANT pg_read_all_data, pg_monitor TO follow_a;
DO $$ BEGIN REVOKE pg_monitor FROM follow_a; GRANT pg_write_all_data TO follow_a; END $$;
GRANT follow_a TO postgres;
INSERT INTO t VALUES (1);
-- finally
DROP ROLE follow_a;

-- case: md5 password, null password, scram verifier
CREATE TABLE t (id int PRIMARY KEY);
SET password_encryption = 'md5';
CREATE ROLE follow_a PASSWORD 'x';
RESET password_encryption;
CREATE ROLE follow_b PASSWORD NULL;
CREATE ROLE follow_c PASSWORD 'md5aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa';
DO $$ BEGIN CREATE ROLE follow_d PASSWORD 'salted here'; EXECUTE 'ALTER ROLE follow_b PASSWORD ''salted too'''; END $$;
ALTER ROLE follow_a RENAME TO follow_e;
INSERT INTO t VALUES (1);
-- finally
DROP ROLE follow_b, follow_c, follow_d, follow_e;

-- case: settings of roles and of roles in databases
CREATE ROLE follow_a;
CREATE TABLE t (id int PRIMARY KEY);
ALTER ROLE follow_a SET work_mem = '9MB';
ALTER ROLE follow_a SET search_path = 'x y', public;
ALTER ROLE follow_a IN DATABASE postgres SET statement_timeout = '1h';
ALTER ROLE follow_a SET follow.custom = 'it''s';
DO $$ BEGIN ALTER ROLE follow_a SET enable_seqscan = off; END $$;
-- check
ALTER ROLE follow_a RESET work_mem;
ALTER ROLE follow_a IN DATABASE postgres RESET ALL;
SET work_mem = '8MB';
ALTER ROLE follow_a SET work_mem FROM CURRENT;
INSERT INTO t VALUES (1);
-- finally
DROP ROLE follow_a;

-- case: a default setting of a role that disturbs appliers
CREATE ROLE follow_a LOGIN;
GRANT ALL ON SCHEMA :schema TO follow_a;
ALTER ROLE follow_a SET search_path = nosuch;
ALTER ROLE follow_a SET default_transaction_read_only = on;
ALTER ROLE follow_a SET statement_timeout = '1ms';
ALTER ROLE follow_a SET standard_conforming_strings = off;
SET ROLE follow_a;
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1);
RESET ROLE;
ALTER ROLE follow_a RESET ALL;
-- finally
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: a createrole role makes roles
CREATE ROLE follow_admin LOGIN CREATEROLE;
GRANT ALL ON SCHEMA :schema TO follow_admin;
-- as: follow_admin
CREATE ROLE follow_made;
DO $$ BEGIN CREATE ROLE follow_made2; GRANT follow_made TO follow_made2; END $$;
CREATE TABLE t (id int PRIMARY KEY);
GRANT SELECT ON t TO follow_made, follow_made2;
-- error: 42501
CREATE ROLE follow_evil SUPERUSER;
INSERT INTO t VALUES (1);
-- finally
-- as: postgres
DROP OWNED BY follow_admin, follow_made, follow_made2;
DROP ROLE follow_admin, follow_made, follow_made2;

-- case: rights on parameters
-- needs: 15
CREATE ROLE follow_amy;
CREATE ROLE follow_ben;
GRANT SET ON PARAMETER log_min_duration_statement, "Follow.it" TO follow_amy WITH GRANT OPTION;
GRANT ALTER SYSTEM ON PARAMETER log_statement TO follow_ben, PUBLIC;
SET ROLE follow_amy;
GRANT SET ON PARAMETER log_min_duration_statement TO follow_ben;
RESET ROLE;
-- check
REVOKE ALL ON PARAMETER log_statement FROM PUBLIC;
REVOKE GRANT OPTION FOR SET ON PARAMETER "Follow.it" FROM follow_amy CASCADE;
DO $$BEGIN GRANT SET ON PARAMETER log_duration TO follow_ben; END$$;
-- check
DROP OWNED BY follow_amy, follow_ben CASCADE;
-- check
GRANT SET ON PARAMETER log_duration TO follow_ben;
REVOKE ALL ON PARAMETER log_duration FROM follow_ben, postgres;
-- check
-- sleep: 2
BEGIN;
COMMIT;
GRANT ALL ON PARAMETER log_duration TO postgres;
-- finally
DROP ROLE follow_amy;
DROP ROLE follow_ben;
