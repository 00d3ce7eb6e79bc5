-- Settings that change what a text means, and texts that are hard to read.

-- case: standard_conforming_strings = off
SET standard_conforming_strings = off;
SET escape_string_warning = off;
-- lines
CREATE TABLE t (id int PRIMARY KEY, v text DEFAULT 'a\'b\\c\n');
INSERT INTO t (id) VALUES (1);
COMMENT ON TABLE t IS 'it\'s; a \\ comment';
CREATE VIEW v AS SELECT 'x\'; DROP TABLE t; --' AS x;
CREATE FUNCTION f() RETURNS text LANGUAGE sql AS 'SELECT \'x\\\\y\'::text';
ALTER TABLE t ADD w text DEFAULT '\\' CHECK (w <> '\'');
CREATE TYPE e AS ENUM ('a\'b', '\\');
INSERT INTO t (id) VALUES (2);

-- case: hihooi's own code under standard_conforming_strings = off
SET standard_conforming_strings = off;
CREATE TABLE t (id int NOT NULL);
ALTER TABLE t REPLICA IDENTITY FULL;
ALTER TABLE t ADD PRIMARY KEY (id);
-- expect: f
SELECT relreplident FROM pg_class WHERE oid = 't'::regclass;
CREATE MATERIALIZED VIEW m AS SELECT id FROM t;
CREATE UNIQUE INDEX ON m (id);
REFRESH MATERIALIZED VIEW CONCURRENTLY m;
INSERT INTO t VALUES (1);

-- case: standard_conforming_strings = off in DO, by a function and locally
CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql SET standard_conforming_strings = off SET escape_string_warning = off AS $$ BEGIN
  EXECUTE 'CREATE TABLE a (id int PRIMARY KEY, v text DEFAULT ''x\\y'')';
END $$;
SELECT f();
BEGIN;
SET LOCAL standard_conforming_strings = off;
SET LOCAL escape_string_warning = off;
-- lines
CREATE TABLE b (id int PRIMARY KEY, v text DEFAULT 'x\\y\'z');
COMMIT;
CREATE TABLE c (id int PRIMARY KEY, v text DEFAULT 'x\\y');
DO $$ BEGIN SET LOCAL standard_conforming_strings = off; EXECUTE 'CREATE TABLE d (id int PRIMARY KEY, v text DEFAULT ''x\\y'')'; END $$;
INSERT INTO a VALUES (1);
INSERT INTO b VALUES (1);
INSERT INTO c VALUES (1);
INSERT INTO d VALUES (1);

-- case: strings that were parsed under another setting
CREATE FUNCTION plan() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
  CREATE TABLE c (id int PRIMARY KEY, v text DEFAULT 'x\\y');
  COMMENT ON TABLE c IS 'a\tb';
END $$;
CREATE FUNCTION body() RETURNS void LANGUAGE sql AS $$
  SET standard_conforming_strings = off;
  CREATE TABLE d (id int PRIMARY KEY, v text DEFAULT 'x\\y', w text DEFAULT N'\z'
    'u'
    '\v');
$$;
SELECT plan();
DROP TABLE c;
SET escape_string_warning = off;
SET standard_conforming_strings = off; CREATE TABLE a (id int PRIMARY KEY, v text DEFAULT 'x\\y');
SELECT plan();
-- lines
SET standard_conforming_strings = on; CREATE TABLE b (id int PRIMARY KEY, v text DEFAULT 'x\\y');
SET standard_conforming_strings = off;
SET standard_conforming_strings = on; CREATE TABLE e (id int PRIMARY KEY, v text DEFAULT 'it\'s', w text DEFAULT '\\');
SELECT body();
INSERT INTO a VALUES (1);
INSERT INTO b VALUES (1);
INSERT INTO c VALUES (1);
INSERT INTO d VALUES (1);
INSERT INTO e VALUES (1);

-- case: backslash_quote, quotes of every kind
CREATE TABLE t (id int PRIMARY KEY, a text DEFAULT E'x\'y\\z\u00e4\x41', b text DEFAULT U&'d\0061t\+000061', c text DEFAULT U&'d!0061' UESCAPE '!', d text DEFAULT $$it's$$, e text DEFAULT $q$a $$ b$q$, f bit(8) DEFAULT X'1F', g text DEFAULT 'con'
  'catenated', h text DEFAULT N'national', i text DEFAULT 'Ünï€😀');
