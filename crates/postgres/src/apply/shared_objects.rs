//! Roles, memberships, settings of roles and of the database, its privileges, those on parameters, and event
//! triggers. Event triggers don't fire for changes of these. So the primary sends the state of all of them
//! (`hihooi.shared` in shared.sql), and a replica executes the commands that make its own objects equal. Pure.

use std::collections::BTreeMap;

use hihooi_replication::note::{Given, Right, SharedObjects};
use serde::Deserialize;

use super::statements::{literal, quote};

/// All of them at one site.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
pub(super) struct SharedState {
    #[serde(default)]
    roles: Option<BTreeMap<String, BTreeMap<String, serde_json::Value>>>,
    #[serde(default)]
    members: Option<Vec<Member>>,
    #[serde(default)]
    settings: Option<BTreeMap<String, Vec<String>>>,
    #[serde(default)]
    database: Database,
    #[serde(default)]
    parameters: Option<Parameters>,
    #[serde(default)]
    event_triggers: Option<BTreeMap<String, EventTrigger>>,
}

/// A membership; names are quoted as SQL needs it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize)]
struct Member {
    roleid: String,
    member: String,
    grantor: String,
    admin_option: bool,
    /// Since PostgreSQL 16.
    inherit_option: Option<bool>,
    set_option: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
struct Database {
    owner: String,
    comment: Option<String>,
    rights: Option<Vec<Right>>,
}

/// Rights by parameters; the owner grants what any superuser does.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
struct Parameters {
    owner: String,
    rights: Option<BTreeMap<String, Option<Vec<Right>>>>,
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
struct EventTrigger {
    event: String,
    owner: String,
    function: String,
    enabled: bool,
    tags: Option<Vec<String>>,
    comment: Option<String>,
}

/// What gives roles of a replica in state `here` the names that they have in the note.
///
/// # Errors
/// If the state can't be read.
pub(super) fn renames(note: &SharedObjects, here: &str) -> serde_json::Result<Vec<String>> {
    let mut here: SharedState = serde_json::from_str(here)?;
    let mut commands = Vec::new();
    // By way of other names, since roles may have swapped theirs.
    let mut renamed = Vec::new();
    for (number, (old, new)) in note.renamed.iter().flatten().enumerate() {
        let between = format!("\"hihooi_renamed_{number}\"");
        if here.rename(old, &between, &mut commands) {
            renamed.push((between, new));
        }
    }
    for (between, new) in renamed {
        here.rename(&between, new, &mut commands);
    }
    Ok(commands)
}

/// What makes the state of a replica, `here`, that of the note, behind [`renames`]. `database` is the
/// database's name.
///
/// # Errors
/// If a state can't be read.
pub(super) fn commands(
    note: &SharedObjects,
    here: &str,
    database: &str,
) -> serde_json::Result<Vec<String>> {
    let there = SharedState::deserialize(&note.state)?;
    let here: SharedState = serde_json::from_str(here)?;
    let mut commands = Vec::new();
    there.roles(&here, &mut commands);
    there.database(&here, &quote(database), &mut commands);
    there.event_triggers(&here, &mut commands);
    there.members(&here, &mut commands);
    there.parameters(&here, &mut commands);
    there.settings(&here, database, &mut commands);
    commands
        .extend(note.dropped.iter().flatten().map(|role| format!("DROP ROLE IF EXISTS {role}")));
    Ok(commands)
}

impl SharedState {
    /// Whether the role is there. (If another one has that name, the command fails.)
    fn rename(&mut self, old: &str, new: &str, commands: &mut Vec<String>) -> bool {
        let roles = self.roles.get_or_insert_default();
        let Some(role) = roles.remove(&plain(old)) else { return false };
        roles.insert(plain(new), role);
        commands.push(format!("ALTER ROLE {old} RENAME TO {new}"));
        true
    }

    fn is_superuser(&self, quoted: &str) -> bool {
        let role = self.roles.iter().flatten().find(|(name, _)| **name == plain(quoted));
        role.is_some_and(|(_, role)| role.get("rolsuper") == Some(&serde_json::Value::Bool(true)))
    }

