-- Tables that are written or read without being named.
DROP SCHEMA IF EXISTS indirect CASCADE;
CREATE SCHEMA indirect;
CREATE TABLE indirect.parent (id int PRIMARY KEY);
CREATE TABLE indirect.child (
    id int PRIMARY KEY, parent int REFERENCES indirect.parent ON UPDATE CASCADE ON DELETE CASCADE
);
INSERT INTO indirect.parent VALUES (1);
INSERT INTO indirect.child VALUES (1, 1);
CREATE TABLE indirect.triggering (id int);
CREATE TABLE indirect.audit (id int);
CREATE FUNCTION indirect.audited() RETURNS trigger LANGUAGE plpgsql
    AS 'BEGIN INSERT INTO indirect.audit VALUES (NEW.id); RETURN NEW; END';
CREATE TRIGGER t AFTER INSERT ON indirect.triggering
    FOR EACH ROW EXECUTE FUNCTION indirect.audited();
CREATE TABLE indirect.target (n int);
INSERT INTO indirect.target VALUES (0);
CREATE FUNCTION indirect.writer() RETURNS int LANGUAGE sql
    AS 'UPDATE indirect.target SET n = n + 1 RETURNING n';
CREATE PROCEDURE indirect.write_and_commit() LANGUAGE plpgsql
    AS 'BEGIN UPDATE indirect.target SET n = n + 1; COMMIT; END';
CREATE FUNCTION indirect.reader() RETURNS int LANGUAGE sql STABLE
    AS 'SELECT n FROM indirect.target';
CREATE FUNCTION indirect.defaulted(n int DEFAULT indirect.reader()) RETURNS int LANGUAGE sql STABLE
    AS 'SELECT n';
CREATE FUNCTION indirect.defaulted_writer(n int DEFAULT indirect.writer()) RETURNS int LANGUAGE sql STABLE
    AS 'SELECT n';
CREATE VIEW indirect.over_target AS SELECT n FROM indirect.target;
CREATE VIEW indirect.over_function AS SELECT indirect.reader();
CREATE TABLE indirect.behind (id int);
CREATE VIEW indirect.door AS SELECT id FROM indirect.behind WHERE id > 0;
CREATE RULE r AS ON INSERT TO indirect.door
    DO INSTEAD INSERT INTO indirect.behind VALUES (NEW.id), (NEW.id);
CREATE VIEW indirect.simple_view AS SELECT id FROM indirect.behind;
CREATE TABLE indirect.parted (id int) PARTITION BY LIST (id);
CREATE TABLE indirect.parted_1 PARTITION OF indirect.parted FOR VALUES IN (1);
CREATE TABLE indirect.ancestor (id int);
CREATE TABLE indirect.heir () INHERITS (indirect.ancestor);
