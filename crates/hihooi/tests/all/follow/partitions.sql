-- Partitions and inheritance: one command changes many tables and names one.

-- case: bounds of the moment
CREATE TABLE p (id int, at timestamptz) PARTITION BY RANGE (at);
CREATE TABLE p_old PARTITION OF p FOR VALUES FROM (MINVALUE) TO (current_timestamp);
CREATE TABLE p_new PARTITION OF p FOR VALUES FROM (current_timestamp) TO (MAXVALUE);
-- check
DROP TABLE p_new;
DO $$ BEGIN
  DROP TABLE p_old;
  CREATE TABLE p_a PARTITION OF p FOR VALUES FROM (now() - interval '1 day') TO (now());
  EXECUTE 'CREATE TABLE p_b PARTITION OF p FOR VALUES FROM (now()) TO (now() + interval ''1 day'')';
  INSERT INTO p VALUES (1, now()), (2, now() - interval '1 hour');
END $$;

-- case: bounds by clock_timestamp, random, own functions and session formats
CREATE FUNCTION lo() RETURNS int LANGUAGE sql AS 'SELECT 5';
CREATE TABLE p (id int) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (lo()) TO (lo() + 5);
CREATE TABLE q (d float8) PARTITION BY RANGE (d);
CREATE TABLE q1 PARTITION OF q FOR VALUES FROM (0) TO (1 + random());
CREATE TABLE r (at timestamptz) PARTITION BY RANGE (at);
CREATE TABLE r1 PARTITION OF r FOR VALUES FROM ('2000-01-01') TO (clock_timestamp());
SET datestyle = 'German';
SET timezone = 'Asia/Tokyo';
CREATE TABLE r2 (at timestamptz);
ALTER TABLE r ATTACH PARTITION r2 FOR VALUES FROM (clock_timestamp() + interval '1 hour') TO ('01.02.2100 00:00');
INSERT INTO p VALUES (6);
INSERT INTO q VALUES (0.5);
INSERT INTO r VALUES ('2001-01-01');

-- case: attach and detach
CREATE TABLE p (id int, k int, v text, PRIMARY KEY (id, k)) PARTITION BY RANGE (k);
CREATE INDEX pv ON p (v);
CREATE TABLE a (LIKE p INCLUDING ALL);
CREATE TABLE b (v text, k int NOT NULL, id int NOT NULL);
INSERT INTO a VALUES (1, 5, 'x');
INSERT INTO b VALUES ('y', 15, 2);
ALTER TABLE p ATTACH PARTITION a FOR VALUES FROM (0) TO (10);
ALTER TABLE p ATTACH PARTITION b FOR VALUES FROM (10) TO (20);
UPDATE p SET k = k + 10 WHERE id = 1;
UPDATE p SET v = 'z';
ALTER TABLE p DETACH PARTITION a;
INSERT INTO a VALUES (9, 99, 'alone');
DROP INDEX pv;
CREATE INDEX pv2 ON p (v);
INSERT INTO p VALUES (3, 16, 'w');

-- case: columns, constraints, triggers spread to partitions
CREATE TABLE p (id int, k int) PARTITION BY LIST (k);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2, NULL) PARTITION BY HASH (id);
CREATE TABLE p20 PARTITION OF p2 FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE p21 PARTITION OF p2 FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TABLE pd PARTITION OF p DEFAULT;
CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.n := 9; RETURN NEW; END $$;
ALTER TABLE p ADD n int DEFAULT 3 NOT NULL CHECK (n > 0);
CREATE TRIGGER tr BEFORE INSERT ON p FOR EACH ROW EXECUTE FUNCTION f();
INSERT INTO p SELECT g, g % 4 FROM generate_series(1, 20) g;
ALTER TABLE p RENAME n TO m;
ALTER TABLE p DISABLE TRIGGER tr;
ALTER TABLE p ALTER m TYPE bigint;
ALTER TABLE ONLY p ALTER m SET DEFAULT 4;
ALTER TABLE p1 ALTER m SET DEFAULT 5;
ALTER TABLE p ADD UNIQUE (id, k);
INSERT INTO p VALUES (100, 1), (101, 2);
UPDATE p SET k = 1 WHERE k = 3;
ALTER TABLE p DROP COLUMN m;
DROP TABLE p2;
INSERT INTO p VALUES (102, 2);

