-- Extensions: the command is replayed, what its script did comes from the script.

-- case: create, comment, move, drop
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE EXTENSION pg_trgm SCHEMA :schema;
CREATE INDEX i ON t USING gin (v gin_trgm_ops);
INSERT INTO t VALUES (1, 'abc');
COMMENT ON EXTENSION pg_trgm IS 'c';
CREATE SCHEMA follow_ext;
ALTER EXTENSION pg_trgm SET SCHEMA follow_ext;
INSERT INTO t VALUES (2, 'abc');
-- check
DROP EXTENSION pg_trgm CASCADE;
INSERT INTO t VALUES (3, 'abc');
-- finally
DROP SCHEMA follow_ext;

-- case: types of extensions in tables
CREATE EXTENSION citext SCHEMA :schema;
CREATE EXTENSION hstore SCHEMA :schema;
CREATE EXTENSION ltree SCHEMA :schema;
CREATE TABLE t (id int PRIMARY KEY, v citext UNIQUE, h hstore, l ltree);
INSERT INTO t VALUES (1, 'ABC', 'a=>b', 'a.b');
-- error: 23505
INSERT INTO t VALUES (2, 'abc');
UPDATE t SET h = h || 'c=>d';
CREATE INDEX ON t USING gist (l);
ALTER TABLE t ALTER v TYPE text;
DROP EXTENSION hstore CASCADE;
INSERT INTO t VALUES (3, 'x', 'y');

-- case: if not exists, version, cascade, update
CREATE TABLE t (id int PRIMARY KEY);
CREATE EXTENSION IF NOT EXISTS pg_trgm WITH SCHEMA :schema VERSION '1.5';
CREATE EXTENSION IF NOT EXISTS pg_trgm;
ALTER EXTENSION pg_trgm UPDATE TO '1.6';
ALTER EXTENSION pg_trgm UPDATE;
CREATE EXTENSION earthdistance SCHEMA :schema CASCADE;
INSERT INTO t VALUES (1);

-- case: in DO and functions
CREATE TABLE t (id int PRIMARY KEY);
DO $$ BEGIN CREATE EXTENSION IF NOT EXISTS pgcrypto SCHEMA :schema; CREATE EXTENSION IF NOT EXISTS "uuid-ossp" SCHEMA :schema; ALTER TABLE t ADD u uuid DEFAULT :schema.uuid_generate_v4(); END $$;
INSERT INTO t VALUES (1);
ALTER TABLE t ADD w uuid DEFAULT :schema.uuid_generate_v4();
INSERT INTO t VALUES (2);

-- case: members added and dropped
CREATE EXTENSION cube SCHEMA :schema;
CREATE TABLE t (id int PRIMARY KEY);
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
ALTER EXTENSION cube ADD FUNCTION f();
ALTER EXTENSION cube ADD TABLE t;
INSERT INTO t VALUES (1);
-- check
ALTER EXTENSION cube DROP TABLE t;
ALTER EXTENSION cube DROP FUNCTION f();
INSERT INTO t VALUES (2);

-- case: updates whose scripts drop members
CREATE EXTENSION hstore SCHEMA :schema VERSION '1.4';
CREATE TABLE t (id int PRIMARY KEY, h hstore);
INSERT INTO t VALUES (1, 'a=>1');
ALTER EXTENSION hstore UPDATE TO '1.6';
INSERT INTO t VALUES (2, 'b=>2');
ALTER EXTENSION hstore UPDATE;
CREATE EXTENSION cube SCHEMA :schema VERSION '1.2';
ALTER EXTENSION cube UPDATE;
INSERT INTO t VALUES (3, 'c=>3');

-- case: foreign data
CREATE EXTENSION file_fdw SCHEMA :schema;
CREATE SERVER follow_files FOREIGN DATA WRAPPER file_fdw;
CREATE FOREIGN TABLE ft (a text) SERVER follow_files OPTIONS (filename '/etc/hostname');
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t SELECT count(*) FROM ft;
CREATE TABLE c AS SELECT * FROM ft;
CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM ft;
ALTER FOREIGN TABLE ft ALTER a SET NOT NULL;
INSERT INTO t VALUES (1000);

