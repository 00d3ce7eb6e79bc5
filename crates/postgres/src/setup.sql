-- What hihooi creates in a replicated database of the primary, beside a publication and a slot.
-- Run by a superuser, in one transaction, with our event triggers absent; describe.sql comes first.
--
-- Replicas follow what the primary did (docs/decisions/0005): behind every command that changes the
-- schema, however deeply it is nested in functions, an event trigger writes a note into
-- hihooi.note: the command's own text, who ran it under which settings, and what the objects that
-- it touched are like now. The row stands in the write-ahead log where the command ran, between the
-- rows of tables, and goes with a subtransaction that is rolled back. Replicas run the command
-- there, and compare.
--
-- The event triggers also give tables without a usable key REPLICA IDENTITY FULL, since PostgreSQL
-- refuses UPDATE and DELETE on published tables without identity.
--
-- Their names sort before those of users' event triggers, whose own commands must be noted behind
-- the one that they react to; in front of commands behind them, since these may change settings.
-- Only superusers can write notes or switch any of this off.

CREATE SCHEMA IF NOT EXISTS hihooi;
REVOKE ALL ON SCHEMA hihooi FROM PUBLIC;
-- Seeing is allowed: pg_dump, run by an ordinary role, locks every table for reading.
GRANT USAGE ON SCHEMA hihooi TO PUBLIC;

