# shellcheck shell=bash
# What backup.sh and restore.sh share; sourced by both, from the checkout's root.

die() { printf '%s\n' "$@" >&2; exit 1; }

state="${MARLAAS_STATE:-var}"
database="${MARLAAS_BACKUP_DATABASE_URL:-${DATABASE_URL:-}}"
case "$database" in
  postgres://* | postgresql://*) sqlite="" ;;
  sqlite://*) sqlite="${database#sqlite://}" ;;
  "") sqlite="$state/db.sqlite3" ;;
  *) die "DATABASE_URL must begin with postgres:// or sqlite://" ;;
esac

python() {
  local candidate
  for candidate in .venv/bin/python python3 python; do
    if command -v "$candidate" >/dev/null; then "$candidate" "$@"; return; fi
  done
  die "SQLite is copied by Python's own library, and there is no Python here."
}

need() { command -v "$1" >/dev/null || die "$1 is missing. It comes with PostgreSQL's client programs (Debian: postgresql-client), of the server's version or later."; }

dump_database() { # dump_database FOLDER
  if [ -z "$sqlite" ]; then
    need pg_dump
    pg_dump --format=custom --no-owner --file "$1/database.dump" "$database" ||
      die "pg_dump could not read all of the database. With row-level security it needs a role that may: MARLAAS_BACKUP_DATABASE_URL=…"
  elif [ -e "$sqlite" ]; then
    # SQLite's own copy: right also while others write.
    python - "$sqlite" "$1/db.sqlite3" <<'PYTHON'
import sqlite3, sys
with sqlite3.connect(sys.argv[1], timeout=60) as source, sqlite3.connect(sys.argv[2]) as copy:
    source.backup(copy)
PYTHON
  fi
}