-- case: foreign keys from and to partitions
CREATE TABLE pk (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE pk1 PARTITION OF pk FOR VALUES FROM (0) TO (10);
CREATE TABLE fk (id int, r int) PARTITION BY RANGE (id);
CREATE TABLE fk1 PARTITION OF fk FOR VALUES FROM (0) TO (10);
ALTER TABLE fk ADD CONSTRAINT c FOREIGN KEY (r) REFERENCES pk ON DELETE CASCADE;
INSERT INTO pk VALUES (1), (2);
INSERT INTO fk VALUES (1, 1), (2, 2);
CREATE TABLE pk2 PARTITION OF pk FOR VALUES FROM (10) TO (20);
CREATE TABLE fk2 PARTITION OF fk FOR VALUES FROM (10) TO (20);
DELETE FROM pk WHERE id = 1;
ALTER TABLE fk DETACH PARTITION fk1;
ALTER TABLE fk DROP CONSTRAINT c;
INSERT INTO fk VALUES (12, 99);

-- case: indexes of partitions one by one
CREATE TABLE p (id int, k int) PARTITION BY RANGE (k);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20);
CREATE UNIQUE INDEX i ON ONLY p (k);
CREATE UNIQUE INDEX i1 ON p1 (k);
CREATE UNIQUE INDEX i2 ON p2 (k);
ALTER INDEX i ATTACH PARTITION i1;
-- check
ALTER INDEX i ATTACH PARTITION i2;
INSERT INTO p VALUES (1, 1), (2, 12);
ALTER INDEX i RENAME TO j;
COMMENT ON INDEX j IS 'c';

-- case: replica identity of partitions
CREATE TABLE p (id int, k int NOT NULL, v text) PARTITION BY LIST (k);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
INSERT INTO p VALUES (1, 1, 'a');
UPDATE p SET v = 'b';
CREATE TABLE p2 (id int NOT NULL UNIQUE, k int NOT NULL, v text);
ALTER TABLE p2 REPLICA IDENTITY USING INDEX p2_id_key;
INSERT INTO p2 VALUES (2, 2, 'c');
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES IN (2);
UPDATE p SET k = 3 - k;
ALTER TABLE p ADD PRIMARY KEY (k);
UPDATE p SET v = 'd';
ALTER TABLE p DROP CONSTRAINT p_pkey;
DELETE FROM p;

-- case: inheritance
CREATE TABLE a (id int PRIMARY KEY, v text DEFAULT 'a');
CREATE TABLE b (w int) INHERITS (a);
CREATE TABLE c (LIKE a INCLUDING DEFAULTS);
ALTER TABLE c INHERIT a;
CREATE TABLE d () INHERITS (b, c);
ALTER TABLE a ADD n int DEFAULT 1;
ALTER TABLE a ALTER v SET DEFAULT 'z';
ALTER TABLE ONLY a ADD CONSTRAINT only_a CHECK (n < 100) NO INHERIT;
ALTER TABLE a ADD CONSTRAINT all_of CHECK (n < 1000);
INSERT INTO a (id) VALUES (1);
INSERT INTO b (id) VALUES (2);
INSERT INTO d (id) VALUES (3);
UPDATE a SET n = n + 1;
ALTER TABLE c NO INHERIT a;
ALTER TABLE a DROP COLUMN v;
TRUNCATE ONLY a;
INSERT INTO d (id) VALUES (4);

