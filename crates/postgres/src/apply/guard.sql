-- Whether writing to a table, or checking a constraint, may run code that is not PostgreSQL's own or an
-- extension's, or not IMMUTABLE: true, or NULL or false. What isn't understood counts as such code (I6).
--
-- $1 is the table or NULL, $2 the names of its columns that get values (so defaults of others are
-- computed), $3 whether its CHECK constraints count, $4 a constraint or NULL.
with recursive used(class, object) as (
    -- What computes something when a row comes, or is planned for.
    select 'pg_catalog.pg_class'::regclass::oid, $1::oid
    union select 'pg_catalog.pg_class'::regclass, relid::oid
        from pg_catalog.pg_partition_ancestors($1::oid) relid
    union select 'pg_catalog.pg_class'::regclass, indexrelid
        from pg_catalog.pg_index where indrelid = $1::oid
    union select 'pg_catalog.pg_constraint'::regclass, oid
        from pg_catalog.pg_constraint where conrelid = $1::oid and conbin is not null and $3::bool
    union select 'pg_catalog.pg_constraint'::regclass, $4::oid
    union select 'pg_catalog.pg_statistic_ext'::regclass, oid
        from pg_catalog.pg_statistic_ext where stxrelid = $1::oid
    union select 'pg_catalog.pg_attrdef'::regclass, d.oid
        from pg_catalog.pg_attrdef d join pg_catalog.pg_attribute a
          on a.attrelid = d.adrelid and a.attnum = d.adnum
        where d.adrelid = $1::oid and (a.attgenerated <> '' or a.attname <> all ($2::text[]))
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
    -- Laterally, and not to be flattened, so that each is looked up: the planner expects many more.
    select found.text from used, lateral (
        select adbin::text from pg_catalog.pg_attrdef
            where class = 'pg_catalog.pg_attrdef'::regclass and oid = object
        union all
        select conbin::text from pg_catalog.pg_constraint
            where class = 'pg_catalog.pg_constraint'::regclass and oid = object
        union all
        select pg_catalog.concat(indexprs, indpred) from pg_catalog.pg_index
            where class = 'pg_catalog.pg_class'::regclass and indexrelid = object
        union all
        select partexprs::text from pg_catalog.pg_partitioned_table
            where class = 'pg_catalog.pg_class'::regclass and partrelid = object
        union all
        select stxexprs::text from pg_catalog.pg_statistic_ext
            where class = 'pg_catalog.pg_statistic_ext'::regclass and oid = object
        offset 0
    ) found(text)
), called(function) as (
    select object from used where class = 'pg_catalog.pg_proc'::regclass
    union all
    select found.function from used, lateral (
        -- The planner puts an operator's negator or commutator in its place.
        select p.oprcode::oid from pg_catalog.pg_operator o join pg_catalog.pg_operator p
              on p.oid in (o.oid, o.oprnegate, o.oprcom)
            where class = 'pg_catalog.pg_operator'::regclass and o.oid = object
        union all
        select castfunc from pg_catalog.pg_cast
            where class = 'pg_catalog.pg_type'::regclass and castsource = object and castfunc <> 0
        union all
        select castfunc from pg_catalog.pg_cast
            where class = 'pg_catalog.pg_type'::regclass and casttarget = object and castfunc <> 0
        offset 0
    ) found(function)
    union all
    -- PostgreSQL's own stand in no list of dependencies.
    select found[1]::oid from tree,
        lateral pg_catalog.regexp_matches(text, ':funcid ([0-9]+)', 'g') found
    union all
    select coalesce(used.function, 0)
        from tree, lateral pg_catalog.regexp_matches(text, ':opno ([0-9]+)', 'g') found
             left join lateral (
                 select p.oprcode::oid from pg_catalog.pg_operator o join pg_catalog.pg_operator p
                       on p.oid in (o.oid, o.oprnegate, o.oprcom)
                     where o.oid = found[1]::oid
                 offset 0
             ) used(function) on true
)
select exists (
    select from called where not coalesce((
        select p.provolatile = 'i'
            and (select rolsuper from pg_catalog.pg_roles where oid = p.proowner)
            and (select lanname in ('internal', 'c') from pg_catalog.pg_language
                 where oid = p.prolang)
        from pg_catalog.pg_proc p where p.oid = function), false)
) or exists (
    -- Nodes whose functions are found above, or that call none.
    select from tree, lateral pg_catalog.regexp_matches(text, '\{([A-Z_]+)', 'g') found
    where found[1] not in (
        'VAR', 'CONST', 'OPEXPR', 'FUNCEXPR', 'BOOLEXPR', 'NULLTEST', 'BOOLEANTEST', 'RELABELTYPE',
        'CASE', 'CASEEXPR', 'WHEN', 'CASEWHEN', 'CASETESTEXPR', 'COALESCE', 'COALESCEEXPR',
        'ARRAY', 'ARRAYEXPR', 'SCALARARRAYOPEXPR', 'COERCEVIAIO', 'COERCETODOMAIN',
        'COERCETODOMAINVALUE', 'NULLIFEXPR', 'DISTINCTEXPR', 'ARRAYCOERCEEXPR', 'COLLATE',
        'COLLATEEXPR', 'MINMAX', 'MINMAXEXPR', 'FIELDSELECT', 'SUBSCRIPTINGREF', 'ROW', 'ROWEXPR')
)
