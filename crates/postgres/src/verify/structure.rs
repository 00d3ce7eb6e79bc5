//! What sites consist of besides rows: tables with their columns, indexes, constraints, views,
//! functions, types and so on, compared by their descriptions. Expressions are printed, never
//! evaluated.

use std::collections::BTreeMap;

use super::{Difference, Report, Side, VerifyError, failed};

/// Objects of users that replication covers, as (object, description). Not temporary ones, and
/// not those that only a primary has.
const OBJECTS: &str = r"
    with schemas as (
        select oid, nspname from pg_namespace
        where nspname not in ('hihooi', 'information_schema') and nspname !~ '^pg_')
    select 'schema ' || quote_ident(nspname), '' from schemas
    union all
    select case c.relkind when 'r' then 'table ' when 'p' then 'partitioned table '
             when 'v' then 'view ' when 'm' then 'materialized view ' when 'S' then 'sequence '
             when 'f' then 'foreign table ' else 'index ' end
             || format('%I.%I', n.nspname, c.relname),
           case c.relkind when 'v' then pg_get_viewdef(c.oid) when 'm' then pg_get_viewdef(c.oid)
               || case when c.relispopulated then '' else ' WITH NO DATA' end
             when 'i' then pg_get_indexdef(c.oid) when 'I' then pg_get_indexdef(c.oid)
             else c.relpersistence::text end
    from pg_class c join schemas n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p', 'v', 'm', 'S', 'f', 'i', 'I') and c.relpersistence <> 't'
    union all
    select format('column %I.%I.%I', n.nspname, c.relname, a.attname),
           concat_ws(' ', format_type(a.atttypid, a.atttypmod),
             case when a.attnotnull then 'not null' end, a.attidentity, a.attgenerated,
             pg_get_expr(d.adbin, d.adrelid))
    from pg_attribute a join pg_class c on c.oid = a.attrelid
         join schemas n on n.oid = c.relnamespace
         left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
    where c.relkind in ('r', 'p', 'v', 'm', 'f') and c.relpersistence <> 't'
      and a.attnum > 0 and not a.attisdropped
    union all
    select format('constraint %I on %s', o.conname, coalesce(o.conrelid, 0)::regclass),
           pg_get_constraintdef(o.oid)
    from pg_constraint o join schemas n on n.oid = o.connamespace
    where o.conrelid = 0
       or o.conrelid in (select oid from pg_class where relpersistence <> 't')
    union all
    select format('function %s', p.oid::regprocedure),
           case when p.prokind <> 'a' then md5(pg_get_functiondef(p.oid)) else '' end
    from pg_proc p join schemas n on n.oid = p.pronamespace
    union all
    select format('type %s', format_type(t.oid, null)),
           (select string_agg(quote_literal(e.enumlabel), ', ' order by e.enumsortorder)
            from pg_enum e where e.enumtypid = t.oid)
    from pg_type t join schemas n on n.oid = t.typnamespace
    where t.typtype in ('e', 'd', 'r')
    union all
    select format('trigger %I on %s', g.tgname, g.tgrelid::regclass), pg_get_triggerdef(g.oid)
    from pg_trigger g join pg_class c on c.oid = g.tgrelid join schemas n on n.oid = c.relnamespace
    where not g.tgisinternal";

/// Compares structures; adds what differs to the report.
pub(super) async fn compare(sites: &mut [Side], report: &mut Report) -> Result<(), VerifyError> {
    let Some((primary, replicas)) = sites.split_first_mut() else { return Ok(()) };
    let there = objects(primary).await?;
    for side in replicas {
        let here = objects(side).await?;
        for (object, description) in &there {
            let what = match here.get(object) {
                None => "is missing".to_owned(),
                Some(other) if other != description => {
                    format!("is {other:?}, on the primary {description:?}")
                }
                Some(_) => continue,
            };
            report.differences.push(difference(side, object, what));
        }
        for object in here.keys().filter(|object| !there.contains_key(*object)) {
            let what = "does not exist on the primary".to_owned();
            report.differences.push(difference(side, object, what));
        }
    }
    Ok(())
}

fn difference(side: &Side, object: &str, what: String) -> Difference {
    Difference { site: side.name.clone(), object: object.to_owned(), what }
}

async fn objects(side: &mut Side) -> Result<BTreeMap<String, String>, VerifyError> {
    let answer = side.connection.query(OBJECTS).await;
    let answer = answer.map_err(|error| failed(&side.name, &error))?;
    let pairs = answer.rows.into_iter().filter_map(|row| {
        let mut values = row.into_iter();
        let object = values.next().flatten()?;
        Some((object, values.next().flatten().unwrap_or_default()))
    });
    Ok(pairs.collect())
}