-- case: partition manager that rolls partitions
CREATE TABLE events (id bigserial, at date NOT NULL, v text, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE PROCEDURE roll(today date) LANGUAGE plpgsql AS $$ DECLARE d date; r record; BEGIN
  FOR i IN 0..2 LOOP
    d := date_trunc('month', today) + i * interval '1 month';
    EXECUTE format('CREATE TABLE IF NOT EXISTS events_%s PARTITION OF events FOR VALUES FROM (%L) TO (%L)', to_char(d, 'YYYY_MM'), d, (d + interval '1 month')::date);
    COMMIT;
  END LOOP;
  FOR r IN SELECT inhrelid::regclass AS name FROM pg_inherits WHERE inhparent = 'events'::regclass AND inhrelid::regclass::text < 'events_' || to_char(today, 'YYYY_MM') LOOP
    EXECUTE format('ALTER TABLE events DETACH PARTITION %s', r.name);
    EXECUTE format('DROP TABLE %s', r.name);
    COMMIT;
  END LOOP;
END $$;
CALL roll('2026-01-15');
INSERT INTO events (at, v) VALUES ('2026-01-20', 'a'), ('2026-03-01', 'b');
CALL roll('2026-02-15');
CALL roll('2026-02-15');
INSERT INTO events (at, v) VALUES ('2026-04-20', 'a');

-- case: default partition split in one transaction
CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE d PARTITION OF p DEFAULT;
INSERT INTO p SELECT g, 'x' FROM generate_series(1, 30) g;
BEGIN;
ALTER TABLE p DETACH PARTITION d;
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
WITH moved AS (DELETE FROM d WHERE id < 10 RETURNING *) INSERT INTO p SELECT * FROM moved;
ALTER TABLE p ATTACH PARTITION d DEFAULT;
COMMIT;
UPDATE p SET id = id + 40 WHERE id = 5;

-- case: partition of a temporary like, of another schema, renamed
CREATE SCHEMA follow_parts;
CREATE TABLE p (id int) PARTITION BY RANGE (id);
CREATE TABLE follow_parts.p PARTITION OF p FOR VALUES FROM (0) TO (10);
INSERT INTO p VALUES (1);
ALTER TABLE follow_parts.p RENAME TO p_moved;
ALTER TABLE follow_parts.p_moved SET SCHEMA :schema;
INSERT INTO p VALUES (2);
-- check
DROP SCHEMA follow_parts CASCADE;

-- case: partitions by hash of enums, whose hashes are each server's own
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE DOMAIN moods AS mood[];
-- refused
CREATE TABLE p (id int, m mood) PARTITION BY HASH (id, m);
-- refused
CREATE TABLE p (id int, m moods) PARTITION BY HASH (m);
CREATE TABLE p (id int, m mood) PARTITION BY LIST (m);
CREATE TABLE p_sad PARTITION OF p FOR VALUES IN ('sad');
CREATE TABLE p_ok PARTITION OF p FOR VALUES IN ('ok');
CREATE TABLE q (id int, m mood) PARTITION BY HASH (id);
CREATE TABLE q0 PARTITION OF q FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE q1 PARTITION OF q FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO p VALUES (1, 'ok'), (2, 'sad');
INSERT INTO q SELECT id, 'ok' FROM generate_series(1, 10) id;

-- case: indexes are attached to a partition that others change meanwhile
CREATE TABLE p (id int, v int, w int) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100);
CREATE INDEX p_v ON ONLY p (v);
CREATE INDEX p1_v ON p1 (v);
BEGIN;
ALTER INDEX p_v ATTACH PARTITION p1_v;
-- session: 2
BEGIN;
CREATE INDEX p1_w ON p1 (w);
-- session: 1
COMMIT;
-- session: 2
COMMIT;
-- session: 1
BEGIN;
CREATE INDEX ON p (w, v);
-- session: 2
BEGIN;
CREATE INDEX p1_vw ON p1 (v, w);
-- session: 1
COMMIT;
-- session: 2
COMMIT;
INSERT INTO p VALUES (1, 1, 1);