    fn roles(&self, here: &SharedState, commands: &mut Vec<String>) {
        let known = here.roles.iter().flatten().collect::<BTreeMap<_, _>>();
        for (plain, role) in self.roles.iter().flatten() {
            let (name, before) = (quote(plain), known.get(plain));
            if before.is_some_and(|before| *before == role) {
                continue;
            }
            if before.is_none() {
                commands.push(format!("CREATE ROLE {name}"));
            }
            commands.push(attributes(&name, role));
            let comment = role.get("comment").and_then(serde_json::Value::as_str);
            commands.push(format!("COMMENT ON ROLE {name} IS {}", literal(comment)));
        }
    }

    fn members(&self, here: &SharedState, commands: &mut Vec<String>) {
        let there: Vec<&Member> = self.members.iter().flatten().collect();
        let before: Vec<&Member> = here.members.iter().flatten().collect();
        let same = |a: &Member, b: &Member| a.is_like(b);
        for member in before.iter().filter(|m| !there.iter().any(|other| same(m, other))) {
            commands.push(format!("REVOKE {} FROM {} CASCADE", member.roleid, member.member));
        }
        // What a role with the admin option granted comes behind what gave it that.
        let mut new: Vec<&&Member> = there
            .iter()
            .filter(|m| {
                let gone = before.iter().filter(|b| !there.iter().any(|other| same(b, other)));
                let revoked = gone.clone().any(|b| b.roleid == m.roleid && b.member == m.member);
                revoked || !before.iter().any(|other| same(m, other))
            })
            .collect();
        new.sort_by_key(|m| (there.iter().any(|other| other.member == m.grantor), !m.admin_option));
        commands.extend(new.into_iter().map(|member| member.grant()));
    }

    /// As rows of the catalog: lists in a setting's value can't be told from names with commas.
    fn settings(&self, here: &SharedState, database: &str, commands: &mut Vec<String>) {
        let empty = BTreeMap::new();
        let there = self.settings.as_ref().unwrap_or(&empty);
        let before = here.settings.as_ref().unwrap_or(&empty);
        let of = |key: &str| {
            let in_database = key.starts_with("database ");
            let role = key.strip_prefix("database ").unwrap_or(key).strip_prefix("role ");
            let database = match in_database {
                true => format!(
                    "(SELECT oid FROM pg_catalog.pg_database WHERE datname = {})",
                    literal(Some(database))
                ),
                false => "0".to_owned(),
            };
            let role =
                role.map_or("0".to_owned(), |role| format!("{}::regrole", literal(Some(role))));
            (database, role)
        };
        for key in before.keys().chain(there.keys()) {
            if before.get(key) == there.get(key) {
                continue;
            }
            let (database, role) = of(key);
            let delete = format!(
                "DELETE FROM pg_catalog.pg_db_role_setting \
                 WHERE setdatabase = {database} AND setrole = {role}"
            );
            if !commands.contains(&delete) {
                commands.push(delete);
            } else {
                continue;
            }
            if let Some(values) = there.get(key) {
                let values: Vec<String> = values.iter().map(|value| literal(Some(value))).collect();
                commands.push(format!(
                    "INSERT INTO pg_catalog.pg_db_role_setting VALUES \
                     ({database}, {role}, ARRAY[{}]::pg_catalog.text[])",
                    values.join(", ")
                ));
            }
        }
    }

    fn database(&self, here: &SharedState, name: &str, commands: &mut Vec<String>) {
        let (there, before) = (&self.database, &here.database);
        if there.owner != before.owner {
            commands.push(format!("ALTER DATABASE {name} OWNER TO {}", there.owner));
        }
        if there.comment != before.comment {
            let comment = literal(there.comment.as_deref());
            commands.push(format!("COMMENT ON DATABASE {name} IS {comment}"));
        }
        if there.rights == before.rights && there.owner == before.owner {
            return;
        }
        let rights = |database: &Database| database.rights.clone().unwrap_or_default();
        grant(
            "ALL",
            &format!("DATABASE {name}"),
            &there.owner,
            &rights(before),
            &rights(there),
            commands,
        );
    }

