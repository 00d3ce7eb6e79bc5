-- Code that sets ordinary settings and the role, and what short sessions use.
DO $$ BEGIN FOR n IN 0..9 LOOP
    EXECUTE format('CREATE ROLE crowd_%s', n);
END LOOP; END $$;
CREATE FUNCTION cr_set(mem text, zone text, path text, role text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM set_config('work_mem', mem, false), set_config('TimeZone', zone, false);
    PERFORM set_config('search_path', path, false);
    RETURN set_config('role', role, false);
END $$;
CREATE FUNCTION cr_sql(mem text, zone text, path text, role text) RETURNS text LANGUAGE sql AS $$
    SELECT set_config('work_mem', mem, false) || set_config('timezone', zone, false)
        || set_config('search_path', path, false) || set_config('role', role, false) $$;
CREATE PROCEDURE cr_proc(mem text, zone text, path text, role text) LANGUAGE plpgsql AS $$ BEGIN
    EXECUTE format('SET work_mem = %L', mem);
    EXECUTE format('SET TIME ZONE %L', zone);
    EXECUTE format('SET search_path = %I', path);
    EXECUTE format('SET ROLE %I', role);
END $$;
CREATE FUNCTION cr_fires() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM public.cr_set(NEW.mem, NEW.zone, NEW.path, NEW.role);
    RETURN NEW;
END $$;
CREATE TABLE cr_trigger (mem text, zone text, path text, role text);
CREATE TRIGGER t AFTER INSERT ON cr_trigger FOR EACH ROW EXECUTE FUNCTION cr_fires();
CREATE TABLE cr_rule (mem text, zone text, path text, role text);
CREATE RULE r AS ON INSERT TO cr_rule
    DO ALSO SELECT cr_set(NEW.mem, NEW.zone, NEW.path, NEW.role);
CREATE TABLE cr_read (id int PRIMARY KEY);
INSERT INTO cr_read VALUES (1);
CREATE SEQUENCE cr_sequence;
CREATE TABLE cr_serial (id serial, n int);
GRANT SELECT ON cr_read TO PUBLIC;
