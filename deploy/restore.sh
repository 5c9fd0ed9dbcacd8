#!/usr/bin/env bash
# Brings back what deploy/backup.sh wrote: database, engine and files of the same moment. Usage: deploy/restore.sh BACKUP [--replace]
# Stop everything first; it refuses otherwise. It also refuses where something lies already; --replace moves that to
# <state>/replaced-<UTC time>/, of PostgreSQL a dump, and deletes nothing. Then start: the engine continues from its journal, and the portal
# compares itself with the engine (python manage.py compare_engine says what it found).
# Environment: as for backup.sh. A superuser gives everything to the roles that owned it, where they exist (deploy/roles.sql makes them on
# a new server); any other role must own the database's tables, and owns them afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 077
. deploy/backup_parts.sh

replace=""
case "$#:${2:-}" in
  1:) ;;
  2:--replace) replace=yes ;;
  *) die "usage: deploy/restore.sh BACKUP [--replace]" ;;
esac
backup=$(cd "$1" 2>/dev/null && pwd) || die "There is no folder $1."
grep -qx "format 1" "$backup/ABOUT" 2>/dev/null || die "$1 is no backup of this kind (no ABOUT with format 1)."
(cd "$backup" && sha256sum --check --quiet SHA256SUMS) || die "$1 is damaged: the files above do not match SHA256SUMS. Nothing was changed."
if [ -z "$sqlite" ]; then
  [ -e "$backup/database.dump" ] || die "$1 holds no dump of PostgreSQL; for its SQLite file leave DATABASE_URL empty."
  need psql && need pg_restore
else
  [ -e "$backup/db.sqlite3" ] || die "$1 holds no SQLite file; for its PostgreSQL dump set DATABASE_URL."
fi

ask() { psql --no-psqlrc --quiet --tuples-only --no-align --command "$1" "$database"; }

ownership() { # what pg_restore is told of the owners that the dump names
  local roles
  if [ "$(ask "select rolsuper from pg_roles where rolname = current_user")" = t ]; then
    roles=$(ask "select rolname from pg_roles")
    if pg_restore --list "$backup/database.dump" | awk '!/^;/ && NF { print $NF }' | sort -u | grep -Fxvq "$roles"; then
      echo "Some roles that owned tables are not here; $(ask "select current_user") owns all of them now. Make them with deploy/roles.sql." >&2
    else
      return 0
    fi
  fi
  echo --no-owner
}

refuse_while_it_runs() {
  local lock
  for lock in engine/launcher.lock run/supervisor.lock; do
    if [ -e "$state/$lock" ] && ! flock -n "$state/$lock" true; then die "It still runs on $state ($lock is held). Stop it first: make down"; fi
  done
  [ -z "$sqlite" ] || return 0
  local others
  others=$(ask "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'")
  [ "$others" = 0 ] || die "$others others are connected to the database. Stop web, worker and ingester first."
}
refuse_while_it_runs

there=$(cd "$state" 2>/dev/null && ls -d engine/journal engine/jobs blobs media 2>/dev/null || true)
if [ -z "$sqlite" ]; then
  [ "$(ask "select count(*) from pg_tables where schemaname = 'public'")" = 0 ] || there="$there database"
elif [ -e "$sqlite" ]; then there="$there ${sqlite##*/}"; fi
if [ -n "${there// /}" ] && [ -z "$replace" ]; then
  die "There is something already:" $there "Add --replace: it is moved to $state/replaced-<time>/, not deleted."
fi

mkdir -p "$state"
new="$state/.restore-$$"
trap 'rm -rf "$new"' EXIT
mkdir "$new"
tar -C "$new" -xf "$backup/engine.tar"
tar -C "$new" -xf "$backup/files.tar"
if [ -e "$new/engine/EPOCH" ]; then
  # Epochs begin a new thousand, so that none of what was lost can be taken for one that comes.
  printf '%s' "$((($(cat "$new/engine/EPOCH") / 1000 + 1) * 1000))" >"$new/engine/EPOCH"
fi

old="$state/replaced-$(date -u +%Y%m%dT%H%M%SZ)"
mkdir "$old"

# The database first, in one transaction: all of it or nothing. What follows are renames.
if [ -z "$sqlite" ]; then
  case "$there" in *database*) dump_database "$old" ;; esac
  {
    echo "drop schema if exists public cascade; create schema public; grant usage on schema public to public;"
    # A dump that breaks off, in the rows of a table too, must not be committed as far as it came.
    # shellcheck disable=SC2046  # no word where there is none
    pg_restore $(ownership) --file - "$backup/database.dump" ||
      printf '%s\n' '' '\.' "do \$\$ begin raise exception 'the dump breaks off'; end \$\$;"
  } | psql --no-psqlrc --quiet --output /dev/null --single-transaction --variable ON_ERROR_STOP=1 "$database" ||
    die "Nothing was changed. Mend what PostgreSQL says and run this again."
else
  for file in "$sqlite" "$sqlite-wal" "$sqlite-shm"; do
    if [ -e "$file" ]; then mv "$file" "$old/"; fi
  done
  cp "$backup/db.sqlite3" "$sqlite.new" && mv "$sqlite.new" "$sqlite"
fi
for name in engine blobs media django-secret engine-secret; do
  if [ -e "$state/$name" ] && { [ -n "$replace" ] || [ -e "$new/$name" ]; }; then mv "$state/$name" "$old/"; fi
  if [ -e "$new/$name" ]; then mv "$new/$name" "$state/"; fi
done
rmdir "$old" 2>/dev/null || true
sync -f "$state"
echo "Restored $(sed -n 's/^time //p' "$backup/ABOUT") (version $(sed -n 's/^version //p' "$backup/ABOUT")). Start it; migrations run first if the code is newer."
