//! Compares everything except rows: objects of all kinds (describe.sql), and roles and what belongs to them
//! (shared.sql), by their descriptions. With a replica of another major version, which prints queries differently
//! and knows more or less than the primary, what both print alike is compared. Expressions are only printed, never
//! evaluated.

use std::collections::BTreeMap;

use super::{Difference, Report, Side, VerifyError, failed};
use crate::apply::differing_lines;

/// All objects that users made, with their definitions.
const DEFINITIONS: &str = "
    select kind || ' ' || identity, description from hihooi.describe_all()";

/// Roles, and other objects for which event triggers don't fire. (Who granted a membership makes no difference
/// before PostgreSQL 16.)
const ROLES: &str = "
    with shared(state) as (select hihooi.shared())
    select 'role ' || quote_ident(key), value::text
    from shared, jsonb_each(nullif(state -> 'roles', 'null'))
    union all
    select format('membership of %s in %s', m ->> 'member', m ->> 'roleid'), :options
    from shared, jsonb_array_elements(nullif(state -> 'members', 'null')) m group by 1
    union all
    select 'settings of ' || key, value::text
    from shared, jsonb_each(nullif(state -> 'settings', 'null'))
    union all
    select 'rights on parameter ' || key, value::text
    from shared, jsonb_each(nullif(state #> '{parameters,rights}', 'null'))
    union all
    select 'this database', (state -> 'database')::text from shared";

/// What is told of a membership.
const OPTIONS: &str =
    "string_agg((case when m ? 'set_option' then m else m - 'grantor' end)::text, ' '
    order by m ->> 'grantor')";
/// What all versions know of it.
const COMMON_OPTIONS: &str = "max(m ->> 'admin_option')";

/// Compares structures; adds what differs to the report.
pub(super) async fn compare(sites: &mut [Side], report: &mut Report) -> Result<(), VerifyError> {
    let Some((primary, replicas)) = sites.split_first_mut() else { return Ok(()) };
    let version = major_version(primary).await?;
    let (mut exactly, mut roughly) = (None, None);
    for side in replicas {
        let is_exact = major_version(side).await? == version;
        let (options, there) = match is_exact {
            true => (OPTIONS, &mut exactly),
            false => (COMMON_OPTIONS, &mut roughly),
        };
        let query = format!("({DEFINITIONS}) union all ({})", ROLES.replace(":options", options));
        if there.is_none() {
            *there = Some(objects(primary, &query, is_exact).await?);
        }
        let there = there.as_ref().expect("just asked");
        let here = objects(side, &query, is_exact).await?;
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

/// Objects by name with their descriptions; if not exactly, as all major versions tell them.
async fn objects(
    side: &mut Side,
    query: &str,
    exactly: bool,
) -> Result<BTreeMap<String, String>, VerifyError> {
    let answer = side.printed(query).await.map_err(|error| failed(&side.name, &error))?;
    let pairs = answer.rows.into_iter().filter_map(|row| {
        let mut values = row.into_iter();
        let object = values.next().flatten()?;
        let description = values.next().flatten().unwrap_or_default();
        match exactly {
            true => Some((object, description)),
            // (PostgreSQL 14 has none.)
            false if object.starts_with("rights on parameter ") => None,
            false => {
                let description = common(&object, &description);
                Some((object, description))
            }
        }
    });
    Ok(pairs.collect())
}

/// What all major versions tell alike of an object: properties without what only some of them know, and
/// without queries, which they print differently.
fn common(object: &str, description: &str) -> String {
    let is_extension = object.starts_with("extension ");
    // A property's further lines begin with a space (hihooi.describe).
    let properties =
        description.split_inclusive('\n').fold(Vec::<String>::new(), |mut found, line| {
            match found.last_mut() {
                Some(last) if line.starts_with(' ') => last.push_str(line),
                _ => found.push(line.to_owned()),
            }
            found
        });
    let told = properties.iter().filter_map(|property| {
        let property = property.trim_end();
        let (name, rest) = property.split_once(' ').unwrap_or((property, ""));
        let is_common = match name {
            // Locales have moved between columns, and ICU's rules are new in 16.
            "colliculocale" | "colllocale" | "collicurules" | "collcollate" | "collctype" => false,
            // PostgreSQL 18 has those of tables as constraints, 17 those of domains.
            "constraint" => !rest.contains(" NOT NULL") || rest.contains('('),
            _ if is_extension => matches!(name, "extname" | "extnamespace" | "extowner"),
            _ => true,
        };
        if !is_common {
            return None;
        }
        let query = match name {
            "CREATE" => "\n BEGIN ATOMIC",
            "rule" => " CREATE RULE ",
            _ => "( SELECT ",
        };
        let told = [query, "( WITH "]
            .iter()
            .fold(property, |told, query| told.split(query).next().unwrap_or_default());
        // A right of 17.
        Some(
            ["MAINTAIN*, ", "MAINTAIN, "]
                .iter()
                .fold(told.to_owned(), |told, new| told.replace(new, "")),
        )
    });
    told.collect::<Vec<_>>().join("\n")
}
