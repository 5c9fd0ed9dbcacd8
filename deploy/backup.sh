#!/usr/bin/env bash
# Copies an installation as it is in one moment, while it runs. Usage: deploy/backup.sh FOLDER
# Writes FOLDER/marlaas-<UTC time>/ and prints its name; deploy/restore.sh brings it back. What is in it: deploy/OPERATORS.md.
#
# First the database, then the engine: so the database never knows more than the journal, and what it lacks comes with the first events
# that it reads after a restore, once. The engine's files are held still by the lock that every write of it takes (engine/epoch.py), only
# for as long as hard links take; nobody's call fails for that.
# Environment: MARLAAS_STATE, DATABASE_URL, MARLAAS_BACKUP_DATABASE_URL (the same database as a role that row-level security lets see all).
set -euo pipefail
cd "$(dirname "$0")/.."
umask 077
. deploy/backup_parts.sh

[ "$#" = 1 ] || die "usage: deploy/backup.sh FOLDER"
[ -d "$state" ] || die "There is no state folder $state. Name it: MARLAAS_STATE=…"
target="$1/marlaas-$(date -u +%Y%m%dT%H%M%SZ)"
[ ! -e "$target" ] || die "$target is there already; try again in a second."
part="$target.part"
held="$state/.backup-$$"
trap 'rm -rf "$held" "$part"' EXIT
mkdir -p "$part" "$held"

dump_database "$part"

hold_engine() { # hard links of its files as they are in this instant
  [ -d "$state/engine/journal" ] || return 0
  exec 9>>"$state/engine/epoch.lock"
  flock -x -w 30 9 || die "The engine's writes could not be held within 30 seconds; try again."
  mkdir "$held/engine"
  cp -a "$state/engine/EPOCH" "$held/engine/"
  cp -al "$state/engine/journal" "$held/engine/"
  if [ -d "$state/engine/jobs" ]; then cp -al "$state/engine/jobs" "$held/engine/"; fi
  # The last segment alone grows in place.
  local last
  last=$(find "$state/engine/journal" -name '*.jsonl' -printf '%f\n' | sort | tail -n 1)
  if [ -n "$last" ]; then
    rm "$held/engine/journal/$last"
    cp "$state/engine/journal/$last" "$held/engine/journal/$last"
  fi
  exec 9>&-
}
hold_engine

tar -C "$held" -cf "$part/engine.tar" .
files=()
for name in blobs media django-secret engine-secret; do
  if [ -e "$state/$name" ]; then files+=("$name"); fi
done
# An upload may grow meanwhile, which tar says with a 1; blobs never change.
tar -C "$state" -cf "$part/files.tar" --files-from /dev/null "${files[@]}" || [ "$?" = 1 ]
{
  echo "format 1"
  echo "version $(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)"
  echo "time $(date -u +%FT%TZ)"
} >"$part/ABOUT"
(cd "$part" && sha256sum -- * >SHA256SUMS)
sync -f "$part"
mv "$part" "$target"
echo "$target"
