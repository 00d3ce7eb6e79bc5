-- What a database is made of, a line each, the same at every site if definitions are: read by the
-- runner at each server, without hihooi's own objects, OIDs and what belongs to one server alone.
-- It is a second opinion beside VERIFY, so it shares no text with it.

-- case: fingerprint
SELECT format('schema %I owner %s acl %s', nspname, pg_get_userbyid(nspowner), (SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(coalesce(nspacl, acldefault('n', nspowner))) a))
FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'hihooi') ORDER BY 1;

SELECT format('%s %s %s owner %s acl %s options %s rls %s%s bound %s key %s of %s am %s parents %s', c.relkind, c.relpersistence, c.oid::regclass, pg_get_userbyid(c.relowner),
  (SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(coalesce(c.relacl, CASE WHEN c.relkind = 'S' THEN acldefault('s', c.relowner) WHEN c.relkind NOT IN ('i', 'I') THEN acldefault('r', c.relowner) END)) a),
  (SELECT string_agg(o, ',' ORDER BY o) FROM unnest(c.reloptions) o), c.relrowsecurity, c.relforcerowsecurity, pg_get_expr(c.relpartbound, c.oid), CASE WHEN c.relkind = 'p' THEN pg_get_partkeydef(c.oid) END,
  NULLIF(c.reloftype, 0)::regtype, (SELECT amname FROM pg_am WHERE oid = c.relam),
  (SELECT string_agg(format('%s%s', i.inhparent::regclass, CASE WHEN i.inhdetachpending THEN ' pending' END), ',' ORDER BY i.inhseqno) FROM pg_inherits i WHERE i.inhrelid = c.oid))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relpersistence <> 't' AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'hihooi') AND NOT EXISTS (SELECT FROM pg_index x WHERE x.indexrelid = c.oid AND c.relkind = 'i' AND NOT x.indisvalid) ORDER BY 1;

-- The identity that is in force for UPDATE and DELETE: whatever it is, it is one for all sites.
SELECT format('identity %s %s %s', c.oid::regclass, c.relreplident, (SELECT x.indexrelid::regclass FROM pg_index x WHERE x.indrelid = c.oid AND x.indisreplident AND x.indisvalid))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'hihooi') ORDER BY 1;

SELECT format('column %s %s %I %s null %s default %s identity %s generated %s collate %s storage %s%s stats %s acl %s options %s local %s %s fdw %s', c.oid::regclass, row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum), a.attname, format_type(a.atttypid, a.atttypmod), NOT (a.attnotnull OR EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = a.attrelid AND k.contype = 'n' AND NOT k.convalidated AND k.conkey[1] = a.attnum)),
  pg_get_expr(d.adbin, d.adrelid), a.attidentity, a.attgenerated, NULLIF(a.attcollation, 0)::regcollation, a.attstorage, a.attcompression, NULLIF(a.attstattarget, -1),
  (SELECT string_agg(x::text, ',' ORDER BY x::text) FROM unnest(a.attacl) x), (SELECT string_agg(x, ',' ORDER BY x) FROM unnest(a.attoptions) x), a.attislocal, a.attinhcount, (SELECT string_agg(x, ',' ORDER BY x) FROM unnest(a.attfdwoptions) x))
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind <> 'S' AND c.relpersistence <> 't' AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'hihooi') AND NOT EXISTS (SELECT FROM pg_index x WHERE x.indexrelid = c.oid AND c.relkind = 'i' AND NOT x.indisvalid) ORDER BY 1;

SELECT format('constraint %I on %s%s: %s valid %s local %s %s noinherit %s', conname, NULLIF(conrelid, 0)::regclass, NULLIF(contypid, 0)::regtype, CASE WHEN confupdtype = 'h' THEN regexp_replace(pg_get_constraintdef(k.oid), ' NOT ENFORCED$', CASE WHEN convalidated THEN '' ELSE ' NOT VALID' END) WHEN contype = 'n' AND contypid <> 0 THEN 'NOT NULL' ELSE pg_get_constraintdef(k.oid) END, convalidated, conislocal, coninhcount, connoinherit)
FROM pg_constraint k JOIN pg_namespace n ON n.oid = k.connamespace WHERE n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'hihooi') ORDER BY 1;

