-- The set-up of the first version, whose clients announced DDL to replicas by its text: for upgrade.rs.
--
-- The event triggers do two things behind every DDL command, whoever runs it:
--   1. They tell the log (table hihooi.ddl), so that DDL which did not come through hihooi is
--      noticed. The rows vanish at once; the write-ahead log has seen them.
--   2. They give tables without a usable primary key REPLICA IDENTITY FULL, since PostgreSQL
--      refuses UPDATE and DELETE on published tables without identity; and take it back when a
--      key appears.
-- They run as their owner, so that they work for every role, and no role can call them, write
-- into the tables or switch any of it off.

CREATE SCHEMA IF NOT EXISTS hihooi;
REVOKE ALL ON SCHEMA hihooi FROM PUBLIC;
-- Seeing is allowed: pg_dump, run by an ordinary role, locks every table for reading.
GRANT USAGE ON SCHEMA hihooi TO PUBLIC;

-- Empty whenever one looks.
CREATE TABLE IF NOT EXISTS hihooi.ddl (
    id uuid PRIMARY KEY DEFAULT pg_catalog.gen_random_uuid(),
    event text NOT NULL,
    tag text NOT NULL,
    object text,
    text text NOT NULL
);
REVOKE ALL ON hihooi.ddl FROM PUBLIC;
GRANT SELECT ON hihooi.ddl TO PUBLIC;

-- Tables whose FULL identity is our doing. As regclass, a dump names them, and is right wherever
-- it is restored. "busy" marks a table in the middle of our own ALTER TABLE.
CREATE TABLE IF NOT EXISTS hihooi.identity (
    relation regclass PRIMARY KEY,
    busy boolean NOT NULL DEFAULT false
);
REVOKE ALL ON hihooi.identity FROM PUBLIC;
GRANT SELECT ON hihooi.identity TO PUBLIC;

-- FULL or DEFAULT if the table needs another identity than it has, else NULL.
-- A usable key is not deferrable, valid, and has no generated column: those are not published.
CREATE OR REPLACE FUNCTION hihooi.wanted_identity(t oid) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH usable AS (
        SELECT i.indisprimary, i.indisreplident
        FROM pg_index i
        WHERE i.indrelid = t AND i.indisunique AND i.indisvalid AND i.indimmediate
          AND NOT EXISTS (
              SELECT FROM pg_attribute a
              WHERE a.attrelid = t AND a.attgenerated <> ''
                AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]))
    )
    SELECT CASE
        WHEN c.relreplident = 'f' AND EXISTS (SELECT FROM usable WHERE indisprimary)
             AND EXISTS (SELECT FROM hihooi.identity h WHERE h.relation = c.oid) THEN 'DEFAULT'
        WHEN c.relreplident = 'n' THEN 'FULL'
        WHEN c.relreplident = 'd' AND NOT EXISTS (SELECT FROM usable WHERE indisprimary)
            THEN 'FULL'
        WHEN c.relreplident = 'i' AND NOT EXISTS (SELECT FROM usable WHERE indisreplident)
            THEN 'FULL'
    END
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = t AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
      AND n.nspname NOT IN ('hihooi', 'information_schema') AND n.nspname !~ '^pg_'
$$;