INSERT INTO t (id) VALUES (1);

-- case: names of every kind
CREATE TABLE "Sélect ""x"" 'y' $$ \ ; -- /* 😀" ("a;b" int PRIMARY KEY, "c""d" int, "select" int, "SELECT" text DEFAULT 'x');
ALTER TABLE "Sélect ""x"" 'y' $$ \ ; -- /* 😀" ADD "new;line
here" int DEFAULT 3;
CREATE INDEX "i;" ON "Sélect ""x"" 'y' $$ \ ; -- /* 😀" ("c""d", "select");
COMMENT ON COLUMN "Sélect ""x"" 'y' $$ \ ; -- /* 😀"."a;b" IS '"';
CREATE TABLE U&"d\0061ta" (id int PRIMARY KEY);
CREATE SCHEMA "follow q.""u'o";
CREATE TABLE "follow q.""u'o"."a.b" (id int PRIMARY KEY);
INSERT INTO "follow q.""u'o"."a.b" VALUES (1);
INSERT INTO data VALUES (1);
-- finally
DROP SCHEMA "follow q.""u'o" CASCADE;

-- case: names as long as they get, and longer
CREATE TABLE a23456789012345678901234567890123456789012345678901234567890123_and_more (id int PRIMARY KEY, b23456789012345678901234567890123456789012345678901234567890123_and_more int UNIQUE);
ALTER TABLE a23456789012345678901234567890123456789012345678901234567890123_and_more ADD CHECK (b23456789012345678901234567890123456789012345678901234567890123_and_more > 0);
INSERT INTO a23456789012345678901234567890123456789012345678901234567890123_and_more VALUES (1, 1);

-- case: comments of every kind in a command
CREATE /* a ; comment /* nested ; */ here */ TABLE -- and ; this
  t (id int /* PRIMARY */ PRIMARY KEY, -- DROP TABLE t;
  v text DEFAULT '-- not a comment' /* last */);
/* before */ ALTER TABLE t ADD x int DEFAULT 1 -- after
;
INSERT INTO t (id) VALUES (1);

-- case: client_encoding latin1
SET client_encoding = 'LATIN1';
CREATE TABLE t (id int PRIMARY KEY, v text DEFAULT E'\u00e4');
COMMENT ON TABLE t IS E'\u00e4\u00f6';
RESET client_encoding;
INSERT INTO t (id) VALUES (1);

-- case: settings that change what a definition does
SET default_toast_compression = 'pglz';
SET check_function_bodies = off;
SET xmloption = document;
SET transform_null_equals = on;
SET array_nulls = off;
SET bytea_output = 'escape';
SET backslash_quote = on;
CREATE TABLE t (id int PRIMARY KEY, v text, x xml DEFAULT '<a/>', CHECK (v = NULL OR true), a text[] DEFAULT '{NULL,a}', b bytea DEFAULT '\x00ff');
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT nosuch FROM nosuch';
CREATE VIEW vv AS SELECT * FROM t WHERE v = NULL;
INSERT INTO t (id) VALUES (1);

-- case: xmloption content
SET xmloption = content;
CREATE TABLE t (id int PRIMARY KEY, x xml DEFAULT 'abc<a/>', CHECK (x IS DOCUMENT OR true));
SET xmloption = document;
CREATE VIEW v AS SELECT '<a/>'::xml AS x;
INSERT INTO t (id, x) VALUES (1, '<b/>');
INSERT INTO t (id) VALUES (2);

-- case: formats in definitions
SET datestyle = 'German, DMY';
SET intervalstyle = 'sql_standard';
SET timezone = 'America/St_Johns';
SET lc_monetary = 'C';
SET extra_float_digits = -10;
CREATE TABLE t (id int PRIMARY KEY, d date DEFAULT '03.04.2026', at timestamptz DEFAULT '03.04.2026 10:00', i interval DEFAULT '1-2 3 4:05:06', f float8 DEFAULT 0.1::float8 / 3, m money DEFAULT '1.5', CHECK (d > '01.02.1990'), CHECK (at > '05.06.1990 12:00'));
CREATE VIEW v AS SELECT timestamptz '07.08.2026 01:02' AS at, date '09.10.2026' AS d, interval '1-2' AS i;
CREATE TABLE p (d date) PARTITION BY RANGE (d);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM ('01.02.2026') TO ('01.03.2026');
CREATE FUNCTION f(a date DEFAULT '04.05.2026') RETURNS date LANGUAGE sql AS 'SELECT a';
CREATE INDEX i ON t (d) WHERE d > '02.03.2026';
INSERT INTO t (id) VALUES (1);
INSERT INTO p VALUES ('05.02.2026');

