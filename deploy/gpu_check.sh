#!/usr/bin/env bash
# Does this machine's accelerator do what the engine needs, and how fast? Under ten minutes; writes one report. Usage:
#   deploy/gpu_check.sh [--trainer-only] [--device auto|cuda|npu|cpu] [--report FILE]
# --trainer-only: losses, FSDP2 at one rank, LoRA parity with PEFT, tokens/s; needs torch 2.10 or later, transformers and peft alone, at
# most eight minutes. Without it also the engine's integration tests and a benchmark: needs the engine's packages for this device, and pytest.
# Each part has its own deadline and goes on where another failed. Exit status 0: all is well. Environment: PYTHON, CUDA_VISIBLE_DEVICES and the like.
set -uo pipefail
cd "$(dirname "$0")/.."

trainer_only="" device=auto report=var/gpu_check.md
while [ "$#" -gt 0 ]; do
  case "$1" in
    --trainer-only) trainer_only=yes; shift ;;
    --device) device="${2:?cuda, npu or cpu}"; shift 2 ;;
    --report) report="${2:?a file}"; shift 2 ;;
    *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done
case "$device" in auto | cuda | npu | cpu) ;; *) echo "--device must be auto, cuda, npu or cpu, not $device" >&2; exit 2 ;; esac

python="${PYTHON:-}"
for candidate in .venv/bin/python python3 python; do
  if [ -z "$python" ] && command -v "$candidate" >/dev/null; then python="$candidate"; fi
done
mkdir -p "$(dirname "$report")"
scratch=$(mktemp -d /tmp/mgc-XXXX)
trap 'rm -rf "$scratch"' EXIT
export MARLAAS_STATE="$scratch/var" MARLAAS_RUNTIME="$scratch/run" MARLAAS_DEVICE="$device" PYTHONUNBUFFERED=1
failed=0 began=$SECONDS

part() { # part TITLE DEADLINE_SECONDS COMMAND…: runs it, shows it, and adds its end to the report
  local title="$1" deadline="$2" started=$SECONDS status=0 verdict
  shift 2
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
  part "Benchmark" 150 "$python" -m engine.bench --jobs 4 --regimes marlaas --report "$scratch/bench" --json "$scratch/bench.json"
fi
if [ -s "$scratch/trainer.json" ]; then printf '\n## Figures\n\n```json\n%s\n```\n' "$(cat "$scratch/trainer.json")" >>"$report"; fi
printf '\n%s after %d s.\n' "$([ "$failed" = 0 ] && echo "**All is well**" || echo "**Something failed**")" "$((SECONDS - began))" >>"$report"
tail -n 1 "$report"
echo "Report: $report"
exit "$failed"
