-- The three roles of a production database. As a superuser, with psql 15 or later:
--   POSTGRES_OWNER_PASSWORD=… POSTGRES_APP_PASSWORD=… POSTGRES_OPERATOR_PASSWORD=… psql -v ON_ERROR_STOP=1 -f deploy/roles.sql "$DATABASE"
-- As often as one likes: it makes what is missing, sets the passwords, and gives the owner what others own in a database of before there were roles.
-- Then manage.py migrate, which adds the operator's look at each table. Compose does both with each start.
-- The owner makes tables (manage.py migrate), the app serves, the operator looks. None of them is above row-level security.
\getenv owner POSTGRES_OWNER_PASSWORD
\getenv app POSTGRES_APP_PASSWORD
\getenv operator POSTGRES_OPERATOR_PASSWORD
BEGIN;
SELECT format('CREATE ROLE %I', role) FROM unnest(ARRAY['marlaas_owner', 'marlaas_app', 'marlaas_operator']) AS role
  WHERE role NOT IN (SELECT rolname FROM pg_roles) \gexec
ALTER ROLE marlaas_owner LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD :'owner';
ALTER ROLE marlaas_app LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD :'app';
ALTER ROLE marlaas_operator LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD :'operator';

REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA public TO marlaas_owner;
GRANT USAGE ON SCHEMA public TO marlaas_app, marlaas_operator;

-- A column's sequence goes with its table, an extension's parts stay with the extension.
SELECT format('ALTER TABLE %s OWNER TO marlaas_owner', c.oid::regclass) FROM pg_class c
  WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'S', 'v', 'm') AND pg_get_userbyid(c.relowner) <> 'marlaas_owner'
    AND NOT EXISTS (
      SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND (d.deptype = 'e' OR c.relkind = 'S' AND d.deptype IN ('a', 'i'))
    ) \gexec
SELECT format('ALTER ROUTINE %s OWNER TO marlaas_owner', p.oid::regprocedure) FROM pg_proc p
  WHERE p.pronamespace = 'public'::regnamespace AND pg_get_userbyid(p.proowner) <> 'marlaas_owner'
    AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e') \gexec

GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO marlaas_app;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO marlaas_app;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO marlaas_operator;
ALTER DEFAULT PRIVILEGES FOR ROLE marlaas_owner IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO marlaas_app;
ALTER DEFAULT PRIVILEGES FOR ROLE marlaas_owner IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO marlaas_app;
ALTER DEFAULT PRIVILEGES FOR ROLE marlaas_owner IN SCHEMA public GRANT SELECT ON TABLES TO marlaas_operator;
COMMIT;
