//! PostgreSQL's own functions, classified by what calling them means for replication (manual, chapter 9).
//! Immutable functions are safe. For the others this is a list of those known to be safe. A statement that
//! calls a function which isn't on the list doesn't run at replicas (I6), so that functions of a new version of
//! PostgreSQL are not misjudged.

use crate::catalog_builder::Volatility;
use crate::facts::Unsafe;

/// What calling a built-in function means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Builtin {
    /// The same on every fresh copy, or no matter where it runs.
    Safe,
    /// Touches no table, but must run on the primary.
    Primary(Unsafe),
    /// Reads what its arguments name at run time: anything.
    ReadsAnything(Unsafe),
    /// May do anything.
    Opaque,
    /// Runs what its first argument says, or the view of that name.
    RunsText,
    /// Advisory locks of the session.
    SessionLock,
    /// `set_config`.
    SetConfig,
    /// `setseed`.
    SetSeed,
    /// `current_setting`: safe for a setting of the session's own making.
    CurrentSetting,
}

/// Sorts a built-in function by its name and the worst volatility of its overloads.
pub(crate) fn classify(name: &str, volatility: Volatility) -> Builtin {
    if let Some(special) = special(name) {
        return special;
    }
    match volatility {
        Volatility::Immutable => Builtin::Safe,
        Volatility::Stable if contains(SAFE_STABLE, name) => Builtin::Safe,
        Volatility::Volatile if contains(SAFE_VOLATILE, name) => Builtin::Safe,
        _ if is_server_state(name) => Builtin::Primary(Unsafe::ServerState),
        Volatility::Stable => Builtin::Primary(Unsafe::ServerState),
        Volatility::Volatile => Builtin::Opaque,
    }
}

fn special(name: &str) -> Option<Builtin> {
    Some(match name {
        "nextval"
        | "setval"
        | "currval"
        | "lastval"
        | "pg_sequence_last_value"
        | "pg_sequence_parameters"
        | "pg_get_sequence_data" => Builtin::Primary(Unsafe::Sequence),
        // They hash OIDs of enums' values, which are each server's own.
        "hashenum" | "hashenumextended" => Builtin::Primary(Unsafe::ServerState),
        _ if is_hash_of_parts(name) => Builtin::Primary(Unsafe::ServerState),
        "set_config" => Builtin::SetConfig,
        "setseed" => Builtin::SetSeed,
        "current_setting" => Builtin::CurrentSetting,
        "pg_notify" => Builtin::Primary(Unsafe::Notify),
        "ts_stat" | "ts_rewrite" => Builtin::RunsText,
        _ if name.contains("_to_xml") => Builtin::RunsText,
        "loread" | "lowrite" => Builtin::Primary(Unsafe::LargeObject),
        _ if name.starts_with("lo_") => Builtin::Primary(Unsafe::LargeObject),
        _ if name.contains("_advisory_xact_lock") => Builtin::Primary(Unsafe::AdvisoryLock),
        _ if name.contains("_advisory_") => Builtin::SessionLock,
        _ if is_about_catalog(name) => Builtin::ReadsAnything(Unsafe::SystemCatalog),
        _ => return None,
    })
}

/// They hash values that may have enums in them.
fn is_hash_of_parts(name: &str) -> bool {
    let whole = name.strip_suffix("_extended").unwrap_or(name);
    matches!(whole, "hash_array" | "hash_record" | "hash_range" | "hash_multirange")
}

/// They look into the system catalogs by OID or by name.
fn is_about_catalog(name: &str) -> bool {
    (name.starts_with("has_") && name.ends_with("_privilege"))
        || name.starts_with("to_reg")
        || (name.starts_with("pg_") && name.ends_with("_is_visible"))
        || (name.starts_with("pg_get_") && !name.starts_with("pg_get_wal") && !is_memory(name))
        || contains(ABOUT_CATALOG, name)
}