-- case: search_path tricks
CREATE SCHEMA follow_p1;
CREATE SCHEMA follow_p2;
SET search_path = follow_p1, follow_p2;
CREATE TABLE t (id int PRIMARY KEY);
CREATE FUNCTION follow_p1.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''2000-01-01''::timestamptz';
SET search_path = follow_p1, pg_catalog;
CREATE TABLE shadowed (id int PRIMARY KEY, at timestamptz DEFAULT now());
INSERT INTO shadowed VALUES (1);
ALTER TABLE t ADD at timestamptz DEFAULT now();
SET search_path = nosuch, follow_p2;
CREATE TABLE u (id int PRIMARY KEY);
SET search_path = "$user", follow_p1;
CREATE TABLE w (id int PRIMARY KEY);
SET search_path = '';
-- error: 3F000
CREATE TABLE none (id int);
CREATE TABLE follow_p1.qualified (id int PRIMARY KEY);
INSERT INTO follow_p1.t VALUES (1);
INSERT INTO follow_p2.u VALUES (1);
-- check
DROP SCHEMA follow_p1, follow_p2 CASCADE;

-- case: own operators and types in front of pg_catalog
CREATE TYPE int8 AS ENUM ('mine');
CREATE FUNCTION eq(int, int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT false';
CREATE OPERATOR = (LEFTARG = int, RIGHTARG = int, FUNCTION = eq);
SET search_path = :schema, pg_catalog;
CREATE TABLE t (id int4 PRIMARY KEY, k int8, CHECK (NOT (id OPERATOR(:schema.=) 5)));
CREATE VIEW v AS SELECT id = 1 AS never FROM t;
INSERT INTO t VALUES (5, 'mine');
UPDATE t SET k = NULL;

-- case: several statements in one string
CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1); ALTER TABLE a ADD b int DEFAULT 2; INSERT INTO a VALUES (2); DROP TABLE IF EXISTS nosuch; CREATE VIEW v AS SELECT * FROM a;
BEGIN; CREATE TABLE c (id int PRIMARY KEY); COMMIT; CREATE TABLE d (id int PRIMARY KEY); COMMIT; BEGIN; CREATE TABLE gone (id int); ROLLBACK; INSERT INTO d VALUES (1);
-- error: 22012
CREATE TABLE gone (id int); INSERT INTO gone VALUES (1); SELECT 1/0; CREATE TABLE never (id int);
CREATE TABLE e (id int); CREATE TABLE f AS SELECT 1 AS x; SELECT 'a;b'; DO $$ BEGIN CREATE TABLE g (id int); END $$; DROP TABLE e;
INSERT INTO c VALUES (1);

-- case: the same statement twice in one string
CREATE TABLE a (id int PRIMARY KEY); DROP TABLE a; CREATE TABLE a (id int PRIMARY KEY); DROP TABLE a; CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1);
CREATE TABLE IF NOT EXISTS a (id int); CREATE TABLE IF NOT EXISTS a (id int); ALTER TABLE a ADD x int;

-- case: very long statement and very many columns
DO $$ BEGIN EXECUTE 'CREATE TABLE wide (' || (SELECT string_agg('"' || repeat('ä', 25) || g || '" int', ', ') FROM generate_series(1, 1200) g) || ')'; END $$;
CREATE FUNCTION long() RETURNS text LANGUAGE plpgsql AS $f$ BEGIN RETURN 'x'; END $f$;
DO $$ BEGIN EXECUTE 'CREATE OR REPLACE FUNCTION long() RETURNS text LANGUAGE sql AS ' || quote_literal('SELECT ' || quote_literal(repeat('0123456789', 100000))); END $$;
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1);

