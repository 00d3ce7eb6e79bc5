-- Describes the objects of a database as text that is equal on two servers of one major version
-- exactly if the definition of the object is: the applier compares what a command made at the
-- primary with what it made at the replica.
--
-- Run by a superuser, as often as one likes, in a database that has the schema hihooi.
--
-- What keeps the text equal:
--   1. Names take the place of OIDs, the order of columns that of attnum. Names that PostgreSQL
--      makes from OIDs (internal triggers, TOAST tables) are left out.
--   2. Expressions and queries are deparsed under the settings of hihooi.describe and the other
--      entry points; a helper runs under those of its caller.
--   3. Privileges are told as what NULL stands for, and sorted, as are options.
--   4. What is a server's own is left out: tablespaces, statistics, the mark of CLUSTER, versions
--      of collations. So is what hangs on something temporary, since replicas never have it, and
--      indexes that are not valid. Triggers and rules are on or off: replicas switch off what
--      would fire there (ALWAYS, REPLICA).
--
-- Nothing here runs code of a user: catalogs are read, expressions are only deparsed. Deparsing
-- a query locks the tables in it (ACCESS SHARE).

-- The privileges that an ACL means, sorted by grantee; kind and owner are those of acldefault().
CREATE OR REPLACE FUNCTION hihooi.privileges(acl aclitem[], kind "char", owner oid) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT string_agg(held.line, '; ' ORDER BY held.line COLLATE "C")
        FROM (
            SELECT format('%s to %s by %I',
                string_agg(privilege_type || CASE WHEN is_grantable THEN '*' ELSE '' END, ', '
                    ORDER BY privilege_type COLLATE "C"),
                CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END,
                pg_get_userbyid(grantor)) AS line
            FROM aclexplode(coalesce(acl, acldefault(kind, owner)))
            GROUP BY grantee, grantor
        ) held);
END
$$;

-- Options (name=value), sorted, or NULL if there are none.
CREATE OR REPLACE FUNCTION hihooi.options(list text[]) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT string_agg(quote_literal(o), ', ' ORDER BY o COLLATE "C") FROM unnest(list) o);
END
$$;

-- Comments, security labels and ALTER ... DEPENDS ON EXTENSION of objects, each with the name it
-- has among the lines of its owner (NULL: it is the owner). Not those of hidden ones.
CREATE OR REPLACE FUNCTION hihooi.remarks(
    classes oid[], objects oid[], names text[], hidden oid[]) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
    WITH asked AS (
        SELECT * FROM unnest(classes, objects, names) a(class, object, name)
        WHERE a.object <> ALL (hidden)
    ),
    remarks AS (
        SELECT a.*, d.objsubid AS part, format('comment %L', d.description) AS remark
        FROM asked a JOIN pg_description d ON d.classoid = a.class AND d.objoid = a.object
        UNION ALL
        SELECT a.*, l.objsubid, format('security label %L for %I', l.label, l.provider)
        FROM asked a JOIN pg_seclabel l ON l.classoid = a.class AND l.objoid = a.object
        UNION ALL
        SELECT a.*, 0, format('depends on extension %I', e.extname)
        FROM asked a
        JOIN pg_depend d ON d.classid = a.class AND d.objid = a.object AND d.deptype = 'x'
        JOIN pg_extension e ON e.oid = d.refobjid
    )
    SELECT concat_ws(' ', r.name, 'column ' || quote_ident(c.attname), r.remark) COLLATE "C" AS line
    FROM remarks r
    LEFT JOIN pg_attribute c ON r.class = 'pg_class'::regclass AND c.attrelid = r.object
        AND c.attnum = r.part AND r.part > 0
    ORDER BY line;
END
$$;

-- Those of the objects that are temporary or hang on something temporary: they need something in a
-- temporary schema, or something that does. A relation also needs what its columns, defaults and
-- constraints need, but of foreign keys only those of the object asked for are followed, or one
-- table would lead to all others. Objects of initdb (OIDs below 16384) need nothing temporary.
-- OFFSET 0, the cast to int8 and the settings of the planner keep it on the indexes that fit, also
-- where the catalogs have never been analyzed.
CREATE OR REPLACE FUNCTION hihooi.temporary(classes oid[], objects oid[])
RETURNS TABLE (class oid, object oid)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
    -- Most often there is nothing temporary.
    IF NOT EXISTS (
        SELECT FROM (SELECT oid FROM pg_namespace
                     WHERE nspname >= 'pg_t' AND nspname < 'pg_u' AND nspname ~ '^pg_(toast_)?temp_' OFFSET 0) s,
            LATERAL (SELECT FROM pg_depend d
                     WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = s.oid OFFSET 0) d)
    THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH RECURSIVE asked (class, object) AS (SELECT * FROM unnest(classes, objects)),
    needed (root_class, root, class, object) AS (
        SELECT a.class, a.object, a.class, a.object FROM asked a
        UNION ALL
        SELECT a.class, a.object, 'pg_constraint'::regclass, k.oid
        FROM asked a JOIN pg_constraint k ON k.conrelid = a.object AND k.contype = 'f'
        WHERE a.class = 'pg_class'::regclass
        UNION
        SELECT n.root_class, n.root, next.*
        FROM needed n CROSS JOIN LATERAL (
            SELECT d.refclassid, d.refobjid FROM pg_depend d
                WHERE d.classid = n.class AND d.objid = n.object
            UNION ALL
            SELECT d.refclassid, d.refobjid
                FROM pg_attrdef v CROSS JOIN LATERAL (
                    SELECT * FROM pg_depend d
                    WHERE d.classid = 'pg_attrdef'::regclass AND d.objid = v.oid OFFSET 0) d
                WHERE n.class = 'pg_class'::regclass AND v.adrelid = n.object
            UNION ALL
            SELECT 'pg_constraint'::regclass, k.oid FROM pg_constraint k
                WHERE n.class = 'pg_class'::regclass AND k.conrelid = n.object
                  AND k.contype IN ('c', 'x')
            UNION ALL
            SELECT 'pg_constraint'::regclass, k.oid FROM pg_constraint k
                WHERE n.class = 'pg_type'::regclass AND k.contypid = n.object
            UNION ALL
            SELECT 'pg_class'::regclass, k.conindid FROM pg_constraint k
                WHERE n.class = 'pg_constraint'::regclass AND k.oid = n.object
                  AND k.contype = 'x'
            UNION ALL
            SELECT 'pg_rewrite'::regclass, r.oid FROM pg_rewrite r
                WHERE n.class = 'pg_class'::regclass AND r.ev_class = n.object AND r.ev_type = '1'
            UNION ALL
            SELECT 'pg_class'::regclass, t.typrelid FROM pg_type t
                WHERE n.class = 'pg_type'::regclass AND t.oid = n.object
            UNION ALL
            -- The operators and functions of an operator class, and those that belong to a family alone.
            SELECT d.classid, d.objid FROM pg_depend d
                WHERE n.class IN ('pg_opclass'::regclass, 'pg_opfamily'::regclass) AND d.refclassid = n.class
                  AND d.refobjid = n.object AND d.classid IN ('pg_amop'::regclass, 'pg_amproc'::regclass)
        ) next (class, object)
        WHERE next.object::int8 >= 16384
    )
    SELECT DISTINCT n.root_class, n.root
    FROM needed n JOIN pg_namespace s ON s.oid = n.object
    WHERE n.class = 'pg_namespace'::regclass AND s.nspname ~ '^pg_(toast_)?temp_';