fn is_memory(name: &str) -> bool {
    name.starts_with("pg_get_shmem") || name.starts_with("pg_get_backend")
}

/// They ask about this server, its storage, or this session's backend, and change nothing.
fn is_server_state(name: &str) -> bool {
    const PREFIXES: &[&str] = &[
        "inet_",
        "pg_control_",
        "pg_current_",
        "pg_last_",
        "pg_ls_",
        "pg_read_",
        "pg_show_",
        "pg_stat_get_",
        "pg_stat_have_",
        "pg_get_",
        "txid_",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || (name.starts_with("pg_") && name.ends_with("_size"))
        || contains(SERVER_STATE, name)
}

fn contains(sorted: &[&str], name: &str) -> bool {
    sorted.binary_search(&name).is_ok()
}

/// Volatile functions that touch nothing. Sorted.
const SAFE_VOLATILE: &[&str] = &[
    "array_sample",
    "array_shuffle",
    "clock_timestamp",
    "gen_random_uuid",
    "pg_sleep",
    "pg_sleep_for",
    "pg_sleep_until",
    "random",
    "random_normal",
    "timeofday",
    "uuidv4",
    "uuidv7",
];

/// Volatile functions that ask about the server. Sorted.
const SERVER_STATE: &[&str] = &[
    "current_query",
    "pg_backend_pid",
    "pg_blocking_pids",
    "pg_collation_actual_version",
    "pg_conf_load_time",
    "pg_database_collation_actual_version",
    "pg_export_snapshot",
    "pg_hba_file_rules",
    "pg_ident_file_mappings",
    "pg_is_in_recovery",
    "pg_is_wal_replay_paused",
    "pg_isolation_test_session_is_blocked",
    "pg_jit_available",
    "pg_lock_status",
    "pg_notification_queue_usage",
    "pg_partition_ancestors",
    "pg_partition_tree",
    "pg_postmaster_start_time",
    "pg_prepared_xact",
    "pg_safe_snapshot_blocking_pids",
    "pg_stat_file",
    "pg_wal_lsn_diff",
    "pg_xact_commit_timestamp",
    "pg_xact_commit_timestamp_origin",
    "pg_xact_status",
    "version",
];

/// Functions about the system catalogs that no pattern catches. Sorted.
const ABOUT_CATALOG: &[&str] = &[
    "col_description",
    "format_type",
    "obj_description",
    "oidvectortypes",
    "pg_describe_object",
    "pg_filenode_relation",
    "pg_has_role",
    "pg_identify_object",
    "pg_identify_object_as_address",
    "pg_index_column_has_property",
    "pg_index_has_property",
    "pg_indexam_has_property",
    "pg_relation_filenode",
    "pg_relation_filepath",
    "pg_relation_is_publishable",
    "pg_relation_is_updatable",
    "pg_typeof",
    "regclass",
    "row_security_active",
    "shobj_description",
];

/// Stable functions whose result depends on their arguments, the clock, and settings that go
/// along with the session. Sorted.
const SAFE_STABLE: &[&str] = &[
    "age",
    "anytextcat",
    "array_to_json",
    "array_to_string",
    "concat",
    "concat_ws",
    "convert",
    "convert_from",
    "convert_to",
    "current_database",
    "current_schema",
    "current_schemas",
    "current_user",
    "date",
    "date_add",
    "date_cmp_timestamptz",
    "date_eq_timestamptz",
    "date_ge_timestamptz",
    "date_gt_timestamptz",
    "date_le_timestamptz",
    "date_lt_timestamptz",
    "date_ne_timestamptz",
    "date_part",
    "date_subtract",
    "date_trunc",
    "enum_first",
    "enum_last",
    "enum_range",
    "extract",
    "format",
    "generate_series",
    "get_current_ts_config",
    "getdatabaseencoding",
    "getpgusername",
    "in_range",
    "interval_pl_timestamptz",
    "json_agg",
    "json_agg_strict",
    "json_build_array",
    "json_build_object",
    "json_object_agg",
    "json_object_agg_strict",
    "json_object_agg_unique",
    "json_object_agg_unique_strict",
    "json_populate_record",
    "json_populate_recordset",
    "json_to_record",
    "json_to_recordset",
    "json_to_tsvector",
    "jsonb_agg",
    "jsonb_agg_strict",
    "jsonb_build_array",
    "jsonb_build_object",
    "jsonb_object_agg",
    "jsonb_object_agg_strict",
    "jsonb_object_agg_unique",
    "jsonb_object_agg_unique_strict",
    "jsonb_path_exists_tz",
    "jsonb_path_match_tz",
    "jsonb_path_query_array_tz",
    "jsonb_path_query_first_tz",
    "jsonb_path_query_tz",
    "jsonb_populate_record",
    "jsonb_populate_record_valid",
    "jsonb_populate_recordset",
    "jsonb_to_record",
    "jsonb_to_recordset",
    "jsonb_to_tsvector",
    "length",
    "make_timestamptz",
    "money",
    "now",
    "numeric",
    "overlaps",
    "pg_char_to_encoding",
    "pg_client_encoding",
    "pg_collation_for",
    "pg_encoding_to_char",
    "phraseto_tsquery",
    "plainto_tsquery",
    "quote_literal",
    "quote_nullable",
    "row_to_json",
    "session_user",
    "statement_timestamp",
    "textanycat",
    "time",
    "timestamp",
    "timestamp_cmp_timestamptz",
    "timestamp_eq_timestamptz",
    "timestamp_ge_timestamptz",
    "timestamp_gt_timestamptz",
    "timestamp_le_timestamptz",
    "timestamp_lt_timestamptz",
    "timestamp_ne_timestamptz",
    "timestamptz",
    "timestamptz_cmp_date",
    "timestamptz_cmp_timestamp",
    "timestamptz_eq_date",
    "timestamptz_eq_timestamp",
    "timestamptz_ge_date",
    "timestamptz_ge_timestamp",
    "timestamptz_gt_date",
    "timestamptz_gt_timestamp",
    "timestamptz_le_date",
    "timestamptz_le_timestamp",
    "timestamptz_lt_date",
    "timestamptz_lt_timestamp",
    "timestamptz_mi_interval",
    "timestamptz_ne_date",
    "timestamptz_ne_timestamp",
    "timestamptz_pl_interval",
    "timetz",
    "timezone",
    "to_char",
    "to_date",
    "to_json",
    "to_jsonb",
    "to_number",
    "to_timestamp",
    "to_tsquery",
    "to_tsvector",
    "transaction_timestamp",
    "ts_debug",
    "ts_headline",
    "ts_match_tq",
    "ts_match_tt",
    "ts_parse",
    "ts_token_type",
    "websearch_to_tsquery",
    "xml",
    "xml_is_well_formed",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted() {
        for list in [SAFE_VOLATILE, SERVER_STATE, ABOUT_CATALOG, SAFE_STABLE] {
            assert!(list.is_sorted(), "{list:?}");
        }
    }

    /// I6: what isn't listed is not taken for safe.
    #[test]
    fn unknown_functions_are_not_safe() {
        use Volatility::{Immutable, Stable, Volatile};
        assert_eq!(classify("pg_new_in_19", Volatile), Builtin::Opaque);
        assert_eq!(classify("pg_new_in_19", Stable), Builtin::Primary(Unsafe::ServerState));
        assert_eq!(classify("pg_new_in_19", Immutable), Builtin::Safe);
        assert_eq!(classify("query_to_xml", Volatile), Builtin::RunsText);
        assert_eq!(classify("ts_stat", Volatile), Builtin::RunsText);
        assert_eq!(classify("now", Stable), Builtin::Safe);
        assert_eq!(classify("pg_try_advisory_lock", Volatile), Builtin::SessionLock);
    }
}
