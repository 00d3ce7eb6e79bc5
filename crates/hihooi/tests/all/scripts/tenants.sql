-- Code that sets app.tenant, in every place that can hold code.
CREATE FUNCTION tn_f(v text) RETURNS text LANGUAGE plpgsql
    AS 'BEGIN RETURN set_config(''app.tenant'', v, false); END';
CREATE FUNCTION tn_sql(v text) RETURNS text LANGUAGE sql
    AS $$ SELECT set_config('App.Tenant', v, false) $$;
CREATE FUNCTION tn_outer(v text) RETURNS text LANGUAGE sql AS $$ SELECT tn_f(v) $$;
CREATE FUNCTION tn_stable(v text) RETURNS text LANGUAGE plpgsql STABLE
    AS $$ BEGIN RETURN tn_f(v); END $$;
CREATE FUNCTION tn_immutable(v text) RETURNS text LANGUAGE plpgsql IMMUTABLE
    AS $$ BEGIN RETURN tn_f(v); END $$;
CREATE FUNCTION tn_any(name text, v text) RETURNS text LANGUAGE sql
    AS 'SELECT set_config(name, v, false)';
CREATE FUNCTION tn_run(command text) RETURNS text LANGUAGE plpgsql AS $$ DECLARE told text; BEGIN
    EXECUTE 'SELECT ' || command INTO told;
    RETURN told;
END $$;
CREATE FUNCTION tn_defaulted(v text DEFAULT tn_f('defaulted')) RETURNS text LANGUAGE sql STABLE
    AS 'SELECT v';
CREATE PROCEDURE tn_proc(v text) LANGUAGE plpgsql
    AS $$ BEGIN EXECUTE format('SET app.tenant = %L', v); END $$;
CREATE PROCEDURE tn_commits(v text) LANGUAGE plpgsql
    AS $$ BEGIN PERFORM tn_f(v); COMMIT; PERFORM 1; END $$;
CREATE FUNCTION tn_fires() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM tn_f(CASE TG_OP WHEN 'INSERT' THEN NEW.v WHEN 'DELETE' THEN OLD.v ELSE 'truncated' END);
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;
CREATE FUNCTION tn_nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE TABLE tn_trigger (v text);
CREATE TRIGGER t BEFORE INSERT ON tn_trigger FOR EACH ROW EXECUTE FUNCTION tn_fires();
CREATE TABLE tn_when (v text);
CREATE TRIGGER t BEFORE INSERT ON tn_when FOR EACH ROW
    WHEN (set_config('app.tenant', NEW.v, false) IS NOT NULL) EXECUTE FUNCTION tn_nothing();
CREATE TABLE tn_default (n int, v text DEFAULT set_config('app.tenant', 'default', false));
CREATE TABLE tn_check (v text CHECK (tn_f(v) IS NOT NULL));
CREATE TABLE tn_rule (v text);
CREATE RULE r AS ON INSERT TO tn_rule DO ALSO SELECT set_config('app.tenant', NEW.v, false);
CREATE DOMAIN tn_domain AS text CHECK (tn_f(VALUE) IS NOT NULL);
CREATE TABLE tn_domains (v tn_domain);
CREATE TABLE tn_parent (id int PRIMARY KEY);
CREATE TABLE tn_child (id int REFERENCES tn_parent ON DELETE CASCADE, v text DEFAULT 'cascade');
INSERT INTO tn_parent VALUES (1);
INSERT INTO tn_child VALUES (1);
CREATE TRIGGER t BEFORE DELETE ON tn_child FOR EACH ROW EXECUTE FUNCTION tn_fires();
CREATE TABLE tn_truncated (v text);
CREATE TRIGGER t BEFORE TRUNCATE ON tn_truncated EXECUTE FUNCTION tn_fires();
CREATE VIEW tn_view AS SELECT set_config('app.tenant', 'view', false);
CREATE FUNCTION tn_step(state text, v text) RETURNS text LANGUAGE sql AS $$ SELECT tn_f(v) $$;
CREATE AGGREGATE tn_agg(text) (SFUNC = tn_step, STYPE = text);
CREATE FUNCTION tn_op(a text, b text) RETURNS text LANGUAGE sql AS $$ SELECT tn_f(a) $$;
CREATE OPERATOR ### (LEFTARG = text, RIGHTARG = text, FUNCTION = tn_op);
CREATE EXTENSION moddatetime;
CREATE TABLE tn_stamped (v text, at timestamp);
INSERT INTO tn_stamped VALUES ('', now());
CREATE TRIGGER t BEFORE UPDATE ON tn_stamped FOR EACH ROW EXECUTE FUNCTION moddatetime(at);
