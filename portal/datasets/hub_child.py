"""Runs as a process of its own: fetch one file of a dataset from the model hub. See ``origins``.

``hub_child.py ASKED PATH``; ``ASKED`` is JSON with name, revision, file ("" to choose) and limit_bytes. Prints {"filename"}.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import PurePosixPath
from typing import Any, NoReturn

SUFFIXES = (".jsonl", ".ndjson", ".parquet", ".csv", ".tsv", ".json")
CALL_SECONDS = 30


def main(asked: dict[str, Any], path: str) -> None:
    os.environ.setdefault("HF_HUB_DOWNLOAD_TIMEOUT", str(CALL_SECONDS))
    os.environ.setdefault("HF_HUB_ETAG_TIMEOUT", str(CALL_SECONDS))
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    where = {"repo_type": "dataset", "revision": asked["revision"] or None}
    try:
        info = HfApi().dataset_info(asked["name"], revision=where["revision"], files_metadata=True, timeout=CALL_SECONDS)
        chosen = choose([(entry.rfilename, entry.size or 0) for entry in info.siblings], asked["file"])
        if chosen[1] > asked["limit_bytes"]:
            refuse(f"{chosen[0]} has {chosen[1]:,} bytes, more than {asked['limit_bytes']:,}")
        fetched = hf_hub_download(asked["name"], chosen[0], **where)
        shutil.copyfile(fetched, path)
    except RepositoryNotFoundError:
        refuse(f"the hub has no open dataset {asked['name']}; look whether the name is owner/name, as the hub shows it")
    except RevisionNotFoundError:
        refuse(f"{asked['name']} has no revision {asked['revision']}")
    except HfHubHTTPError as error:
        refuse(f"the hub answered {error.response.status_code} for {asked['name']}; it may want an account, or be down")
    except Exception as error:  # the client lets through what its transport raises, which differs by version
        refuse(
            f"the hub cannot be reached from here ({type(error).__name__}); upload the file instead, or try again when this site is online"
        )
    print(json.dumps({"filename": PurePosixPath(chosen[0]).name}))


def choose(files: list[tuple[str, int]], wanted: str) -> tuple[str, int]:
    """The file asked for, or the first of rows, those of a train split before others. Refuses with what there is."""
    usable = [
        (name, size) for name, size in files if name.lower().endswith(SUFFIXES) and PurePosixPath(name).name not in ("dataset_infos.json",)
    ]
    if wanted:
        found = next((file for file in usable if file[0] == wanted), None)
        if found is None:
            refuse(f"there is no file {wanted}; there are {', '.join(name for name, _ in usable[:10]) or 'none that can be read'}")
        return found
    if not usable:
        refuse("it has no file of rows: JSON Lines, CSV or Parquet")
    return min(usable, key=lambda file: ("train" not in file[0].lower(), file[0].endswith(".json"), file[0]))


def refuse(sentence: str) -> NoReturn:
    sys.stderr.write(sentence)
    sys.exit(3)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2])