END
$$;

-- Whether the object is temporary or hangs on something temporary (see hihooi.temporary).
CREATE OR REPLACE FUNCTION hihooi.is_temporary(class oid, object oid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM hihooi.temporary(ARRAY[class], ARRAY[object]));
END
$$;

-- What PostgreSQL calls an object; no row if its schema is gone. pg_identify_object() ends the server
-- with a segmentation fault where it finds the object and not its schema: it looks both up among what
-- the session remembers, of which a DROP SCHEMA elsewhere may have left the object alone; or the object
-- was made while its schema was dropped. Where the schema has just been looked up in the same way, it is
-- remembered as well, or neither is.
CREATE OR REPLACE FUNCTION hihooi.identify(class oid, object oid, part int DEFAULT 0)
RETURNS TABLE (type text, schema text, name text, identity text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    home oid;
BEGIN
    -- A statement each, since one with all of them would open all of these catalogs every time. (A
    -- transaction's snapshot may show two rows of an object: one from before another transaction
    -- changed it, and its own.)
    CASE class
        WHEN 'pg_class'::regclass THEN
            home := (SELECT max(relnamespace) FROM pg_class WHERE oid = object);
        WHEN 'pg_proc'::regclass THEN
            home := (SELECT max(pronamespace) FROM pg_proc WHERE oid = object);
        WHEN 'pg_type'::regclass THEN
            home := (SELECT max(typnamespace) FROM pg_type WHERE oid = object);
        WHEN 'pg_operator'::regclass THEN
            home := (SELECT max(oprnamespace) FROM pg_operator WHERE oid = object);
        WHEN 'pg_opclass'::regclass THEN
            home := (SELECT max(opcnamespace) FROM pg_opclass WHERE oid = object);
        WHEN 'pg_opfamily'::regclass THEN
            home := (SELECT max(opfnamespace) FROM pg_opfamily WHERE oid = object);
        WHEN 'pg_collation'::regclass THEN
            home := (SELECT max(collnamespace) FROM pg_collation WHERE oid = object);
        WHEN 'pg_constraint'::regclass THEN
            home := (SELECT max(connamespace) FROM pg_constraint WHERE oid = object);
        WHEN 'pg_conversion'::regclass THEN
            home := (SELECT max(connamespace) FROM pg_conversion WHERE oid = object);
        WHEN 'pg_ts_config'::regclass THEN
            home := (SELECT max(cfgnamespace) FROM pg_ts_config WHERE oid = object);
        WHEN 'pg_ts_dict'::regclass THEN
            home := (SELECT max(dictnamespace) FROM pg_ts_dict WHERE oid = object);
        WHEN 'pg_ts_parser'::regclass THEN
            home := (SELECT max(prsnamespace) FROM pg_ts_parser WHERE oid = object);
        WHEN 'pg_ts_template'::regclass THEN
            home := (SELECT max(tmplnamespace) FROM pg_ts_template WHERE oid = object);
        WHEN 'pg_statistic_ext'::regclass THEN
            home := (SELECT max(stxnamespace) FROM pg_statistic_ext WHERE oid = object);
        ELSE NULL;
    END CASE;
    IF home::regnamespace::text ~ '^[0-9]' THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT i.type, i.schema, i.name, i.identity FROM pg_identify_object(class, object, part) i;
END
$$;

-- The object whose description covers the given one: of an index its table, of a composite type's
-- relation the type, of a row or array type what it belongs to, of the sequence of an identity
-- column the table; itself otherwise.
CREATE OR REPLACE FUNCTION hihooi.owner_of(of_class oid, of_object oid)
RETURNS TABLE (class oid, object oid)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    up record;
BEGIN
    class := of_class;
    object := of_object;
    LOOP
        -- A statement for each class: see hihooi.identify.
        CASE class
            WHEN 'pg_class'::regclass THEN
                SELECT o.class, o.object INTO up FROM (
                    SELECT 'pg_class'::regclass, indrelid FROM pg_index
                        WHERE indexrelid = owner_of.object
                    -- A TOAST table, or the sequence of an identity column.
                    UNION ALL SELECT d.refclassid, d.refobjid
                        FROM pg_class c JOIN pg_depend d ON d.objid = c.oid
                        WHERE c.oid = owner_of.object AND c.relkind IN ('t', 'S')
                          AND d.deptype = 'i' AND d.classid = 'pg_class'::regclass
                    UNION ALL SELECT 'pg_type'::regclass, reltype FROM pg_class
                        WHERE oid = owner_of.object AND relkind = 'c'
                ) o (class, object);
            WHEN 'pg_type'::regclass THEN
                SELECT o.class, o.object INTO up FROM (
                    SELECT 'pg_class'::regclass, c.oid
                        FROM pg_type t JOIN pg_class c ON c.oid = t.typrelid
                        WHERE t.oid = owner_of.object AND c.relkind <> 'c'
                    UNION ALL SELECT 'pg_type'::regclass, e.oid
                        FROM pg_type t JOIN pg_type e ON e.oid = t.typelem
                        WHERE t.oid = owner_of.object AND e.typarray = t.oid
                    UNION ALL SELECT 'pg_type'::regclass, rngtypid FROM pg_range
                        WHERE rngmultitypid = owner_of.object
                ) o (class, object);
            WHEN 'pg_constraint'::regclass THEN
                SELECT o.class, o.object INTO up FROM (
                    SELECT 'pg_class'::regclass, conrelid FROM pg_constraint
                        WHERE oid = owner_of.object AND conrelid <> 0
                    UNION ALL SELECT 'pg_type'::regclass, contypid FROM pg_constraint
                        WHERE oid = owner_of.object AND contypid <> 0
                ) o (class, object);
            WHEN 'pg_trigger'::regclass THEN
                SELECT 'pg_class'::regclass AS class, tgrelid AS object INTO up FROM pg_trigger
                    WHERE oid = owner_of.object;
            WHEN 'pg_rewrite'::regclass THEN
                SELECT 'pg_class'::regclass AS class, ev_class AS object INTO up FROM pg_rewrite
                    WHERE oid = owner_of.object;
            WHEN 'pg_policy'::regclass THEN
                SELECT 'pg_class'::regclass AS class, polrelid AS object INTO up FROM pg_policy
                    WHERE oid = owner_of.object;
            WHEN 'pg_attrdef'::regclass THEN
                SELECT 'pg_class'::regclass AS class, adrelid AS object INTO up FROM pg_attrdef
                    WHERE oid = owner_of.object;
            WHEN 'pg_statistic_ext'::regclass THEN
                SELECT 'pg_class'::regclass AS class, stxrelid AS object INTO up FROM pg_statistic_ext
                    WHERE oid = owner_of.object;
            WHEN 'pg_amop'::regclass THEN
                SELECT 'pg_opfamily'::regclass AS class, amopfamily AS object INTO up FROM pg_amop
                    WHERE oid = owner_of.object;
            WHEN 'pg_amproc'::regclass THEN
                SELECT 'pg_opfamily'::regclass AS class, amprocfamily AS object INTO up FROM pg_amproc
                    WHERE oid = owner_of.object;
            ELSE
                EXIT;
        END CASE;
        EXIT WHEN NOT FOUND;
        class := up.class;
        object := up.object;
    END LOOP;
    RETURN NEXT;
END
$$;

-- The columns of a relation or composite type, without those whose type is hidden.
CREATE OR REPLACE FUNCTION hihooi.describe_columns(relation oid, hidden oid[]) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    -- Appliers set these aside (catalog.rs).
    not_valid int2[];
BEGIN
    IF current_setting('server_version_num')::int >= 180000 THEN
        not_valid := ARRAY(SELECT conkey[1] FROM pg_constraint
            WHERE conrelid = relation AND contype = 'n' AND NOT convalidated);
    END IF;
    RETURN QUERY
    SELECT concat_ws(' ',
        format('column %s %I %s', row_number() OVER (ORDER BY a.attnum), a.attname,
            format_type(a.atttypid, a.atttypmod)),
        CASE WHEN a.attcollation <> 0 THEN format('collate %s', a.attcollation::regcollation) END,
        CASE WHEN a.attnotnull OR a.attnum = ANY (not_valid) THEN 'not null' END,
        'generated ' || nullif(a.attgenerated::text, ''),
        'identity ' || nullif(a.attidentity::text, ''),
        format('storage %s', a.attstorage),
        'compression ' || nullif(a.attcompression::text, ''),
        CASE WHEN a.attstattarget >= 0 THEN 'statistics ' || a.attstattarget END,
        CASE WHEN NOT a.attislocal THEN 'not local' END,
        'inherited ' || nullif(a.attinhcount, 0),
        'options ' || hihooi.options(a.attoptions),
        'fdw options ' || hihooi.options(a.attfdwoptions),
        'privileges ' || CASE WHEN a.attacl IS NOT NULL THEN hihooi.privileges(a.attacl, 'c', 0) END,
        'default ' || CASE WHEN d.oid <> ALL (hidden) THEN pg_get_expr(d.adbin, relation) END)
    FROM pg_attribute a
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
      AND a.atttypid <> ALL (hidden)
    ORDER BY a.attnum;
END
$$;

-- What is told of every kind of relation, by one line each.
CREATE OR REPLACE FUNCTION hihooi.describe_class(c pg_class) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY SELECT line FROM unnest(ARRAY[
        format('relation %s', c.oid::regclass),
        format('kind %s', c.relkind),
        format('persistence %s', c.relpersistence),
        'access method ' || (SELECT quote_ident(a.amname) FROM pg_am a WHERE a.oid = c.relam),
        format('owner %I', pg_get_userbyid(c.relowner)),
        'privileges ' || hihooi.privileges(
            c.relacl, CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", c.relowner),
        'privileges of the row type ' || (
            SELECT hihooi.privileges(t.typacl, 'T', t.typowner)
            FROM pg_type t WHERE t.oid = c.reltype AND t.typacl IS NOT NULL),
        'options ' || hihooi.options(c.reloptions),
        'toast options ' || (
            SELECT hihooi.options(t.reloptions) FROM pg_class t WHERE t.oid = c.reltoastrelid),
        CASE WHEN c.relrowsecurity THEN 'row security' END,
        CASE WHEN c.relforcerowsecurity THEN 'row security forced' END,
        CASE WHEN NOT c.relispopulated THEN 'not populated' END,
        format('replica identity %s', c.relreplident),
        CASE WHEN c.reloftype <> 0 THEN format('of type %s', c.reloftype::regtype) END,
        'partition ' || pg_get_expr(c.relpartbound, c.oid),
        CASE WHEN c.relkind = 'p' THEN 'partition by ' || pg_get_partkeydef(c.oid) END
    ]) line WHERE line IS NOT NULL;
    RETURN QUERY SELECT format('inherits %s%s', i.inhparent::regclass,
            CASE WHEN i.inhdetachpending THEN ' detach pending' ELSE '' END)
        FROM pg_inherits i WHERE i.inhrelid = c.oid ORDER BY i.inhseqno;
    IF c.relkind = 'S' THEN
        RETURN QUERY SELECT format(
                'sequence %s start %s increment %s max %s min %s cache %s cycle %s',
                s.seqtypid::regtype, s.seqstart, s.seqincrement, s.seqmax, s.seqmin, s.seqcache,
                s.seqcycle)
            FROM pg_sequence s WHERE s.seqrelid = c.oid;
        RETURN QUERY SELECT format('owned by %s.%I', d.refobjid::regclass, a.attname)
            FROM pg_depend d
            JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
            WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
              AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i');
    ELSIF c.relkind = 'f' THEN
        RETURN QUERY SELECT concat_ws(' ', format('server %I', s.srvname),
                'options ' || hihooi.options(f.ftoptions))
            FROM pg_foreign_table f JOIN pg_foreign_server s ON s.oid = f.ftserver
            WHERE f.ftrelid = c.oid;
    END IF;
END
$$;

-- Constraints of a relation or a domain. Rows that a foreign key on a partitioned table has beside
-- its own, one per partition there, are left out: PostgreSQL names them as it likes.
CREATE OR REPLACE FUNCTION hihooi.describe_constraints(relation oid, domain oid, hidden oid[])
RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT concat_ws(' ',
        -- (Appliers have set aside what is marked so: catalog.rs.)
        format('constraint %I %s', k.conname, CASE
            WHEN k.confupdtype = 'h' THEN regexp_replace(pg_get_constraintdef(k.oid), ' NOT ENFORCED$',
                CASE WHEN k.convalidated THEN '' ELSE ' NOT VALID' END)
            -- (PostgreSQL 17 fails on those of domains in its first minor versions.)
            WHEN k.contype = 'n' AND k.contypid <> 0 THEN 'NOT NULL'
            ELSE pg_get_constraintdef(k.oid) END),
        CASE WHEN NOT k.convalidated THEN 'not validated' END,
        CASE WHEN NOT k.conislocal THEN 'not local' END,
        'inherited ' || nullif(k.coninhcount, 0),
        'of ' || (SELECT format('%I on %s', p.conname, p.conrelid::regclass)
                  FROM pg_constraint p WHERE p.oid = k.conparentid))
    FROM pg_constraint k
    WHERE k.conrelid = relation AND k.contypid = domain AND k.oid <> ALL (hidden)
      AND k.contype <> 't'
      AND NOT EXISTS (SELECT FROM pg_constraint p
                      WHERE p.oid = k.conparentid AND p.conrelid = k.conrelid)
    ORDER BY k.conname COLLATE "C";
END
$$;

-- Valid indexes, and those of partitioned tables.
CREATE OR REPLACE FUNCTION hihooi.describe_indexes(relation oid, hidden oid[]) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT concat_ws(' ',
        format('index %I %s', c.relname, pg_get_indexdef(i.indexrelid)),
        CASE WHEN i.indisreplident THEN 'replica identity' END,
        CASE WHEN NOT i.indisvalid THEN 'not valid' END,
        'of ' || (SELECT h.inhparent::regclass FROM pg_inherits h WHERE h.inhrelid = i.indexrelid),
        'statistics ' || (
            SELECT string_agg(a.attnum || ':' || a.attstattarget, ', ' ORDER BY a.attnum)
            FROM pg_attribute a WHERE a.attrelid = i.indexrelid AND a.attstattarget >= 0))
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE i.indrelid = relation AND (i.indisvalid OR c.relkind = 'I')
      AND i.indexrelid <> ALL (hidden)
    ORDER BY c.relname COLLATE "C";
END
$$;

-- Triggers, rules, policies and extended statistics. A view's query is its rule _RETURN. Of internal
-- triggers, whose constraints are told elsewhere, only those that are switched off.
CREATE OR REPLACE FUNCTION hihooi.describe_actions(relation oid, hidden oid[]) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT concat_ws(' ',
        format('trigger %I %s', t.tgname, pg_get_triggerdef(t.oid)),
        CASE WHEN t.tgparentid <> 0 THEN 'inherited' END,
        CASE t.tgenabled WHEN 'O' THEN 'on' ELSE 'off' END)
    FROM pg_trigger t LEFT JOIN pg_constraint k ON k.oid = t.tgconstraint
    WHERE t.tgrelid = relation AND t.oid <> ALL (hidden)
      -- PostgreSQL 14 calls internal what a partition has from its table's triggers.
      AND (NOT t.tgisinternal OR t.tgparentid <> 0 AND coalesce(k.contype, 't') = 't')
    ORDER BY t.tgname COLLATE "C";
    RETURN QUERY
    SELECT DISTINCT format('internal trigger %s of a constraint on %s off',
        t.tgfoid::regproc, k.conrelid::regclass) COLLATE "C" AS line
    FROM pg_trigger t JOIN pg_constraint k ON k.oid = t.tgconstraint
    WHERE t.tgrelid = relation AND t.tgisinternal AND t.tgenabled <> 'O'
    ORDER BY line;
    RETURN QUERY
    SELECT format('rule %I %s %s', r.rulename, pg_get_ruledef(r.oid),
        CASE r.ev_enabled WHEN 'O' THEN 'on' ELSE 'off' END)
    FROM pg_rewrite r
    WHERE r.ev_class = relation AND r.oid <> ALL (hidden)
    ORDER BY r.rulename COLLATE "C";
    RETURN QUERY
    SELECT concat_ws(' ',
        format('policy %I for %s', p.polname, p.polcmd),
        CASE WHEN p.polpermissive THEN 'permissive' ELSE 'restrictive' END,
        'to ' || (
            SELECT string_agg(r.name, ', ' ORDER BY r.name COLLATE "C")
            FROM (SELECT CASE o WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(o)) END
                  FROM unnest(p.polroles) o) r(name)),
        format('using (%s)', pg_get_expr(p.polqual, relation)),
        format('with check (%s)', pg_get_expr(p.polwithcheck, relation)))
    FROM pg_policy p
    WHERE p.polrelid = relation AND p.oid <> ALL (hidden)
    ORDER BY p.polname COLLATE "C";
    RETURN QUERY
    SELECT concat_ws(' ',
        pg_get_statisticsobjdef(s.oid),
        format('owner %I', pg_get_userbyid(s.stxowner)),
        CASE WHEN s.stxstattarget >= 0 THEN 'target ' || s.stxstattarget END) COLLATE "C" AS line
    FROM pg_statistic_ext s
    WHERE s.stxrelid = relation AND s.oid <> ALL (hidden)
    ORDER BY line;
END
$$;

-- What belongs to a relation and has an identity of its own. The name is that of its line.
CREATE OR REPLACE FUNCTION hihooi.parts(c pg_class)
RETURNS TABLE (class oid, object oid, name text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT 'pg_class'::regclass::oid, c.oid, NULL
    UNION ALL SELECT 'pg_type'::regclass, t.oid, 'row type'
        FROM pg_type t WHERE t.oid = c.reltype
    UNION ALL SELECT 'pg_type'::regclass, t.typarray, 'array type'
        FROM pg_type t WHERE t.oid = c.reltype
    UNION ALL SELECT 'pg_attrdef'::regclass, d.oid, 'default'
        FROM pg_attrdef d WHERE d.adrelid = c.oid
    UNION ALL SELECT 'pg_constraint'::regclass, k.oid, format('constraint %I', k.conname)
        FROM pg_constraint k WHERE k.conrelid = c.oid
    UNION ALL SELECT 'pg_class'::regclass, x.oid, format('index %I', x.relname)
        FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
        WHERE i.indrelid = c.oid AND (i.indisvalid OR x.relkind = 'I')
    UNION ALL SELECT 'pg_trigger'::regclass, t.oid, format('trigger %I', t.tgname)
        FROM pg_trigger t
        WHERE t.tgrelid = c.oid AND (NOT t.tgisinternal OR t.tgparentid <> 0)
    UNION ALL SELECT 'pg_rewrite'::regclass, r.oid, format('rule %I', r.rulename)
        FROM pg_rewrite r WHERE r.ev_class = c.oid
    UNION ALL SELECT 'pg_policy'::regclass, p.oid, format('policy %I', p.polname)
        FROM pg_policy p WHERE p.polrelid = c.oid
    UNION ALL SELECT 'pg_statistic_ext'::regclass, s.oid,
            format('statistics %I.%I', n.nspname, s.stxname)
        FROM pg_statistic_ext s JOIN pg_namespace n ON n.oid = s.stxnamespace
        WHERE s.stxrelid = c.oid;
END
$$;

-- Those parts of a relation, and types of its columns, that hang on something temporary. (The
-- cast to int8, as above, keeps the planner from searching by what is referred to.)
CREATE OR REPLACE FUNCTION hihooi.hidden(relation oid, classes oid[], objects oid[]) RETURNS oid[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    suspects record;
BEGIN
    -- Most need only the relation itself or, as an index does, a constraint on it.
    SELECT array_agg(s.class) AS classes, array_agg(s.object) AS objects INTO suspects
    FROM (
        SELECT p.class, p.object FROM unnest(classes, objects) p(class, object)
        WHERE p.object <> relation AND EXISTS (
            SELECT FROM pg_depend d
            WHERE d.classid = p.class AND d.objid = p.object AND d.refobjid::int8 >= 16384
              AND d.refobjid <> relation AND d.refclassid <> 'pg_constraint'::regclass)
        UNION ALL
        SELECT DISTINCT 'pg_type'::regclass::oid, a.atttypid FROM pg_attribute a
        WHERE a.attrelid = relation AND a.attnum > 0 AND a.atttypid >= 16384
    ) s;
    IF suspects.classes IS NULL THEN
        RETURN '{}';
    END IF;
    RETURN ARRAY(SELECT object FROM hihooi.temporary(suspects.classes, suspects.objects));
END
$$;

-- A relation with all that belongs to it.
CREATE OR REPLACE FUNCTION hihooi.describe_relation(relation oid) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    c pg_class;
    p record;
    hidden oid[];
    lines text[];
BEGIN
    SELECT * INTO c FROM pg_class WHERE oid = relation;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT array_agg(class) AS classes, array_agg(object) AS objects, array_agg(name) AS names
        INTO p FROM hihooi.parts(c);
    hidden := hihooi.hidden(relation, p.classes, p.objects);
    lines := ARRAY(SELECT hihooi.describe_class(c));
    IF c.relkind <> 'S' THEN
        lines := lines || ARRAY(SELECT hihooi.describe_columns(relation, hidden))
            || ARRAY(SELECT hihooi.describe_constraints(relation, 0, hidden))
            || ARRAY(SELECT hihooi.describe_indexes(relation, hidden))
            || ARRAY(SELECT hihooi.describe_actions(relation, hidden));
    END IF;
    IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = relation AND attidentity <> '') THEN
        lines := lines || ARRAY(
            SELECT unnest(hihooi.describe_relation(s.oid))
            FROM pg_depend d JOIN pg_class s ON s.oid = d.objid
            JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
            WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = relation
              AND d.classid = 'pg_class'::regclass AND d.deptype = 'i' AND s.relkind = 'S'
              AND a.attidentity <> ''
            ORDER BY s.relname COLLATE "C");
    END IF;
    RETURN lines || ARRAY(SELECT hihooi.remarks(p.classes, p.objects, p.names, hidden));
END
$$;

-- The row of any class, a line for each column that is not NULL. What a column refers to, if it
-- holds OIDs, is known from pg_get_catalog_foreign_keys().
CREATE OR REPLACE FUNCTION hihooi.describe_row(class regclass, key name, object oid) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    expressions text;
    lines text[];
BEGIN
    SELECT string_agg(format('%L || quote_literal((%s)::text)', a.attname || ' ', CASE
        WHEN a.attname = 'evtenabled' THEN 'CASE WHEN x.evtenabled = ''O'' AND x.evtevent <> ''login'' THEN ''on'' ELSE ''off'' END'
        WHEN a.atttypid = 'aclitem[]'::regtype THEN
            format('hihooi.privileges(x.%I, %L, %s)', a.attname, CASE class
                WHEN 'pg_namespace'::regclass THEN 'n' WHEN 'pg_language'::regclass THEN 'l'
                WHEN 'pg_foreign_data_wrapper'::regclass THEN 'F' WHEN 'pg_proc'::regclass THEN 'f'
                WHEN 'pg_foreign_server'::regclass THEN 'S' WHEN 'pg_type'::regclass THEN 'T' END,
                coalesce('x.' || (SELECT o.attname FROM pg_attribute o
                    WHERE o.attrelid = class AND o.attname ~ 'owner$'), 'NULL'))
        WHEN a.atttypid = 'text[]'::regtype AND a.attname ~ '(options|tags)$' THEN
            format('hihooi.options(x.%I)', a.attname)
        WHEN a.atttypid = 'pg_node_tree'::regtype THEN format('pg_get_expr(x.%I, 0)', a.attname)
        WHEN reference.form IS NOT NULL AND a.atttypid IN ('oidvector'::regtype, 'oid[]'::regtype)
        THEN
            format('(SELECT string_agg(%s::text, '', '' ORDER BY u.at) '
                'FROM unnest(x.%I) WITH ORDINALITY u(x, at))',
                format(reference.form, 'u.x'), a.attname)
        ELSE format(coalesce(reference.form, '%s'), format('x.%I', a.attname)) END), ', '
        ORDER BY a.attname)
    INTO expressions
    FROM pg_attribute a
    LEFT JOIN pg_get_catalog_foreign_keys() k
        ON k.fktable = class AND k.fkcols = ARRAY[a.attname::text]
    CROSS JOIN LATERAL (VALUES (CASE
        WHEN a.atttypid = 'regproc'::regtype OR k.pktable = 'pg_proc'::regclass THEN
            '%s::oid::regprocedure'
        WHEN k.pktable = 'pg_type'::regclass THEN 'format_type(%s, NULL)'
        -- (A commutator or negator that was dropped has no name.)
        WHEN k.pktable = 'pg_operator'::regclass THEN
            '(SELECT o.oid::regoperator FROM pg_operator o WHERE o.oid = %s)'
        WHEN k.pktable IS NOT NULL THEN
            format('(SELECT i.identity FROM hihooi.identify(%s, %%s) i)', k.pktable::oid)
        END)) reference (form)
    WHERE a.attrelid = class AND a.attnum > 0 AND NOT a.attisdropped
      AND a.attname NOT IN ('oid', 'typarray', 'typrelid', 'typdefault', 'collversion');
    EXECUTE format('SELECT array_remove(ARRAY[%s], NULL) FROM %s x WHERE x.%I = $1',
        expressions, class, key) INTO lines USING object;
    RETURN lines;
END
$$;

-- A type. Its members are labels, attributes, constraints or what pg_range says.
CREATE OR REPLACE FUNCTION hihooi.describe_type(type oid) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    t pg_type;
    p record;
    hidden oid[];
BEGIN
    SELECT * INTO t FROM pg_type WHERE oid = type;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT array_agg(q.class) AS classes, array_agg(q.object) AS objects, array_agg(q.name) AS names
    INTO p
    FROM (
        SELECT 'pg_type'::regclass::oid, type, NULL
        UNION ALL SELECT 'pg_type'::regclass, t.typarray, 'array type'
        UNION ALL SELECT 'pg_type'::regclass, r.rngmultitypid, 'multirange type'
            FROM pg_range r WHERE r.rngtypid = type
        UNION ALL SELECT 'pg_class'::regclass, t.typrelid, 'composite'
        UNION ALL SELECT 'pg_constraint'::regclass, k.oid, format('constraint %I', k.conname)
            FROM pg_constraint k WHERE k.contypid = type
    ) q(class, object, name);
    hidden := hihooi.hidden(t.typrelid, p.classes, p.objects);
    RETURN hihooi.describe_row('pg_type', 'oid', type)
        || CASE WHEN t.typdefaultbin IS NULL THEN 'default ' || quote_literal(t.typdefault) END
        || ARRAY(SELECT format('label %L', e.enumlabel) FROM pg_enum e
                 WHERE e.enumtypid = type ORDER BY e.enumsortorder)
        || ARRAY(SELECT hihooi.describe_columns(t.typrelid, hidden) WHERE t.typrelid <> 0)
        || ARRAY(SELECT hihooi.describe_constraints(0, type, hidden) WHERE t.typtype = 'd')
        || CASE WHEN t.typtype = 'r' THEN hihooi.describe_row('pg_range', 'rngtypid', type) END
        || ARRAY(SELECT hihooi.remarks(p.classes, p.objects, p.names, hidden));
END
$$;

-- A function, procedure or aggregate.
CREATE OR REPLACE FUNCTION hihooi.describe_routine(routine oid) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    lines text[];
BEGIN
    SELECT CASE p.prokind
        WHEN 'a' THEN hihooi.describe_row('pg_proc', 'oid', routine)
            || ARRAY['arguments ' || pg_get_function_arguments(routine)]
            || hihooi.describe_row('pg_aggregate', 'aggfnoid', routine)
        ELSE ARRAY[pg_get_functiondef(routine), format('owner %I', pg_get_userbyid(p.proowner)),
            'privileges ' || hihooi.privileges(p.proacl, 'f', p.proowner)] END
    INTO lines FROM pg_proc p WHERE p.oid = routine;
    RETURN lines || CASE WHEN FOUND THEN ARRAY(
        SELECT hihooi.remarks(ARRAY['pg_proc'::regclass::oid], ARRAY[routine], '{}', '{}')) END;
END
$$;

-- Members of an operator family; or, given an operator class, those that belong to it.
CREATE OR REPLACE FUNCTION hihooi.describe_members(class oid, object oid) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT m.line COLLATE "C" AS line
    FROM (
        SELECT 'pg_amop'::regclass, o.oid, o.amopfamily,
            concat_ws(' ', format('operator %s (%s, %s) %s for %s', o.amopstrategy,
                    format_type(o.amoplefttype, NULL), format_type(o.amoprighttype, NULL),
                    o.amopopr::regoperator, o.amoppurpose),
                (SELECT i.identity FROM hihooi.identify(
                    'pg_opfamily'::regclass, nullif(o.amopsortfamily, 0)) i))
        FROM pg_amop o
        UNION ALL
        SELECT 'pg_amproc'::regclass, p.oid, p.amprocfamily,
            format('function %s (%s, %s) %s', p.amprocnum, format_type(p.amproclefttype, NULL),
                format_type(p.amprocrighttype, NULL), p.amproc::oid::regprocedure)
        FROM pg_amproc p
    ) m (class, object, family, line)
    -- CASE: what is not a member must not be searched for temporary things.
    WHERE CASE
        WHEN m.family = describe_members.object
                AND describe_members.class = 'pg_opfamily'::regclass
            OR (m.class, m.object) IN (
                SELECT d.classid, d.objid FROM pg_depend d
                WHERE describe_members.class = 'pg_opclass'::regclass AND d.deptype = 'i'
                  AND d.refclassid = 'pg_opclass'::regclass
                  AND d.refobjid = describe_members.object)
        THEN NOT hihooi.is_temporary(m.class, m.object) END
    ORDER BY line;
END
$$;

-- Any other object that is described: its row in the catalog, and what refers to it.
CREATE OR REPLACE FUNCTION hihooi.describe_other(class oid, object oid) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    lines text[];
BEGIN
    IF class = ANY (hihooi.described()) AND NOT EXISTS (
        SELECT FROM pg_event_trigger t
        WHERE class = 'pg_event_trigger'::regclass AND t.oid = object AND t.evtname ~ 'hihooi')
    THEN
        lines := hihooi.describe_row(class, 'oid', object);
    END IF;
    IF lines IS NULL THEN
        RETURN NULL;
    END IF;
    CASE class
        WHEN 'pg_opfamily'::regclass, 'pg_opclass'::regclass THEN
            lines := lines || ARRAY(SELECT hihooi.describe_members(class, object));
        WHEN 'pg_ts_config'::regclass THEN
            lines := lines || ARRAY(
                SELECT format('mapping of token type %s: %s', m.maptokentype,
                    string_agg(m.mapdict::regdictionary::text, ', ' ORDER BY m.mapseqno))
                FROM pg_ts_config_map m WHERE m.mapcfg = object
                GROUP BY m.maptokentype ORDER BY m.maptokentype);
        WHEN 'pg_extension'::regclass THEN
            lines := lines || ARRAY(
                SELECT format('member %s %s', i.type, i.identity) COLLATE "C" AS line
                FROM pg_depend d, hihooi.identify(d.classid, d.objid, d.objsubid) i
                WHERE d.refclassid = class AND d.refobjid = object AND d.deptype = 'e'
                ORDER BY line);
        ELSE NULL;
    END CASE;
    RETURN lines || ARRAY(SELECT hihooi.remarks(ARRAY[class], ARRAY[object], '{}', '{}'));
END
$$;

-- The catalogs whose objects are described as such, not with what they belong to.
CREATE OR REPLACE FUNCTION hihooi.described() RETURNS regclass[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT '{pg_class, pg_proc, pg_type, pg_operator, pg_opclass, pg_opfamily, pg_cast,
        pg_collation, pg_conversion, pg_ts_config, pg_ts_dict, pg_ts_parser, pg_ts_template,
        pg_namespace, pg_extension, pg_language, pg_am, pg_foreign_data_wrapper,
        pg_foreign_server, pg_user_mapping, pg_transform, pg_default_acl,
        pg_event_trigger}'::regclass[]
$$;

-- Describes what the given object belongs to (hihooi.owner_of), one property per line. Where a property
-- has line breaks (in a literal, a function's body), its further lines begin with a space: none of them
-- can be taken for a property. NULL if there is no such object, or if it is not described: publications,
-- subscriptions, large objects, what is common to all databases, and our event triggers.
CREATE OR REPLACE FUNCTION hihooi.describe(class oid, object oid) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = off
SET datestyle = 'ISO, YMD' SET timezone = 'UTC' SET intervalstyle = 'postgres'
SET extra_float_digits = 1 SET bytea_output = 'hex' SET xmlbinary = 'base64'
SET standard_conforming_strings = on SET lc_monetary = 'C' SET lc_messages = 'C'
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
AS $$
DECLARE
    root record;
    lines text[];
BEGIN
    SELECT * INTO root FROM hihooi.owner_of(class, object);
    lines := CASE root.class
        WHEN 'pg_class'::regclass THEN hihooi.describe_relation(root.object)
        WHEN 'pg_proc'::regclass THEN hihooi.describe_routine(root.object)
        WHEN 'pg_type'::regclass THEN hihooi.describe_type(root.object)
        ELSE hihooi.describe_other(root.class, root.object)
    END;
    IF lines IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN array_to_string(ARRAY(
        SELECT replace(line, E'\n', E'\n ') FROM unnest(lines) WITH ORDINALITY l(line, place)
        WHERE line IS NOT NULL ORDER BY place), E'\n');
END
$$;

-- A name of the object that means the same on every server (see hihooi.find); no row if there is
-- no such object. Mostly that of pg_identify_object_as_address(). TOAST tables, whose names hold
-- OIDs, have the name of their table here; operators have both arguments, '-' for a missing one.
CREATE OR REPLACE FUNCTION hihooi.address(class oid, object oid)
RETURNS TABLE (kind text, names text[], args text[])
LANGUAGE plpgsql STABLE SET search_path = pg_catalog SET quote_all_identifiers = off
AS $$
DECLARE
    toast record;
BEGIN
    IF class = 'pg_operator'::regclass THEN
        RETURN QUERY
        SELECT 'operator', ARRAY[n.nspname::text, o.oprname],
            ARRAY[format_type(o.oprleft, NULL), format_type(o.oprright, NULL)]
        FROM pg_operator o JOIN pg_namespace n ON n.oid = o.oprnamespace WHERE o.oid = object;
        RETURN;
    ELSIF class = 'pg_class'::regclass THEN
        SELECT c.relkind = 'i' AS is_index, d.refobjid AS owner INTO toast
        FROM pg_class c
        LEFT JOIN pg_index i ON i.indexrelid = c.oid
        JOIN pg_class t ON t.oid = coalesce(i.indrelid, c.oid) AND t.relkind = 't'
        JOIN pg_depend d ON (d.classid, d.objid, d.refclassid, d.deptype) = (class, t.oid, class, 'i')
        WHERE c.oid = object;
        IF FOUND THEN
            RETURN QUERY
            SELECT CASE WHEN toast.is_index THEN 'toast index' ELSE 'toast table' END,
                a.object_names, a.object_args
            FROM pg_identify_object_as_address(class, toast.owner, 0) a;
            RETURN;
        END IF;
    END IF;
    RETURN QUERY
    SELECT a.type, a.object_names, a.object_args
    FROM pg_identify_object_as_address(class, object, 0) a WHERE a.object_names IS NOT NULL;
END
$$;

-- The object of a name that hihooi.address gave, here or on another server; no row if there is
-- none. Relations are looked up here because pg_get_object_address() locks them.
CREATE OR REPLACE FUNCTION hihooi.find(kind text, names text[], args text[])
RETURNS TABLE (class oid, object oid)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog SET quote_all_identifiers = off
AS $$
DECLARE
    relkinds "char"[] := CASE kind
        WHEN 'table' THEN '{r,p}' WHEN 'index' THEN '{i,I}' WHEN 'sequence' THEN '{S}'
        WHEN 'view' THEN '{v}' WHEN 'materialized view' THEN '{m}' WHEN 'foreign table' THEN '{f}'
        WHEN 'composite type' THEN '{c}' WHEN 'toast table' THEN '{r,m}'
        WHEN 'toast index' THEN '{r,m}' END;
BEGIN
    IF relkinds IS NOT NULL THEN
        SELECT 'pg_class'::regclass, CASE kind
            WHEN 'toast table' THEN nullif(c.reltoastrelid, 0)
            WHEN 'toast index' THEN (
                SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = c.reltoastrelid LIMIT 1)
            ELSE c.oid END
        INTO class, object
        FROM pg_class c
        WHERE c.relname = names[2] AND c.relkind = ANY (relkinds)
          AND c.relnamespace = CASE names[1] WHEN 'pg_temp' THEN pg_my_temp_schema()
              ELSE (SELECT n.oid FROM pg_namespace n WHERE n.nspname = names[1]) END;
    ELSIF kind = 'operator' THEN
        SELECT 'pg_operator'::regclass, o.oid INTO class, object
        FROM pg_operator o JOIN pg_namespace n ON n.oid = o.oprnamespace
        WHERE n.nspname = names[1] AND o.oprname = names[2]
          AND o.oprleft = CASE args[1] WHEN '-' THEN 0 ELSE args[1]::regtype::oid END
          AND o.oprright = CASE args[2] WHEN '-' THEN 0 ELSE args[2]::regtype::oid END;
    ELSE
        SELECT a.classid, a.objid INTO class, object
        FROM pg_get_object_address(kind, names, args) a;
    END IF;
    IF object IS NOT NULL THEN
        RETURN NEXT;
    END IF;
EXCEPTION
WHEN lock_not_available OR deadlock_detected OR insufficient_resources THEN
    RAISE;
WHEN OTHERS THEN
    -- That is how PostgreSQL says that there is no such object.
    RETURN;
END
$$;

-- The objects of this database that users made: those that describe() describes as such, without
-- what is in our schema or PostgreSQL's, belongs to an extension or is temporary. Of what initdb
-- makes, schemas and extensions may have been changed or dropped.
CREATE OR REPLACE FUNCTION hihooi.objects() RETURNS TABLE (class oid, object oid)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    catalog regclass;
    ids oid[];
    classes oid[];
    objects oid[];
BEGIN
    FOREACH catalog IN ARRAY hihooi.described() LOOP
        -- (Our own functions are more than a hundred, each of which would be identified.)
        EXECUTE format('SELECT array_agg(oid) FROM %s WHERE oid >= %s AND %s', catalog,
            CASE WHEN catalog::text IN ('pg_namespace', 'pg_extension') THEN 1 ELSE 16384 END,
            CASE catalog::text WHEN 'pg_class' THEN 'relkind NOT IN (''i'', ''I'', ''t'', ''c'')'
                WHEN 'pg_proc' THEN 'pronamespace <> ''hihooi''::regnamespace'
                ELSE 'true' END)
            INTO ids;
        ids := ARRAY(
            SELECT o.id
            FROM unnest(ids) o(id) CROSS JOIN LATERAL hihooi.identify(catalog, o.id) i
            WHERE coalesce(i.schema, i.name, '') !~ '^(pg_|information_schema$|hihooi$)'
              AND (i.type <> 'event trigger' OR i.name !~ 'hihooi')
              AND NOT EXISTS (SELECT FROM pg_depend d
                              WHERE d.classid = catalog AND d.objid = o.id AND d.deptype = 'e')
              AND (SELECT w.object = o.id FROM hihooi.owner_of(catalog, o.id) w));
        classes := classes || array_fill(catalog::oid, ARRAY[cardinality(ids)]);
        objects := objects || ids;
    END LOOP;
    RETURN QUERY
    SELECT * FROM unnest(classes, objects) EXCEPT SELECT * FROM hihooi.temporary(classes, objects);
END
$$;

-- Describes all objects that users made, sorted.
CREATE OR REPLACE FUNCTION hihooi.describe_all()
RETURNS TABLE (kind text, identity text, description text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
BEGIN
    RETURN QUERY
    SELECT i.type, i.identity, hihooi.describe(o.class, o.object)
    FROM hihooi.objects() o CROSS JOIN LATERAL hihooi.identify(o.class, o.object) i
    ORDER BY i.type COLLATE "C", i.identity COLLATE "C";
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA hihooi FROM PUBLIC;
