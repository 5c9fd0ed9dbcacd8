#!/usr/bin/env bash
# Does this machine's accelerator do what the engine needs, and how fast? Under ten minutes; writes one report. Usage:
#   deploy/gpu_check.sh [--trainer-only] [--device auto|cuda|npu|cpu] [--report FILE]
# --trainer-only: losses, FSDP2 at one rank, LoRA parity with PEFT, tokens/s; needs torch 2.10 or later, transformers and peft alone, at
# most eight minutes. Without it also the engine's integration tests and a benchmark: needs a checkout, the engine's packages for this device,
# pytest, pytest-asyncio and pytest-timeout (an image has neither tests nor pytest). Without --report: gpu_check.md in MARLAAS_STATE, or in var.
# Each part has its own deadline and goes on where another failed. Exit status 0: all is well. Environment: PYTHON, CUDA_VISIBLE_DEVICES and the like.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

trainer_only="" device=auto report="${MARLAAS_STATE:-var}/gpu_check.md"
while [ "$#" -gt 0 ]; do
  case "$1" in
    --trainer-only) trainer_only=yes; shift ;;
    --device) device="${2:?cuda, npu or cpu}"; shift 2 ;;
    --report) report="${2:?a file}"; shift 2 ;;
    *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done
case "$device" in auto | cuda | npu | cpu) ;; *) echo "--device must be auto, cuda, npu or cpu, not $device" >&2; exit 2 ;; esac

python="${PYTHON:-}"
for candidate in .venv/bin/python python3 python; do
  if [ -z "$python" ] && command -v "$candidate" >/dev/null; then python="$candidate"; fi
done
if ! { mkdir -p "$(dirname "$report")" && : >"$report"; }; then echo "The report cannot be written; name another file with --report" >&2; exit 2; fi
if [ -z "$trainer_only" ] && ! "$python" -c 'import pytest, pytest_asyncio, pytest_timeout; open("tests/faults/test_real_engine.py")' 2>/dev/null; then
  echo "The engine's tests cannot run: they need a checkout, and pytest, pytest-asyncio and pytest-timeout for ${python:-Python}. Without them: --trainer-only" >&2
  exit 2
fi
scratch=$(mktemp -d /tmp/mgc-XXXX)
trap 'rm -rf "$scratch"' EXIT
export MARLAAS_STATE="$scratch/var" MARLAAS_RUNTIME="$scratch/run" MARLAAS_DEVICE="$device" PYTHONUNBUFFERED=1
# An address of its own: at the usual one an engine may run, whose secret is another.
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])' 2>/dev/null) || port=8801
export MARLAAS_ENGINE_URL="http://127.0.0.1:$port"
failed=0 began=$SECONDS most=580

part() { # part TITLE DEADLINE_SECONDS COMMAND…: runs it, shows it, and adds its end to the report
  local title="$1" deadline="$2" started=$SECONDS status=0 verdict left=$((most - SECONDS + began))
  shift 2
  if [ "$deadline" -gt "$left" ]; then deadline=$((left > 1 ? left : 1)); fi
  printf '\n=== %s ===\n' "$title"
  timeout --kill-after=20 "$deadline" "$@" >"$scratch/out" 2>&1 || status=$?
  tail -n 60 "$scratch/out"
  verdict="ok"
  if [ "$status" = 124 ] || [ "$status" = 137 ]; then verdict="FAILED: not done after $deadline s"; elif [ "$status" != 0 ]; then verdict="FAILED with status $status"; fi
  [ "$verdict" = ok ] || failed=1
  {
    printf '\n## %s: %s (%d s)\n\n```\n' "$title" "$verdict" "$((SECONDS - started))"
    tail -n 60 "$scratch/out"
    printf '```\n'
  } >>"$report"
}

{
  printf '# MARLaaS on this machine, %s\n\n```\n' "$(date -u +%FT%TZ)"
  uname -srm
  (nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || npu-smi info || true) 2>/dev/null
  "$python" --version 2>&1
  printf '```\n'
} >"$report"

part "The trainer's arithmetic" 300 "$python" -m engine.bench.trainer --device "$device" --seconds "${GPU_CHECK_SECONDS:-30}" --json "$scratch/trainer.json"
if [ -z "$trainer_only" ]; then
  part "The engine's tests" 300 env MARLAAS_TEST_DEVICE="$device" "$python" -m pytest -q -m engine -p no:django -p no:playwright \
    tests/faults/test_real_engine.py -k "three_tenants or rewards_rise or (killed and (EngineCore or TrainActor))"
  part "Benchmark" 150 "$python" -m engine.bench --jobs 4 --regimes marlaas --no-bound --report "$scratch/bench" --json "$scratch/bench.json"
fi
# shellcheck disable=SC2016  # Markdown's marks, no command
if [ -s "$scratch/trainer.json" ]; then printf '\n## Figures\n\n```json\n%s\n```\n' "$(cat "$scratch/trainer.json")" >>"$report"; fi
printf '\n%s after %d s.\n' "$([ "$failed" = 0 ] && echo "**All is well**" || echo "**Something failed**")" "$((SECONDS - began))" >>"$report"
tail -n 1 "$report"
echo "Report: $report"
exit "$failed"