    fn parameters(&self, here: &SharedState, commands: &mut Vec<String>) {
        let Some(there) = &self.parameters else { return };
        let rights = |of: &Parameters| -> BTreeMap<String, Vec<Right>> {
            let rights = of.rights.clone().unwrap_or_default().into_iter();
            rights.map(|(name, rights)| (name, rights.unwrap_or_default())).collect()
        };
        let (wanted, before) =
            (rights(there), here.parameters.as_ref().map(rights).unwrap_or_default());
        let mut names: Vec<&String> = wanted.keys().chain(before.keys()).collect();
        names.sort_unstable();
        names.dedup();
        // Without a row in the catalog, only the owner has rights.
        let own = |right: &str| (there.owner.clone(), there.owner.clone(), right.to_owned(), false);
        let default = vec![own("SET"), own("ALTER SYSTEM")];
        for name in names.into_iter().filter(|name| wanted.get(*name) != before.get(*name)) {
            let of = |rights: &BTreeMap<String, Vec<Right>>| {
                rights.get(name).unwrap_or(&default).clone()
            };
            let parameter = name.split('.').map(quote).collect::<Vec<_>>().join(".");
            let parameter = format!("PARAMETER {parameter}");
            grant("ALL", &parameter, &there.owner, &of(&before), &of(&wanted), commands);
        }
    }

    fn event_triggers(&self, here: &SharedState, commands: &mut Vec<String>) {
        let empty = BTreeMap::new();
        let there = self.event_triggers.as_ref().unwrap_or(&empty);
        let before = here.event_triggers.as_ref().unwrap_or(&empty);
        for name in before.keys().filter(|name| there.get(*name) != before.get(*name)) {
            commands.push(format!("DROP EVENT TRIGGER {name}"));
        }
        for (name, trigger) in there.iter().filter(|(name, t)| before.get(*name) != Some(t)) {
            let tags = trigger.tags.as_ref().map_or(String::new(), |tags| {
                let tags: Vec<String> = tags.iter().map(|tag| literal(Some(tag))).collect();
                format!(" WHEN TAG IN ({})", tags.join(", "))
            });
            let EventTrigger { event, function, owner, .. } = trigger;
            commands.push(format!(
                "CREATE EVENT TRIGGER {name} ON {event}{tags} EXECUTE FUNCTION {function}()"
            ));
            // Its owner must be a superuser, and may be one no more.
            let is_super = self.is_superuser(owner);
            let may_own = |may: &str| format!("ALTER ROLE {owner} {may}");
            commands.extend((!is_super).then(|| may_own("SUPERUSER")));
            commands.push(format!("ALTER EVENT TRIGGER {name} OWNER TO {owner}"));
            commands.extend((!is_super).then(|| may_own("NOSUPERUSER")));
            if !trigger.enabled {
                commands.push(format!("ALTER EVENT TRIGGER {name} DISABLE"));
            }
            let comment = literal(trigger.comment.as_deref());
            commands.push(format!("COMMENT ON EVENT TRIGGER {name} IS {comment}"));
        }
    }
}

/// A name without the quotes that SQL needs.
fn plain(name: &str) -> String {
    name.trim_matches('"').replace("\"\"", "\"")
}

/// What makes the rights on an object at a replica, `here`, those that were told. `object` is how GRANT names it. (A column that
/// isn't told of may have got its first rights meanwhile: it keeps them.)
///
/// # Errors
/// If `here` can't be read.
pub(super) fn rights(
    told: &Given,
    here: &str,
    object: &str,
    owner: &str,
) -> serde_json::Result<Vec<String>> {
    let here: Given = serde_json::from_str(here)?;
    let (told_columns, mut before) =
        (told.columns.clone().unwrap_or_default(), here.columns.unwrap_or_default());
    let mut wanted = before.clone();
    wanted.extend(told_columns);
    let mut commands = Vec::new();
    if here.object != told.object {
        let of = |rights: &Option<Vec<Right>>| rights.clone().unwrap_or_default();
        grant("ALL", object, owner, &of(&here.object), &of(&told.object), &mut commands);
        before.clear(); // REVOKE takes those on columns, too
    }
    for (column, wanted) in &wanted {
        let before = before.get(column).map_or(&[][..], Vec::as_slice);
        if before != wanted {
            grant(&format!("ALL ({column})"), object, owner, before, wanted, &mut commands);
        }
    }
    Ok(commands)
}

/// Makes rights on an object of that owner what they should be. `all` are all that there are, of a column with its name.
fn grant(
    all: &str,
    object: &str,
    owner: &str,
    before: &[Right],
    wanted: &[Right],
    commands: &mut Vec<String>,
) {
    let mut grantees: Vec<&str> = before.iter().map(|(grantee, ..)| grantee.as_str()).collect();
    grantees.extend([owner, "PUBLIC"]);
    grantees.sort_unstable();
    grantees.dedup();
    let everybody = grantees.join(", ");
    commands.push(format!("REVOKE {all} ON {object} FROM {everybody} CASCADE"));
    let column = all.trim_start_matches("ALL");
    let mut rights: Vec<_> = wanted.iter().collect();
    rights.sort_by_key(|(_, grantor, ..)| grantor != owner);
    for (grantee, grantor, right, grantable) in rights {
        let option = if *grantable { " WITH GRANT OPTION" } else { "" };
        let grant = format!("GRANT {right}{column} ON {object} TO {grantee}{option}");
        if grantor == owner {
            commands.push(grant);
        } else {
            commands.push(format!("SET LOCAL ROLE {grantor}"));
            commands.push(grant);
            commands.push("RESET ROLE".to_owned());
        }
    }
}

impl Member {
    /// Before PostgreSQL 16 who granted it makes no difference.
    fn is_like(&self, other: &Member) -> bool {
        let by = |m: &Member| m.inherit_option.map(|_| m.grantor.clone());
        by(self) == by(other)
            && (&self.roleid, &self.member, self.admin_option, self.inherit_option, self.set_option)
                == (
                    &other.roleid,
                    &other.member,
                    other.admin_option,
                    other.inherit_option,
                    other.set_option,
                )
    }