-- Indexes that are not valid are the primary's alone.
SELECT format('index %s valid %s ready %s live %s primary %s immediate %s', pg_get_indexdef(i.indexrelid), indisvalid, indisready, indislive, indisprimary, indimmediate)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relpersistence <> 't' AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'hihooi') AND NOT EXISTS (SELECT FROM pg_index x WHERE x.indexrelid = c.oid AND c.relkind = 'i' AND NOT x.indisvalid) ORDER BY 1;

-- Triggers and rules that are always enabled are disabled at replicas.
SELECT format('trigger %s enabled %s', pg_get_triggerdef(t.oid), t.tgenabled = 'O')
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE NOT t.tgisinternal AND c.relpersistence <> 't' AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'hihooi') ORDER BY 1;

SELECT format('rule %s enabled %s', pg_get_ruledef(r.oid), r.ev_enabled = 'O')
FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relpersistence <> 't' AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'hihooi') ORDER BY 1;

SELECT format('policy %I on %s %s %s to %s using %s check %s', polname, polrelid::regclass, polcmd, polpermissive, (SELECT string_agg(CASE x WHEN 0 THEN 'public' ELSE pg_get_userbyid(x) END, ',' ORDER BY pg_get_userbyid(x)) FROM unnest(polroles) x), pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid))
FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid WHERE c.relpersistence <> 't' ORDER BY 1;

SELECT format('function %s %s owner %s acl %s: %s', p.prokind, p.oid::regprocedure, pg_get_userbyid(proowner), (SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(coalesce(proacl, acldefault('f', proowner))) a),
  CASE WHEN p.prokind <> 'a' THEN pg_get_functiondef(p.oid) ELSE (SELECT concat_ws(' ', aggkind, aggtransfn, aggfinalfn, aggcombinefn, aggtranstype::regtype, agginitval, aggfinalmodify) FROM pg_aggregate WHERE aggfnoid = p.oid) END)
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'hihooi') ORDER BY 1;

SELECT format('type %s %s owner %s acl %s base %s notnull %s default %s collate %s labels %s range %s', t.typtype, t.oid::regtype, pg_get_userbyid(typowner), (SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(coalesce(typacl, acldefault('T', typowner))) a),
  CASE WHEN typtype = 'd' THEN format_type(typbasetype, typtypmod) END, typnotnull, typdefault, NULLIF(typcollation, 0)::regcollation,
  (SELECT string_agg(quote_literal(enumlabel), ',' ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = t.oid),
  (SELECT concat_ws(' ', rngsubtype::regtype, rngmultitypid::regtype, rngcanonical, rngsubdiff) FROM pg_range WHERE rngtypid = t.oid))
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'hihooi')
  AND (typtype <> 'c' OR EXISTS (SELECT FROM pg_class WHERE oid = typrelid AND relkind = 'c')) AND NOT EXISTS (SELECT FROM pg_type e WHERE e.typarray = t.oid) ORDER BY 1;

SELECT format('sequence %s type %s start %s increment %s max %s min %s cache %s cycle %s owned by %s', seqrelid::regclass, seqtypid::regtype, seqstart, seqincrement, seqmax, seqmin, seqcache, seqcycle,
  (SELECT pg_describe_object(refclassid, refobjid, refobjsubid) FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = seqrelid AND deptype IN ('a', 'i') AND refclassid = 'pg_class'::regclass))
FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relpersistence <> 't' AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'hihooi') ORDER BY 1;

SELECT format('statistics %s owner %s target %s', pg_get_statisticsobjdef(s.oid), pg_get_userbyid(stxowner), NULLIF(stxstattarget, -1))
FROM pg_statistic_ext s JOIN pg_class c ON c.oid = s.stxrelid WHERE c.relpersistence <> 't' ORDER BY 1;

SELECT format('operator %s owner %s code %s com %s neg %s rest %s join %s merges %s hashes %s', o.oid::regoperator, pg_get_userbyid(oprowner), oprcode, (SELECT k.oid::regoperator FROM pg_operator k WHERE k.oid = o.oprcom), (SELECT k.oid::regoperator FROM pg_operator k WHERE k.oid = o.oprnegate), oprrest, oprjoin, oprcanmerge, oprcanhash)
FROM pg_operator o JOIN pg_namespace n ON n.oid = o.oprnamespace WHERE n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'hihooi') ORDER BY 1;