-- case: function bodies that are hard to read
CREATE FUNCTION a() RETURNS text LANGUAGE plpgsql AS '
BEGIN
  -- CREATE TABLE nosuch (id int);
  RETURN ''it''''s'' || $x$ DROP TABLE t; $x$;
END';
CREATE FUNCTION b() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1; SELECT 2; END;
CREATE FUNCTION c(x int DEFAULT 5, VARIADIC y text[] DEFAULT '{}') RETURNS TABLE (p int, q text) LANGUAGE sql STABLE STRICT COST 7 ROWS 3 SET work_mem = '5MB' SET search_path = :schema, pg_temp AS $$ SELECT 1, 'x;y' $$;
CREATE FUNCTION d(int) RETURNS int RETURN $1 + 1;
CREATE FUNCTION e() RETURNS text LANGUAGE internal AS 'pgsql_version';
CREATE TABLE t (id int PRIMARY KEY DEFAULT d(1));
INSERT INTO t DEFAULT VALUES;

-- case: regclass and oid constants in definitions
CREATE TABLE t (id int PRIMARY KEY);
CREATE SEQUENCE s;
CREATE TABLE u (id int PRIMARY KEY DEFAULT nextval('s'::regclass), r regclass DEFAULT 't'::regclass, o oid DEFAULT 't'::regclass::oid);
CREATE VIEW v AS SELECT 't'::regclass AS r, 's'::regclass::oid AS o;
INSERT INTO u (id) VALUES (1);

-- case: what no event tells, under the old meaning of strings
SET standard_conforming_strings = off;
EXPLAIN ANALYZE CREATE TABLE e AS SELECT 1 AS id, 'it''s' AS v;
DO $$ BEGIN CREATE TABLE d (id int PRIMARY KEY); END $$;
INSERT INTO d SELECT id FROM e;

-- case: like of a temporary table, under the old meaning of strings
SET standard_conforming_strings = off;
SET escape_string_warning = on;
CREATE TEMP TABLE tmp (a int PRIMARY KEY, b text DEFAULT 'x');
CREATE TABLE t (LIKE tmp INCLUDING ALL);
CREATE FUNCTION f() RETURNS void LANGUAGE sql AS 'CREATE TABLE made (a int PRIMARY KEY)';
CREATE FUNCTION f(int) RETURNS void LANGUAGE sql AS 'CREATE VIEW other AS SELECT 1 AS a';
SELECT f();
DROP TABLE t;

-- case: the old meaning of strings in whatever has a string
SET standard_conforming_strings = off;
SET escape_string_warning = off;
SET backslash_quote = on;
-- lines
CREATE TABLE c AS SELECT 'a\'b\\' AS v;
SELECT 'x\'y' AS v INTO d;
CREATE TABLE p (k text, n int) PARTITION BY LIST (k);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN ('a\'b', '\\');
INSERT INTO p VALUES ('\\', 1), ('a\'b', 2);
ALTER TABLE c ADD u text DEFAULT 'a\'' || random();
ALTER TABLE c ALTER v TYPE text USING v || '\\';
CREATE INDEX ON c (v) WHERE v <> '\'';
CREATE POLICY o ON c USING (v <> '\\');
CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.v := NEW.v || \'\\\\\'; RETURN NEW; END';
CREATE TRIGGER g BEFORE INSERT ON c FOR EACH ROW EXECUTE FUNCTION f('it\'s', '\\');
INSERT INTO c VALUES ('n');
CREATE MATERIALIZED VIEW m AS SELECT v || '\'' AS v FROM c;
CREATE RULE r AS ON UPDATE TO c DO ALSO NOTIFY x, 'it\'s';
CREATE DOMAIN w AS text DEFAULT '\'' CHECK (VALUE <> '\\');
CREATE VIEW x AS SELECT 'a\tb' AS a, E'a\\b' AS b;
CREATE TABLE gen (v text, w text GENERATED ALWAYS AS (v || '\\') STORED, CHECK (w <> '\''));
INSERT INTO gen VALUES ('a');
DO 'BEGIN EXECUTE \'CREATE TABLE z (v text DEFAULT \'\'\\\\\\\\\'\')\'; END';
INSERT INTO z DEFAULT VALUES;
EXPLAIN ANALYZE CREATE TABLE e AS SELECT 'a\'b' AS v;
CREATE TABLE "we\ird\'" (a int PRIMARY KEY DEFAULT length('\''));
INSERT INTO "we\ird\'" DEFAULT VALUES;
COMMENT ON COLUMN "we\ird\'".a IS '\'';
ALTER TABLE p ADD c text COLLATE "C" DEFAULT '\n';
UPDATE p SET c = c || '\\';
UPDATE c SET v = v || '\'';
