-- What belongs to this server alone, or to another database: it isn't replayed and stops nobody.

-- case: another database altered in DO
CREATE TABLE t (id int PRIMARY KEY);
CREATE DATABASE follow_other;
DO $$ BEGIN
  EXECUTE 'ALTER DATABASE follow_other SET work_mem = ''5MB''';
  COMMENT ON DATABASE follow_other IS 'c';
  GRANT CONNECT ON DATABASE follow_other TO PUBLIC;
END $$;
INSERT INTO t VALUES (1);
DROP DATABASE follow_other;
DROP DATABASE IF EXISTS follow_other;
INSERT INTO t VALUES (2);

-- case: a role owns another database, then is dropped
CREATE ROLE follow_a CREATEDB LOGIN;
CREATE TABLE t (id int PRIMARY KEY);
-- as: follow_a
CREATE DATABASE follow_other;
-- reconnect
-- as: postgres
-- error: 2BP01
DROP ROLE follow_a;
REASSIGN OWNED BY follow_a TO postgres;
DROP ROLE follow_a;
INSERT INTO t VALUES (1);
-- finally
DROP DATABASE follow_other;

-- case: tables in another database
CREATE TABLE t (id int PRIMARY KEY);
CREATE DATABASE follow_other;
-- database: follow_other
CREATE TABLE x (id int);
INSERT INTO x VALUES (1);
CREATE ROLE follow_a;
GRANT SELECT ON x TO follow_a;
-- database: postgres
GRANT SELECT ON t TO follow_a;
INSERT INTO t VALUES (1);
-- finally
-- database: postgres
DROP DATABASE follow_other WITH (FORCE);
DROP TABLE t;
DROP ROLE IF EXISTS follow_a;

-- case: tablespaces
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE follow_ts LOCATION '';
CREATE TABLE t (id int PRIMARY KEY, v text) TABLESPACE follow_ts;
CREATE INDEX i ON t (v) TABLESPACE follow_ts;
INSERT INTO t VALUES (1, 'a');
CREATE TABLE u (id int, UNIQUE (id) USING INDEX TABLESPACE follow_ts);
CREATE TABLE c TABLESPACE follow_ts AS SELECT * FROM t;
CREATE MATERIALIZED VIEW m TABLESPACE follow_ts AS SELECT 1 AS x;
ALTER TABLE u SET TABLESPACE follow_ts;
ALTER INDEX i SET TABLESPACE pg_default;
ALTER TABLE u SET TABLESPACE pg_default, ADD COLUMN y int;
INSERT INTO u VALUES (1, 2);
INSERT INTO c VALUES (2, 'b');
-- finally
DROP TABLE t, c CASCADE;
DROP MATERIALIZED VIEW m;
DROP TABLE u;
DROP TABLESPACE follow_ts;

-- case: default_tablespace, partitions in tablespaces, move all
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE follow_ts LOCATION '';
SET default_tablespace = follow_ts;
CREATE TABLE t (id int PRIMARY KEY);
CREATE TABLE p (id int) PARTITION BY RANGE (id) TABLESPACE follow_ts;
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10) TABLESPACE pg_default;
RESET default_tablespace;
INSERT INTO t VALUES (1);
INSERT INTO p VALUES (1);
ALTER TABLE ALL IN TABLESPACE follow_ts SET TABLESPACE pg_default;
ALTER INDEX ALL IN TABLESPACE follow_ts SET TABLESPACE pg_default;
DO $$ BEGIN CREATE TABLE n (id int PRIMARY KEY) TABLESPACE follow_ts; END $$;
REINDEX (TABLESPACE follow_ts) TABLE t;
INSERT INTO n VALUES (1);
-- finally
DROP TABLE t, p, n;
DROP TABLESPACE follow_ts;