SELECT format('%s owner %s default %s key %s type %s', pg_describe_object('pg_opclass'::regclass, oid, 0), pg_get_userbyid(opcowner), opcdefault, NULLIF(opckeytype, 0)::regtype, opcintype::regtype) FROM pg_opclass WHERE oid >= 16384
UNION ALL SELECT format('%s owner %s', pg_describe_object('pg_opfamily'::regclass, oid, 0), pg_get_userbyid(opfowner)) FROM pg_opfamily WHERE oid >= 16384
UNION ALL SELECT format('%s %s', pg_describe_object('pg_amop'::regclass, oid, 0), amoppurpose) FROM pg_amop WHERE oid >= 16384
UNION ALL SELECT pg_describe_object('pg_amproc'::regclass, oid, 0) FROM pg_amproc WHERE oid >= 16384
UNION ALL SELECT format('%s %s %s %s', pg_describe_object('pg_cast'::regclass, oid, 0), NULLIF(castfunc, 0)::regprocedure, castcontext, castmethod) FROM pg_cast WHERE oid >= 16384
UNION ALL SELECT format('%s owner %s %s %s %s', pg_describe_object('pg_collation'::regclass, oid, 0), pg_get_userbyid(collowner), collprovider, collisdeterministic, collcollate) FROM pg_collation WHERE oid >= 16384
UNION ALL SELECT format('%s owner %s %s %s %s', pg_describe_object('pg_conversion'::regclass, oid, 0), pg_get_userbyid(conowner), conforencoding, contoencoding, conproc) FROM pg_conversion WHERE oid >= 16384
UNION ALL SELECT format('%s owner %s %s', pg_describe_object('pg_ts_dict'::regclass, oid, 0), pg_get_userbyid(dictowner), dictinitoption) FROM pg_ts_dict WHERE oid >= 16384
UNION ALL SELECT format('%s owner %s map %s', pg_describe_object('pg_ts_config'::regclass, c.oid, 0), pg_get_userbyid(cfgowner), (SELECT string_agg(format('%s:%s', maptokentype, mapdict::regdictionary), ',' ORDER BY maptokentype, mapseqno) FROM pg_ts_config_map WHERE mapcfg = c.oid)) FROM pg_ts_config c WHERE oid >= 16384
ORDER BY 1;

SELECT format('extension %I version %s schema %I owner %s', extname, extversion, nspname, pg_get_userbyid(extowner)) FROM pg_extension e JOIN pg_namespace n ON n.oid = extnamespace
UNION ALL SELECT format('member of %I: %s', extname, pg_describe_object(classid, objid, objsubid)) FROM pg_depend JOIN pg_extension e ON refobjid = e.oid AND refclassid = 'pg_extension'::regclass WHERE deptype = 'e' AND objid >= 16384
UNION ALL SELECT format('depends on extension %I: %s', extname, pg_describe_object(classid, objid, objsubid)) FROM pg_depend JOIN pg_extension e ON refobjid = e.oid AND refclassid = 'pg_extension'::regclass WHERE deptype = 'x'
ORDER BY 1;

SELECT format('event trigger %I on %s function %s enabled %s tags %s owner %s', evtname, evtevent, evtfoid::regprocedure, evtenabled = 'O', evttags, pg_get_userbyid(evtowner)) FROM pg_event_trigger WHERE evtname !~ 'hihooi' ORDER BY 1;