-- Empty whenever another transaction looks: a note is deleted by the command that it is about. (No
-- sequence gives the key: it would change the session's lastval().)
CREATE TABLE IF NOT EXISTS hihooi.note (
    id uuid PRIMARY KEY DEFAULT pg_catalog.gen_random_uuid(),
    event text NOT NULL,
    body jsonb NOT NULL
);
REVOKE ALL ON hihooi.note FROM PUBLIC;
GRANT SELECT ON hihooi.note TO PUBLIC;

-- Tables whose FULL identity is our doing, and what they return to when that is usable: 'd' the
-- primary key, 'i' an index, 'n' nothing. As regclass, a dump names them, and is right wherever it
-- is restored.
CREATE TABLE IF NOT EXISTS hihooi.identity (
    relation regclass PRIMARY KEY,
    choice "char" NOT NULL DEFAULT 'd',
    index regclass
);
ALTER TABLE hihooi.identity ADD COLUMN IF NOT EXISTS choice "char" NOT NULL DEFAULT 'd';
ALTER TABLE hihooi.identity ADD COLUMN IF NOT EXISTS index regclass;
ALTER TABLE hihooi.identity DROP COLUMN IF EXISTS busy;
DROP TABLE IF EXISTS hihooi.noting, hihooi.query, hihooi.ddl, hihooi.generating;
REVOKE ALL ON hihooi.identity FROM PUBLIC;
GRANT SELECT ON hihooi.identity TO PUBLIC;

-- Tables that the command that runs now rewrites, by the call stack it stands in. (Beside the notes,
-- which then nobody reads: transactions that are SERIALIZABLE would conflict over them.)
CREATE TABLE IF NOT EXISTS hihooi.rewrite (
    id uuid PRIMARY KEY DEFAULT pg_catalog.gen_random_uuid(),
    relation oid NOT NULL,
    context text NOT NULL
);
REVOKE ALL ON hihooi.rewrite FROM PUBLIC;
GRANT SELECT ON hihooi.rewrite TO PUBLIC;

-- Long queries that transactions have noted, by a hash: a migration in one query may be a thousand
-- commands, and its text is long. A row that is rolled back goes with the note that held the text.
CREATE TABLE IF NOT EXISTS hihooi.noted_query (
    transaction xid8,
    hash text,
    PRIMARY KEY (transaction, hash)
);
REVOKE ALL ON hihooi.noted_query FROM PUBLIC;
GRANT SELECT ON hihooi.noted_query TO PUBLIC;

-- Bodies of SQL functions that ran when a command began in them which may replace, rename or drop them.
CREATE TABLE IF NOT EXISTS hihooi.former_body (
    transaction xid8,
    hash text,
    name name NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (transaction, hash)
);
REVOKE ALL ON hihooi.former_body FROM PUBLIC;
GRANT SELECT ON hihooi.former_body TO PUBLIC;

-- Has no rows: it is locked, so that DROP OWNED and what creates or grants wait for each other, and read, so that that is counted.
CREATE TABLE IF NOT EXISTS hihooi.owning ();
REVOKE ALL ON hihooi.owning FROM PUBLIC;
GRANT SELECT ON hihooi.owning TO PUBLIC;

-- What a table's stored generated columns call (functions, text search configurations and dictionaries), by a hash of its
-- definition: when it changes, the former one is known no more. (With the table: open transactions that create tables that
-- call the same don't wait for each other.)
CREATE TABLE IF NOT EXISTS hihooi.generates (
    relation oid,
    class oid,
    object oid,
    hash text NOT NULL,
    PRIMARY KEY (class, object, relation)
);
REVOKE ALL ON hihooi.generates FROM PUBLIC;
GRANT SELECT ON hihooi.generates TO PUBLIC;

-- Objects that hang on something temporary and are not temporary themselves: replicas don't have them. (Those that are gone
-- stay here for a while: when the session ends, no event tells of what is dropped.)
CREATE TABLE IF NOT EXISTS hihooi.hanging (class oid, object oid, PRIMARY KEY (class, object));
REVOKE ALL ON hihooi.hanging FROM PUBLIC;
GRANT SELECT ON hihooi.hanging TO PUBLIC;

-- What a command leaves for those behind it in its transaction, by name; NULL if nothing. Anybody may set most parameters, and so
-- could claim what hasn't happened: it is kept in one that only superusers may set, and that PostgreSQL reads when a session
-- begins and never again (manual, session_preload_libraries). It goes with a subtransaction that is rolled back, at COMMIT, and
-- by RESET ALL, which anybody may say. (In a table it would stay, but in front of CONCURRENTLY nothing may be written.)
CREATE FUNCTION hihooi.kept(what text) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    told constant text := current_setting('session_preload_libraries');
BEGIN
    RETURN CASE WHEN told ^@ '{' THEN told::jsonb->what END;
END
$$;

-- NULL is forgotten.
CREATE FUNCTION hihooi.keep(what text, value jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    told constant text := current_setting('session_preload_libraries');
    others constant jsonb := CASE WHEN told ^@ '{' THEN told ELSE '{}' END::jsonb - what;
BEGIN
    PERFORM set_config('session_preload_libraries',
        (others || CASE WHEN value IS NULL THEN '{}' ELSE jsonb_build_object(what, value) END)::text, true);
END
$$;

-- The highest number of a transaction that noted a command, times 2^20, and a count: a sequence shows its state to everybody at
-- once, whatever their snapshot.
CREATE SEQUENCE IF NOT EXISTS hihooi.last_ddl;
REVOKE ALL ON SEQUENCE hihooi.last_ddl FROM PUBLIC;
GRANT SELECT ON SEQUENCE hihooi.last_ddl TO PUBLIC;

-- Whether the command of another transaction may have been committed since this one took its snapshot, at REPEATABLE READ and
-- SERIALIZABLE. (Which of the transactions that the snapshot doesn't see executed a command, nobody knows: those count that are
-- committed and not above the highest that did.)
CREATE FUNCTION hihooi.is_behind() RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    last bigint;
    marked constant jsonb := hihooi.kept('marked');
    seen pg_snapshot;
    unseen bigint;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('repeatable read', 'serializable') THEN
        RETURN false;
    END IF;
    SELECT last_value INTO last FROM hihooi.last_ddl;
    IF (marked->>'last')::bigint = last THEN
        RETURN (marked->'is_behind')::boolean; -- nobody else has executed one since
    END IF;
    -- (No transaction has this number yet: it comes from another server's dump.)
    IF last >> 20 > pg_current_xact_id()::text::bigint + (1 << 20) THEN
        RETURN false;
    END IF;
    seen := pg_current_snapshot();
    unseen := pg_snapshot_xmax(seen)::text::bigint;
    RETURN (last >> 20) - unseen > 1000 OR EXISTS (
        SELECT FROM (SELECT pg_snapshot_xip(seen)::text::bigint UNION ALL SELECT generate_series(unseen, last >> 20)) t(x)
        WHERE x <= last >> 20 AND pg_xact_status(x::text::xid8) = 'committed');
END
$$;

-- Tells others of a command of this transaction. (Not by nextval, which would change the session's lastval(). A number that no
-- transaction has yet comes from another server's dump.)
CREATE FUNCTION hihooi.mark_ddl() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    own constant bigint := pg_current_xact_id()::text::bigint;
    next constant bigint := greatest(own, pg_snapshot_xmax(pg_current_snapshot())::text::bigint) + (1 << 20);
    is_behind constant boolean := hihooi.is_behind();
    mark bigint;
BEGIN
    SELECT setval('hihooi.last_ddl', CASE WHEN last_value >> 20 > next THEN own << 20
        ELSE greatest(last_value + 1, own << 20) END) INTO mark FROM hihooi.last_ddl;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM hihooi.keep('marked', jsonb_build_object('last', mark, 'is_behind', is_behind));
    END IF;
END
$$;

-- Raises an error if others' commands may have changed an object that this transaction has not made itself: the functions here
-- read the catalogs as they are in the snapshot, PostgreSQL's commands as they are now. These may differ at REPEATABLE READ, and
-- notes would tell half of a table.
CREATE FUNCTION hihooi.check_snapshot(object oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF hihooi.is_behind() AND coalesce(strpos(hihooi.kept('made')#>>'{}', format(' %s ', object)), 0) = 0 THEN
        RAISE 'could not serialize access due to concurrent DDL'
        USING ERRCODE = 'serialization_failure',
            HINT = 'The transaction might succeed if retried.';
    END IF;
END
$$;

-- Writes a note. (Without reading the table, which a plan does that finds it small: two transactions
-- that are SERIALIZABLE would conflict over it.)
CREATE FUNCTION hihooi.write_note(event text, body jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
    place tid;
BEGIN
    IF event IN ('command', 'drop') THEN
        PERFORM hihooi.mark_ddl();
    END IF;
    INSERT INTO hihooi.note (event, body) VALUES (event, CASE event
        WHEN 'command' THEN body || '{"format": ":format"}' ELSE body END)
        RETURNING ctid INTO place;
    DELETE FROM hihooi.note WHERE ctid = place;
END
$$;

-- Replica identity -----------------------------------------------------------------------------

-- Whether rows can be identified by this index: it is valid, not deferrable, on columns that have no NULLs and are
-- published, which generated ones are not. (While FULL stands in, nothing keeps a column from losing its NOT NULL. Since
-- PostgreSQL 18 there may be NULLs from before it.)
CREATE FUNCTION hihooi.is_usable(i pg_index) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN i.indisunique AND i.indisvalid AND i.indimmediate AND NOT EXISTS (
        SELECT FROM pg_attribute a
        WHERE a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
          AND (a.attgenerated <> '' OR NOT a.attnotnull OR EXISTS (
            SELECT FROM pg_constraint c
            WHERE c.conrelid = a.attrelid AND c.contype = 'n' AND NOT c.convalidated AND a.attnum = ANY (c.conkey))));
END
$$;

-- The identity that a table needs, NULL if it has it; and what its users chose.
CREATE FUNCTION hihooi.wanted_identity(t oid, OUT wanted text, OUT choice "char", OUT index oid)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    is_ours boolean := false;
    usable boolean;
BEGIN
    SELECT c.relreplident INTO choice FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = t AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
          AND n.nspname NOT IN ('hihooi', 'information_schema') AND n.nspname !~ '^pg_';
    IF choice = 'f' THEN
        SELECT h.choice, h.index, true INTO choice, index, is_ours
            FROM hihooi.identity h WHERE h.relation = t;
    ELSIF choice = 'i' THEN
        SELECT indexrelid INTO index FROM pg_index WHERE indrelid = t AND indisreplident;
    END IF;
    usable := EXISTS (SELECT FROM pg_index i WHERE i.indrelid = t AND hihooi.is_usable(i)
        AND CASE choice WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indexrelid = index END);
    wanted := CASE
        WHEN NOT usable AND is_ours IS NOT TRUE AND choice IS NOT NULL THEN 'FULL'
        WHEN usable AND is_ours AND choice = 'd' THEN 'DEFAULT'
        WHEN usable AND is_ours AND choice = 'i' THEN
            (SELECT format('USING INDEX %I', relname) FROM pg_class c WHERE c.oid = index)
        END;
END
$$;

-- Runs a command as a replica, so that users' event triggers don't notice; ours do, so that it is the
-- same at all sites. (Only if there are any: that setting makes PostgreSQL forget all of the session's
-- plans, which costs more than the command.)
CREATE FUNCTION hihooi.alter_unnoticed(command text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    role constant text := current_setting('session_replication_role');
    notices constant boolean := role <> 'replica' AND EXISTS (
        SELECT FROM pg_event_trigger WHERE evtenabled <> 'D' AND evtname !~ '^[!~]hihooi_');
BEGIN
    IF notices THEN
        PERFORM set_config('session_replication_role', 'replica', true);
    END IF;
    PERFORM hihooi.keep('ours', to_jsonb(jsonb_array_length(hihooi.begun()) + 1));
    EXECUTE command;
    PERFORM hihooi.keep('ours', NULL);
    IF notices THEN
        PERFORM set_config('session_replication_role', role, true);
    END IF;
END
$$;

-- Makes the stream name a schema's tables by the name that it has got: before PostgreSQL 16 it goes on with the old one, until
-- tables are published anew (on 14, until each is).
CREATE FUNCTION hihooi.name_anew(schema oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    version constant int := current_setting('server_version_num')::int / 10000;
    publication constant text := format('%I', 'hihooi_' || gen_random_uuid());
    tables constant text[] := ARRAY(SELECT format('ONLY %s', oid::regclass) FROM pg_class
        WHERE version < 16 AND relnamespace = schema AND relkind = 'r' AND relpersistence = 'p'
        ORDER BY oid LIMIT CASE version WHEN 15 THEN 1 END);
BEGIN
    IF cardinality(tables) > 0 THEN
        PERFORM hihooi.alter_unnoticed(format('CREATE PUBLICATION %s FOR TABLE %s', publication, array_to_string(tables, ', ')));
        PERFORM hihooi.alter_unnoticed(format('DROP PUBLICATION %s', publication));
    END IF;
END
$$;

-- Waits for the transactions that have written to these tables, and lets no others write: a row is told as of the moment when
-- it was written, and its transaction is to come before what changes the meaning of that.
CREATE FUNCTION hihooi.await_writers(tables oid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    names constant text := (SELECT string_agg(format('ONLY %s', oid::regclass), ', ' ORDER BY oid) FROM pg_class
        WHERE oid = ANY (tables) AND relkind = 'r' AND relpersistence = 'p');
BEGIN
    IF names IS NOT NULL THEN
        EXECUTE format('LOCK TABLE %s IN SHARE MODE', names);
    END IF;
END
$$;

-- The tables in whose rows there are values of a type.
CREATE FUNCTION hihooi.tables_with(t oid) RETURNS oid[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
    -- Arrays, domains and ranges depend on a type, and relations with such columns, whose row types are types again.
    WITH RECURSIVE uses(type) AS (
        SELECT t
        UNION
        SELECT CASE d.classid WHEN 'pg_type'::regclass THEN d.objid ELSE c.reltype END
        FROM uses u JOIN pg_depend d ON d.refclassid = 'pg_type'::regclass AND d.refobjid = u.type
            LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
        WHERE d.classid IN ('pg_type'::regclass, 'pg_class'::regclass))
    SELECT array_agg(DISTINCT d.objid) FROM uses u JOIN pg_depend d
        ON d.refclassid = 'pg_type'::regclass AND d.refobjid = u.type AND d.classid = 'pg_class'::regclass AND d.objsubid > 0
$$;

-- Gives a table the identity it needs.
CREATE FUNCTION hihooi.set_identity(t oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    wanted record;
BEGIN
    SELECT * INTO wanted FROM hihooi.wanted_identity(t);
    IF wanted.wanted IS NULL THEN
        RETURN;
    END IF;
    IF wanted.wanted = 'FULL' THEN
        INSERT INTO hihooi.identity AS h (relation, choice, index)
            VALUES (t, wanted.choice, wanted.index)
            ON CONFLICT (relation) DO UPDATE SET choice = excluded.choice, index = excluded.index;
    ELSE
        DELETE FROM hihooi.identity WHERE relation = t;
    END IF;
    PERFORM hihooi.alter_unnoticed(
        format('ALTER TABLE ONLY %s REPLICA IDENTITY %s', t::regclass, wanted.wanted));
END
$$;

-- What a note tells ----------------------------------------------------------------------------

-- The settings that decide what a command means; `path` is the caller's search_path.
CREATE FUNCTION hihooi.settings(path text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT jsonb_object_agg(name, current_setting(name, true)) || jsonb_build_object('search_path', path)
    FROM unnest('{
        check_function_bodies, default_table_access_method,
        default_toast_compression, xmloption, standard_conforming_strings, backslash_quote,
        escape_string_warning, array_nulls, transform_null_equals, default_text_search_config,
        DateStyle, IntervalStyle, TimeZone, timezone_abbreviations, extra_float_digits,
        bytea_output, xmlbinary, lc_monetary, lc_numeric, lc_time, default_with_oids,
        allow_in_place_tablespaces, allow_system_table_mods, createrole_self_grant, icu_validation_level, extension_control_path
    }'::text[]) name
    WHERE current_setting(name, true) IS NOT NULL
      -- A path of this machine, unless it was set for the command.
      AND (name <> 'extension_control_path'
          OR current_setting(name, true) <> '$system' AND EXISTS (
              SELECT FROM pg_settings s WHERE s.name = 'extension_control_path'
                AND s.source = ANY ('{session,client,user,database,database user}'))));
END
$$;

-- What constants of dates and times meant that PostgreSQL computes when it parses them (manual, "Special Values").
CREATE FUNCTION hihooi.moment() RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN jsonb_build_object('now', to_char(now(), 'YYYY-MM-DD HH24:MI:SS.USOF'), 'today', to_char(now(), 'YYYY-MM-DD'),
        'tomorrow', to_char(current_date + 1, 'YYYY-MM-DD'), 'yesterday', to_char(current_date - 1, 'YYYY-MM-DD'));
END
$$;

-- The query that runs, as a note tells it.
CREATE FUNCTION hihooi.query_note(query text) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
    own constant text := md5(query);
BEGIN
    IF length(query) < 4096 THEN
        RETURN jsonb_build_object('query', query);
    ELSIF EXISTS (SELECT FROM hihooi.noted_query
                  WHERE transaction = pg_current_xact_id() AND hash = own) THEN
        RETURN jsonb_build_object('query_hash', own);
    END IF;
    INSERT INTO hihooi.noted_query VALUES (pg_current_xact_id(), own);
    RETURN jsonb_build_object('query', query, 'query_hash', own);
END
$$;

-- An object as a note tells it: its address, which is the same at every site, and its description.
-- A role's name stays as it is until the transaction ends. (Other changes of the role don't wait for that.)
CREATE FUNCTION hihooi.hold_role(called text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM pg_authid WHERE rolname = called FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE 'role "%" was dropped, or got another name, while this transaction used it', called
        USING ERRCODE = 'serialization_failure', HINT = 'Try again.';
    END IF;
END
$$;

-- (In PL/pgSQL like whatever runs for every command, since it keeps its plans.)
CREATE FUNCTION hihooi.object_note(class oid, object oid) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    address record;
BEGIN
    -- The names of roles in the description stay as they are until the transaction ends.
    PERFORM FROM pg_authid WHERE oid = ANY (ARRAY(
        SELECT s.refobjid FROM (
                SELECT $1, $2
                UNION ALL SELECT 'pg_policy'::regclass, p.oid FROM pg_policy p WHERE $1 = 'pg_class'::regclass AND p.polrelid = $2
            ) part(class, object) JOIN pg_shdepend s ON (s.classid, s.objid) = (part.class, part.object)
        WHERE s.dbid = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
          AND s.refclassid = 'pg_authid'::regclass)) FOR KEY SHARE;
    SELECT * INTO address FROM hihooi.address(class, object);
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    RETURN jsonb_build_object('kind', address.kind, 'names', address.names, 'args', address.args,
        'identity', (SELECT i.identity FROM hihooi.identify(class, object) i),
        'description', hihooi.describe(class, object), 'snapshot', pg_current_snapshot())
        || CASE class WHEN 'pg_class'::regclass THEN hihooi.invalid_note(object) ELSE '{}' END;
END
$$;

-- The indexes of a table that are not valid, which replicas don't have, or no more; and whether those of a partitioned
-- table are. (PostgreSQL sets that when a part is attached, not when it becomes valid.)
CREATE FUNCTION hihooi.invalid_note(t oid) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
               WHERE i.indrelid = t AND (NOT i.indisvalid OR c.relkind = 'I'))
    THEN
        RETURN (
            SELECT jsonb_build_object(
                'invalid', jsonb_agg(i.name) FILTER (WHERE i.relkind = 'i' AND NOT i.indisvalid),
                'partitioned', jsonb_object_agg(i.name, i.indisvalid) FILTER (WHERE i.relkind = 'I'))
            FROM (SELECT format('%I.%I', n.nspname, c.relname) AS name, c.relkind, i.indisvalid
                FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE i.indrelid = t) i);
    END IF;
    RETURN '{}';
END
$$;

-- Whether an object of this class belongs to one server: replicas don't have it.
CREATE FUNCTION hihooi.is_local(class oid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- (PostgreSQL 14 lacks the last two: nothing is equal to NULL, but nothing differs from it either.)
    RETURN (class IN ('pg_publication'::regclass, 'pg_publication_rel'::regclass,
        'pg_subscription'::regclass, 'pg_largeobject'::regclass,
        'pg_largeobject_metadata'::regclass, 'pg_tablespace'::regclass, 'pg_database'::regclass,
        'pg_authid'::regclass, to_regclass('pg_publication_namespace'),
        to_regclass('pg_parameter_acl'))) IS TRUE;
END
$$;

-- Whether an object is hihooi's, with which each site is set up for itself.
CREATE FUNCTION hihooi.is_ours(class oid, object oid) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (SELECT FROM hihooi.identify(class, object) i
        WHERE i.schema = 'hihooi' OR i.type = 'schema' AND i.name = 'hihooi')
$$;

-- A column of a relation whose values nobody can write, NULL if there is none.
CREATE FUNCTION hihooi.unwritable(t oid) RETURNS int2
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT min(attnum) FROM pg_attribute
        WHERE attrelid = t AND attnum > 0 AND NOT attisdropped
          AND atttypid IN ('pg_node_tree'::regtype, 'pg_ndistinct'::regtype,
                           'pg_dependencies'::regtype, 'pg_mcv_list'::regtype));
END
$$;

-- Whether the values of a type are OIDs of objects, such as regclass: names to people, and others at each server.
CREATE FUNCTION hihooi.names_objects(t oid) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT t = ANY ('{regproc,regprocedure,regoper,regoperator,regclass,regtype,regrole,regnamespace,regconfig,
        regdictionary,regcollation}'::regtype[])
$$;

-- A type, and the types of what its values are made of.
CREATE FUNCTION hihooi.parts(t oid) RETURNS SETOF oid
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY WITH RECURSIVE part(type) AS (
        SELECT t
        UNION
        SELECT u.type FROM part p JOIN pg_type y ON y.oid = p.type, LATERAL (
            SELECT y.typelem WHERE y.typcategory = 'A'
            UNION ALL SELECT y.typbasetype WHERE y.typtype = 'd'
            UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE y.oid IN (r.rngtypid, r.rngmultitypid)
            UNION ALL SELECT a.atttypid FROM pg_attribute a
                WHERE y.typtype = 'c' AND a.attrelid = y.typrelid AND a.attnum > 0 AND NOT a.attisdropped
            ) u(type))
    SELECT type FROM part;
END
$$;

-- A row for each kind of OIDs that values of a type have in them, which are each server's own: true for those of enums' labels, which
-- only hashes show; false for those of objects.
CREATE FUNCTION hihooi.oids_in(t oid) RETURNS SETOF boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT y.typtype = 'e' FROM hihooi.parts(t) p JOIN pg_type y ON y.oid = p
    WHERE y.typtype = 'e' OR hihooi.names_objects(y.oid)
$$;

-- Whether only a part of an object goes when what that hangs on goes: an attribute, a check, a default, a member.
CREATE FUNCTION hihooi.hangs_in_part(of_class oid, of_object oid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN of_class = 'pg_opfamily'::regclass
        OR of_class = 'pg_class'::regclass AND EXISTS (SELECT FROM pg_class WHERE oid = of_object AND relkind IN ('c', 'f'))
        OR of_class = 'pg_type'::regclass AND EXISTS (SELECT FROM pg_type WHERE oid = of_object AND (typtype = 'c'
            OR EXISTS (SELECT FROM hihooi.temporary(
                ARRAY(SELECT 'pg_constraint'::regclass::oid FROM pg_constraint WHERE contypid = of_object),
                ARRAY(SELECT oid FROM pg_constraint WHERE contypid = of_object)))));
END
$$;

-- The relation that an object is, or belongs to; NULL if there is none.
CREATE FUNCTION hihooi.relation_of(of_class oid, of_object oid) RETURNS oid
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN CASE of_class
        WHEN 'pg_class'::regclass THEN of_object
        WHEN 'pg_trigger'::regclass THEN (SELECT tgrelid FROM pg_trigger WHERE oid = of_object)
        WHEN 'pg_rewrite'::regclass THEN (SELECT ev_class FROM pg_rewrite WHERE oid = of_object)
        WHEN 'pg_policy'::regclass THEN (SELECT polrelid FROM pg_policy WHERE oid = of_object)
        WHEN 'pg_constraint'::regclass THEN (SELECT nullif(conrelid, 0) FROM pg_constraint WHERE oid = of_object) END;
END
$$;

-- Whether an object belongs to a temporary relation.
CREATE FUNCTION hihooi.is_of_temporary(of_class oid, of_object oid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN of_class <> 'pg_class'::regclass AND EXISTS (SELECT FROM pg_class
        WHERE relpersistence = 't' AND oid = hihooi.relation_of(of_class, of_object));
END
$$;

-- Raises an error if an object that isn't temporary itself came to hang on something temporary, or ceased to: replicas have such
-- an object or they don't, and no event tells when the session drops it. `is_new`: the command created it.
CREATE FUNCTION hihooi.check_hanging(of_class oid, of_object oid, hangs boolean, is_new boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF hangs AND hihooi.hangs_in_part(of_class, of_object) THEN
        RAISE '% depends on something temporary, so it can''t be replicated', pg_describe_object(of_class, of_object, 0)
        USING ERRCODE = 'feature_not_supported',
            HINT = 'Create what it depends on in a permanent schema, or create it in pg_temp as well.';
    END IF;
    IF NOT (hangs AND is_new) THEN
        IF hangs <> EXISTS (SELECT FROM hihooi.hanging WHERE (class, object) = (of_class, of_object)) THEN
            RAISE '% % depend on something temporary % it was created: that can''t be replicated',
                pg_describe_object(of_class, of_object, 0),
                CASE WHEN hangs THEN 'can''t begin to' ELSE 'can''t cease to' END,
                CASE WHEN hangs THEN 'after' ELSE 'as it did when' END
            USING ERRCODE = 'feature_not_supported', HINT = 'Drop it and create it again.';
        END IF;
        RETURN;
    END IF;
    -- Those that are gone. (An older snapshot would see them where they are gone already.)
    IF current_setting('transaction_isolation') = 'read committed' THEN
        DELETE FROM hihooi.hanging h USING (SELECT * FROM hihooi.hanging FOR UPDATE SKIP LOCKED) known
            WHERE (h.class, h.object) = (known.class, known.object) AND NOT hihooi.is_temporary(h.class, h.object);
    END IF;
    INSERT INTO hihooi.hanging VALUES (of_class, of_object) ON CONFLICT DO NOTHING;
    -- Replicas do nothing, but what reads it may not be read there.
    PERFORM hihooi.write_note('command', jsonb_build_object('tag', 'CREATE', 'role', session_user));
END
$$;

-- The names of types, and of what their values are made of.
CREATE FUNCTION hihooi.names_of_types(types oid[]) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
AS $$
BEGIN
    RETURN (SELECT string_agg(concat_ws(' ', t.typnamespace, t.typname,
        (SELECT string_agg(e.enumlabel, ' ' ORDER BY e.oid) FROM pg_enum e WHERE e.enumtypid = t.oid),
        (SELECT string_agg(concat_ws(' ', a.attname, a.atttypid), ' ' ORDER BY a.attnum) FROM pg_attribute a
            WHERE a.attrelid = t.typrelid AND a.attnum > 0)), ' ' ORDER BY t.oid)
    FROM pg_type t WHERE t.oid = ANY (types));
END
$$;

-- Keeps an object, its name and, of a type, what its values are made of until the transaction ends: others wait before they change
-- or drop it. Raises an error if one has done so meanwhile. (PostgreSQL does that for relations only, and most of them.)
CREATE FUNCTION hihooi.hold(of_class oid, of_object oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
AS $$
DECLARE
    address record;
    types oid[];
    names text;
    relations oid[] := ARRAY[of_object];
    relation record;
    is_same boolean := true;
BEGIN
    SELECT * INTO address FROM hihooi.address(of_class, of_object);
    IF of_class = 'pg_namespace'::regclass THEN
        -- (What gives these, and types, another name locks nothing but their rows.)
        PERFORM FROM pg_namespace WHERE oid = of_object FOR KEY SHARE;
    ELSIF of_class = 'pg_type'::regclass THEN
        -- (An array type is called after its elements' type, and otherwise if a type takes that name.)
        types := ARRAY(SELECT oid FROM hihooi.parts(of_object) p JOIN pg_type ON oid = p
            WHERE oid >= 16384 AND typcategory <> 'A');
        names := hihooi.names_of_types(types);
        relations := ARRAY(SELECT typrelid FROM pg_type WHERE oid = ANY (types) AND typrelid <> 0);
    END IF;
    IF of_class IN ('pg_type'::regclass, 'pg_class'::regclass) THEN
        FOR relation IN SELECT oid, relkind FROM pg_class WHERE oid = ANY (relations) LOOP
            BEGIN
                IF relation.relkind IN ('r', 'p') THEN
                    EXECUTE format('LOCK TABLE ONLY %s IN ACCESS SHARE MODE', relation.oid::regclass);
                ELSIF relation.relkind = 'S' THEN
                    PERFORM pg_sequence_last_value(relation.oid);
                END IF;
            EXCEPTION WHEN undefined_table OR internal_error THEN
                is_same := false;
            END;
            IF relation.relkind = 'c' THEN
                PERFORM FROM pg_class WHERE oid = relation.oid FOR SHARE;
                PERFORM FROM pg_attribute WHERE attrelid = relation.oid FOR SHARE;
            END IF;
        END LOOP;
    END IF;
    IF of_class = 'pg_type'::regclass THEN
        PERFORM FROM pg_type WHERE oid = ANY (types) FOR KEY SHARE;
        PERFORM FROM pg_enum WHERE enumtypid = ANY (types) FOR KEY SHARE;
        is_same := is_same AND names IS NOT DISTINCT FROM hihooi.names_of_types(types);
    END IF;
    -- (PostgreSQL locks what it finds, if that is no relation.)
    IF NOT is_same OR NOT EXISTS (
        SELECT FROM hihooi.find(address.kind, address.names, address.args) f WHERE (f.class, f.object) = (of_class, of_object))
    THEN
        RAISE '% was dropped, or changed, while this transaction used it',
            coalesce(pg_describe_object(of_class, of_object, 0), 'an object that the command depends on')
        USING ERRCODE = 'serialization_failure', HINT = 'Try again.';
    END IF;
END
$$;

-- Holds what a command's text may name, which comes later at replicas: the schemas of its objects, the types that functions are
-- known by, and what its objects came to depend on in this transaction. What the transaction has made nobody else sees.
CREATE FUNCTION hihooi.hold_named(classes oid[], objects oid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
    PERFORM hihooi.hold(named.class, named.object) FROM (
        SELECT d.refclassid AS class, d.refobjid AS object
        FROM unnest(classes, objects) o(class, object) CROSS JOIN LATERAL (
            SELECT CASE o.class WHEN 'pg_opfamily'::regclass THEN o.object
                WHEN 'pg_opclass'::regclass THEN (SELECT opcfamily FROM pg_opclass WHERE oid = o.object) END
        ) operators(family) CROSS JOIN LATERAL (
            SELECT o.class, o.object
            UNION ALL SELECT 'pg_attrdef'::regclass, oid FROM pg_attrdef
                WHERE o.class = 'pg_class'::regclass AND adrelid = o.object
            UNION ALL SELECT 'pg_rewrite'::regclass, oid FROM pg_rewrite
                WHERE o.class = 'pg_class'::regclass AND ev_class = o.object
            UNION ALL SELECT 'pg_constraint'::regclass, oid FROM pg_constraint
                WHERE o.class = 'pg_class'::regclass AND conrelid = o.object
            UNION ALL SELECT 'pg_constraint'::regclass, oid FROM pg_constraint
                WHERE o.class = 'pg_type'::regclass AND contypid = o.object
            UNION ALL SELECT 'pg_amop'::regclass, oid FROM pg_amop WHERE amopfamily = operators.family
            UNION ALL SELECT 'pg_amproc'::regclass, oid FROM pg_amproc WHERE amprocfamily = operators.family
        ) part(class, object) CROSS JOIN LATERAL (
            SELECT * FROM pg_depend d
            WHERE d.classid = part.class AND d.objid = part.object AND (
                age(d.xmin) <= 0 AND hihooi.is_own(d.xmin)
                OR d.refclassid = 'pg_namespace'::regclass
                OR d.refclassid = 'pg_type'::regclass AND part.class IN ('pg_proc'::regclass, 'pg_operator'::regclass)) OFFSET 0
        ) d
      UNION
        SELECT 'pg_namespace'::regclass, c.relnamespace FROM unnest(classes, objects) o(class, object)
            JOIN pg_class c ON c.oid = hihooi.relation_of(o.class, o.object)
      UNION
        SELECT class, object FROM unnest(classes, objects) o(class, object)
            WHERE class IN ('pg_type'::regclass, 'pg_proc'::regclass, 'pg_namespace'::regclass)
    ) named
    WHERE NOT EXISTS (SELECT FROM pg_depend own
            WHERE own.classid = named.class AND own.objid = named.object AND age(own.xmin) <= 0 AND hihooi.is_own(own.xmin))
        AND NOT hihooi.is_temporary(named.class, named.object);
END
$$;

-- Raises an error if a table can't be replicated; `is_temporary` is what hihooi.is_temporary() says of it.
CREATE FUNCTION hihooi.check_table(t oid, is_temporary boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    bad record;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_class
                   WHERE oid = t AND relkind IN ('r', 'p') AND relpersistence <> 't') THEN
        RETURN;
    END IF;
    IF is_temporary THEN
        RAISE 'table % depends on something temporary, so it can''t be replicated', t::regclass
        USING ERRCODE = 'feature_not_supported',
            HINT = 'Create what it depends on in a permanent schema, or make the table temporary.';
    END IF;
    SELECT indexrelid::regclass AS name INTO bad FROM pg_index
        WHERE indrelid = t AND (indisreplident OR indisclustered) AND hihooi.is_temporary('pg_class'::regclass, indexrelid);
    IF FOUND THEN
        RAISE 'index % depends on something temporary, so replicas don''t have it', bad.name
        USING ERRCODE = 'feature_not_supported', HINT = 'Create what it depends on in a permanent schema.';
    END IF;
    SELECT attname AS name, atttypid::regtype AS type INTO bad FROM pg_attribute
        WHERE attrelid = t AND attnum = hihooi.unwritable(t);
    IF FOUND THEN
        RAISE 'column "%" of table % has type %, whose values can''t be replicated',
            bad.name, t::regclass, bad.type
        USING ERRCODE = 'feature_not_supported',
            HINT = 'Store it as text, or make the table temporary.';
    END IF;
    -- (OFFSET 0: otherwise the planner may call oids_in for every column of every table.)
    SELECT a.attname AS name, a.atttypid::regtype AS type INTO bad
        FROM (SELECT partstrat, unnest(partattrs) FROM pg_partitioned_table
              WHERE partrelid = t AND partstrat IN ('h', 'r') OFFSET 0) k(strategy, number),
            LATERAL (SELECT * FROM pg_attribute WHERE attrelid = t AND attnum = k.number OFFSET 0) a
        WHERE EXISTS (SELECT FROM hihooi.oids_in(a.atttypid) is_enum WHERE k.strategy = 'h' OR NOT is_enum);
    IF FOUND THEN
        RAISE 'table % is partitioned by hash or range of column "%", whose type % has OIDs as values, which are others at each'
            ' server, so it can''t be replicated', t::regclass, bad.name, bad.type
        USING ERRCODE = 'feature_not_supported',
            HINT = 'Partition it by list, or by another column.';
    END IF;
    -- (tableoid; a value that names an object; a hash of an enum, or of what may contain such.)
    SELECT a.attname AS name INTO bad FROM pg_attribute a JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = t AND a.attgenerated <> '' AND (
            strpos(d.adbin::text, ':varattno -6 ') > 0
            -- (What text search does with its configurations and dictionaries depends on no OID.)
            OR EXISTS (SELECT FROM regexp_matches(d.adbin::text, ':(?:vartype|consttype|funcresulttype|resulttype) ([0-9]+)', 'g') m
                       WHERE hihooi.names_objects(m[1]::oid) AND m[1]::oid NOT IN ('regconfig'::regtype, 'regdictionary'::regtype))
            OR d.adbin::text ~ 'RELABELTYPE :arg [{](VAR :varno [0-9]+ :varattno [0-9]+ :vartype|CONST :consttype) (3734|3769) '
            OR EXISTS (SELECT FROM regexp_matches(d.adbin::text, ':funcid ([0-9]+)', 'g') m JOIN pg_proc p ON p.oid = m[1]::oid
                       WHERE p.proname ~ '^hashenum(extended)?$'
                          OR p.proname ~ '^hash_(array|record|range|multirange)(_extended)?$' AND EXISTS (
                              SELECT FROM pg_attribute c, hihooi.oids_in(c.atttypid)
                              WHERE c.attrelid = t AND c.attnum > 0 AND NOT c.attisdropped)));
    IF FOUND THEN
        RAISE 'column "%" of table % is generated from OIDs, which are others at each server, so it can''t be replicated',
            bad.name, t::regclass
        USING ERRCODE = 'feature_not_supported',
            HINT = 'Generate it from names or values (an enum''s text, by a CASE expression), or compute it in queries.';
    END IF;
END
$$;

-- Raises an error if an index, a generated column or a partition key asks for the client's settings or
-- name: at replicas, where rows come without the client, it would fail or give other values. Of a
-- relation counts what the transaction made (what was there before hihooi must not be in the way of
-- other changes), of a function all that uses it. (These are words in a function's body: who hides them
-- in another function may stop replicas.)
CREATE FUNCTION hihooi.check_computed(class oid, object oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    bad record;
BEGIN
    WITH made(kind, id, writer) AS (
        SELECT 'pg_class'::regclass::oid, i.indexrelid, i.xmin FROM pg_index i
            WHERE object IN (i.indexrelid, i.indrelid)
        UNION ALL
        SELECT 'pg_class'::regclass, t.partrelid, t.xmin FROM pg_partitioned_table t
            WHERE t.partrelid = object
        UNION ALL
        SELECT 'pg_attrdef'::regclass, v.oid, v.xmin FROM pg_attrdef v WHERE v.adrelid = object
        UNION ALL
        -- (In PostgreSQL 14 the column itself depends on what generates it.)
        SELECT 'pg_class'::regclass, v.adrelid, v.xmin FROM pg_attrdef v WHERE v.adrelid = object
    ), used AS (
        SELECT d.* FROM made m JOIN pg_depend d ON d.classid = m.kind AND d.objid = m.id
            WHERE class = 'pg_class'::regclass AND age(m.writer) <= 0 AND hihooi.is_own(m.writer)
        UNION ALL
        SELECT d.* FROM pg_depend d
            WHERE class = 'pg_proc'::regclass AND d.refclassid = class AND d.refobjid = object
    )
    SELECT p.oid::regprocedure AS function,
            pg_describe_object(u.classid, u.objid, u.objsubid) AS used_by INTO bad
        FROM used u JOIN pg_proc p ON p.oid = u.refobjid JOIN pg_language l ON l.oid = p.prolang
        WHERE u.refclassid = 'pg_proc'::regclass AND l.lanname NOT IN ('internal', 'c')
          AND CASE u.classid
              WHEN 'pg_class'::regclass THEN EXISTS (SELECT FROM pg_class c
                      WHERE c.oid = u.objid AND c.relkind IN ('i', 'I', 'p'))
                  OR EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = u.objid
                      AND a.attnum = u.objsubid AND a.attgenerated <> '')
              WHEN 'pg_attrdef'::regclass THEN EXISTS (SELECT FROM pg_attrdef v
                      JOIN pg_attribute a ON a.attrelid = v.adrelid AND a.attnum = v.adnum
                  WHERE v.oid = u.objid AND a.attgenerated <> '')
              END
          AND coalesce(pg_get_function_sqlbody(p.oid), p.prosrc)
              ~* '[[:<:]](current_setting|current_user|current_role|session_user)[[:>:]]'
        LIMIT 1;
    IF FOUND THEN
        RAISE 'function % asks for the client''s settings or name, so % can''t be replicated',
            bad.function, bad.used_by
        USING ERRCODE = 'feature_not_supported',
            HINT = 'It isn''t IMMUTABLE: give it what it asks for as an argument.';
    END IF;
END
$$;

-- What decides the results of a function, a text search configuration or dictionary. (Which search_path is set matters no more
-- than the caller's does.)
CREATE FUNCTION hihooi.hash_of_called(class oid, object oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT md5(CASE class
        WHEN 'pg_proc'::regclass THEN (
            SELECT concat_ws(' ', p.prosrc, p.probin, pg_get_function_sqlbody(p.oid), p.prolang, p.proisstrict,
                ARRAY(SELECT c FROM unnest(p.proconfig) c WHERE NOT starts_with(c, 'search_path=')))
            FROM pg_proc p WHERE p.oid = object)
        WHEN 'pg_ts_config'::regclass THEN (
            SELECT string_agg(concat_ws(' ', m.maptokentype, m.mapseqno, m.mapdict), ',' ORDER BY m.maptokentype, m.mapseqno)
            FROM pg_ts_config_map m WHERE m.mapcfg = object)
        ELSE (SELECT concat_ws(' ', d.dicttemplate, d.dictinitoption) FROM pg_ts_dict d WHERE d.oid = object)
        END)
$$;

-- What the stored generated columns of a table call, or those of all tables (NULL): in their expressions, in SQL-standard
-- bodies, and by a name in the text of a body. (PostgreSQL's own functions don't change.)
CREATE FUNCTION hihooi.calls(t oid) RETURNS TABLE (relation oid, class oid, object oid, hash text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE used(class, object) AS (
        SELECT d.refclassid, d.refobjid
        FROM pg_attribute a JOIN pg_attrdef v ON v.adrelid = a.attrelid AND v.adnum = a.attnum
            -- (In PostgreSQL 14 the column itself depends on what generates it.)
            JOIN pg_depend d ON (d.classid, d.objid, d.objsubid) IN (
                ('pg_attrdef'::regclass, v.oid, 0), ('pg_class'::regclass, a.attrelid, a.attnum))
        WHERE a.attgenerated = 's' AND NOT a.attisdropped AND a.attrelid = t
        UNION
        SELECT n.class, n.object FROM used u, LATERAL (
            SELECT d.refclassid, d.refobjid FROM pg_depend d
                WHERE u.class = 'pg_proc'::regclass AND d.classid = u.class AND d.objid = u.object
            UNION ALL
            SELECT 'pg_proc'::regclass, o.oprcode FROM pg_operator o
                WHERE u.class = 'pg_operator'::regclass AND o.oid = u.object
            UNION ALL
            SELECT c.class, c.object
                FROM (SELECT lower(f.prosrc) AS text FROM pg_proc f JOIN pg_language l ON l.oid = f.prolang
                      WHERE u.class = 'pg_proc'::regclass AND f.oid = u.object AND f.oid >= 16384
                          AND l.lanname NOT IN ('internal', 'c') OFFSET 0) body,
                    (SELECT u.class, p.oid, lower(p.proname) FROM pg_proc p WHERE p.oid >= 16384
                     UNION ALL SELECT 'pg_ts_config'::regclass, t.oid, lower(t.cfgname) FROM pg_ts_config t
                     WHERE t.oid >= 16384) c(class, object, name)
                WHERE CASE WHEN strpos(body.text, c.name) = 0 THEN false
                    WHEN c.name ~ '^[[:alnum:]_]+$' THEN body.text ~ format('[[:<:]]%s[[:>:]]', c.name)
                    ELSE true END
            UNION ALL
            SELECT 'pg_ts_dict'::regclass, m.mapdict FROM pg_ts_config_map m
                WHERE u.class = 'pg_ts_config'::regclass AND m.mapcfg = u.object
        ) n(class, object)
    )
    SELECT t, u.class, u.object, hihooi.hash_of_called(u.class, u.object)
    FROM used u
    WHERE u.class = 'pg_proc'::regclass AND u.object >= 16384
       OR u.class IN ('pg_ts_config'::regclass, 'pg_ts_dict'::regclass)
$$;

-- Raises an error if a command changed what stored generated columns call, and there are rows: an UPDATE computes such a column
-- anew only if it names a column that the expression uses, and no replica can see that in the row.
CREATE FUNCTION hihooi.check_generating(c oid, o oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    tables oid[];
    bad oid;
BEGIN
    IF NOT EXISTS (SELECT FROM hihooi.generates g
        WHERE g.class = c AND g.object = o AND g.hash IS DISTINCT FROM hihooi.hash_of_called(c, o))
    THEN
        RETURN;
    END IF;
    SELECT array_agg(a.attrelid) INTO tables
        FROM (SELECT DISTINCT attrelid FROM pg_attribute WHERE attgenerated = 's' AND NOT attisdropped) a
        WHERE EXISTS (SELECT FROM hihooi.calls(a.attrelid) k WHERE k.class = c AND k.object = o);
    PERFORM hihooi.await_writers(tables);
    SELECT r.oid INTO bad FROM pg_class r
        WHERE r.oid = ANY (tables) AND r.relkind = 'r' AND r.relpersistence <> 't' AND pg_relation_size(r.oid) > 0
        ORDER BY 1 LIMIT 1;
    IF FOUND THEN
        RAISE '% can''t be changed, since a stored generated column of table % uses it, which has rows',
            pg_describe_object(c, o, 0), bad::regclass
        USING ERRCODE = 'feature_not_supported',
            DETAIL = 'PostgreSQL keeps the values that are stored, and computes them anew when rows are updated in some ways.',
            HINT = 'In one transaction: drop the column, make the change, add the column again.';
    END IF;
    DELETE FROM hihooi.generates WHERE class = c AND object = o;
    INSERT INTO hihooi.generates SELECT k.* FROM unnest(tables) t, hihooi.calls(t) k ON CONFLICT DO NOTHING;
END
$$;

-- What makes a table with these columns: one whose rows come in the stream (CREATE TABLE AS), or that
-- is like another one, which may be temporary.
CREATE FUNCTION hihooi.create_table(t oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('CREATE %sTABLE %s (%s)%s%s',
        CASE c.relpersistence WHEN 'u' THEN 'UNLOGGED ' ELSE '' END, t::regclass,
        (SELECT string_agg(concat(quote_ident(a.attname), ' ',
                format_type(a.atttypid, a.atttypmod),
                ' COLLATE ' || (SELECT nullif(a.attcollation, y.typcollation)::regcollation
                    FROM pg_type y WHERE y.oid = a.atttypid AND a.attcollation <> 0),
                CASE WHEN a.attnotnull THEN coalesce(
                    (SELECT format(' CONSTRAINT %I NOT NULL%s', k.conname, CASE WHEN k.connoinherit THEN ' NO INHERIT' END)
                     FROM pg_constraint k WHERE k.conrelid = t AND k.contype = 'n' AND k.conkey = ARRAY[a.attnum]),
                    ' NOT NULL') END,
                CASE a.attidentity WHEN 'a' THEN ' GENERATED ALWAYS AS IDENTITY'
                    WHEN 'd' THEN ' GENERATED BY DEFAULT AS IDENTITY' END,
                CASE a.attgenerated WHEN '' THEN ' DEFAULT ' || pg_get_expr(d.adbin, t)
                    WHEN 's' THEN ' GENERATED ALWAYS AS (' || pg_get_expr(d.adbin, t) || ') STORED'
                    ELSE ' GENERATED ALWAYS AS (' || pg_get_expr(d.adbin, t) || ')' END),
            ', ' ORDER BY a.attnum)
         FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = t AND d.adnum = a.attnum
         WHERE a.attrelid = t AND a.attnum > 0 AND NOT a.attisdropped),
        ' USING ' || (SELECT quote_ident(amname) FROM pg_am m WHERE m.oid = c.relam),
        ' WITH (' || (SELECT string_agg(o, ', ') FROM (
                SELECT o FROM unnest(c.reloptions) o
                UNION ALL SELECT 'toast.' || o FROM pg_class s, unnest(s.reloptions) o
                    WHERE s.oid = c.reltoastrelid) p(o)) || ')')
    FROM pg_class c WHERE c.oid = t
$$;

-- The SQL functions whose names stand in a call stack, and the statement of them that runs if they stand at its top. With
-- what they were before this transaction replaced, renamed or dropped them.
CREATE FUNCTION hihooi.running(context text) RETURNS TABLE (name name, body text, number text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
BEGIN
    RETURN QUERY
        SELECT f.proname, f.prosrc, substring(substr(context, 1 + length(f.frame)) FROM '^([0-9]+)([[:cntrl:]]|$)')
        FROM (
            SELECT a.proname, a.prosrc, format('SQL function "%s" statement ', a.proname) AS frame
            FROM (
                SELECT p.proname, p.prosrc FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
                    WHERE l.lanname = 'sql'
                UNION SELECT b.name, b.body FROM hihooi.former_body b
                    WHERE b.transaction = pg_current_xact_id_if_assigned()
            ) a
        ) f
        WHERE strpos(context, f.frame) > 0;
END
$$;

-- The body of the SQL function that runs, and which of its statements: PostgreSQL tells only the name.
-- Where functions of one name have different bodies that may hold the command, nobody can tell them
-- apart, and one of them may be somebody else's.
CREATE FUNCTION hihooi.body(context text, tag text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found record;
BEGIN
    IF NOT starts_with(context, 'SQL function "') THEN
        RETURN NULL;
    END IF;
    WITH named AS (
        SELECT r.*, (
                SELECT bool_and(r.body ~* format('[[:<:]]%s[[:>:]]', word))
                FROM string_to_table(tag, ' ') word) AS fits
        FROM hihooi.running(context) r
        WHERE r.number IS NOT NULL AND starts_with(context, format('SQL function "%s" statement ', r.name)))
    SELECT count(DISTINCT (n.body, n.number)) AS count, min(n.body) AS body, min(n.number) AS number,
            min(n.name::text) AS name
        INTO found FROM named n WHERE fits OR NOT EXISTS (SELECT FROM named WHERE fits);
    IF found.count > 1 THEN
        RAISE 'several SQL functions are called "%" and have other bodies, so % in one of them can''t be'
            ' replicated', found.name, tag
        USING ERRCODE = 'feature_not_supported',
            HINT = 'Write the function in PL/pgSQL, or give it a name of its own.';
    END IF;
    RETURN jsonb_build_object('body', found.body, 'statement', found.number::int);
END
$$;

-- The tables that inherit from a table, partitions among them.
CREATE FUNCTION hihooi.descendants(t oid) RETURNS TABLE (relation oid)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
    WITH RECURSIVE tree(relation) AS (
        SELECT inhrelid FROM pg_inherits WHERE inhparent = t
        UNION SELECT i.inhrelid FROM pg_inherits i JOIN tree ON i.inhparent = tree.relation)
    SELECT tree.relation FROM tree;
END
$$;

-- Values that a command gave existing rows without touching them, as ADD COLUMN does with a default
-- that is one value for all (attmissingval), in a table and what inherits from it.
CREATE FUNCTION hihooi.missing_values(t oid) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO, YMD' SET intervalstyle = 'postgres' SET timezone = 'UTC'
SET extra_float_digits = 1 SET bytea_output = 'hex' SET xmlbinary = 'base64' SET lc_monetary = 'C'
AS $$
BEGIN
    RETURN (
        SELECT jsonb_agg(DISTINCT jsonb_build_object('column', a.attname,
            'value', (a.attmissingval::text::text[])[1],
            'default', pg_get_expr(d.adbin, d.adrelid)))
        -- (LATERAL and OFFSET 0: by an index for each table, however many the planner takes them for.)
        FROM (SELECT t UNION SELECT * FROM hihooi.descendants(t)) r(relation), LATERAL (
                SELECT attrelid, attnum, attname, atthasmissing, attmissingval, xmin AS writer
                FROM pg_attribute WHERE attrelid = r.relation OFFSET 0) a
            LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.atthasmissing AND age(a.writer) <= 0 AND hihooi.is_own(a.writer));
END
$$;

-- Those of the tables, and of what inherits from them, that have a new column and a new CHECK that may
-- ask for more than the rows: replicas can't ask it, and can't make it without the column.
CREATE FUNCTION hihooi.asked_of_rows(tables oid[]) RETURNS oid[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        WITH RECURSIVE tree(relation) AS (
            SELECT unnest(tables)
            UNION SELECT i.inhrelid FROM pg_inherits i JOIN tree ON i.inhparent = relation)
        SELECT array_agg(DISTINCT c.oid)
        FROM tree, LATERAL (SELECT oid, relkind, relpersistence FROM pg_class WHERE oid = relation OFFSET 0) c,
            LATERAL (SELECT contype, convalidated, conbin, xmin AS writer
                FROM pg_constraint WHERE conrelid = c.oid OFFSET 0) k
        WHERE c.relkind = 'r' AND c.relpersistence = 'p'
          AND k.contype = 'c' AND k.convalidated AND age(k.writer) <= 0 AND hihooi.is_own(k.writer)
          AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
              AND age(a.xmin) <= 0 AND hihooi.is_own(a.xmin))
          AND (k.conbin::text ~ '[{]SQLVALUEFUNCTION ' OR EXISTS (
              SELECT FROM regexp_matches(k.conbin::text, ':funcid ([0-9]+)', 'g') called
                  JOIN pg_proc p ON p.oid = called[1]::oid JOIN pg_language l ON l.oid = p.prolang
              WHERE p.provolatile <> 'i' OR l.lanname NOT IN ('internal', 'c'))));
END
$$;

-- How many rows the transaction has written so far, by table.
CREATE FUNCTION hihooi.written() RETURNS jsonb
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(jsonb_object_agg(w.oid, w.rows), '{}')
    FROM (SELECT oid, pg_stat_get_xact_tuples_inserted(oid) + pg_stat_get_xact_tuples_updated(oid)
              + pg_stat_get_xact_tuples_deleted(oid) AS rows
          FROM pg_class WHERE relkind = 'r' AND relpersistence = 'p' AND oid >= 16384
            AND relnamespace <> 'hihooi'::regnamespace) w
    WHERE w.rows > 0
$$;

-- The tables to which an extension's script has written, which replicas execute as well: since `before`, or, if nobody has
-- counted, those of the extension.
CREATE FUNCTION hihooi.written_by_script(extensions oid[], before jsonb) RETURNS oid[]
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    SELECT array_agg(w.key::oid) FROM jsonb_each(hihooi.written()) w WHERE w.value IS DISTINCT FROM before->w.key
    HAVING current_setting('track_counts')::boolean
    UNION ALL
    SELECT array_agg(d.objid) FROM pg_depend d JOIN pg_class c ON c.oid = d.objid
    WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_extension'::regclass
      AND d.refobjid = ANY (extensions) AND d.deptype = 'e' AND c.relkind = 'r' AND c.relpersistence = 'p'
    HAVING NOT current_setting('track_counts')::boolean
$$;

-- Whether the current transaction, or one within it, wrote a row that it sees.
CREATE FUNCTION hihooi.is_own(writer xid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    next constant bigint := pg_snapshot_xmax(pg_current_snapshot())::text;
BEGIN
    -- The writer's number has 32 bits: it is the nearest to the next one that ends with them.
    RETURN age(writer) <= 0 AND pg_xact_status((next
        + ((writer::text::bigint - next + 2147483648) & 4294967295) - 2147483648
        )::text::xid8) = 'in progress';
END
$$;

-- Rows that travel whole ------------------------------------------------------------------------

-- The bytes of a text, whether or not they are valid in the database's encoding. (byteasend() returns its argument.)
CREATE FUNCTION hihooi.bytes_of(text) RETURNS bytea LANGUAGE internal IMMUTABLE STRICT AS 'byteasend';

-- A text in UTF8. Where that is the database's encoding, it isn't looked at: tables may have texts that are not valid.
CREATE FUNCTION hihooi.in_utf8(t text) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE pg_catalog.getdatabaseencoding() WHEN 'UTF8' THEN hihooi.bytes_of(t)
        ELSE pg_catalog.convert_to(t, 'UTF8') END
$$;

-- Puts all rows of a relation into the stream, behind a note that says which table gets them and
-- describes them: an array of texts each, in UTF-8, in a message that names the note by something that
-- nobody else knows.
CREATE FUNCTION hihooi.send_rows(t oid, schema text, name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO, YMD' SET intervalstyle = 'postgres' SET timezone = 'UTC'
SET extra_float_digits = 1 SET bytea_output = 'hex' SET xmlbinary = 'base64' SET lc_monetary = 'C'
SET row_security = off
AS $$
DECLARE
    token text := gen_random_uuid();
    columns text[];
BEGIN
    SELECT array_agg(a.attname ORDER BY a.attnum) INTO columns FROM pg_attribute a
        WHERE a.attrelid = t AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '';
    PERFORM hihooi.write_note('rows', jsonb_build_object('token', token, 'relation', t::bigint,
        'schema', schema, 'name', name, 'columns', columns));
    IF columns IS NOT NULL THEN
        EXECUTE format('SELECT count(pg_logical_emit_message(true, ''hihooi_rows'', '
                'hihooi.in_utf8(%L || ARRAY[%s]::text))) FROM ONLY %s',
            token, (SELECT string_agg(
                -- By the type's output function: a cast may be anybody's.
                format('CASE num_nulls(%1$I) WHEN 0 THEN format(''%%s'', %1$I) END', c), ', ')
                FROM unnest(columns) c),
            t::regclass);
    ELSE
        EXECUTE format('SELECT count(pg_logical_emit_message(true, ''hihooi_rows'', '
            'hihooi.in_utf8(%L || ''{}''))) FROM ONLY %s', token, t::regclass);
    END IF;
    PERFORM hihooi.write_note('rows_end', jsonb_build_object('token', token));
END
$$;

-- Puts what a materialized view holds into the stream, between two notes: replicas load it into
-- hihooi.contents and refresh the view from there. What its query gives elsewhere, or a moment later,
-- may be something else. With `role` the view is made before.
CREATE FUNCTION hihooi.send_contents(view oid, role text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    note jsonb;
BEGIN
    SELECT jsonb_build_object('view', view::regclass::text, 'owner', c.relowner::regrole::text,
            'role', role, 'columns', (
                SELECT jsonb_agg(jsonb_build_array(quote_ident(a.attname),
                    format_type(a.atttypid, a.atttypmod)) ORDER BY a.attnum)
                FROM pg_attribute a WHERE a.attrelid = view AND a.attnum > 0),
            'create', CASE WHEN role IS NOT NULL THEN format(
                'CREATE MATERIALIZED VIEW IF NOT EXISTS %s%s%s AS %s WITH NO DATA', view::regclass,
                ' USING ' || (SELECT quote_ident(amname) FROM pg_am m WHERE m.oid = c.relam),
                ' WITH (' || array_to_string(c.reloptions, ', ') || ')',
                trim(trailing ';' FROM pg_get_viewdef(view))) END)
        INTO note FROM pg_class c WHERE c.oid = view;
    PERFORM hihooi.write_note('contents', note);
    PERFORM hihooi.send_rows(view, 'hihooi', 'contents');
    PERFORM hihooi.write_note('refresh', note);
END
$$;

-- What a command changed beside what it tells ---------------------------------------------------

-- Rows that the transaction changed so far in the catalogs that GRANT changes.
CREATE FUNCTION hihooi.changed() RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN ARRAY(
        SELECT pg_stat_get_xact_tuples_updated(catalog)
        FROM unnest('{pg_class,pg_attribute,pg_proc,pg_type,pg_namespace,pg_language,
            pg_foreign_server,pg_foreign_data_wrapper}'::regclass[]) WITH ORDINALITY c(catalog, place)
        ORDER BY place);
END
$$;

-- Rows that the transaction changed so far in the catalogs of what CREATE may replace: a view has a rule, and an operator or a
-- type may be a shell.
CREATE FUNCTION hihooi.replaced() RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT sum(pg_stat_get_xact_tuples_updated(catalog))
        FROM unnest('{pg_proc,pg_rewrite,pg_trigger,pg_language,pg_transform,pg_operator,pg_type}'::regclass[]) catalog);
END
$$;

-- The objects that a command changed: those rows that the transaction changed last, as many as
-- `before` tells to be new, in the first `last` catalogs.
CREATE FUNCTION hihooi.changed_since(before jsonb, last int)
RETURNS TABLE (class oid, object oid)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    catalogs constant text[] := '{pg_class,pg_attribute,pg_proc,pg_type,pg_namespace,pg_language,
        pg_foreign_server,pg_foreign_data_wrapper}';
    now bigint[] := hihooi.changed();
    changed bigint;
BEGIN
    FOR place IN 1 .. last LOOP
        changed := now[place] - coalesce((before->>(place - 1))::bigint, 0);
        CONTINUE WHEN changed <= 0;
        class := CASE WHEN place = 2 THEN 'pg_class'::regclass ELSE catalogs[place]::regclass END;
        -- (OFFSET 0: no more rows are asked whose they are than are needed.)
        RETURN QUERY EXECUTE format(
            'SELECT DISTINCT $1, o FROM (
                SELECT o FROM (SELECT %I, xmin FROM %I WHERE age(xmin) <= 0
                    ORDER BY cmin::text::bigint DESC OFFSET 0) r(o, writer)
                WHERE hihooi.is_own(writer) LIMIT $2) l',
            CASE WHEN place = 2 THEN 'attrelid' ELSE 'oid' END, catalogs[place])
            USING class, changed;
    END LOOP;
END
$$;

-- The default privileges that there are, by OID, as notes tell objects. REVOKE and DROP OWNED delete a row
-- that has nothing left to say: whoever lacks it behind the command must have told before what it was.
CREATE FUNCTION hihooi.default_privileges() RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT jsonb_object_agg(d.oid, jsonb_build_object('kind', a.kind, 'names', a.names,
            'args', a.args, 'identity', i.identity))
        FROM pg_default_acl d, hihooi.address('pg_default_acl'::regclass, d.oid) a,
            hihooi.identify('pg_default_acl'::regclass, d.oid) i
        WHERE NOT hihooi.is_temporary('pg_default_acl'::regclass, d.oid));
END
$$;

-- The default privileges that the transaction wrote, and those of `before` that are gone.
CREATE FUNCTION hihooi.changed_defaults(before jsonb) RETURNS jsonb[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN ARRAY(
        SELECT hihooi.object_note('pg_default_acl'::regclass, d.oid) FROM pg_default_acl d
        WHERE age(d.xmin) <= 0 AND hihooi.is_own(d.xmin)
          AND NOT hihooi.is_temporary('pg_default_acl'::regclass, d.oid)
        UNION ALL
        SELECT b.value || jsonb_build_object('is_gone', true, 'snapshot', pg_current_snapshot())
        FROM jsonb_each(nullif(before, 'null')) b
        WHERE NOT EXISTS (SELECT FROM pg_default_acl d WHERE d.oid = b.key::oid));
END
$$;

-- What no event tells ---------------------------------------------------------------------------

-- What replicas were told last of roles and the like, as a hash, with the names that roles had by
-- then, by OID.
CREATE TABLE IF NOT EXISTS hihooi.told (
    what text PRIMARY KEY,
    hash text NOT NULL,
    names jsonb NOT NULL
);
REVOKE ALL ON hihooi.told FROM PUBLIC;
GRANT SELECT ON hihooi.told TO PUBLIC;

-- The owners that they were told last, and which transaction had written the object's row by then.
CREATE TABLE IF NOT EXISTS hihooi.owners (
    class oid,
    object oid,
    owner oid NOT NULL,
    writer xid NOT NULL,
    PRIMARY KEY (class, object)
);
REVOKE ALL ON hihooi.owners FROM PUBLIC;
GRANT SELECT ON hihooi.owners TO PUBLIC;

-- Changes with every change of a role, a membership, a setting of a role or this database, rights on
-- this database or on parameters, or an event trigger. (A transaction that changes a row again gives it
-- another place, not another xmin.)
CREATE FUNCTION hihooi.hash_of_shared() RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT md5(string_agg(part, ' ' ORDER BY part)) FROM (
        SELECT concat('r', oid, '/', xmin, ctid) FROM pg_authid
        UNION ALL SELECT concat('m', roleid, '/', member, '/', xmin, ctid) FROM pg_auth_members
        UNION ALL SELECT concat('s', setrole, '/', setdatabase, '/', s.xmin, s.ctid)
            FROM pg_db_role_setting s, pg_database
            WHERE datname = current_database() AND setdatabase IN (0, pg_database.oid)
        UNION ALL SELECT concat('c', objoid, '/', classoid, '/', xmin, ctid) FROM pg_shdescription
        UNION ALL SELECT concat('d', datdba, datacl) FROM pg_database
            WHERE datname = current_database()
        UNION ALL SELECT concat('p', hihooi.parameters())
        UNION ALL SELECT concat('e', oid, '/', xmin, ctid) FROM pg_event_trigger
            WHERE evtname !~ 'hihooi'
        UNION ALL SELECT concat('f', e.oid, '/', remark)
            FROM pg_event_trigger e CROSS JOIN LATERAL (
                SELECT description FROM pg_description d
                WHERE d.objoid = e.oid AND d.classoid = 'pg_event_trigger'::regclass OFFSET 0) d(remark)
    ) parts(part));
END
$$;

-- Notes them if replicas were told otherwise. Whoever tells holds a lock until its transaction
-- ends, so that states come in their order.
CREATE FUNCTION hihooi.follow_shared() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    before record;
    present record;
    left_names jsonb;
    renamed jsonb;
    dropped jsonb;
BEGIN
    IF EXISTS (SELECT FROM hihooi.told WHERE what = 'shared' AND hash = hihooi.hash_of_shared()) THEN
        RETURN;
    END IF;
    INSERT INTO hihooi.told VALUES ('shared', '', '{}') ON CONFLICT DO NOTHING;
    SELECT * INTO before FROM hihooi.told WHERE what = 'shared' FOR UPDATE;
    IF before.hash = hihooi.hash_of_shared() THEN
        RETURN;
    END IF;
    LOOP
        SELECT hihooi.hash_of_shared() AS hash, hihooi.shared() AS state, jsonb_object_agg(oid, rolname) AS names INTO present
            FROM pg_roles WHERE rolname !~ '^pg_';
        -- (regrole gives the name of this moment, which may be newer than what the query sees.)
        EXIT WHEN present.hash = hihooi.hash_of_shared();
    END LOOP;
    -- A role that was dropped, and whose name another one got by RENAME, gets a name that nobody has, until it is dropped.
    SELECT before.names || coalesce(jsonb_object_agg(o.key, 'hihooi_dropped_' || o.key), '{}') INTO left_names
        FROM jsonb_each_text(before.names) o JOIN jsonb_each_text(present.names) n ON n.value = o.value
        WHERE NOT present.names ? o.key AND before.names ? n.key;
    SELECT jsonb_agg(jsonb_build_array(quote_ident(o.value), quote_ident(n.value))) INTO renamed
        FROM jsonb_each_text(before.names) o JOIN jsonb_each_text(left_names || present.names) n ON n.key = o.key
        WHERE n.value <> o.value;
    SELECT jsonb_agg(quote_ident(o.value)) INTO dropped
        FROM jsonb_each_text(left_names) o
        WHERE NOT EXISTS (SELECT FROM jsonb_each_text(present.names) n WHERE n.key = o.key OR n.value = o.value);
    PERFORM hihooi.write_note('shared', jsonb_build_object('renamed', renamed, 'state', present.state));
    -- (Roles that were dropped go with the second note.)
    UPDATE hihooi.told SET (hash, names) = (present.hash, left_names || present.names) WHERE what = 'shared';
    IF dropped IS NOT NULL THEN
        PERFORM hihooi.note_new_owners(true); -- they own nothing any more
        PERFORM hihooi.write_note('shared', jsonb_build_object('dropped', dropped, 'state', present.state));
    END IF;
    UPDATE hihooi.told SET names = present.names WHERE what = 'shared';
END
$$;

-- A role's name as replicas have it where the last state was noted, if they have been told of the role. (PostgreSQL's own keep theirs.)
CREATE FUNCTION hihooi.told_name(role oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT quote_ident(coalesce((SELECT names->>role::text FROM hihooi.told WHERE what = 'shared'),
        (SELECT rolname FROM pg_roles WHERE oid = role AND rolname ~ '^pg_')))
$$;

-- Indexes that are not valid: CREATE INDEX CONCURRENTLY failed, or DROP INDEX CONCURRENTLY. They are the
-- primary's alone. By name, since REINDEX CONCURRENTLY makes another of the same name.
CREATE TABLE IF NOT EXISTS hihooi.invalid (
    relation regclass,
    index name,
    PRIMARY KEY (relation, index)
);
REVOKE ALL ON hihooi.invalid FROM PUBLIC;
GRANT SELECT ON hihooi.invalid TO PUBLIC;

-- Those of a table that aren't remembered; of all, if it is NULL.
CREATE FUNCTION hihooi.new_invalid(t oid) RETURNS TABLE (relation oid, name name)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = on
AS $$
BEGIN
    RETURN QUERY
    SELECT i.indrelid, c.relname
    FROM (SELECT indexrelid, indrelid FROM pg_index
          WHERE NOT indisvalid AND indrelid = coalesce(t, indrelid) OFFSET 0) i
        JOIN pg_class c ON c.oid = i.indexrelid
    WHERE c.relkind = 'i' AND c.relpersistence <> 't' AND c.relname !~ '_cc(new|old)[0-9]*$'
      AND NOT EXISTS (SELECT FROM hihooi.invalid h
                      WHERE h.relation = i.indrelid AND h.index = c.relname);
END
$$;

-- Remembers them.
CREATE FUNCTION hihooi.remember_invalid(t oid) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO hihooi.invalid SELECT * FROM hihooi.new_invalid(t) ON CONFLICT DO NOTHING
$$;

-- Whether another session makes, rebuilds or drops an index of a table, which is then invalid for a while. (CREATE
-- INDEX CONCURRENTLY releases the table before it commits that the index is valid: event triggers run in between.)
CREATE FUNCTION hihooi.is_indexing(t oid) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (SELECT FROM pg_locks WHERE relation = t AND pid <> pg_backend_pid()
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND mode = 'ShareUpdateExclusiveLock')
    OR EXISTS (SELECT FROM pg_index i, pg_current_snapshot() s, CAST(i.xmax::text AS numeric) AS changer
        WHERE i.indrelid = t AND changer <> 0
          AND (changer >= mod(pg_snapshot_xmax(s)::text::numeric, 4294967296)
            OR changer IN (SELECT mod(x::text::numeric, 4294967296) FROM pg_snapshot_xip(s) x)))
$$;

-- Those that became valid, or are gone.
CREATE FUNCTION hihooi.healed() RETURNS TABLE (relation oid, name name, index oid)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT h.relation::oid, h.index, f.indexrelid
    FROM hihooi.invalid h LEFT JOIN LATERAL (
            SELECT i.indexrelid, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
            WHERE i.indrelid = h.relation AND c.relname = h.index OFFSET 0) f ON true
    WHERE f.indisvalid IS NOT FALSE;
END
$$;

-- What makes an index at a replica, with all that was set while replicas lacked it, and attaches it to that of which it
-- is a part; and as whom: the owner of what is altered.
CREATE FUNCTION hihooi.make_index(i oid) RETURNS TABLE (role name, command text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.rolname, m FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner CROSS JOIN LATERAL (
        SELECT regexp_replace(pg_get_indexdef(i), 'INDEX ', 'INDEX IF NOT EXISTS ')
        UNION ALL
        SELECT format('ALTER INDEX %s ALTER COLUMN %s SET STATISTICS %s', i::regclass, attnum, attstattarget)
            FROM pg_attribute WHERE attrelid = i AND attstattarget >= 0
        UNION ALL
        SELECT format('COMMENT ON INDEX %s IS %L', i::regclass, description)
            FROM pg_description WHERE (objoid, classoid, objsubid) = (i, 'pg_class'::regclass, 0)) m(m)
    WHERE c.oid = i
    UNION ALL
    SELECT r.rolname, format('ALTER INDEX %s ATTACH PARTITION %s', inhparent::regclass, i::regclass)
        FROM pg_inherits JOIN pg_class c ON c.oid = inhparent JOIN pg_roles r ON r.oid = c.relowner
        WHERE inhrelid = i
$$;

-- Notes what makes an index of a table.
CREATE FUNCTION hihooi.note_index(i oid, its_table jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- (How long that took isn't known: 10 MB a second.)
    PERFORM hihooi.write_note('command', jsonb_build_object('tag', 'CREATE INDEX', 'settings', '{}'::jsonb,
        'took_ms', (SELECT pg_table_size(indrelid) / 10000 FROM pg_index WHERE indexrelid = i),
            'role', m.role, 'version', current_setting('server_version_num')::int / 10000,
            'objects', jsonb_build_array(its_table - 'description'), 'create', m.command))
        FROM hihooi.make_index(i) m;
END
$$;

-- Notes indexes of a table that replicas are to have from now on, and then the table: it is as it should be when all of them
-- are there, or gone.
CREATE FUNCTION hihooi.note_indexes(t oid, indexes oid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    owner name;
    its_note jsonb;
BEGIN
    SELECT r.rolname INTO owner FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner WHERE c.oid = t;
    IF NOT FOUND THEN
        RETURN; -- it has just gone
    END IF;
    its_note := hihooi.object_note('pg_class'::regclass, t);
    PERFORM hihooi.note_index(i, its_note) FROM unnest(indexes) i;
    -- (What they are parts of may have become valid at replicas, and isn't here.)
    PERFORM hihooi.write_note('command', jsonb_build_object('tag', 'CREATE INDEX', 'settings', '{}'::jsonb, 'role', owner,
        'version', current_setting('server_version_num')::int / 10000, 'is_done', true,
        'objects', jsonb_build_array(its_note) || coalesce((
            SELECT jsonb_agg(hihooi.object_note('pg_class'::regclass, relid) - 'description')
            FROM pg_partition_ancestors(t) WHERE relid <> t), '[]')));
    PERFORM hihooi.set_identity(t);
END
$$;

-- Notes those that became valid, as REINDEX and rewriting a table make them. Whoever does that has their rows until its end:
-- who waits for these has the note in front of those of its own commands.
CREATE FUNCTION hihooi.follow_healed(waits boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    t oid;
    indexes oid[];
BEGIN
    FOR t IN SELECT DISTINCT relation FROM hihooi.healed() LOOP
        BEGIN
            -- Who drops the table from now on does so behind the note. (LOCK refuses materialized views.)
            IF EXISTS (SELECT FROM pg_class WHERE oid = t AND relkind IN ('r', 'p')) THEN
                EXECUTE format('LOCK TABLE ONLY %s IN ACCESS SHARE MODE NOWAIT', t::regclass);
            END IF;
            IF waits THEN
                PERFORM FROM hihooi.invalid WHERE relation = t FOR UPDATE;
            ELSE
                PERFORM FROM hihooi.invalid WHERE relation = t FOR UPDATE NOWAIT;
            END IF;
        EXCEPTION WHEN lock_not_available THEN
            CONTINUE; -- next time
        WHEN undefined_table THEN
            NULL; -- it has just gone, and its indexes with it
        END;
        WITH known AS (DELETE FROM hihooi.invalid h USING hihooi.healed() f
            WHERE h.relation = t AND f.relation = t AND h.index = f.name RETURNING f.index)
        SELECT array_agg(index) INTO indexes FROM known WHERE index IS NOT NULL;
        IF indexes IS NOT NULL THEN
            PERFORM hihooi.note_indexes(t, indexes);
        END IF;
    END LOOP;
END
$$;

-- Notes those that became invalid, which replicas may have.
CREATE FUNCTION hihooi.follow_invalid() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    t oid;
BEGIN
    FOR t IN SELECT DISTINCT relation FROM hihooi.new_invalid(NULL) LOOP
        -- Nobody is at work on its indexes, which may be invalid for a while. (Of materialized views, the first alone.)
        CONTINUE WHEN hihooi.is_indexing(t);
        BEGIN
            IF EXISTS (SELECT FROM pg_class WHERE oid = t AND relkind IN ('r', 'p')) THEN
                EXECUTE format('LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE NOWAIT', t::regclass);
            END IF;
        EXCEPTION WHEN lock_not_available THEN
            CONTINUE; -- next time
        WHEN undefined_table THEN
            CONTINUE;
        END;
        PERFORM hihooi.remember_invalid(t);
        PERFORM hihooi.note_indexes(t, '{}');
    END LOOP;
END
$$;

-- Both. What a client waits for is short: whoever looks every two seconds, or another's REINDEX.
CREATE FUNCTION hihooi.follow_indexes(waits boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM hihooi.follow_healed(waits);
    PERFORM hihooi.follow_invalid();
END
$$;

-- From which answers about roles that don't exist are made (crates/server/src/defaults.rs). (A view, since pg_dump, which anybody
-- may run, reads no rows of it.)
CREATE MATERIALIZED VIEW IF NOT EXISTS hihooi.secret AS SELECT gen_random_uuid() AS value;
REVOKE ALL ON hihooi.secret FROM PUBLIC;

-- Rows of catalogs that the transaction changed so far: of whatever commands change that no event tells of,
-- and of what a superuser may change as rows. PostgreSQL counts them
-- (manual, "Viewing Statistics"); what the connection's transaction before did may be among them.
CREATE FUNCTION hihooi.count_changes() RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT sum(pg_stat_get_xact_tuples_inserted(c) + pg_stat_get_xact_tuples_updated(c)
        + pg_stat_get_xact_tuples_deleted(c))
    FROM unnest('{pg_class,pg_attribute,pg_type,pg_proc,pg_index,pg_shdepend,pg_description,
        pg_shdescription,pg_authid,pg_auth_members,pg_db_role_setting,pg_database,pg_event_trigger,
        pg_constraint,pg_trigger,pg_rewrite,pg_policy,pg_attrdef,pg_namespace,pg_enum,pg_operator,pg_collation}'
        ::regclass[] || to_regclass('pg_parameter_acl')) c); -- (there is one since PostgreSQL 15)
END
$$;

-- Forgets the choices for tables that are gone, and queries of transactions that have ended. Not with the command that does
-- it: what that reads would be in the way of other serializable transactions (manual, "Serializable Isolation Level").
CREATE FUNCTION hihooi.tidy() RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    DELETE FROM hihooi.identity h
    WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = h.relation AND c.relreplident = 'f');
    DELETE FROM hihooi.noted_query WHERE transaction < pg_snapshot_xmin(pg_current_snapshot());
    DELETE FROM hihooi.former_body WHERE transaction < pg_snapshot_xmin(pg_current_snapshot());
    DELETE FROM hihooi.generates g
    WHERE pg_describe_object(g.class, g.object, 0) IS NULL OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = g.relation);
$$;

-- The commands that have begun, one in the other, and have not ended: code that they run may run others. Each with its tag, its
-- role and its settings, and what else its end has to know of its beginning; one that has been noted before its end is {}.
-- (They count for the statement that the client sent, in which all of them run.)
CREATE FUNCTION hihooi.begun() RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    begun constant jsonb := hihooi.kept('begun');
BEGIN
    RETURN CASE WHEN begun->'statement' = to_jsonb(extract(epoch FROM statement_timestamp())) THEN begun->'commands' ELSE '[]' END;
END
$$;

-- How many commands have begun within no other one. Also those count that only seemed so, since code had let the others be
-- forgotten, and those that were rolled back. (PostgreSQL counts, as scans of an empty table, for each session. Who reads that table
-- in a REFRESH has his own REFRESH refused.)
CREATE FUNCTION hihooi.count_outermost() RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN pg_stat_get_xact_numscans('hihooi.owning'::regclass);
END
$$;

-- (Here, and not in a worker of a parallel plan, whose scans are counted elsewhere.) The lock stays until the end of the transaction.
CREATE FUNCTION hihooi.begin_outermost() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET max_parallel_workers_per_gather = 0
AS $$
BEGIN
    PERFORM FROM hihooi.owning;
END
$$;

-- Whether a command has begun in this transaction, and nothing undone it.
CREATE FUNCTION hihooi.has_begun() RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM pg_locks
        WHERE pid = pg_backend_pid() AND locktype = 'relation' AND relation = 'hihooi.owning'::regclass);
END
$$;

CREATE FUNCTION hihooi.set_begun(commands jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM hihooi.keep('begun', jsonb_build_object(
        'statement', extract(epoch FROM statement_timestamp()), 'commands', commands));
END
$$;

-- Whether the transaction may have done something that no event told since the last note.
CREATE FUNCTION hihooi.has_hidden() RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN NOT current_setting('track_counts')::boolean
        OR (hihooi.count_changes() > 0
            AND hihooi.kept('noted') IS DISTINCT FROM to_jsonb(hihooi.count_changes()));
END
$$;

-- Catalogs whose rows the transaction changed as those of tables. Commands give their locks on catalogs back
-- when they have written there; INSERT, UPDATE, DELETE and MERGE keep them. Left out: what all databases share
-- and what is each server's own, of which commands keep locks without an event; comments; statistics.
CREATE FUNCTION hihooi.written_catalogs() RETURNS TABLE (name name, deletes boolean)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT c.relname, pg_stat_get_xact_tuples_deleted(c.oid) > 0
    FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
    WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.mode = 'RowExclusiveLock'
      AND c.oid < 16384 AND c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind = 'r'
      AND NOT c.relisshared AND NOT hihooi.is_local(c.oid)
      AND c.relname NOT IN ('pg_description', 'pg_statistic', 'pg_statistic_ext_data')
      AND pg_stat_get_xact_tuples_inserted(c.oid) + pg_stat_get_xact_tuples_updated(c.oid)
          + pg_stat_get_xact_tuples_deleted(c.oid) > 0
$$;

-- Notes what the objects are like whose rows in catalogs the transaction changed itself; replicas where they
-- are not like that stop. So they do if that can't be told.
CREATE FUNCTION hihooi.note_written() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    -- By catalog: the class of the object that a row belongs to, and the column that has its OID.
    told_as constant jsonb := '{"pg_class": ["pg_class", "oid"], "pg_attribute": ["pg_class", "attrelid"],
        "pg_index": ["pg_class", "indexrelid"], "pg_proc": ["pg_proc", "oid"], "pg_type": ["pg_type", "oid"],
        "pg_enum": ["pg_type", "enumtypid"], "pg_namespace": ["pg_namespace", "oid"]}';
    written record;
    found jsonb;
    objects jsonb := '[]';
    untold text[] := '{}';
BEGIN
    FOR written IN SELECT * FROM hihooi.written_catalogs() LOOP
        found := NULL;
        -- REASSIGN OWNED keeps locks too; the owners that it changed have been noted.
        CONTINUE WHEN NOT told_as ? written.name::text AND EXISTS (
            SELECT FROM hihooi.own_owners() o WHERE o.class = written.name::text::regclass);
        IF told_as ? written.name::text THEN
            -- (What is temporary is not told; that there was something is.)
            EXECUTE format('SELECT coalesce(
                        jsonb_agg(hihooi.object_note(r.class, o)) FILTER (WHERE NOT hihooi.is_temporary(r.class, o)),
                        CASE WHEN count(*) > 0 THEN ''[]''::jsonb END)
                    FROM (SELECT DISTINCT %L::regclass, %I FROM %I WHERE age(xmin) <= 0 AND hihooi.is_own(xmin)) r(class, o)',
                told_as->written.name->>0, told_as->written.name->>1, written.name) INTO found;
        END IF;
        -- (The counters also tell of transactions up to a second before.)
        IF found IS NULL AND told_as ? written.name::text AND NOT written.deletes THEN
            CONTINUE;
        ELSIF found IS NULL OR EXISTS (
            SELECT FROM jsonb_array_elements(found) f WHERE f->>'description' IS NULL)
        THEN
            untold := untold || written.name::text;
        ELSE
            objects := objects || found;
        END IF;
    END LOOP;
    IF untold <> '{}' THEN
        PERFORM hihooi.write_note('catalogs', to_jsonb(format(
            'transaction %s changed rows of %s itself', pg_current_xact_id(), array_to_string(untold, ', '))));
    ELSIF objects <> '[]' THEN
        PERFORM hihooi.write_note('command', jsonb_build_object('tag', 'UPDATE', 'settings', '{}'::jsonb,
            'role', session_user, 'version', current_setting('server_version_num')::int / 10000,
            'is_done', true, 'objects', objects));
    END IF;
END
$$;

-- Notes a table or materialized view that no event told of: EXPLAIN ANALYZE made it. It is not compared: its owner comes
-- in another note, and it may have been noted before.
CREATE FUNCTION hihooi.note_made(made oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    it record;
BEGIN
    SELECT c.relkind, c.relispopulated, r.rolname AS owner INTO it
        FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner WHERE c.oid = made;
    IF it.relkind = 'm' AND it.relispopulated AND hihooi.unwritable(made) IS NULL THEN
        PERFORM hihooi.send_contents(made, it.owner);
        RETURN;
    END IF;
    PERFORM hihooi.write_note('command', jsonb_build_object(
        'tag', 'CREATE TABLE AS', 'settings', '{}'::jsonb, 'role', it.owner,
        'version', current_setting('server_version_num')::int / 10000,
        'objects', jsonb_build_array(hihooi.object_note('pg_class'::regclass, made) - 'description'),
        'relation', made::bigint,
        'create', CASE it.relkind
            WHEN 'r' THEN regexp_replace(hihooi.create_table(made), 'TABLE', 'TABLE IF NOT EXISTS')
            ELSE format('CREATE MATERIALIZED VIEW IF NOT EXISTS %s AS %s WITH %s DATA',
                made::regclass, trim(trailing ';' FROM pg_get_viewdef(made)),
                CASE WHEN NOT it.relispopulated THEN 'NO' END) END));
END
$$;

-- Notes tables that EXPLAIN ANALYZE made in other transactions, and that no event told of: at the primary itself, or in
-- code that commits. Events give logged tables without a key an identity; these have none. Each is locked until the note is
-- committed, so that what others do to it comes behind; one that is locked by others they have noted, or it is noted the
-- next time. With `since`, only some with greater OIDs, which are found by an index.
CREATE FUNCTION hihooi.note_unnoted(since oid) RETURNS TABLE (relation oid, is_noted boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    own constant xid := pg_current_xact_id_if_assigned()::xid;
    made record;
BEGIN
    FOR made IN
        SELECT t.oid, format('%I.%I', n.nspname, t.relname) AS name
        FROM (SELECT c.oid, c.xmin, c.relname, c.relnamespace FROM pg_class c
              WHERE c.oid > greatest(since, 16383::oid) AND c.relkind = 'r' AND c.relpersistence = 'p'
                AND c.relreplident = 'd' AND c.xmin IS DISTINCT FROM own -- (most that this transaction made)
              ORDER BY c.oid LIMIT CASE WHEN since <> 0 THEN 1000 END) t
            JOIN pg_namespace n ON n.oid = t.relnamespace
        WHERE n.nspname NOT IN ('hihooi', 'information_schema') AND n.nspname !~ '^pg_'
          -- Row by row, in this order.
          AND CASE WHEN EXISTS (SELECT FROM pg_index i WHERE i.indrelid = t.oid AND i.indisprimary OFFSET 0) THEN false
              ELSE NOT (age(t.xmin) <= 0 AND hihooi.is_own(t.xmin))
                  AND NOT hihooi.is_temporary('pg_class'::regclass, t.oid) END
    LOOP
        relation := made.oid;
        is_noted := false;
        BEGIN
            EXECUTE format('LOCK TABLE ONLY %s IN ACCESS SHARE MODE NOWAIT', made.name);
            -- (The snapshot may be old.)
            is_noted := to_regclass(made.name) = made.oid;
        EXCEPTION WHEN lock_not_available OR undefined_table OR invalid_schema_name OR wrong_object_type THEN
            NULL;
        END;
        IF is_noted THEN
            PERFORM hihooi.note_made(relation);
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

-- The same, and gives them their identity; where a lock is in the way, the next time. (Replicas that come to their rows
-- wait for the note.) Up to which OID none is left is remembered. Only for a transaction of its own.
CREATE FUNCTION hihooi.follow_unnoted() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
AS $$
DECLARE
    newest constant oid := (SELECT oid FROM pg_class ORDER BY oid DESC LIMIT 1);
    -- Changes with every new table.
    state constant text := concat(count(*), ' ', sum(hashoid(oid)::bigint)) FROM pg_class
        WHERE relkind = 'r' AND relpersistence = 'p' AND relreplident = 'd' AND oid >= 16384;
    is_complete boolean := true;
    made record;
BEGIN
    PERFORM hihooi.follow_shared(); -- owners may be new
    FOR made IN
        -- (It is called only if the condition holds, which comes first.)
        SELECT u.* FROM hihooi.note_unnoted(0) u
        WHERE NOT EXISTS (SELECT FROM hihooi.told WHERE what = 'relations' AND hash = state)
    LOOP
        IF NOT made.is_noted THEN
            is_complete := false;
            CONTINUE;
        END IF;
        BEGIN
            -- (Who waited for it, with the lock of the note, could deadlock with others who drop or alter the table.)
            FOR attempt IN 1..10 LOOP
                BEGIN
                    EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE NOWAIT', made.relation::regclass);
                    EXIT;
                EXCEPTION WHEN lock_not_available THEN
                    IF attempt = 10 THEN
                        RAISE;
                    END IF;
                    PERFORM pg_sleep(0.01);
                END;
            END LOOP;
            PERFORM hihooi.set_identity(made.relation);
        EXCEPTION WHEN OTHERS THEN
            is_complete := false;
            RAISE WARNING '% has no replica identity yet: %', made.relation::regclass, SQLERRM;
        END;
    END LOOP;
    IF is_complete THEN
        INSERT INTO hihooi.told VALUES ('unnoted', newest, '{}'), ('relations', state, '{}')
            ON CONFLICT (what) DO UPDATE SET hash = excluded.hash WHERE told.hash <> excluded.hash;
    END IF;
END
$$;

-- Whether the transaction changed the schema while event triggers were switched off: what they were told last isn't all.
-- Temporary objects count, and so does TRUNCATE. Who has dropped an object holds its lock.
CREATE FUNCTION hihooi.has_missed() RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    catalog regclass;
    is_written boolean;
BEGIN
    IF hihooi.kept('noted') = to_jsonb(hihooi.count_changes()) THEN
        RETURN false;
    END IF;
    FOR catalog IN
        SELECT c.oid FROM pg_class c
        WHERE c.oid < 16384 AND c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind = 'r'
          AND NOT c.relisshared AND NOT hihooi.is_local(c.oid)
          AND c.relname NOT IN ('pg_event_trigger', 'pg_statistic', 'pg_statistic_ext_data')
          -- (The counters also tell of transactions up to a second before.)
          AND (pg_stat_get_xact_tuples_inserted(c.oid) + pg_stat_get_xact_tuples_updated(c.oid) > 0
               OR NOT current_setting('track_counts')::boolean)
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE age(xmin) <= 0 AND hihooi.is_own(xmin))', catalog)
            INTO is_written;
        IF is_written THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN EXISTS (
        SELECT FROM pg_locks
        WHERE pid = pg_backend_pid() AND mode = 'AccessExclusiveLock' AND NOT hihooi.is_local(classid)
          AND classid IS DISTINCT FROM 'pg_event_trigger'::regclass
          AND CASE locktype
              WHEN 'relation' THEN NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = relation)
              WHEN 'object' THEN CASE WHEN database <> 0 THEN pg_describe_object(classid, objid, 0) IS NULL END END);
END
$$;

-- Notes what no event told: the above and, with `own`, what the transaction did: owners that REASSIGN
-- OWNED changed, what EXPLAIN ANALYZE made. Anybody may have it told, since only what is so is told. The session says
-- whether it may have switched event triggers off and on again; that they are off is seen.
CREATE FUNCTION hihooi.follow(own boolean, may_lack_events boolean DEFAULT false) RETURNS SETOF void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
AS $$
DECLARE
    made record;
    has_made boolean := false;
    used oid[] := '{}';
    begun constant jsonb := hihooi.kept('begun');
    is_hidden constant boolean := hihooi.has_hidden();
    is_first boolean;
BEGIN
    IF current_setting('transaction_read_only')::boolean THEN
        -- It could not tell of others, and did nothing itself, unless it wrote something first.
        IF own AND pg_current_xact_id_if_assigned() IS NOT NULL AND hihooi.has_hidden() AND EXISTS (
            SELECT FROM pg_class
            WHERE oid >= 16384 AND age(xmin) <= 0 AND hihooi.is_own(xmin) AND relpersistence <> 't'
            UNION ALL
            SELECT FROM hihooi.own_owners())
        THEN
            RAISE 'the schema was changed in front of SET TRANSACTION READ ONLY, which hihooi can''t replicate'
                USING ERRCODE = 'feature_not_supported', HINT = 'Leave out SET TRANSACTION READ ONLY.';
        END IF;
        RETURN;
    END IF;
    IF own AND pg_current_xact_id_if_assigned() IS NOT NULL
        AND (coalesce(current_setting('event_triggers', true), 'on') = 'off'
            OR may_lack_events AND current_setting('server_version_num')::int >= 170000)
        AND hihooi.has_missed()
    THEN
        RAISE 'the schema was changed while event_triggers was off, which hihooi can''t replicate'
            USING ERRCODE = 'feature_not_supported',
                HINT = 'RESET event_triggers. To keep one event trigger from firing, use ALTER EVENT TRIGGER ... DISABLE.';
    END IF;
    -- (The counters also tell of transactions up to a second before; who has no number has written nothing.)
    IF own AND (pg_current_xact_id_if_assigned() IS NULL
        OR hihooi.count_changes() = 0 AND current_setting('track_counts')::boolean)
    THEN
        RETURN;
    END IF;
    -- PostgreSQL tells of no command within a REFRESH, and so of none of ours.
    IF hihooi.begun() @> '[{"tag": "REFRESH MATERIALIZED VIEW"}]' THEN
        RETURN;
    END IF;
    is_first := NOT hihooi.has_begun();
    IF hihooi.begun() = '[]' THEN
        PERFORM hihooi.begin_outermost();
    END IF;
    PERFORM hihooi.follow_shared();
    IF NOT own THEN
        PERFORM hihooi.follow_indexes(true);
        RETURN;
    END IF;
    PERFORM hihooi.set_begun(hihooi.begun() || '[{}]');
    FOR made IN
        -- (OFFSET 0: most are left out by their writers, before anything is joined.)
        SELECT c.oid FROM (
                SELECT oid, relnamespace, relkind = 'r' AND relpersistence = 'p' AS is_logged,
                    relreplident <> 'd' AS has_identity
                FROM pg_class
                WHERE oid >= 16384 AND age(xmin) <= 0 AND hihooi.is_own(xmin)
                  AND relkind IN ('r', 'm') AND relpersistence <> 't' OFFSET 0) c
            JOIN pg_namespace n ON n.oid = c.relnamespace
        -- (Events give logged tables an identity.)
        WHERE NOT (c.is_logged AND (c.has_identity OR EXISTS (
                SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary OFFSET 0)))
          -- Only then are system columns written.
          AND EXISTS (SELECT FROM pg_attribute a
              WHERE a.attrelid = c.oid AND a.attnum = -1 AND hihooi.is_own(a.xmin))
          AND n.nspname <> 'hihooi' AND NOT hihooi.is_temporary('pg_class'::regclass, c.oid)
    LOOP
        BEGIN
            PERFORM hihooi.check_table(made.oid, false);
            PERFORM hihooi.note_made(made.oid);
            PERFORM hihooi.set_identity(made.oid);
            has_made := true;
        EXCEPTION WHEN object_in_use THEN
            used := used || made.oid; -- its rows are being written, by code that runs commands, behind which it is noted
        END;
    END LOOP;
    IF is_hidden OR has_made THEN
        PERFORM hihooi.note_owners(ARRAY(
            SELECT o FROM hihooi.own_owners() o
            WHERE NOT (class = 'pg_class'::regclass AND object = ANY (used))), NULL, true);
    END IF;
    -- (Not in a transaction in which a command has begun: what an extension's script changes there, it changes at replicas too.)
    IF is_first THEN
        PERFORM hihooi.note_written();
    END IF;
    PERFORM hihooi.keep('begun', begun);
    PERFORM hihooi.follow_indexes(true); -- behind the owners, whom it describes
    PERFORM hihooi.keep('noted', to_jsonb(hihooi.count_changes()));
    RETURN; -- no row
END
$$;

-- Owners of objects that have their own, for those rows `x` of their catalogs that a condition holds for; of all catalogs,
-- or of those that the transaction wrote (or the one before, of which PostgreSQL's counters may still tell).
CREATE FUNCTION hihooi.owners_where(condition text, is_written boolean DEFAULT false) RETURNS SETOF hihooi.owners
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    catalog record;
BEGIN
    FOR catalog IN
        SELECT c.relation, c.owner FROM (VALUES ('pg_class'::regclass, 'relowner'), ('pg_proc', 'proowner'),
            ('pg_type', 'typowner'), ('pg_namespace', 'nspowner'), ('pg_operator', 'oprowner'),
            ('pg_opclass', 'opcowner'), ('pg_opfamily', 'opfowner'), ('pg_collation', 'collowner'),
            ('pg_conversion', 'conowner'), ('pg_ts_dict', 'dictowner'), ('pg_ts_config', 'cfgowner'),
            ('pg_foreign_data_wrapper', 'fdwowner'), ('pg_foreign_server', 'srvowner'),
            ('pg_statistic_ext', 'stxowner'), ('pg_language', 'lanowner'), ('pg_extension', 'extowner')) c(relation, owner)
        WHERE NOT (is_written AND current_setting('track_counts')::boolean
            AND pg_stat_get_xact_tuples_inserted(c.relation) + pg_stat_get_xact_tuples_updated(c.relation) = 0)
    LOOP
        -- (As int8: not by the index, which takes longer where most are users'.)
        RETURN QUERY EXECUTE format(
            'SELECT $1, x.oid, x.%2$I, x.xmin FROM %1$s x WHERE %3$s AND ' || condition,
            catalog.relation, catalog.owner,
            CASE catalog.owner
                -- (The schema public may have another owner, too.)
                WHEN 'nspowner' THEN 'x.nspname !~ ''^pg_'' AND x.nspname <> ''information_schema'''
                WHEN 'relowner' THEN 'x.oid::int8 >= 16384 AND x.relkind IN (''r'', ''p'', ''v'', ''m'', ''S'', ''f'')
                    AND x.relpersistence <> ''t''
                    AND NOT (x.relkind = ''S'' AND EXISTS (SELECT FROM pg_depend d
                        WHERE d.classid = $1 AND d.objid = x.oid AND d.refclassid = $1
                          AND d.deptype IN (''a'', ''i'') OFFSET 0))'
                -- (Since 17, a multirange type's goes with its range type's, and can't be altered by itself.)
                WHEN 'typowner' THEN 'x.oid::int8 >= 16384
                    AND NOT EXISTS (SELECT FROM pg_type e WHERE e.oid = x.typelem AND e.typarray = x.oid OFFSET 0)
                    AND (x.typtype <> ''c'' OR EXISTS (
                        SELECT FROM pg_class c WHERE c.oid = x.typrelid AND c.relkind = ''c'' OFFSET 0))
                    AND (x.typtype <> ''m'' OR current_setting(''server_version_num'')::int < 170000)'
                ELSE 'x.oid >= 16384' END)
            USING catalog.relation::oid;
    END LOOP;
END
$$;

-- Those of objects whose rows the transaction wrote.
CREATE FUNCTION hihooi.own_owners() RETURNS SETOF hihooi.owners
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$ SELECT * FROM hihooi.owners_where('age(x.xmin) <= 0 AND hihooi.is_own(x.xmin)', true) $$;

-- Those of objects whose rows were written since replicas were told.
CREATE FUNCTION hihooi.new_owners(how text) RETURNS SETOF hihooi.owners
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT * FROM hihooi.owners_where('NOT EXISTS (SELECT FROM hihooi.owners h
        WHERE (h.class, h.object) = ($1, x.oid) AND h.writer = x.xmin) ' || how)
$$;

-- Remembers the owners of objects that were made just now: their notes tell them. (Another writer than theirs has them
-- told again. At other isolation levels it might fail: two that are SERIALIZABLE would conflict over it.)
CREATE FUNCTION hihooi.remember_owners(classes oid[], objects oid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' THEN
        INSERT INTO hihooi.owners SELECT s.classid, s.objid, s.refobjid, '0'
            FROM unnest(classes, objects) o(class, object) JOIN pg_shdepend s
                ON s.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
                    AND (s.classid, s.objid, s.objsubid, s.deptype) = (o.class, o.object, 0, 'o')
            -- (What OR REPLACE replaces has an earlier one.)
            WHERE age(s.xmin) <= 0 AND hihooi.is_own(s.xmin)
            ON CONFLICT DO NOTHING;
    END IF;
END
$$;

-- Notes owners of objects; with `before`, of objects that have these owners at replicas, which others stay as they are. Nobody
-- tells replicas of other names of roles until the transaction ends. With `rights`, also the rights on the objects, which nobody
-- else may change by then: an owner that replicas are not told of, who had some, or granted some, makes a difference.
CREATE FUNCTION hihooi.note_owners(owners hihooi.owners[], before oid[], rights boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    note jsonb;
BEGIN
    IF cardinality(owners) > 0 THEN
        PERFORM FROM hihooi.told WHERE what = 'shared' FOR UPDATE;
    END IF;
    -- (Procedures may differ in what is IN and OUT.)
    SELECT jsonb_agg(jsonb_build_object('kind', i.type, 'owner', r.owner, 'identity',
            CASE i.type WHEN 'procedure' THEN format('%I.%I(%s)', a.names[1], a.names[2],
                'IN ' || nullif(array_to_string(a.args, ', IN '), '')) ELSE i.identity END,
            'before', CASE WHEN o.before IS NOT NULL THEN address || jsonb_build_object('owner', r.before) END,
            'rights', CASE WHEN rights THEN address || hihooi.rights_on(o.class, o.object) END))
        INTO note
        FROM unnest(owners, before) o(class, object, owner, writer, before),
            LATERAL hihooi.identify(o.class, o.object) i, LATERAL hihooi.address(o.class, o.object) a,
            LATERAL jsonb_build_object('kind', a.kind, 'names', a.names, 'args', a.args) address,
            LATERAL (SELECT hihooi.told_name(o.owner), hihooi.told_name(o.before)) r(owner, before)
        -- (Who is new is noted the next time; who had it before, with the end of that role.)
        WHERE r.owner IS NOT NULL AND NOT (o.before IS NOT NULL AND r.before IS NULL)
          AND NOT hihooi.is_temporary(o.class, o.object)
          AND coalesce(i.schema, i.identity) <> 'hihooi';
    IF note IS NOT NULL THEN
        PERFORM hihooi.write_note('owners', note);
    END IF;
END
$$;

-- If owners changed since the last time, by REASSIGN OWNED at the primary itself or in code that commits, or otherwise,
-- notes those of some hundred objects that were written since; most of them replicas know already. A row that is locked
-- stays as it is until the note is committed, so that notes of one object come in their order; who changes one now is
-- waited for until the next time. Only for a transaction of its own.
CREATE FUNCTION hihooi.follow_owners() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    -- Changes with every change of an owner: only initdb's superuser has no rows there. (See hihooi.hash_of_shared;
    -- PostgreSQL's counters of writes tell up to ten seconds later.) Temporary relations come and go.
    state constant text := coalesce(sum(hashtext(concat(s.xmin, s.ctid))), 0) FROM pg_shdepend s
        WHERE s.deptype = 'o' AND s.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND NOT EXISTS (SELECT FROM pg_class c
              WHERE s.classid = 'pg_class'::regclass AND c.oid = s.objid AND c.relpersistence = 't');
    written hihooi.owners[];
BEGIN
    IF EXISTS (SELECT FROM hihooi.told WHERE what = 'owners' AND hash = state) THEN
        RETURN;
    END IF;
    PERFORM hihooi.follow_shared(); -- the owners may be new
    -- First, and nothing that clients hold is waited for: they may wait for this.
    PERFORM FROM hihooi.told WHERE what = 'shared' FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN; -- somebody changes roles, or owners: next time
    END IF;
    written := ARRAY(SELECT o FROM hihooi.new_owners('LIMIT 200 FOR UPDATE SKIP LOCKED') o);
    IF EXISTS (SELECT FROM unnest(written) WHERE hihooi.told_name(owner) IS NULL) THEN
        RETURN; -- one of them was made just now: next time
    END IF;
    BEGIN
        PERFORM FROM unnest(written) o JOIN pg_attribute a ON o.class = 'pg_class'::regclass AND a.attrelid = o.object
            WHERE a.attacl IS NOT NULL FOR UPDATE OF a NOWAIT; -- rights on columns
    EXCEPTION WHEN lock_not_available THEN
        RETURN; -- somebody changes them just now: next time
    END;
    PERFORM hihooi.note_owners(written, NULL, true);
    INSERT INTO hihooi.owners SELECT * FROM unnest(written)
        ON CONFLICT (class, object) DO UPDATE SET (owner, writer) = (excluded.owner, excluded.writer);
    IF NOT EXISTS (SELECT FROM hihooi.new_owners('LIMIT 1')) THEN
        DELETE FROM hihooi.owners h WHERE NOT EXISTS (
            SELECT FROM hihooi.owners_where('true') o WHERE (o.class, o.object) = (h.class, h.object));
        INSERT INTO hihooi.told VALUES ('owners', state, '{}')
            ON CONFLICT (what) DO UPDATE SET hash = excluded.hash;
    END IF;
END
$$;

-- Notes which known objects have another owner by now, that others gave them, for what comes next in this transaction: a
-- command that depends on it, or tells what its object is like. With `all_of_them`, also those of objects that are new.
-- It locks nothing, and may come behind a later change: replicas where an object has a later owner leave it alone.
CREATE FUNCTION hihooi.note_new_owners(all_of_them boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    -- (Of PostgreSQL's own roles there are no rows.)
    changed constant oid[] := ARRAY(
        SELECT h.object FROM hihooi.owners h LEFT JOIN pg_shdepend s
            ON s.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
                AND (s.classid, s.objid, s.objsubid, s.deptype) = (h.class, h.object, 0, 'o')
        WHERE coalesce(s.refobjid, 0) <> CASE WHEN h.owner < 16384 THEN 0 ELSE h.owner END);
    owners hihooi.owners[];
    before oid[];
BEGIN
    IF changed <> '{}' THEN
        SELECT array_agg(o::hihooi.owners), array_agg(h.owner) INTO owners, before
            FROM hihooi.owners_where(format('x.oid = ANY (%L::oid[])', changed)) o
                JOIN hihooi.owners h ON (h.class, h.object) = (o.class, o.object) AND h.owner <> o.owner
            WHERE NOT (age(o.writer) <= 0 AND hihooi.is_own(o.writer));
    END IF;
    IF all_of_them OR owners IS NOT NULL THEN
        PERFORM hihooi.follow_shared(); -- the owners may be new
    END IF;
    IF all_of_them THEN
        PERFORM hihooi.note_owners(ARRAY(SELECT o FROM hihooi.new_owners('') o
            WHERE NOT EXISTS (SELECT FROM hihooi.owners h WHERE (h.class, h.object) = (o.class, o.object))), NULL, false);
    END IF;
    IF owners IS NOT NULL THEN
        PERFORM hihooi.note_owners(owners, before, false);
    END IF;
END
$$;

-- The event triggers ----------------------------------------------------------------------------

-- Leaves the role that runs the command in a setting, for the trigger behind it, which runs as a
-- superuser; nothing of others runs in between.
CREATE FUNCTION hihooi.on_caller() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_catalog.set_config('hihooi.caller', current_user::pg_catalog.text, true);
END
$$;

CREATE FUNCTION hihooi.on_command() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET lc_messages = 'C'
AS $$
DECLARE
    context pg_catalog.text;
BEGIN
    -- In PostgreSQL's own words, under the caller's search path.
    GET DIAGNOSTICS context = PG_CONTEXT;
    PERFORM hihooi.follow_command(tg_event, tg_tag, context, pg_catalog.current_setting('search_path'));
END
$$;

CREATE FUNCTION hihooi.follow_command(event text, tag text, context text, path text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    CASE event
        WHEN 'ddl_command_start' THEN PERFORM hihooi.start_command(tag, context, path);
        WHEN 'sql_drop' THEN PERFORM hihooi.note_drop(tag, context, path);
        WHEN 'ddl_command_end' THEN PERFORM hihooi.end_command(tag, context, path);
    END CASE;
END
$$;

-- What no event told comes first: the command may need it. Within another command not, since what that
-- did so far isn't noted either. GRANT doesn't tell what it changes, ALTER TABLE not the partitions and
-- children that it changes. (It must not write in front of DROP INDEX CONCURRENTLY, which is the first
-- command of its transaction.)
CREATE FUNCTION hihooi.start_command(tag text, context text, path text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
AS $$
DECLARE
    begun constant jsonb := hihooi.begun();
    depth constant int := jsonb_array_length(begun);
    stack constant text := hihooi.outside(context);
    -- (What is noted in front of the command runs commands itself.)
    caller constant text := current_setting('hihooi.caller');
    around constant text := begun->-1->>'stack'; -- of a REFRESH
    command jsonb;
BEGIN
    -- PostgreSQL doesn't tell what commands within it do. Those of CONCURRENTLY, on temporary tables, run in no function.
    IF right(stack, length(around)) <> around
        OR rtrim(left(stack, length(stack) - length(around)), chr(10)) !~ E'^SQL statement "[A-Z ]+ TABLE pg_temp_[^\n]*$'
    THEN
        RAISE '% in a function that REFRESH MATERIALIZED VIEW runs can''t be replicated', tag
        USING ERRCODE = 'feature_not_supported',
            HINT = 'Run it before or after REFRESH, in the same transaction.';
    END IF;
    IF tag ~ '^(DROP |(CREATE|ALTER) (FUNCTION|PROCEDURE|ROUTINE|EXTENSION)$)'
        AND strpos(context, chr(10) || 'SQL function "') > 0
    THEN
        INSERT INTO hihooi.former_body
            SELECT pg_current_xact_id(), md5(concat_ws(' ', r.name, r.body)), r.name, r.body
            FROM hihooi.running(context) r
            ON CONFLICT DO NOTHING;
    END IF;
    IF depth = 0 AND pg_current_xact_id_if_assigned() IS NOT NULL AND hihooi.has_hidden() THEN
        PERFORM hihooi.follow(true);
    END IF;
    IF depth = 0 THEN
        PERFORM hihooi.begin_outermost();
    END IF;
    -- (Another session's REINDEX, behind which it notes them.)
    IF depth = 0 AND EXISTS (SELECT FROM hihooi.invalid) THEN
        PERFORM hihooi.follow_healed(false);
    END IF;
    IF depth = 0 AND tag <> 'DROP INDEX' THEN
        PERFORM hihooi.note_unnoted(coalesce((SELECT hash FROM hihooi.told WHERE what = 'unnoted'), '0')::oid);
        PERFORM hihooi.note_new_owners(tag = 'DROP OWNED');
    END IF;
    -- An extension's objects get the default privileges of the moment, and are too many to tell of: at replicas that moment
    -- is the commit. (Autovacuum gives way; nobody else takes this lock.)
    IF tag IN ('CREATE EXTENSION', 'ALTER EXTENSION', 'ALTER DEFAULT PRIVILEGES') THEN
        LOCK TABLE hihooi.owners IN SHARE UPDATE EXCLUSIVE MODE;
    END IF;
    -- It drops what there is, and not what others' open transactions have created and granted. Replicas come to it behind those
    -- that are committed first.
    IF tag = 'DROP OWNED' THEN
        LOCK TABLE hihooi.owning IN SHARE MODE;
    ELSIF tag ~ '^(CREATE |SELECT INTO|GRANT|REVOKE)' THEN
        LOCK TABLE hihooi.owning IN ROW EXCLUSIVE MODE;
    END IF;
    -- It makes its view's indexes valid, and no event tells of that (of a table's, on_rewrite).
    IF tag = 'REFRESH MATERIALIZED VIEW' THEN
        PERFORM hihooi.remember_invalid(i.relation)
            FROM (SELECT DISTINCT relation FROM hihooi.new_invalid(NULL)) i
                JOIN pg_class c ON c.oid = i.relation AND c.relkind = 'm'
            WHERE NOT hihooi.is_indexing(c.oid);
    END IF;
    -- (Behind the command, settings may be others. Notes of DROP need none.)
    command := jsonb_build_object('tag', tag, 'role', caller,
        'settings', CASE WHEN tag !~ '^DROP ' THEN hihooi.settings(path) END);
    IF tag = 'REFRESH MATERIALIZED VIEW' THEN
        command := command || jsonb_build_object('stack', stack, 'outermost', hihooi.count_outermost());
    END IF;
    IF tag IN ('CREATE EXTENSION', 'ALTER EXTENSION') THEN
        command := command || jsonb_build_object('written', hihooi.written());
    END IF;
    IF tag = 'ALTER TYPE' THEN
        command := command || jsonb_build_object('labels', (SELECT count(*) FROM pg_enum));
    END IF;
    IF tag ~ '^CREATE ' THEN
        command := command || jsonb_build_object('replaced', hihooi.replaced());
    END IF;
    IF tag IN ('GRANT', 'REVOKE', 'ALTER TABLE', 'DROP OWNED') THEN
        command := command || jsonb_build_object('changed', hihooi.changed());
    END IF;
    IF tag IN ('ALTER DEFAULT PRIVILEGES', 'DROP OWNED') THEN
        command := command || jsonb_build_object('defaults', hihooi.default_privileges());
    END IF;
    PERFORM hihooi.set_begun(begun || command);
END
$$;

-- The first event behind a command notes it, in front of what users' triggers do there: that is its end, or that it has
-- dropped something.
CREATE FUNCTION hihooi.end_command(tag text, context text, path text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    begun constant jsonb := hihooi.begun();
BEGIN
    IF begun->-1 IS DISTINCT FROM '{}' THEN
        PERFORM hihooi.note_end(tag, context, path);
    END IF;
    PERFORM hihooi.set_begun(hihooi.begun() - -1); -- (as note_end has changed it)
END
$$;

-- Decoding fails for ever on what is written while the publication isn't there, and what it leaves out is
-- missing at replicas without a word.
CREATE FUNCTION hihooi.keep_publication() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF current_setting('hihooi.removing', true) = 'on' OR EXISTS (
        SELECT FROM pg_publication p WHERE pubname = 'hihooi' AND puballtables
            AND pubinsert AND pubupdate AND pubdelete AND pubtruncate
            AND coalesce(to_jsonb(p)->>'pubgencols', 's') = 's')
    THEN
        RETURN;
    END IF;
    RAISE 'publication hihooi has to publish everything of all tables' USING
        ERRCODE = 'object_not_in_prerequisite_state',
        DETAIL = 'Replicas follow what it publishes; they would have to be made anew.',
        HINT = 'If this server is to leave hihooi: SET hihooi.removing = on, at its own port.';
END
$$;

-- Notes a command that has dropped something.
CREATE FUNCTION hihooi.note_drop(tag text, context text, path text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
AS $$
DECLARE
    dropped record;
BEGIN
    IF EXISTS (SELECT FROM pg_event_trigger_dropped_objects() d
        WHERE d.object_type = 'publication' AND d.object_identity = 'hihooi')
    THEN
        PERFORM hihooi.keep_publication();
    END IF;
    IF tag !~ '^DROP ' OR tag = 'DROP OWNED' THEN
        PERFORM hihooi.note_end(tag, context, path);
        PERFORM hihooi.set_begun(hihooi.begun() - -1 || '[{}]');
        PERFORM hihooi.follow_dropped_keys(tag);
        RETURN;
    END IF;
    -- (Procedures may differ in what is IN and OUT.)
    SELECT jsonb_agg(jsonb_build_object('kind', d.object_type, 'identity',
               CASE d.object_type WHEN 'procedure' THEN format('%I.%I(%s)', d.address_names[1],
                   d.address_names[2], 'IN ' || nullif(array_to_string(d.address_args, ', IN '), ''))
               ELSE d.object_identity END))
           FILTER (WHERE d.original AND d.objsubid = 0 AND NOT hihooi.is_local(d.classid)
               AND d.schema_name IS DISTINCT FROM 'hihooi'
               AND NOT hihooi.is_temporary_drop(d)) AS objects,
           bool_or(d.normal AND NOT d.original) AS cascades
        INTO dropped FROM pg_event_trigger_dropped_objects() d;
    IF dropped.objects IS NOT NULL THEN
        PERFORM hihooi.check_middle(tag, hihooi.begun()->-2->>'tag');
        -- (Of others, a table may lose its key.)
        IF tag NOT IN ('DROP TABLE', 'DROP VIEW', 'DROP MATERIALIZED VIEW', 'DROP SEQUENCE') THEN
            PERFORM hihooi.check_snapshot(NULL);
        END IF;
        PERFORM hihooi.hold_role(current_setting('hihooi.caller'));
        PERFORM hihooi.follow_shared();
        PERFORM hihooi.hold(named.class, named.object) FROM (
            SELECT 'pg_namespace'::regclass, n.oid FROM pg_event_trigger_dropped_objects() d
                JOIN pg_namespace n ON n.nspname = d.schema_name
                WHERE d.original AND NOT hihooi.is_temporary_drop(d)
          UNION
            SELECT 'pg_type'::regclass, t.oid FROM pg_event_trigger_dropped_objects() d, unnest(d.address_args) a
                JOIN pg_type t ON t.oid = to_regtype(a)
                WHERE d.original AND d.classid = 'pg_proc'::regclass AND NOT hihooi.is_temporary_drop(d)
                  AND t.oid >= 16384
        ) named(class, object);
        PERFORM hihooi.write_note('drop', jsonb_build_object(
            'tag', tag, 'role', current_setting('hihooi.caller'),
            'objects', dropped.objects, 'cascades', dropped.cascades));
    END IF;
    PERFORM hihooi.follow_dropped_keys(tag);
END
$$;

-- A key may have gone with one of its columns, which may be a parent's, or with a type: its table needs another identity.
CREATE FUNCTION hihooi.follow_dropped_keys(tag text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
AS $$
BEGIN
    PERFORM hihooi.set_identity(touched.relation) FROM (
        SELECT DISTINCT
            to_regclass(format('%I.%I', d.address_names[1], d.address_names[2])) AS relation
        FROM pg_event_trigger_dropped_objects() d
        WHERE d.object_type IN ('table constraint', 'table column')
        UNION
        -- An index doesn't tell whose it was. (With these it goes with its table, or with a column.)
        SELECT c.oid FROM pg_class c
        WHERE tag NOT IN ('DROP TABLE', 'DROP VIEW', 'DROP MATERIALIZED VIEW', 'DROP SEQUENCE')
          AND EXISTS (SELECT FROM pg_event_trigger_dropped_objects() WHERE object_type = 'index')
          AND c.relreplident = 'i' AND NOT EXISTS (
            SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisreplident)
    ) touched WHERE touched.relation IS NOT NULL;
END
$$;

-- Values that a rewrite computes for rows are the primary's alone: the command's end sends the rows.
-- (Bits of the reason: 1 is SET LOGGED or UNLOGGED, 2 a column's default, 4 a column's new type.)
CREATE FUNCTION hihooi.on_rewrite() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lc_messages = 'C'
AS $$
DECLARE
    context text;
BEGIN
    GET DIAGNOSTICS context = PG_CONTEXT;
    PERFORM hihooi.remember_invalid(pg_event_trigger_table_rewrite_oid());
    IF pg_event_trigger_table_rewrite_reason() & 7 <> 0 THEN
        INSERT INTO hihooi.rewrite (relation, context)
            VALUES (pg_event_trigger_table_rewrite_oid(), hihooi.outside(context));
    END IF;
END
$$;

-- Replicas execute a command's text behind what code within it did, which is noted first: with the names and the objects that are
-- there by then. So that code may create things, and change nothing. (CREATE TABLE AS and extensions' scripts are followed in
-- other ways.)
CREATE FUNCTION hihooi.check_middle(tag text, around text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF around IN ('ALTER TABLE', 'ALTER DOMAIN', 'CREATE INDEX', 'CREATE TABLE') THEN
        RAISE '% in code that % runs can''t be replicated', tag, around
        USING ERRCODE = 'feature_not_supported', HINT = format('Run it before or after %s, in the same transaction.', around);
    END IF;
END
$$;

-- Whether the last transaction of a CREATE INDEX or DETACH PARTITION CONCURRENTLY has done this, in front of which settings are
-- forgotten.
CREATE FUNCTION hihooi.may_be_concurrent(tag text, touched oid[]) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN tag = 'CREATE INDEX' AND NOT EXISTS (
        SELECT FROM pg_class c WHERE c.oid = ANY (touched) AND age(c.xmin) <= 0 AND hihooi.is_own(c.xmin)
    ) OR tag = 'ALTER TABLE' AND NOT EXISTS (
        SELECT FROM unnest(touched) t(relation) LEFT JOIN pg_class c ON c.oid = t.relation AND c.relkind = 'p'
        WHERE c.oid IS NULL
           OR EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND age(a.xmin) <= 0 AND hihooi.is_own(a.xmin))
           OR EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = c.oid AND age(k.xmin) <= 0 AND hihooi.is_own(k.xmin))
           OR EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = c.oid AND age(h.xmin) <= 0 AND hihooi.is_own(h.xmin)));
END
$$;

-- A context without its first frame, our own trigger's.
CREATE FUNCTION hihooi.outside(context text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN CASE WHEN strpos(context, chr(10)) = 0 THEN ''
        ELSE substr(context, strpos(context, chr(10)) + 1) END;
END
$$;

-- Whether a dropped object was temporary, or hung on something temporary. What hangs on a temporary
-- table is not itself called temporary by all versions. (Names are as they are, types of arguments are
-- quoted and with their schema.)
CREATE FUNCTION hihooi.is_temporary_drop(d record) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- (What has no schema may have such a name itself.)
    RETURN d.is_temporary OR d.classid NOT IN ('pg_foreign_server'::regclass, 'pg_foreign_data_wrapper'::regclass,
            'pg_user_mapping'::regclass, 'pg_language'::regclass, 'pg_event_trigger'::regclass, 'pg_am'::regclass,
            'pg_extension'::regclass)
        AND EXISTS (SELECT FROM unnest(d.address_names[1] || d.address_args) n WHERE n ~ '^pg_temp(_[0-9]+)?([.]|$)');
END
$$;

-- Notes what a command did. By the indexes of the catalogs, like the other triggers: a session keeps the plans that it made while
-- there were few tables. Not compiled just in time: such queries look dear enough for that, which takes longer than the queries.
CREATE FUNCTION hihooi.note_end(tag text, whole text, path text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
AS $$
DECLARE
    stack constant text := hihooi.outside(whole);
    -- It gives a table its identity, and nothing else: what the command around it did has been seen to.
    begun constant jsonb := hihooi.begun();
    is_ours constant boolean := hihooi.kept('ours') IS NOT DISTINCT FROM to_jsonb(jsonb_array_length(begun));
    caller text := current_setting('hihooi.caller');
    command record;
    objects jsonb[] := '{}';
    touched oid[] := '{}';
    made_in oid[] := '{}';
    made oid[] := '{}';
    own oid[] := '{}';
    extensions oid[] := '{}';
    note jsonb;
    matters boolean := tag IN ('CREATE EXTENSION', 'ALTER EXTENSION', 'DROP OWNED',
        'ALTER DEFAULT PRIVILEGES');
    created oid;
    computed oid;
    rewritten oid[];
    scripted oid[];
    is_scripted boolean := false;
    healed oid[];
    seen text[] := '{}';
    root record;
    unfinished oid;
    is_temporary boolean;
    is_new boolean;
    makes_hanging boolean := false;
BEGIN
    -- REFRESH gives back the settings that code in it has reset, and so its beginning. Only the count tells that a command ran there
    -- which didn't know of it.
    IF (begun->-1->>'outermost')::bigint <> hihooi.count_outermost() THEN
        RAISE '% of a function that resets all settings and runs commands can''t be replicated', tag
        USING ERRCODE = 'feature_not_supported',
            HINT = 'Run them before or after REFRESH, in the same transaction. (CONCURRENTLY runs commands itself.)';
    END IF;
    -- A rewrite makes indexes valid: such a table is as it should be behind them.
    IF tag IN ('ALTER TABLE', 'REFRESH MATERIALIZED VIEW') AND EXISTS (SELECT FROM hihooi.invalid) THEN
        SELECT array_agg(relation) INTO healed FROM hihooi.healed() WHERE index IS NOT NULL;
    END IF;
    -- An identity by an index that replicas don't have, since it isn't valid, is none there either.
    IF tag = 'ALTER TABLE' AND NOT is_ours THEN
        PERFORM hihooi.set_identity(i.indrelid)
            FROM pg_event_trigger_ddl_commands() c JOIN pg_index i ON i.indrelid = c.objid
                JOIN pg_class k ON k.oid = i.indexrelid AND k.relkind = 'i'
            WHERE c.classid = 'pg_class'::regclass AND i.indisreplident AND NOT i.indisvalid;
    END IF;
    -- One that isn't valid is known by its name, which may be a new one.
    IF tag IN ('ALTER INDEX', 'ALTER TABLE') AND EXISTS (SELECT FROM hihooi.invalid) THEN
        PERFORM hihooi.remember_invalid(i.indrelid)
            FROM pg_event_trigger_ddl_commands() c JOIN pg_index i ON i.indexrelid = c.objid
            WHERE c.classid = 'pg_class'::regclass AND NOT i.indisvalid AND EXISTS (
                SELECT FROM hihooi.invalid v WHERE v.relation = i.indrelid);
    END IF;
    -- (Of which there are events since PostgreSQL 17.) What was valid before is as it was.
    IF tag = 'REINDEX' THEN
        PERFORM hihooi.follow_indexes(true);
    END IF;
    IF NOT is_ours AND tag <> 'REINDEX' THEN
        PERFORM hihooi.hold_named(array_agg(classid), array_agg(objid)) FROM pg_event_trigger_ddl_commands()
            WHERE NOT in_extension AND objid IS NOT NULL AND schema_name IS DISTINCT FROM 'pg_temp';
    END IF;
    FOR command IN SELECT * FROM pg_event_trigger_ddl_commands() LOOP
        -- Replicas execute the script as well. (It may write to a table that it has just made.)
        IF command.in_extension THEN
            is_scripted := true;
            IF command.classid = 'pg_class'::regclass THEN
                touched := touched || command.objid;
            END IF;
        END IF;
        CONTINUE WHEN command.in_extension OR tag = 'REINDEX';
        IF is_ours AND command.classid = 'pg_class'::regclass THEN
            objects := objects || (hihooi.object_note(command.classid, command.objid)
                - CASE WHEN command.objid = ANY (healed) THEN 'description' ELSE '' END);
            CONTINUE;
        END IF;
        IF command.objid IS NULL THEN
            CONTINUE WHEN tag NOT IN ('GRANT', 'REVOKE')
                OR command.object_type IN ('LARGE OBJECT', 'PUBLICATION');
            PERFORM hihooi.check_snapshot(NULL);
            SELECT array_agg(hihooi.object_note(g.class, g.object)) INTO objects
                FROM hihooi.changed_since(begun->-1->'changed', 8) g
                WHERE NOT hihooi.is_ours(g.class, g.object)
                  AND NOT hihooi.is_temporary(g.class, g.object);
            objects := coalesce(objects, '{}');
            IF objects <> '{}' THEN
                PERFORM hihooi.check_middle(tag, begun->-2->>'tag');
            END IF;
            CONTINUE;
        END IF;
        IF tag = 'ALTER PUBLICATION' THEN
            PERFORM hihooi.keep_publication();
        END IF;
        IF tag = 'ALTER SCHEMA' THEN
            PERFORM hihooi.await_writers(ARRAY(SELECT oid FROM pg_class WHERE relnamespace = command.objid));
            PERFORM hihooi.name_anew(command.objid);
        END IF;
        -- (ADD VALUE changes no value.)
        IF tag = 'ALTER TYPE' THEN
            PERFORM hihooi.await_writers(hihooi.tables_with(oid)) FROM pg_type
            WHERE command.classid = 'pg_class'::regclass AND oid = (
                    -- (An old snapshot may show two rows.)
                    SELECT max(reltype) FROM pg_class WHERE oid = command.objid)
               OR command.classid = 'pg_type'::regclass AND oid = command.objid AND typtype = 'e'
                AND (SELECT count(*) FROM pg_enum) = (begun->-1->>'labels')::bigint;
        END IF;
        -- Tables may have columns of this one's row type.
        IF tag = 'ALTER TABLE' AND command.classid = 'pg_class'::regclass THEN
            PERFORM hihooi.await_writers(hihooi.tables_with(y.oid)) FROM pg_type y
            WHERE y.oid = (SELECT max(reltype) FROM pg_class WHERE oid = command.objid) AND EXISTS (
                SELECT FROM pg_depend d
                WHERE d.refclassid = 'pg_type'::regclass AND d.refobjid IN (y.oid, y.typarray)
                  AND d.classid IN ('pg_class'::regclass, 'pg_type'::regclass) AND d.deptype = 'n');
        END IF;
        CONTINUE WHEN hihooi.is_local(command.classid) OR command.schema_name = 'hihooi'
            OR command.object_type = 'schema' AND command.object_identity = 'hihooi';
        is_temporary := command.schema_name IS NOT DISTINCT FROM 'pg_temp' OR hihooi.is_temporary(command.classid, command.objid);
        IF command.classid = 'pg_class'::regclass THEN
            PERFORM hihooi.check_table(command.objid, is_temporary);
        END IF;
        -- (A part of a partition, or what was made anew in another's place, may be known by another OID. These change no more than
        -- the object itself.)
        IF (is_temporary OR EXISTS (SELECT FROM hihooi.hanging)) AND command.schema_name IS DISTINCT FROM 'pg_temp'
            AND command.command_tag !~ '^(COMMENT|SECURITY LABEL|ALTER INDEX|ALTER STATISTICS|ALTER TRIGGER)$'
            AND NOT hihooi.is_of_temporary(command.classid, command.objid)
        THEN
            is_new := command.command_tag ~ '^CREATE ' AND current_setting('track_counts')::boolean
                AND coalesce((begun->-1->>'replaced')::bigint = hihooi.replaced(), true);
            PERFORM hihooi.check_hanging(command.classid, command.objid, is_temporary, is_new);
            makes_hanging := makes_hanging OR is_temporary AND is_new;
        END IF;
        CONTINUE WHEN is_temporary;
        SELECT * INTO root FROM hihooi.owner_of(command.classid, command.objid);
        IF root.object = command.objid AND command.command_tag ~ '^(CREATE (?!VIEW|FUNCTION|PROCEDURE|AGGREGATE)|SELECT INTO)' THEN
            own := own || command.objid;
        ELSIF NOT root.object = ANY (own) THEN
            PERFORM hihooi.check_middle(tag, begun->-2->>'tag');
            PERFORM hihooi.check_snapshot(root.object);
        END IF;
        IF command.classid = 'pg_class'::regclass OR tag = 'CREATE FUNCTION' THEN
            PERFORM hihooi.check_computed(command.classid, command.objid);
        END IF;
        IF command.classid = 'pg_class'::regclass AND EXISTS (
            SELECT FROM pg_attribute WHERE attrelid = command.objid AND attgenerated = 's')
        THEN
            INSERT INTO hihooi.generates SELECT * FROM hihooi.calls(command.objid) ON CONFLICT DO NOTHING;
        ELSIF command.classid IN ('pg_proc'::regclass, 'pg_ts_config'::regclass, 'pg_ts_dict'::regclass) THEN
            PERFORM hihooi.check_generating(command.classid, command.objid);
        END IF;
        IF NOT concat(root.class, ' ', root.object) = ANY (seen) THEN
            seen := seen || concat(root.class, ' ', root.object);
            objects := objects || (hihooi.object_note(root.class, root.object)
                - CASE WHEN root.object = ANY (healed) THEN 'description' ELSE '' END);
        END IF;
        IF command.classid = 'pg_class'::regclass THEN
            touched := touched || command.objid;
        END IF;
        IF command.command_tag ~ '^(CREATE |SELECT INTO)' THEN
            made_in := made_in || command.classid;
            made := made || command.objid;
        END IF;
        IF command.classid = 'pg_extension'::regclass THEN
            extensions := extensions || command.objid;
        END IF;
        IF command.command_tag IN ('CREATE TABLE AS', 'SELECT INTO') THEN
            created := command.objid;
        END IF;
        IF command.command_tag IN ('CREATE MATERIALIZED VIEW', 'REFRESH MATERIALIZED VIEW') THEN
            -- (Nobody can write values of some types: then each site computes them.)
            SELECT oid INTO computed FROM pg_class
                WHERE oid = command.objid AND relispopulated
                  AND hihooi.unwritable(oid) IS NULL;
        END IF;
    END LOOP;
    -- The text makes both.
    IF makes_hanging AND objects <> '{}' THEN
        RAISE '% that creates something permanent and something that depends on a temporary object can''t be replicated', tag
        USING ERRCODE = 'feature_not_supported', HINT = 'Create them by commands of their own.';
    END IF;
    IF tag = 'ALTER TABLE' AND cardinality(objects) > 0 AND NOT is_ours THEN
        FOR root IN
            SELECT c.class, c.object
            FROM (
                SELECT * FROM hihooi.changed_since(begun->-1->'changed', 1)
                -- (A child that had a column of this name already.)
                UNION
                SELECT 'pg_class'::regclass, d.relation FROM unnest(touched) t(relation), hihooi.descendants(t.relation) d
                WHERE EXISTS (
                    SELECT FROM pg_attribute a WHERE a.attrelid = d.relation AND age(a.xmin) <= 0 AND hihooi.is_own(a.xmin) OFFSET 0)
            ) c, LATERAL (SELECT relkind FROM pg_class WHERE oid = c.object OFFSET 0) k
            WHERE k.relkind IN ('r', 'p', 'f') AND NOT concat(c.class, ' ', c.object) = ANY (seen)
              AND NOT hihooi.is_temporary(c.class, c.object)
            LIMIT 32
        LOOP
            objects := objects || (hihooi.object_note(root.class, root.object)
                - CASE WHEN root.object = ANY (healed) THEN 'description' ELSE '' END);
        END LOOP;
    END IF;
    -- Partitions get indexes attached without a lock that others' commands on them wait for: their notes are to be known
    -- as those of tables that have changed meanwhile. Names of indexes that this command has made there were chosen.
    IF tag IN ('CREATE INDEX', 'ALTER INDEX') AND NOT is_scripted THEN
        objects := objects || ARRAY(
            SELECT CASE WHEN tag = 'CREATE INDEX' AND t.is_new THEN hihooi.object_note('pg_class'::regclass, t.indrelid)
                ELSE jsonb_build_object('kind', a.kind, 'names', a.names, 'args', a.args, 'identity', i.identity) END
            FROM (SELECT x.indrelid, bool_or(x.indexrelid IN (
                    SELECT p.relid FROM unnest(touched) k, pg_partition_tree(k) p)) AS is_new
                  FROM pg_inherits h JOIN pg_index x ON x.indexrelid = h.inhrelid
                  WHERE age(h.xmin) <= 0 AND hihooi.is_own(h.xmin) GROUP BY x.indrelid) t,
                hihooi.address('pg_class'::regclass, t.indrelid) a,
                hihooi.identify('pg_class'::regclass, t.indrelid) i
            WHERE NOT concat('pg_class'::regclass::oid, ' ', t.indrelid) = ANY (seen)
              AND NOT hihooi.is_temporary('pg_class'::regclass, t.indrelid));
    END IF;
    -- Replicas don't have our functions.
    IF EXISTS (SELECT FROM pg_depend d
        WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid = ANY (ARRAY(
                SELECT o.objid FROM pg_depend o WHERE o.refclassid = 'pg_namespace'::regclass
                    AND o.refobjid = 'hihooi'::regnamespace AND o.classid = 'pg_proc'::regclass))
          AND d.classid <> 'pg_event_trigger'::regclass AND age(d.xmin) <= 0 AND hihooi.is_own(d.xmin))
    THEN
        RAISE 'what uses a function of schema hihooi can''t be replicated' USING ERRCODE = 'feature_not_supported',
            HINT = 'hihooi calls these functions itself where they are needed.';
    END IF;
    -- These tell nothing of what they change.
    IF tag IN ('ALTER DEFAULT PRIVILEGES', 'DROP OWNED') THEN
        objects := hihooi.changed_defaults(begun->-1->'defaults');
    END IF;
    IF tag = 'DROP OWNED' THEN
        objects := objects || ARRAY(SELECT hihooi.object_note(g.class, g.object)
            FROM hihooi.changed_since(begun->-1->'changed', 8) g
            WHERE NOT hihooi.is_ours(g.class, g.object)
              AND NOT hihooi.is_temporary(g.class, g.object));
    END IF;
    objects := array_remove(objects, NULL); -- what is gone already
    IF tag = 'ALTER EXTENSION' AND EXISTS (SELECT FROM hihooi.hanging h JOIN pg_depend d ON (d.classid, d.objid) = (h.class, h.object)
        WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e')
    THEN
        RAISE 'what depends on something temporary can''t become a part of an extension' USING ERRCODE = 'feature_not_supported',
            HINT = 'Create what it depends on in a permanent schema.';
    END IF;
    IF tag IN ('CREATE EXTENSION', 'ALTER EXTENSION') THEN
        scripted := hihooi.written_by_script(extensions, begun->-1->'written');
    END IF;
    -- (What a script rewrites is sent behind the script.)
    WITH taken AS (DELETE FROM hihooi.rewrite r WHERE (r.context = stack OR EXISTS (
            SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = r.relation AND d.objsubid = 0
              AND d.deptype = 'e' AND d.refobjid = ANY (extensions)))
            AND (extensions <> '{}' OR NOT is_scripted) RETURNING relation)
    SELECT array_agg(DISTINCT c.oid) INTO rewritten
        FROM (SELECT relation FROM taken UNION ALL SELECT unnest(scripted)) r JOIN pg_class c ON c.oid = r.relation
        WHERE c.relpersistence = 'p';
    IF tag = 'ALTER TABLE' AND cardinality(touched) > 0 AND NOT is_scripted THEN
        rewritten := array_cat(rewritten, hihooi.asked_of_rows(touched));
    END IF;
    IF matters THEN
        PERFORM hihooi.check_middle(tag, begun->-2->>'tag');
        PERFORM hihooi.check_snapshot(NULL);
    END IF;
    IF cardinality(objects) > 0 OR matters THEN
        PERFORM hihooi.hold_role(caller);
        PERFORM hihooi.follow_shared();
        -- As whom the command ran: who owns what it has created, and otherwise nobody else than when it began. (CONCURRENTLY
        -- lets that be forgotten.)
        IF created IS NOT NULL THEN
            caller := pg_get_userbyid((SELECT relowner FROM pg_class WHERE oid = created));
        ELSIF to_regrole(quote_ident(begun->-1->>'role')) <> to_regrole(quote_ident(caller))
            OR begun = '[]' AND NOT hihooi.may_be_concurrent(tag, touched)
        THEN
            RAISE '% that changes the role in which it runs, or resets all settings, can''t be replicated', tag
            USING ERRCODE = 'feature_not_supported', HINT = 'Do that before or after the command.';
        END IF;
        note := jsonb_build_object('tag', tag, 'role', caller,
            'settings', coalesce(nullif(begun->-1->'settings', 'null'), hihooi.settings(path)),
            'version', current_setting('server_version_num')::int / 10000,
            'took_ms', ceil(extract(epoch FROM clock_timestamp() - transaction_timestamp()) * 1000)::bigint,
            'moment', hihooi.moment(),
            'objects', to_jsonb(objects));
        IF stack = '' THEN
            note := note || hihooi.query_note(current_query());
        ELSE
            -- In a function with its owner's rights, the frames around may be the texts of others.
            note := note || jsonb_build_object('context', stack, 'is_definer', caller <>
                    CASE current_setting('role') WHEN 'none' THEN session_user
                        ELSE current_setting('role') END)
                || coalesce(hihooi.body(stack, tag), '{}');
        END IF;
        IF created IS NOT NULL THEN
            note := note || jsonb_build_object('relation', created::bigint,
                'create', hihooi.create_table(created));
        END IF;
        IF computed IS NOT NULL THEN
            PERFORM hihooi.send_contents(computed,
                CASE WHEN tag = 'CREATE MATERIALIZED VIEW' THEN caller END);
            note := note || jsonb_build_object('is_done', true);
        END IF;
        IF tag IN ('CREATE EXTENSION', 'ALTER EXTENSION') THEN
            note := note || jsonb_build_object('members', scripted::bigint[]);
        END IF;
        IF tag = 'ALTER TABLE' AND cardinality(touched) > 0 THEN
            note := note || jsonb_build_object('missing', hihooi.missing_values(touched[1]));
        END IF;
        -- A LIKE may mean a temporary table. (A wrong guess costs a moment.)
        IF tag = 'CREATE TABLE' AND concat(stack, current_query()) ~* '[[:<:]]like[[:>:]]' THEN
            note := note || jsonb_build_object('definition', (
                SELECT hihooi.create_table(c.oid)
                FROM unnest(touched) WITH ORDINALITY t(relation, place)
                    JOIN pg_class c ON c.oid = t.relation AND c.relkind IN ('r', 'p')
                ORDER BY t.place LIMIT 1));
        END IF;
        -- CONCURRENTLY: code may have changed the settings under which its text was read.
        IF tag = 'CREATE INDEX' AND begun = '[]' THEN
            PERFORM hihooi.note_index(indexrelid, objects[1]) FROM pg_index WHERE indexrelid = ANY (touched);
            note := note || '{"is_done": true}';
        END IF;
        -- An index of a partitioned table takes over one of a partition that is not valid, which replicas would build: they
        -- make its other parts. (One that is made ON ONLY the partitioned table is not valid either, but has no parts.)
        IF tag = 'CREATE INDEX' THEN
            SELECT i.indexrelid INTO unfinished FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
                WHERE i.indexrelid = ANY (touched) AND NOT i.indisvalid AND c.relkind = 'I'
                  AND EXISTS (SELECT FROM pg_inherits WHERE inhparent = i.indexrelid)
                LIMIT 1;
            IF unfinished IS NOT NULL THEN
                PERFORM hihooi.note_index(part.relid, objects[1]) FROM (
                    SELECT t.relid FROM pg_partition_tree(unfinished) t JOIN pg_index i ON i.indexrelid = t.relid
                        JOIN pg_class c ON c.oid = t.relid
                    WHERE i.indisvalid OR c.relkind = 'I' ORDER BY t.level, t.relid) part;
                note := note || jsonb_build_object('is_done', true, 'objects', to_jsonb(objects || ARRAY(
                    SELECT hihooi.object_note('pg_class'::regclass, i.indrelid)
                    FROM pg_partition_tree(unfinished) t JOIN pg_index i ON i.indexrelid = t.relid
                    WHERE t.level > 0)));
            END IF;
        END IF;
        IF rewritten IS NOT NULL THEN
            note := note || jsonb_build_object('rewritten',
                (SELECT jsonb_agg(r::regclass::text) FROM unnest(rewritten) r));
        END IF;
        PERFORM hihooi.write_note('command', note);
        IF rewritten IS NOT NULL THEN
            PERFORM hihooi.send_rows(c.oid, n.nspname, c.relname)
                FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE c.oid = ANY (rewritten);
        END IF;
        IF healed IS NOT NULL THEN
            PERFORM hihooi.follow_indexes(true);
        END IF;
    END IF;
    -- Those that its tables got while the script ran.
    IF extensions <> '{}' THEN
        PERFORM hihooi.alter_unnoticed(format('ALTER TABLE ONLY %s REPLICA IDENTITY FULL', h.relation))
        FROM pg_depend d JOIN hihooi.identity h ON h.relation = d.objid JOIN pg_class c ON c.oid = d.objid AND c.relreplident = 'f'
        WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_extension'::regclass
          AND d.refobjid = ANY (extensions) AND d.deptype = 'e';
    END IF;
    IF own <> '{}' AND current_setting('transaction_isolation') <> 'read committed' THEN
        -- (The last ones, since each command reads all that is kept. Those before may fail with 40001.)
        PERFORM hihooi.keep('made', to_jsonb(
            right(concat(hihooi.kept('made')#>>'{}', ' ', array_to_string(own, ' '), ' '), 10000)));
    END IF;
    IF made <> '{}' THEN
        PERFORM hihooi.remember_owners(made_in, made);
    END IF;
    -- Its user has chosen another one, or FULL: that can't be told from ours but by the text. (If that says so by chance, the
    -- table keeps FULL when it has a key.)
    IF tag = 'ALTER TABLE' AND NOT is_ours THEN
        DELETE FROM hihooi.identity h USING pg_class c
        WHERE h.relation = ANY (touched::regclass[]) AND c.oid = h.relation
          AND (c.relreplident <> 'f' OR regexp_replace(concat(stack, current_query()), E'--[^\n]*|/[*].*?[*]/', ' ', 'g')
              ~* 'replica[[:space:]]+identity[[:space:]]+full[[:>:]]');
    END IF;
    PERFORM hihooi.set_identity(r) FROM (
        SELECT unnest(touched)
        UNION SELECT p.relid FROM unnest(touched) t, pg_partition_tree(t) p
        UNION SELECT i.indrelid FROM pg_index i WHERE i.indexrelid = ANY (touched)
        UNION SELECT c.oid FROM pg_class c WHERE tag = 'DROP OWNED' AND c.relkind IN ('r', 'p')
    ) t(r) WHERE NOT is_ours;
    -- A user's event trigger behind ours may run commands in front of a GRANT: what they changed isn't what is granted.
    IF begun->-2->>'tag' IN ('GRANT', 'REVOKE') THEN
        PERFORM hihooi.set_begun(jsonb_set(begun, '{-2, changed}', to_jsonb(hihooi.changed())));
    END IF;
    PERFORM hihooi.keep('noted', to_jsonb(hihooi.count_changes()));
END
$$;

-- Replicas are copies: they have the owners of today. (Where an earlier version was, they may have missed some: all are
-- told.)
INSERT INTO hihooi.owners SELECT * FROM hihooi.owners_where('true') WHERE NOT EXISTS (SELECT FROM hihooi.told)
    ON CONFLICT DO NOTHING;
DELETE FROM hihooi.told WHERE what = 'owners';

INSERT INTO hihooi.generates
    SELECT k.* FROM (SELECT DISTINCT attrelid FROM pg_attribute WHERE attgenerated = 's' AND NOT attisdropped) a, hihooi.calls(attrelid) k
    ON CONFLICT DO NOTHING;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA hihooi FROM PUBLIC;
GRANT EXECUTE ON FUNCTION hihooi.follow TO PUBLIC;

CREATE EVENT TRIGGER "!hihooi_1_caller_drop" ON sql_drop EXECUTE FUNCTION hihooi.on_caller();
CREATE EVENT TRIGGER "!hihooi_1_caller_end" ON ddl_command_end EXECUTE FUNCTION hihooi.on_caller();
CREATE EVENT TRIGGER "!hihooi_2_drop" ON sql_drop EXECUTE FUNCTION hihooi.on_command();
CREATE EVENT TRIGGER "!hihooi_2_end" ON ddl_command_end EXECUTE FUNCTION hihooi.on_command();
CREATE EVENT TRIGGER "!hihooi_2_rewrite" ON table_rewrite EXECUTE FUNCTION hihooi.on_rewrite();
CREATE EVENT TRIGGER "~hihooi_1_caller_start" ON ddl_command_start EXECUTE FUNCTION hihooi.on_caller();
CREATE EVENT TRIGGER "~hihooi_2_start" ON ddl_command_start EXECUTE FUNCTION hihooi.on_command();
ALTER EVENT TRIGGER "!hihooi_1_caller_drop" ENABLE ALWAYS;
ALTER EVENT TRIGGER "!hihooi_1_caller_end" ENABLE ALWAYS;
ALTER EVENT TRIGGER "!hihooi_2_drop" ENABLE ALWAYS;
ALTER EVENT TRIGGER "!hihooi_2_end" ENABLE ALWAYS;
ALTER EVENT TRIGGER "!hihooi_2_rewrite" ENABLE ALWAYS;
ALTER EVENT TRIGGER "~hihooi_1_caller_start" ENABLE ALWAYS;
ALTER EVENT TRIGGER "~hihooi_2_start" ENABLE ALWAYS;
