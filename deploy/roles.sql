-- The three roles of a production database. Run once, as a superuser, in a new and empty database, with psql 14 or later:
--   POSTGRES_OWNER_PASSWORD=… POSTGRES_APP_PASSWORD=… POSTGRES_OPERATOR_PASSWORD=… psql -v ON_ERROR_STOP=1 -f deploy/roles.sql "$DATABASE"
-- Compose does it by itself. The owner makes tables (manage.py migrate), the app serves, the operator looks. None of them is above row-level security.
\getenv owner POSTGRES_OWNER_PASSWORD
\getenv app POSTGRES_APP_PASSWORD
\getenv operator POSTGRES_OPERATOR_PASSWORD
CREATE ROLE marlaas_owner LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD :'owner';
CREATE ROLE marlaas_app LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD :'app';
CREATE ROLE marlaas_operator LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD :'operator';

REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA public TO marlaas_owner;
GRANT USAGE ON SCHEMA public TO marlaas_app, marlaas_operator;

ALTER DEFAULT PRIVILEGES FOR ROLE marlaas_owner IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO marlaas_app;
ALTER DEFAULT PRIVILEGES FOR ROLE marlaas_owner IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO marlaas_app;
ALTER DEFAULT PRIVILEGES FOR ROLE marlaas_owner IN SCHEMA public GRANT SELECT ON TABLES TO marlaas_operator;
