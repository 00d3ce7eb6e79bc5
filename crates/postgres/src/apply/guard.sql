-- Whether writing to table t may run code that is not PostgreSQL's own or an extension's: true, or
-- NULL or false. What isn't understood counts as such code (I6).
--
-- Written to be part of a query that has c, the table's row of pg_class, and $4, the names of the
-- columns that get values (so defaults of others are computed).
(with recursive used(class, object) as (
    -- What computes something when a row comes, or is planned for.
    select 'pg_catalog.pg_class'::regclass::oid, c.oid
    union select 'pg_catalog.pg_class'::regclass, relid::oid
        from pg_catalog.pg_partition_ancestors(c.oid) relid
    union select 'pg_catalog.pg_class'::regclass, indexrelid
        from pg_catalog.pg_index where indrelid = c.oid
    union select 'pg_catalog.pg_constraint'::regclass, oid
        from pg_catalog.pg_constraint where conrelid = c.oid and conbin is not null
    union select 'pg_catalog.pg_statistic_ext'::regclass, oid
        from pg_catalog.pg_statistic_ext where stxrelid = c.oid
    union select 'pg_catalog.pg_attrdef'::regclass, d.oid
        from pg_catalog.pg_attrdef d join pg_catalog.pg_attribute a
          on a.attrelid = d.adrelid and a.attnum = d.adnum
        where d.adrelid = c.oid and (a.attgenerated <> '' or a.attname <> all ($4::text[]))
    union
    -- What that uses, as far as it isn't PostgreSQL's own. (Functions of base types are a
    -- superuser's doing, like those of operator classes.)
    select next.class, next.object from used u, lateral (
        select d.refclassid, d.refobjid from pg_catalog.pg_depend d
        where d.classid = u.class and d.objid = u.object
          and (d.refclassid in ('pg_catalog.pg_class'::regclass, 'pg_catalog.pg_type'::regclass,
                                'pg_catalog.pg_operator'::regclass)
               or d.refclassid = 'pg_catalog.pg_proc'::regclass
                  and not (d.classid = 'pg_catalog.pg_type'::regclass
                           and exists (select from pg_catalog.pg_type b
                                       where b.oid = d.objid and b.typtype = 'b')))
        union all
        select 'pg_catalog.pg_class'::regclass, t.typrelid from pg_catalog.pg_type t
        where u.class = 'pg_catalog.pg_type'::regclass and t.oid = u.object and t.typrelid <> 0
        union all
        select 'pg_catalog.pg_constraint'::regclass, k.oid from pg_catalog.pg_constraint k
        where u.class = 'pg_catalog.pg_type'::regclass and k.contypid = u.object
    ) next(class, object)
), tree(text) as (
    select adbin::text from pg_catalog.pg_attrdef join used
        on class = 'pg_catalog.pg_attrdef'::regclass and object = oid
    union all
    select conbin::text from pg_catalog.pg_constraint join used
        on class = 'pg_catalog.pg_constraint'::regclass and object = oid
    union all
    select pg_catalog.concat(indexprs, indpred) from pg_catalog.pg_index join used
        on class = 'pg_catalog.pg_class'::regclass and object = indexrelid
    union all
    select partexprs::text from pg_catalog.pg_partitioned_table join used
        on class = 'pg_catalog.pg_class'::regclass and object = partrelid
    union all
    select stxexprs::text from pg_catalog.pg_statistic_ext join used
        on class = 'pg_catalog.pg_statistic_ext'::regclass and object = oid
), called(function) as (
    select object from used where class = 'pg_catalog.pg_proc'::regclass
    union
    select o.oprcode from used join pg_catalog.pg_operator o
        on class = 'pg_catalog.pg_operator'::regclass and object = o.oid
    union
    select k.castfunc from used join pg_catalog.pg_cast k
        on class = 'pg_catalog.pg_type'::regclass and object in (k.castsource, k.casttarget)
        where k.castfunc <> 0
    union
    -- PostgreSQL's own stand in no list of dependencies.
    select found[1]::oid from tree,
        lateral pg_catalog.regexp_matches(text, ':funcid ([0-9]+)', 'g') found
    union
    select coalesce((select oprcode from pg_catalog.pg_operator where oid = found[1]::oid), 0)
        from tree, lateral pg_catalog.regexp_matches(text, ':opno ([0-9]+)', 'g') found
)
select exists (
    select from called where not exists (
        select from pg_catalog.pg_proc p join pg_catalog.pg_roles r on r.oid = p.proowner
        where p.oid = function and p.provolatile = 'i' and r.rolsuper
          and p.prolang in (select oid from pg_catalog.pg_language
                            where lanname in ('internal', 'c')))
) or exists (
    -- Nodes whose functions are found above, or that call none.
    select from tree, lateral pg_catalog.regexp_matches(text, '\{([A-Z_]+)', 'g') found
    where found[1] not in (
        'VAR', 'CONST', 'OPEXPR', 'FUNCEXPR', 'BOOLEXPR', 'NULLTEST', 'BOOLEANTEST', 'RELABELTYPE',
        'CASE', 'CASEEXPR', 'WHEN', 'CASEWHEN', 'CASETESTEXPR', 'COALESCE', 'COALESCEEXPR',
        'ARRAY', 'ARRAYEXPR', 'SCALARARRAYOPEXPR', 'COERCEVIAIO', 'COERCETODOMAIN',
        'COERCETODOMAINVALUE', 'NULLIFEXPR', 'DISTINCTEXPR', 'ARRAYCOERCEEXPR', 'COLLATE',
        'COLLATEEXPR', 'MINMAX', 'MINMAXEXPR', 'FIELDSELECT', 'SUBSCRIPTINGREF', 'ROW', 'ROWEXPR',
        'SQLVALUEFUNCTION')
))