-- case: import foreign schema
CREATE EXTENSION postgres_fdw SCHEMA :schema;
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE SERVER follow_loop FOREIGN DATA WRAPPER postgres_fdw OPTIONS (dbname 'postgres');
DO $$ BEGIN EXECUTE format('ALTER SERVER follow_loop OPTIONS (ADD port %L, ADD host ''127.0.0.1'')', current_setting('port')); END $$;
CREATE USER MAPPING FOR postgres SERVER follow_loop OPTIONS (user 'postgres');
CREATE SCHEMA follow_imported;
IMPORT FOREIGN SCHEMA :schema LIMIT TO (t) FROM SERVER follow_loop INTO follow_imported;
INSERT INTO t VALUES (1, 'a');
-- finally
DROP SCHEMA follow_imported CASCADE;
DROP SERVER follow_loop CASCADE;

-- case: extension in a block that rolls back, then again
CREATE TABLE t (id int PRIMARY KEY);
BEGIN;
CREATE EXTENSION isn SCHEMA :schema;
ROLLBACK;
BEGIN;
SAVEPOINT s;
CREATE EXTENSION isn SCHEMA :schema;
ROLLBACK TO s;
CREATE EXTENSION seg SCHEMA :schema;
CREATE TABLE u (id int PRIMARY KEY, s seg);
INSERT INTO u VALUES (1, '1 .. 2');
COMMIT;
INSERT INTO u VALUES (2, '3');

-- case: extension of an ordinary role that is trusted
CREATE ROLE follow_a LOGIN;
GRANT ALL ON SCHEMA :schema TO follow_a;
GRANT CREATE ON DATABASE postgres TO follow_a;
-- as: follow_a
CREATE EXTENSION citext SCHEMA :schema;
CREATE TABLE t (id int PRIMARY KEY, v citext);
INSERT INTO t VALUES (1, 'A');
-- finally
-- as: postgres
DROP EXTENSION citext CASCADE;
DROP OWNED BY follow_a;
DROP ROLE follow_a;

-- case: extension with its own triggers
CREATE EXTENSION moddatetime SCHEMA :schema;
CREATE EXTENSION tcn SCHEMA :schema;
CREATE TABLE t (id int PRIMARY KEY, at timestamp);
CREATE TRIGGER m BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION moddatetime(at);
CREATE TRIGGER n AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION triggered_change_notification();
INSERT INTO t VALUES (1, now());
UPDATE t SET id = 2;

-- case: extension with a temporary object in its way
CREATE TEMP TABLE hidden (id int);
CREATE EXTENSION btree_gist SCHEMA :schema;
CREATE TABLE t (id int PRIMARY KEY, r int4range, EXCLUDE USING gist (id WITH =, r WITH &&));
INSERT INTO t VALUES (1, '[1,2)');
DROP EXTENSION btree_gist CASCADE;
INSERT INTO t VALUES (2, '[1,2)');

-- case: of a role that is replaced
CREATE ROLE follow_a;
CREATE ROLE follow_b;
GRANT ALL ON SCHEMA :schema TO follow_a, follow_b;
DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO follow_a', current_database()); END $$;
SET ROLE follow_a;
CREATE EXTENSION citext SCHEMA :schema;
CREATE TABLE t (id citext PRIMARY KEY);
RESET ROLE;
REASSIGN OWNED BY follow_a TO follow_b;
-- check
REASSIGN OWNED BY follow_b TO postgres;
INSERT INTO t VALUES ('a');
DROP OWNED BY follow_a, follow_b;
DROP ROLE follow_a, follow_b;
-- finally
DROP ROLE IF EXISTS follow_a, follow_b;