-- case: large objects
CREATE ROLE follow_a;
CREATE TABLE t (id int PRIMARY KEY, o oid);
SELECT lo_create(987002);
SELECT lo_put(987002, 0, 'hello');
COMMENT ON LARGE OBJECT 987002 IS 'c';
ALTER LARGE OBJECT 987002 OWNER TO follow_a;
GRANT SELECT, UPDATE ON LARGE OBJECT 987002 TO PUBLIC;
REVOKE UPDATE ON LARGE OBJECT 987002 FROM PUBLIC;
ALTER LARGE OBJECT 987002 OWNER TO postgres;
INSERT INTO t VALUES (1, lo_from_bytea(987003, 'x'));
DO $$ BEGIN GRANT SELECT ON LARGE OBJECT 987003 TO PUBLIC; COMMENT ON LARGE OBJECT 987003 IS 'd'; END $$;
INSERT INTO t VALUES (2, 987002);
-- finally
SELECT lo_unlink(987002), lo_unlink(987003);
DROP ROLE follow_a;

-- case: large object of a role in drop owned and reassign
CREATE ROLE follow_a;
CREATE TABLE t (id int PRIMARY KEY);
SELECT lo_create(987004);
ALTER LARGE OBJECT 987004 OWNER TO follow_a;
REASSIGN OWNED BY follow_a TO postgres;
ALTER LARGE OBJECT 987004 OWNER TO follow_a;
DROP OWNED BY follow_a;
INSERT INTO t VALUES (1);
-- finally
DROP ROLE follow_a;

-- case: publications
CREATE TABLE t (id int PRIMARY KEY);
CREATE PUBLICATION follow_pub FOR TABLE t;
COMMENT ON PUBLICATION follow_pub IS 'c';
ALTER PUBLICATION follow_pub SET (publish = 'insert');
ALTER PUBLICATION follow_pub RENAME TO follow_pub2;
ALTER PUBLICATION follow_pub2 OWNER TO postgres;
INSERT INTO t VALUES (1);
UPDATE t SET id = 2;
DO $$ BEGIN ALTER PUBLICATION follow_pub2 DROP TABLE t; COMMENT ON PUBLICATION follow_pub2 IS 'd'; END $$;
DROP PUBLICATION follow_pub2;
INSERT INTO t VALUES (3);

-- case: publication dropped with its table
CREATE TABLE t (id int PRIMARY KEY);
CREATE TABLE u (id int PRIMARY KEY);
CREATE PUBLICATION follow_pub FOR TABLE t, u;
DROP TABLE t;
INSERT INTO u VALUES (3);
-- finally
DROP PUBLICATION follow_pub;

-- case: publication with row filter and column list
-- needs: 15
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE FUNCTION f(int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT true';
CREATE PUBLICATION follow_pub FOR TABLE t (id) WHERE (id > 0);
CREATE PUBLICATION follow_pub_s FOR TABLES IN SCHEMA :schema;
INSERT INTO t VALUES (1, 'a');
DROP PUBLICATION follow_pub, follow_pub_s;
INSERT INTO t VALUES (3);

-- case: subscriptions
CREATE TABLE t (id int PRIMARY KEY);
CREATE SUBSCRIPTION follow_sub CONNECTION 'dbname=nosuch' PUBLICATION x WITH (connect = false, slot_name = NONE);
COMMENT ON SUBSCRIPTION follow_sub IS 'c';
ALTER SUBSCRIPTION follow_sub SET (binary = true);
ALTER SUBSCRIPTION follow_sub RENAME TO follow_sub2;
INSERT INTO t VALUES (1);
DROP SUBSCRIPTION follow_sub2;
INSERT INTO t VALUES (2);

-- case: alter system, checkpoint, load, reload, statistics
CREATE TABLE t (id int PRIMARY KEY);
ALTER SYSTEM SET log_min_duration_statement = '1h';
ALTER SYSTEM RESET log_min_duration_statement;
SELECT pg_reload_conf();
CHECKPOINT;
LOAD 'plpgsql';
ANALYZE;
VACUUM t;
SELECT pg_stat_reset();
INSERT INTO t VALUES (1);

-- case: replication origins and slots of one's own
CREATE TABLE t (id int PRIMARY KEY);
SELECT pg_replication_origin_create('follow_origin');
SELECT pg_create_physical_replication_slot('follow_slot');
SELECT pg_replication_origin_drop('follow_origin');
SELECT pg_drop_replication_slot('follow_slot');
SELECT pg_logical_emit_message(true, 'hihooi', 'garbage');
SELECT pg_logical_emit_message(true, 'follow', 'mine');
INSERT INTO t VALUES (1);

-- case: our own objects are left alone
CREATE TABLE t (id int PRIMARY KEY);
COMMENT ON COLUMN t.id IS 'x';
ALTER TABLE t REPLICA IDENTITY DEFAULT;
NOTIFY follow_channel;
LISTEN follow_channel;
UNLISTEN *;
BEGIN; LOCK TABLE t; COMMIT;
INSERT INTO t VALUES (1);

-- case: nothing happened
CREATE TABLE t (id int PRIMARY KEY);
CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY);
CREATE INDEX IF NOT EXISTS t_pkey ON t (id);
CREATE SCHEMA IF NOT EXISTS :schema;
CREATE SEQUENCE IF NOT EXISTS t;
DROP TABLE IF EXISTS nosuch;
DROP FUNCTION IF EXISTS nosuch(int);
INSERT INTO t VALUES (1);

