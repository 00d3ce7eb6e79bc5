-- Roles, memberships, settings of roles and of this database, its rights, rights on parameters, and
-- event triggers, by names: what no event trigger is told of, so that it travels as a state. The primary notes it, a
-- replica compares it with its own. Run like describe.sql.

-- Rights, as lists of grantee, grantor, privilege, whether it may be granted on.
CREATE OR REPLACE FUNCTION hihooi.rights(acl aclitem[]) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_agg(jsonb_build_array(
            CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END,
            grantor::regrole::text, privilege_type, is_grantable)
        ORDER BY grantee::regrole::text, grantor::regrole::text, privilege_type)
    FROM aclexplode(acl)
$$;

-- Rights on an object that has an owner, and on columns that have rights of their own. Without any set, the owner's default ones.
CREATE OR REPLACE FUNCTION hihooi.rights_on(class oid, object oid) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_build_object('object', hihooi.rights(coalesce(acl, acldefault(kind, owner))), 'columns', (
        SELECT jsonb_object_agg(quote_ident(attname), hihooi.rights(attacl)) FROM pg_attribute
        WHERE class = 'pg_class'::regclass AND attrelid = object AND attacl IS NOT NULL AND NOT attisdropped))
    FROM (
        SELECT 'pg_class'::regclass, oid, relacl, CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", relowner FROM pg_class
            WHERE oid = object
        UNION ALL SELECT 'pg_proc'::regclass, oid, proacl, 'f', proowner FROM pg_proc WHERE oid = object
        UNION ALL SELECT 'pg_namespace'::regclass, oid, nspacl, 'n', nspowner FROM pg_namespace WHERE oid = object
        UNION ALL SELECT 'pg_type'::regclass, oid, typacl, 'T', typowner FROM pg_type WHERE oid = object
        UNION ALL SELECT 'pg_language'::regclass, oid, lanacl, 'l', lanowner FROM pg_language WHERE oid = object
        UNION ALL SELECT 'pg_foreign_server'::regclass, oid, srvacl, 'S', srvowner FROM pg_foreign_server WHERE oid = object
        UNION ALL SELECT 'pg_foreign_data_wrapper'::regclass, oid, fdwacl, 'F', fdwowner FROM pg_foreign_data_wrapper
            WHERE oid = object
    ) o(of_class, oid, acl, kind, owner)
    WHERE of_class = class
$$;

-- Rights on parameters, since PostgreSQL 15, and the role that grants what any superuser does.
CREATE OR REPLACE FUNCTION hihooi.parameters() RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- (PostgreSQL 14 lacks it, and never gets to the question.)
    IF to_regclass('pg_parameter_acl') IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN jsonb_build_object('owner', 10::regrole::text,
        'rights', (SELECT jsonb_object_agg(parname, hihooi.rights(paracl)) FROM pg_parameter_acl));
END
$$;

CREATE OR REPLACE FUNCTION hihooi.shared() RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, YMD'
SET timezone = 'UTC'
AS $$
    SELECT jsonb_build_object(
        'roles', (SELECT jsonb_object_agg(rolname, to_jsonb(r) - 'oid' - 'rolname'
                || jsonb_build_object('comment', shobj_description(oid, 'pg_authid')))
            FROM pg_authid r WHERE rolname !~ '^pg_'),
        'members', (SELECT jsonb_agg(to_jsonb(m) - 'oid' || jsonb_build_object(
                'roleid', roleid::regrole::text, 'member', member::regrole::text,
                'grantor', grantor::regrole::text)
                ORDER BY roleid::regrole::text, member::regrole::text, grantor::regrole::text)
            -- (GRANT beside DROP ROLE may leave rows about roles that are gone.)
            FROM pg_auth_members m WHERE EXISTS (SELECT FROM pg_authid WHERE oid = roleid)
                AND EXISTS (SELECT FROM pg_authid WHERE oid = m.member)),
        'settings', (SELECT jsonb_object_agg(concat(
                CASE WHEN setdatabase <> 0 THEN 'database ' END,
                CASE WHEN setrole <> 0 THEN 'role ' || setrole::regrole::text END), setconfig)
            FROM pg_db_role_setting, pg_database d
            WHERE d.datname = current_database() AND setdatabase IN (0, d.oid)),
        'database', (SELECT jsonb_build_object('owner', datdba::regrole::text,
                'comment', shobj_description(oid, 'pg_database'),
                'rights', hihooi.rights(coalesce(datacl, acldefault('d', datdba))))
            FROM pg_database WHERE datname = current_database()),
        'parameters', hihooi.parameters(),
        'event_triggers', (SELECT jsonb_object_agg(quote_ident(evtname), jsonb_build_object(
                'event', evtevent, 'owner', evtowner::regrole::text, 'function',
                evtfoid::regproc::text, 'enabled', evtenabled = 'O' AND evtevent <> 'login', 'tags', evttags,
                'comment', obj_description(oid, 'pg_event_trigger')))
            -- (A temporary function's is on this server only.)
            FROM pg_event_trigger WHERE evtname !~ 'hihooi' AND NOT EXISTS (SELECT FROM pg_proc
                WHERE oid = evtfoid AND pronamespace::regnamespace::text ~ '^pg_temp_')))
$$;

REVOKE ALL ON FUNCTION hihooi.shared(), hihooi.parameters(), hihooi.rights(aclitem[]), hihooi.rights_on(oid, oid) FROM PUBLIC;
