//! Compares everything except rows: objects of all kinds (describe.sql), and roles and what belongs to them
//! (shared.sql), by their descriptions. Other major versions print definitions differently, so with these only
//! the structure is compared. Expressions are only printed, never evaluated.

use std::collections::BTreeMap;

use super::{Difference, Report, Side, VerifyError, failed};
use crate::apply::differing_lines;

/// The structure of users' objects, as (object, description). Not temporary ones, and not those that
/// only a primary has.
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

/// All definitions, exactly: only servers of one major version word them alike.
const DEFINITIONS: &str = "
    select kind || ' ' || identity, description from hihooi.describe_all()";

/// Roles, and other objects for which event triggers don't fire. (Who granted a membership makes no difference
/// before PostgreSQL 16.)
const ROLES: &str = "
    with shared(state) as (select hihooi.shared())
    select 'role ' || quote_ident(key), value::text
    from shared, jsonb_each(nullif(state -> 'roles', 'null'))
    union all
    select format('membership of %s in %s', m ->> 'member', m ->> 'roleid'),
        string_agg((case when m ? 'set_option' then m else m - 'grantor' end)::text, ' '
            order by m ->> 'grantor')
    from shared, jsonb_array_elements(nullif(state -> 'members', 'null')) m group by 1
    union all
    select 'settings of ' || key, value::text
    from shared, jsonb_each(nullif(state -> 'settings', 'null'))
    union all
    select 'rights on parameter ' || key, value::text
    from shared, jsonb_each(nullif(state #> '{parameters,rights}', 'null'))
    union all
    select 'this database', (state -> 'database')::text from shared";

/// Compares structures; adds what differs to the report.
pub(super) async fn compare(sites: &mut [Side], report: &mut Report) -> Result<(), VerifyError> {
    let Some((primary, replicas)) = sites.split_first_mut() else { return Ok(()) };
    let version = major_version(primary).await?;
    let (mut exactly, mut roughly) = (None, None);
    for side in replicas {
        let is_exact = major_version(side).await? == version;
        let (query, there) = match is_exact {
            true => (format!("({DEFINITIONS}) union all ({ROLES})"), &mut exactly),
            false => (OBJECTS.to_owned(), &mut roughly),
        };
        if there.is_none() {
            *there = Some(objects(primary, &query).await?);
        }
        let there = there.as_ref().expect("just asked");
        let here = objects(side, &query).await?;
        for (object, description) in there {
            let what = match here.get(object) {
                None => "is missing".to_owned(),
                Some(other) if other != description => differing_lines(description, other),
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

async fn major_version(side: &mut Side) -> Result<String, VerifyError> {
    let query = "select (current_setting('server_version_num')::int / 10000)::text";
    let answer = side.connection.query(query).await.map_err(|error| failed(&side.name, &error))?;
    Ok(answer.value().unwrap_or_default().to_owned())
}

fn difference(side: &Side, object: &str, what: String) -> Difference {
    Difference { site: side.name.clone(), object: object.to_owned(), what }
}

async fn objects(side: &mut Side, query: &str) -> Result<BTreeMap<String, String>, VerifyError> {
    let answer = side.printed(query).await.map_err(|error| failed(&side.name, &error))?;
    let pairs = answer.rows.into_iter().filter_map(|row| {
        let mut values = row.into_iter();
        let object = values.next().flatten()?;
        Some((object, values.next().flatten().unwrap_or_default()))
    });
    Ok(pairs.collect())
}