SELECT format('language %I owner %s trusted %s handler %s acl %s', lanname, pg_get_userbyid(lanowner), lanpltrusted, lanplcallfoid::regproc, (SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(coalesce(lanacl, acldefault('l', lanowner))) a)) FROM pg_language
UNION ALL SELECT format('access method %I %s %s', amname, amtype, amhandler) FROM pg_am WHERE oid >= 16384
UNION ALL SELECT format('wrapper %I owner %s acl %s options %s', fdwname, pg_get_userbyid(fdwowner), (SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(coalesce(fdwacl, acldefault('F', fdwowner))) a), fdwoptions) FROM pg_foreign_data_wrapper
UNION ALL SELECT format('server %I owner %s acl %s options %s type %s version %s', srvname, pg_get_userbyid(srvowner), (SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(coalesce(srvacl, acldefault('S', srvowner))) a), srvoptions, srvtype, srvversion) FROM pg_foreign_server
UNION ALL SELECT format('mapping %I for %I options %s', srvname, usename, umoptions) FROM pg_user_mappings
UNION ALL SELECT format('foreign table %s options %s', ftrelid::regclass, ftoptions) FROM pg_foreign_table
UNION ALL SELECT format('transform %s %s', trftype::regtype, trflang) FROM pg_transform
ORDER BY 1;

SELECT format('default acl %s %s %s: %s', pg_get_userbyid(defaclrole), n.nspname, defaclobjtype, (SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(defaclacl) a)) FROM pg_default_acl LEFT JOIN pg_namespace n ON n.oid = defaclnamespace ORDER BY 1;

SELECT format('comment on %s: %s', pg_describe_object(classoid, objoid, objsubid), description) FROM pg_description d
WHERE (objoid >= 16384 OR classoid = 'pg_namespace'::regclass) AND classoid NOT IN ('pg_publication'::regclass, 'pg_subscription'::regclass, 'pg_largeobject'::regclass)
  AND NOT EXISTS (SELECT FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid WHERE classoid = 'pg_class'::regclass AND x.indexrelid = objoid AND c.relkind = 'i' AND NOT x.indisvalid)
  AND coalesce((pg_identify_object(classoid, objoid, objsubid)).schema, '') !~ '^(hihooi$|pg_)' AND pg_describe_object(classoid, objoid, objsubid) !~ 'pg_temp' AND pg_describe_object(classoid, objoid, objsubid) !~ 'hihooi' ORDER BY 1;

SELECT format('role %I super %s inherit %s createrole %s createdb %s login %s replication %s bypass %s limit %s password %s until %s', rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication, rolbypassrls, rolconnlimit, rolpassword, rolvaliduntil) FROM pg_authid WHERE rolname !~ '^pg_'
UNION ALL SELECT format('member %I of %I admin %s by %I', pg_get_userbyid(member), pg_get_userbyid(roleid), admin_option, pg_get_userbyid(grantor)) FROM pg_auth_members WHERE pg_get_userbyid(member) !~ '^pg_' AND concat(pg_get_userbyid(member), pg_get_userbyid(roleid)) !~ 'unknown \(OID='
UNION ALL SELECT format('setting of %s in %s: %s', CASE WHEN setrole <> 0 THEN pg_get_userbyid(setrole) END, CASE WHEN setdatabase <> 0 THEN current_database() END, (SELECT string_agg(x, ',' ORDER BY x) FROM unnest(setconfig) x)) FROM pg_db_role_setting WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
UNION ALL SELECT format('comment on role %I: %s', pg_get_userbyid(objoid), description) FROM pg_shdescription WHERE classoid = 'pg_authid'::regclass AND pg_get_userbyid(objoid) !~ '^pg_'
UNION ALL SELECT format('database owner %s acl %s comment %s', pg_get_userbyid(datdba), (SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(coalesce(datacl, acldefault('d', datdba))) a), shobj_description(oid, 'pg_database')) FROM pg_database WHERE datname = current_database()
ORDER BY 1;

-- needs: 15
SELECT format('parameter %s acl %s', parname, (SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(paracl) a)) FROM pg_parameter_acl ORDER BY 1;

-- Rows of all tables that replicas have, whatever VERIFY says of them.
SELECT format('rows %s: %s', c.oid::regclass, (xpath('/table/row/n/text()', query_to_xml(format('SELECT count(*) || '' '' || md5(coalesce(string_agg(t::text, ''|'' ORDER BY t::text COLLATE "C"), '''')) AS n FROM ONLY %s t', c.oid::regclass), false, false, '')))[1])
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE (c.relkind = 'r' OR c.relkind = 'm' AND c.relispopulated) AND c.relpersistence = 'p' AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'hihooi') ORDER BY 1;
