"""Runs as a process of its own: rows of a reasoning-gym task as JSON Lines on standard output. See ``origins``.

``gym_child.py --list`` or ``gym_child.py TASK ROWS SEED LEVEL``; level 0 is the task's own difficulty, others those of its curriculum.
"""

from __future__ import annotations

import json
import resource
import sys
from typing import Any, NoReturn

MEMORY_BYTES = 2 << 30
CPU_SECONDS = 600


def main(words: list[str]) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    from reasoning_gym import factory

    if words == ["--list"]:
        print(json.dumps(sorted(factory.DATASETS)))
        return
    task, rows, seed, level = words[0], *map(int, words[1:])
    if task not in factory.DATASETS:
        _refuse(f"reasoning-gym has no task {task}")
    for row in _dataset(factory, task, rows, seed, level):
        sys.stdout.write(json.dumps(_row(task, row), default=str) + "\n")


def _dataset(factory: Any, task: str, rows: int, seed: int, level: int) -> Any:
    asked = {"size": rows, "seed": seed}
    try:
        if not level:
            return factory.create_dataset(task, **asked)
        if not factory.has_curriculum(task):
            _refuse(f"the task {task} has one difficulty only; choose its own")
        curriculum = factory.create_curriculum(task)
        curriculum.set_global_level(level - 1)
        config = curriculum.generate_configuration(asked)
        config.validate()
        return factory.DATASETS[task][0](config=config)
    except (AssertionError, ValueError, TypeError) as error:
        _refuse(f"the task {task} does not take this: {error}")


def _row(task: str, row: dict[str, Any]) -> dict[str, Any]:
    answer = row["answer"]
    return {"prompt": row["question"], "answer": answer if isinstance(answer, str) else json.dumps(answer), "task": task}


def _refuse(sentence: str) -> NoReturn:
    sys.stderr.write(sentence)
    sys.exit(3)


if __name__ == "__main__":
    main(sys.argv[1:])
