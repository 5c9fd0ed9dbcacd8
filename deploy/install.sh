#!/usr/bin/env bash
# Makes a virtual environment with exactly the locked packages. Usage: deploy/install.sh run|test
# (deploy/install.sh which-test prints the Python that the tests run on.)
# Idempotent: a stamp per lock file, so the second time takes a fraction of a second. Output of pip: var/log/install.log.
# Environment: PYTHON, VENV (.venv), DEVICE (cpu|cuda; default: what the machine has), TORCH_INDEX (an index with another build of torch).
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }
die() { printf '\n%s\n' "$@" >&2; exit 1; }

as_root() { [ "$(id -u)" = 0 ] && echo "$1" || echo "sudo $1"; }

install_line() { # install_line DEBIAN_PACKAGES OTHER_PACKAGES: the one line that brings them here
  if command -v apt-get >/dev/null; then as_root "apt-get install -y $1"
  elif command -v dnf >/dev/null; then as_root "dnf install -y $2"
  elif command -v pacman >/dev/null; then as_root "pacman -S $2"
  else echo "install $2 with this system's package manager"; fi
}

is_fit() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null; }
has_venv() { "$1" -c 'import venv, ensurepip' 2>/dev/null; }

find_python() {
  local candidate fit=""
  # Every match on the PATH, not only the first: a version manager's shim may hide a system Python that fits.
  for candidate in ${PYTHON:-} $(type -aP python3.11 python3.12 python3); do
    is_fit "$candidate" || continue
    if has_venv "$candidate"; then echo "$candidate"; return; fi
    fit="${fit:-$candidate}"
  done
  if [ -n "$fit" ]; then
    local version; version=$("$fit" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    die "Python $version is here, but without its venv module. This line brings it:" "  $(install_line "python$version-venv" "python$version")"
  fi
  die "MARLaaS needs Python 3.11 or 3.12, and there is none here. This line brings one:" "  $(install_line "python3 python3-venv" "python3.12")" \
    "Or name one: make PYTHON=/path/to/python3.11 …"
}

find_device() {
  if [ -n "${DEVICE:-}" ]; then echo "$DEVICE"
  elif nvidia-smi -L >/dev/null 2>&1; then echo cuda
  elif npu-smi info >/dev/null 2>&1; then
    die "This machine has Ascend NPUs. Their vLLM pins its own torch, so the engine runs in its container:" \
      "  docker build -f deploy/ascend/Dockerfile -t marlaas-engine-ascend ." "(To use the processor instead: make DEVICE=cpu …)"
  else echo cpu; fi
}

purpose="${1:?run or test}"
device=$(find_device)
if [ "$purpose" = which-test ]; then
  [ "$device" = cuda ] && echo "${VENV:-.venv-test}/bin/python" || echo "${VENV:-.venv}/bin/python"
  exit 0
fi
case "$device" in cpu) torch="2.13.0" ;; cuda) torch="2.14.0" ;; *) die "DEVICE must be cpu or cuda, not $device" ;; esac
case "$purpose" in
  run) target="engine-$device" ;;
  # The tests use the processor's engine; on a CUDA machine its vLLM must not replace the other one.
  test) target="dev"; torch="2.13.0"; if [ "$device" = cuda ]; then VENV="${VENV:-.venv-test}"; fi ;;
  *) die "usage: deploy/install.sh run|test" ;;
esac
venv="${VENV:-.venv}"
lock="deploy/locks/$target.txt"
# The folder belongs to it: a checkout that was moved must not import from where it was.
stamp="$venv/.stamps/$target-$( (cat "$lock" deploy/install.sh; pwd) | sha256sum | cut -c1-16)"
[ -e "$stamp" ] && exit 0

log="var/log/install.log"
mkdir -p var/log

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1 || ! is_fit "$venv/bin/python"; then
  python=$(find_python)
  say "Making $venv with $("$python" --version)"
  "$python" -m venv --clear "$venv" || die "$python could not make a virtual environment in $venv (see above)"
fi
pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input)

run() { # run WHAT EXPECTED_PACKAGES PIP_ARGUMENTS…
  local what="$1" expected="$2"; shift 2
  echo "--- $(date -u +%FT%TZ) ${pip[*]} $*" >>"$log"
  "${pip[@]}" "$@" 2>&1 | tee -a "$log" | "$venv/bin/python" deploy/pip_progress.py "$what" "$expected" >&2 ||
    die "$(tail -n 15 "$log")" "" "$what failed; the whole of it is in $log. Run the same command again to go on where it stopped."
}

if ! "$venv/bin/python" -c "
import sys
from importlib.metadata import PackageNotFoundError, version
try: sys.exit(version('torch').split('+')[0] != '$torch')
except PackageNotFoundError: sys.exit(1)" 2>/dev/null; then
  run "Installing torch $torch" 1 install "torch==$torch" ${TORCH_INDEX:+--index-url "$TORCH_INDEX"}
fi
run "Installing $target" "$(grep -c '^[a-zA-Z0-9].*==' "$lock")" install --no-deps --require-hashes -r "$lock"
# They do not fit this torch and break `import transformers`; no text model needs them.
"${pip[@]}" uninstall --yes torchvision torchaudio torchcodec >>"$log" 2>&1

# Our own packages import from anywhere in this environment, without a build step.
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
pwd >"$site/marlaas.pth"
printf '#!/bin/sh\n# The command line (deploy/API.md).\nexec "$(dirname "$(readlink -f "$0")")/python" -P -m portal.cli "$@"\n' >"$venv/bin/marl"
chmod +x "$venv/bin/marl"
mkdir -p "$venv/.stamps" && touch "$stamp"