    fn grant(&self) -> String {
        let Member { roleid, member, grantor, admin_option, .. } = self;
        match (self.inherit_option, self.set_option) {
            (Some(inherit), Some(set)) => format!(
                "GRANT {roleid} TO {member} WITH ADMIN {admin_option}, INHERIT {inherit}, SET {set} \
                 GRANTED BY {grantor}"
            ),
            _ => {
                let option = if *admin_option { " WITH ADMIN OPTION" } else { "" };
                // A number stands for a role that is gone.
                let is_there = !grantor.starts_with(|c: char| c.is_ascii_digit());
                let by = if is_there { format!(" GRANTED BY {grantor}") } else { String::new() };
                format!("GRANT {roleid} TO {member}{option}{by}")
            }
        }
    }
}

fn attributes(name: &str, role: &BTreeMap<String, serde_json::Value>) -> String {
    const FLAGS: [(&str, &str); 7] = [
        ("rolsuper", "SUPERUSER"),
        ("rolinherit", "INHERIT"),
        ("rolcreaterole", "CREATEROLE"),
        ("rolcreatedb", "CREATEDB"),
        ("rolcanlogin", "LOGIN"),
        ("rolreplication", "REPLICATION"),
        ("rolbypassrls", "BYPASSRLS"),
    ];
    let mut text = format!("ALTER ROLE {name}");
    for (column, word) in FLAGS {
        let is_on = role.get(column).and_then(serde_json::Value::as_bool) == Some(true);
        text.push_str(if is_on { " " } else { " NO" });
        text.push_str(word);
    }
    let limit = role.get("rolconnlimit").and_then(serde_json::Value::as_i64).unwrap_or(-1);
    let get = |column: &str| role.get(column).and_then(serde_json::Value::as_str);
    let password = literal(get("rolpassword"));
    text.push_str(&format!(" CONNECTION LIMIT {limit} PASSWORD {password}"));
    // Once set, it can't be unset.
    if let Some(until) = get("rolvaliduntil") {
        text.push_str(&format!(" VALID UNTIL {}", literal(Some(until))));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(login: bool) -> serde_json::Value {
        json!({"rolsuper": false, "rolinherit": true, "rolcreaterole": false, "rolcreatedb": false,
            "rolcanlogin": login, "rolreplication": false, "rolbypassrls": false,
            "rolconnlimit": -1, "rolpassword": null, "rolvaliduntil": null, "comment": null})
    }

    fn between(here: serde_json::Value, there: serde_json::Value) -> Vec<String> {
        let note = SharedObjects { renamed: None, dropped: None, state: there };
        commands(&note, &here.to_string(), "db").expect("states")
    }

    #[test]
    fn equal_states_need_nothing() {
        let state = json!({"roles": {"joe": role(true)}, "settings": {"role joe": ["a=b"]},
            "database": {"owner": "o", "comment": null, "rights": [["PUBLIC", "o", "CONNECT", false]]}});
        assert_eq!(between(state.clone(), state), [""; 0]);
    }

    #[test]
    fn a_role_that_is_missing_is_made() {
        let made = between(json!({}), json!({"roles": {"a b": role(true)}}));
        assert_eq!(made[0], "CREATE ROLE \"a b\"");
        assert!(made[1].contains(" LOGIN ") && made[1].contains(" NOSUPERUSER "), "{}", made[1]);
    }

    #[test]
    fn a_role_keeps_what_it_owns_when_it_is_renamed() {
        let state = json!({"roles": {"new": role(false)}});
        let note = SharedObjects {
            renamed: Some(vec![("old".to_owned(), "new".to_owned())]),
            dropped: Some(vec!["gone".to_owned()]),
            state,
        };
        let here = json!({"roles": {"old": role(false)}}).to_string();
        assert_eq!(
            renames(&note, &here).expect("a state"),
            [
                "ALTER ROLE old RENAME TO \"hihooi_renamed_0\"",
                "ALTER ROLE \"hihooi_renamed_0\" RENAME TO new",
            ]
        );
        let here = json!({"roles": {"new": role(false)}}).to_string();
        let made = commands(&note, &here, "db").expect("states");
        assert_eq!(made, ["DROP ROLE IF EXISTS gone"]);
    }

    #[test]
    fn rights_on_columns_outlive_those_on_their_table() {
        let right = |grantee: &str| json!([grantee, "o", "SELECT", false]);
        let given = |object: serde_json::Value, columns: serde_json::Value| -> Given {
            serde_json::from_value(json!({"object": object, "columns": columns})).expect("rights")
        };
        let told = given(json!([right("o")]), json!({"a": [right("o")]}));
        let here =
            json!({"object": [right("x")], "columns": {"a": [right("y")], "b": [right("z")]}});
        let commands = rights(&told, &here.to_string(), "TABLE t", "o").expect("rights");
        assert_eq!(
            commands,
            [
                "REVOKE ALL ON TABLE t FROM PUBLIC, o, x CASCADE",
                "GRANT SELECT ON TABLE t TO o",
                "REVOKE ALL (a) ON TABLE t FROM PUBLIC, o CASCADE",
                "GRANT SELECT (a) ON TABLE t TO o",
                "REVOKE ALL (b) ON TABLE t FROM PUBLIC, o CASCADE",
                "GRANT SELECT (b) ON TABLE t TO z",
            ]
        );
    }

    #[test]
    fn settings_are_rows() {
        let made = between(
            json!({"settings": {"role joe": ["a=b"]}}),
            json!({"settings": {"database role joe": ["search_path=\"$user\", x"]}}),
        );
        assert!(made[0].starts_with("DELETE") && made[0].contains("setrole = 'joe'::regrole"));
        assert!(made[2].starts_with("INSERT") && made[2].contains("'search_path=\"$user\", x'"));
    }
}
