-- What an applier creates at a replica, to carry out what may run code of others (see
-- restricted.rs). As a replica, so that users' event triggers don't notice; anew each time, so that
-- it is ours whoever made something of that name before.
--
-- Within the functions every name and operator is qualified: the code that they run may have set
-- the search path, and what PL/pgSQL compiles once is used for others as well.

ALTER SCHEMA hihooi OWNER TO CURRENT_USER;
REVOKE CREATE ON SCHEMA hihooi FROM PUBLIC;
GRANT USAGE ON SCHEMA hihooi TO PUBLIC;
-- What earlier versions left at the primary, and copies have.
DROP MATERIALIZED VIEW IF EXISTS hihooi.shape;
DROP TABLE IF EXISTS hihooi.query, hihooi.contents;

-- Tables whose rows are not followed here (set_aside.rs): by their OIDs at the primary and here (NULL while there is no
-- such table yet), with the last entry whose rows could not be written, and since when the router has sent no read of it here.
CREATE TABLE IF NOT EXISTS hihooi.set_aside (
    relation pg_catalog.oid PRIMARY KEY,
    local pg_catalog.oid,
    name pg_catalog.text NOT NULL,
    tsid pg_catalog.int8 NOT NULL,
    reason pg_catalog.text NOT NULL,
    since pg_catalog.timestamptz,
    is_emptied pg_catalog.bool NOT NULL DEFAULT false
);
REVOKE ALL ON hihooi.set_aside FROM PUBLIC;

-- Tables whose CHECK constraints, or NOT NULL that isn't valid, rows pass over here (catalog.rs): DDL, which counts on them, has
-- them evaluated again.
CREATE TABLE IF NOT EXISTS hihooi.unchecked (
    relation pg_catalog.oid PRIMARY KEY
);
REVOKE ALL ON hihooi.unchecked FROM PUBLIC;

-- Carries out the statements of the setting hihooi.work, which is read once, before any of them:
-- pairs of the rows that a statement must touch (or -1) and its text. An error says in front
-- which statement it is about, counted from 0.
CREATE FUNCTION hihooi.carry_out() RETURNS pg_catalog.int4 LANGUAGE plpgsql AS $$
DECLARE
    work pg_catalog.text[] := pg_catalog.current_setting('hihooi.work')::pg_catalog.text[];
    step pg_catalog.text[];
    at pg_catalog.int4 := 0;
    touched pg_catalog.int8;
    said pg_catalog.text;
    more pg_catalog.text;
BEGIN
    FOREACH step SLICE 1 IN ARRAY work LOOP
        EXECUTE step[2];
        GET DIAGNOSTICS touched = ROW_COUNT;
        IF step[1] OPERATOR(pg_catalog.<>) '-1' AND touched OPERATOR(pg_catalog.<>) step[1]::pg_catalog.int8 THEN
            RAISE EXCEPTION USING ERRCODE = 'HH000', MESSAGE =
                pg_catalog.format('changed %s rows, expected %s', touched, step[1]);
        END IF;
        at := at OPERATOR(pg_catalog.+) 1;
    END LOOP;
    RETURN at;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS said = MESSAGE_TEXT, more = PG_EXCEPTION_DETAIL;
    RAISE EXCEPTION USING
        ERRCODE = SQLSTATE, MESSAGE = pg_catalog.format('%s %s', at, said), DETAIL = more;
END
$$;
GRANT EXECUTE ON FUNCTION hihooi.carry_out() TO PUBLIC;

-- A text of these bytes, whether or not they are valid in the database's encoding. No server takes a text as input that
-- is not, but tables may have some: a function in C made them, or an earlier version of PostgreSQL took them. For
-- appliers only, since PostgreSQL trusts texts to be valid. (byteasend() returns its argument.)
CREATE FUNCTION hihooi.text_of(pg_catalog.bytea) RETURNS pg_catalog.text
LANGUAGE internal IMMUTABLE STRICT AS 'byteasend';
REVOKE ALL ON FUNCTION hihooi.text_of(pg_catalog.bytea) FROM PUBLIC;

-- While rows are carried out no function may define anything: appliers know which tables run code
-- of others, and DDL that isn't in the log would change that behind their backs. What runs is told
-- by the text of the applier's own statement, which nobody else can set.
CREATE FUNCTION hihooi.refuse_ddl() RETURNS event_trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF tg_tag <> 'REFRESH MATERIALIZED VIEW'
       AND starts_with(current_query(), 'REFRESH MATERIALIZED VIEW hihooi.rows_')
    THEN
        RAISE EXCEPTION '% in a function that a row runs at a replica', tg_tag
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END
$$;
REVOKE ALL ON FUNCTION hihooi.refuse_ddl() FROM PUBLIC;
CREATE EVENT TRIGGER hihooi_rows ON ddl_command_start EXECUTE FUNCTION hihooi.refuse_ddl();
ALTER EVENT TRIGGER hihooi_rows ENABLE REPLICA;

-- At the replica's own port nobody changes the schema by accident; a transaction that only reads can't, but
-- BEGIN READ WRITE is allowed to everybody. Appliers, and who repairs the replica, have
-- session_replication_role = replica, for which this doesn't fire.
CREATE FUNCTION hihooi.refuse_change() RETURNS event_trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION 'cannot execute % at a replica of hihooi', tg_tag USING
        ERRCODE = 'read_only_sql_transaction',
        DETAIL = 'It follows the primary, and would differ from it.',
        HINT = 'Connect to hihooi. To repair this replica: SET default_transaction_read_only = off; SET'
            ' session_replication_role = replica; then run VERIFY.';
END
$$;
REVOKE ALL ON FUNCTION hihooi.refuse_change() FROM PUBLIC;
CREATE EVENT TRIGGER hihooi_guard ON ddl_command_start EXECUTE FUNCTION hihooi.refuse_change();