-- Gives a table the identity it needs. As a replica, so that users' event triggers don't notice.
CREATE OR REPLACE FUNCTION hihooi.set_identity(t oid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET session_replication_role = replica
AS $$
DECLARE
    wanted text := hihooi.wanted_identity(t);
BEGIN
    IF wanted IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO hihooi.identity (relation, busy) VALUES (t, true)
        ON CONFLICT (relation) DO UPDATE SET busy = true;
    EXECUTE format('ALTER TABLE %s REPLICA IDENTITY %s', t::regclass, wanted);
    IF wanted = 'FULL' THEN
        UPDATE hihooi.identity SET busy = false WHERE relation = t;
    ELSE
        DELETE FROM hihooi.identity WHERE relation = t;
    END IF;
END
$$;

-- Tells the log of the command that runs now.
CREATE OR REPLACE FUNCTION hihooi.note(event text, tag text, object text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    place tid;
BEGIN
    INSERT INTO hihooi.ddl (event, tag, object, text)
        VALUES (event, tag, object, coalesce(current_query(), '')) RETURNING ctid INTO place;
    DELETE FROM hihooi.ddl WHERE ctid = place;
END
$$;

-- What changes nothing that replicas need to know, whatever it touches: publications and
-- subscriptions; REINDEX (which has events since PostgreSQL 17); and indexes built or dropped
-- CONCURRENTLY, whose event comes before hihooi can log the command, and which change no row.
CREATE OR REPLACE FUNCTION hihooi.is_local(tag text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT tag ~ ' (PUBLICATION|SUBSCRIPTION)$'
        OR tag = 'REINDEX'
        OR tag ~ '^(CREATE|DROP) INDEX$' AND current_query() ~* 'concurrently'
$$;

CREATE OR REPLACE FUNCTION hihooi.on_ddl_end() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    command record;
    noted boolean := false;
BEGIN
    IF tg_tag = 'ALTER TABLE' AND EXISTS (
        SELECT FROM pg_event_trigger_ddl_commands() c
        JOIN hihooi.identity h ON h.relation = c.objid WHERE h.busy)
    THEN
        RETURN;
    END IF;
    IF NOT hihooi.is_local(tg_tag) THEN
        -- Objects of a session's own have the schema pg_temp here.
        FOR command IN SELECT * FROM pg_event_trigger_ddl_commands() LOOP
            IF NOT noted AND command.schema_name IS DISTINCT FROM 'pg_temp' THEN
                PERFORM hihooi.note('end', tg_tag, command.object_identity);
                noted := true;
            END IF;
        END LOOP;
        -- These may report nothing of what they did.
        IF NOT noted AND tg_tag IN ('DROP OWNED', 'REASSIGN OWNED') THEN
            PERFORM hihooi.note('end', tg_tag, NULL);
        END IF;
    END IF;
    IF tg_tag = 'ALTER TABLE' AND current_query() ~* 'replica\s+identity' THEN
        DELETE FROM hihooi.identity h USING pg_event_trigger_ddl_commands() c
            WHERE h.relation = c.objid;
    END IF;
    PERFORM hihooi.set_identity(touched.relation) FROM (
        SELECT c.objid AS relation FROM pg_event_trigger_ddl_commands() c
            WHERE c.classid = 'pg_class'::regclass
        UNION
        SELECT p.relid FROM pg_event_trigger_ddl_commands() c, pg_partition_tree(c.objid) p
            WHERE c.classid = 'pg_class'::regclass
        UNION
        SELECT i.indrelid FROM pg_event_trigger_ddl_commands() c
            JOIN pg_index i ON i.indexrelid = c.objid
            WHERE c.classid = 'pg_class'::regclass
    ) touched;
END
$$;

CREATE OR REPLACE FUNCTION hihooi.on_drop() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    gone record;
BEGIN
    IF NOT hihooi.is_local(tg_tag) THEN
        -- What hangs on a temporary table is not itself called temporary before PostgreSQL 18.
        SELECT d.object_identity INTO gone FROM pg_event_trigger_dropped_objects() d
            WHERE d.original AND NOT d.is_temporary
              AND d.object_identity !~ ' (on|for) pg_temp\.' LIMIT 1;
        IF FOUND THEN
            PERFORM hihooi.note('drop', tg_tag, gone.object_identity);
        END IF;
    END IF;
    DELETE FROM hihooi.identity h USING pg_event_trigger_dropped_objects() d
        WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0 AND h.relation = d.objid;
    -- A key may have gone with one of its columns, or with a type.
    PERFORM hihooi.set_identity(touched.relation) FROM (
        SELECT DISTINCT
            to_regclass(format('%I.%I', d.address_names[1], d.address_names[2])) AS relation
        FROM pg_event_trigger_dropped_objects() d
        WHERE d.object_type IN ('table constraint', 'table column')
    ) touched WHERE touched.relation IS NOT NULL;
END
$$;

-- A rewrite that computes new values row by row may compute others on each replica, unless there
-- is no row. (Bits of the reason: 2 is a column's default, 4 a column's new type.) hihooi says of
-- the statements that it announces whether what they compute is the same everywhere.
CREATE OR REPLACE FUNCTION hihooi.on_rewrite() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    t regclass := pg_event_trigger_table_rewrite_oid();
BEGIN
    IF pg_event_trigger_table_rewrite_reason() & 6 <> 0
       AND EXISTS (SELECT FROM pg_class c WHERE c.oid = t AND c.relpersistence = 'p')
       AND pg_relation_size(t) > 0
    THEN
        PERFORM hihooi.note('rewrite', tg_tag, t::text);
    END IF;
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA hihooi FROM PUBLIC;

CREATE EVENT TRIGGER hihooi_ddl_end ON ddl_command_end EXECUTE FUNCTION hihooi.on_ddl_end();
CREATE EVENT TRIGGER hihooi_drop ON sql_drop EXECUTE FUNCTION hihooi.on_drop();
CREATE EVENT TRIGGER hihooi_rewrite ON table_rewrite EXECUTE FUNCTION hihooi.on_rewrite();