-- case: nothing happened to what is there or isn't
CREATE TABLE t (id int PRIMARY KEY);
ALTER TABLE IF EXISTS nosuch ADD x int;
ALTER TABLE t ADD COLUMN IF NOT EXISTS id int;
ALTER TABLE t DROP COLUMN IF EXISTS nosuch;
ALTER TABLE t DROP CONSTRAINT IF EXISTS nosuch;
ALTER TABLE t ALTER id SET NOT NULL;
ALTER EXTENSION plpgsql UPDATE;
CREATE EXTENSION IF NOT EXISTS plpgsql;
COMMENT ON TABLE t IS NULL;
DROP INDEX IF EXISTS nosuch;
DROP ROLE IF EXISTS follow_nosuch;
INSERT INTO t VALUES (1);

-- case: direct changes of catalogs
-- stoppable
CREATE TABLE t (id int PRIMARY KEY, v varchar(3));
UPDATE pg_attribute SET atttypmod = 14 WHERE attrelid = 't'::regclass AND attname = 'v';
INSERT INTO t VALUES (1, 'longer');

-- case: another database
CREATE TABLE t (id int PRIMARY KEY);
CREATE DATABASE follow_other;
ALTER DATABASE follow_other SET work_mem = '5MB';
COMMENT ON DATABASE follow_other IS 'c';
GRANT CONNECT ON DATABASE follow_other TO PUBLIC;
REVOKE CONNECT ON DATABASE follow_other FROM PUBLIC;
ALTER DATABASE follow_other CONNECTION LIMIT 3;
ALTER DATABASE follow_other ALLOW_CONNECTIONS true;
ALTER DATABASE follow_other RENAME TO follow_other2;
ALTER DATABASE follow_other2 RESET ALL;
INSERT INTO t VALUES (1);
-- finally
DROP DATABASE follow_other2;

-- case: another database gets an owner and rights of roles
CREATE ROLE follow_a;
CREATE TABLE t (id int PRIMARY KEY);
CREATE DATABASE follow_other OWNER follow_a;
GRANT ALL ON DATABASE follow_other TO follow_a WITH GRANT OPTION;
ALTER DATABASE follow_other OWNER TO postgres;
ALTER ROLE follow_a IN DATABASE follow_other SET work_mem = '5MB';
ALTER ROLE ALL IN DATABASE follow_other SET work_mem = '6MB';
DO $$ BEGIN ALTER ROLE follow_a IN DATABASE follow_other SET enable_seqscan = off; END $$;
ALTER ROLE follow_a IN DATABASE follow_other RESET ALL;
INSERT INTO t VALUES (1);
-- finally
DROP DATABASE follow_other;
DROP ROLE follow_a;

-- case: tablespace properties
SET allow_in_place_tablespaces = on;
CREATE TABLE t (id int PRIMARY KEY);
CREATE ROLE follow_a;
CREATE TABLESPACE follow_ts OWNER follow_a LOCATION '';
ALTER TABLESPACE follow_ts SET (random_page_cost = 2);
COMMENT ON TABLESPACE follow_ts IS 'c';
GRANT CREATE ON TABLESPACE follow_ts TO PUBLIC;
ALTER TABLESPACE follow_ts RENAME TO follow_ts2;
ALTER TABLESPACE follow_ts2 OWNER TO postgres;
INSERT INTO t VALUES (1);
DROP TABLESPACE follow_ts2;
INSERT INTO t VALUES (2);
-- finally
DROP ROLE follow_a;
