"""Check a whole file, record by record, in flat memory: what is wrong, in which line and column, and how to mend it.

The result says how the file was read (format, encoding, columns), every fault by its cause, the first hundred in full, repeated prompts,
and prompt lengths for a base model. Nothing is stored; the digests of the prompts are kept for the split.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, BinaryIO

from portal.datasets import mapping as mappings
from portal.datasets.digests import Digests
from portal.datasets.findings import MAX_LISTED, Findings
from portal.datasets.lengths import Lengths, Ruler
from portal.datasets.mapping import SAMPLE_ROWS, Mapping, Proposal
from portal.datasets.rows import PROMPT_COLUMNS, BadLine, Row, as_it_is
from portal.datasets.sources import Source, Unreadable, open_source
from portal.datasets.text import MAX_LINE_BYTES

__all__ = ("MAX_LINE_BYTES", "MAX_LISTED", "Checked", "Options", "validate")

MAX_ROWS = 100_000_000
MAX_COLUMNS = 200
PROGRESS_ROWS = 5000
MAX_SHAPES = 1000
_FLAT = "keep those that rewards read"

Progress = Callable[[int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """How to read a file. ``mapping`` None: as proposed for its first rows. ``encoding`` "": recognise it."""

    filename: str = ""
    encoding: str = ""
    mapping: Mapping | None = None
    ruler: Ruler | None = None


@dataclass(kw_only=True)
class Checked:
    """The outcome for one file. ``read``: makes a row of a record; ``columns``: those that every row has."""

    rows: int = 0
    digests: Digests = field(default_factory=Digests)
    errors: Findings = field(default_factory=Findings)
    warnings: Findings = field(default_factory=Findings)
    seen: Counter[str] = field(default_factory=Counter)
    source: Source | None = None
    mapping: Mapping = field(default_factory=Mapping)
    proposal: Proposal | None = None
    read: Callable[[dict[str, Any]], Row] = as_it_is
    duplicates: int = 0
    lengths: dict[str, Any] | None = None

    @property
    def columns(self) -> list[str]:
        return [name for name, count in self.seen.items() if count == self.rows]

    @property
    def report(self) -> dict[str, Any]:
        return {
            "format": self.source.format if self.source else None,
            "encoding": self.source.encoding if self.source else None,
            "rows": self.rows,
            "columns": self.columns,
            "errors": self.errors.listed,
            "error_total": self.errors.total,
            "error_causes": dict(self.errors.causes),
            "warnings": self.warnings.listed,
            "warning_total": self.warnings.total,
            "warning_causes": dict(self.warnings.causes),
            "mapping": self.mapping.as_dict(),
            "proposed": self.proposal and self.proposal.as_dict(),
            "duplicates": self.duplicates,
            "lengths": self.lengths,
        }

    def close(self) -> None:
        self.digests.close()


def validate(file: BinaryIO, *, max_bytes: int, options: Options = Options(), progress: Progress | None = None) -> Checked:
    """Read ``file`` (binary, seekable) from its start to its end and leave nothing out. ``progress`` hears the rows read so far."""
    checked = Checked()
    try:
        checked.source = open_source(file, filename=options.filename, encoding=options.encoding, warnings=checked.warnings)
    except Unreadable as refused:
        checked.errors.add(refused.cause, refused.line, None, refused.message, refused.fix, refused.text)
        return checked
    _choose_mapping(checked, options)
    if not checked.errors.total:
        _check_records(checked, options, _size(file), max_bytes, progress)
    if not checked.rows and not checked.errors.total:
        fix = "write one JSON object a line, each with a prompt or messages"
        fix = fix if checked.source.format == "jsonl" else "add rows, each with a prompt"
        checked.errors.add("empty", None, None, "the file has no rows", fix)
    if not checked.errors.total:
        _warn_of_ragged(checked)
        _warn_of_duplicates(checked)
    return checked


def samples(source: Source, limit: int = SAMPLE_ROWS) -> list[dict[str, Any]]:
    """The first readable records."""
    records = itertools.islice(source.records(), 2 * limit)
    return [record for _, record in records if isinstance(record, dict)][:limit]


def _choose_mapping(checked: Checked, options: Options) -> None:
    found = samples(checked.source)
    checked.proposal = mappings.propose(found)
    if options.mapping is not None:
        checked.mapping = options.mapping
    elif checked.proposal:
        checked.mapping = checked.proposal.mapping
    elif found and checked.source.format != "jsonl" and not any(set(PROMPT_COLUMNS) & set(sample) for sample in found):
        message = f"no column looks like a prompt; the columns are {', '.join(name[:40] for name in list(found[0])[:20])}"
        fix = "choose the column with the question, or name it prompt"
        checked.errors.add("no_prompt", 1 if checked.source.format == "csv" else None, None, message, fix)
    checked.read = as_it_is if checked.mapping.plain else partial(mappings.apply, checked.mapping)


def _size(file: BinaryIO) -> int:
    position = file.tell()
    size = file.seek(0, 2)
    file.seek(position)
    return size


def _check_records(checked: Checked, options: Options, size: int, max_bytes: int, progress: Progress | None) -> None:
    if size > max_bytes:
        message = f"the file is larger than {max_bytes:,} bytes: it has {size:,}"
        checked.errors.add("too_large", None, None, message, "split it into several datasets")
        return
    lengths = Lengths(options.ruler, checked.warnings) if options.ruler else None
    read, taker = checked.read, _Taker(checked, lengths)
    take = taker.take
    try:
        for line, record in checked.source.records():
            if type(record) is BadLine:
                checked.rows += not record.ends_file
                checked.errors.add_bad(line if line > 1 or not record.ends_file or checked.source.format == "csv" else None, record)
                continue
            checked.rows += 1
            try:
                take(line, read(record))
            except BadLine as bad:
                checked.errors.add_bad(line, bad)
            if progress and checked.rows % PROGRESS_ROWS == 0:
                progress(checked.rows)
            if checked.rows >= MAX_ROWS:
                message = f"the file has more than {MAX_ROWS:,} rows"
                checked.errors.add("too_many_rows", line, None, message, "split it into several datasets")
                return
    except _TooManyColumns as stop:
        checked.errors.add("too_many_columns", stop.line, None, f"the file has more than {MAX_COLUMNS} different columns", _FLAT)
    except BadLine as bad:  # the file cannot be read any further
        checked.errors.add_bad(checked.rows + 1, bad)
    finally:
        taker.count()
    if lengths:
        checked.lengths = lengths.figures()


class _TooManyColumns(Exception):
    def __init__(self, line: int):
        self.line = line


class _Taker:
    """What is remembered of each good row. Columns are counted by their whole list: files have few different ones."""

    def __init__(self, checked: Checked, lengths: Lengths | None):
        self._seen = checked.seen
        self._shapes: dict[tuple[str, ...], int] = {}
        self._append = checked.digests.append
        self._lengths = lengths

    def take(self, line: int, row: Row) -> None:
        shape = tuple(row.item)
        if shape in self._shapes:
            self._shapes[shape] += 1
        else:
            self._new_shape(line, shape)
        self._append(prompt_digest(row), line)
        if self._lengths is not None:
            self._lengths.add(line, row)

    def count(self) -> None:
        """Put what was counted into ``seen``."""
        for shape, times in self._shapes.items():
            for name in shape:
                self._seen[name] += times
        self._shapes = {}

    def _new_shape(self, line: int, shape: tuple[str, ...]) -> None:
        if len(self._shapes) >= MAX_SHAPES:
            self.count()
        self._shapes[shape] = 1
        self._seen.update(dict.fromkeys(shape, 0))
        if len(self._seen) > MAX_COLUMNS:
            raise _TooManyColumns(line)


def prompt_digest(row: Row) -> int:
    """64 bits that are equal for equal prompts."""
    messages = row.messages
    if len(messages) == 1:
        text = f"{messages[0]['role']}\x1f{messages[0]['content']}\x1e"
    else:
        text = "".join([f"{message['role']}\x1f{message['content']}\x1e" for message in messages])
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _warn_of_ragged(checked: Checked) -> None:
    for name, count in checked.seen.items():
        if count < checked.rows and name not in PROMPT_COLUMNS:
            message = f"{checked.rows - count:,} of {checked.rows:,} rows have no {name}"
            checked.warnings.add("ragged", None, name, message, "give every row this column, or rewards cannot use it")


def _warn_of_duplicates(checked: Checked) -> None:
    checked.duplicates, nearest = checked.digests.repeats(MAX_LISTED)
    for line, first in nearest:
        checked.warnings.add("duplicate", line, None, f"the same prompt as in line {first}", "remove it, unless it should count twice")
    unlisted = checked.duplicates - len(nearest)
    checked.warnings.total += unlisted
    checked.warnings.causes["duplicate"] += unlisted
    checked.warnings.causes += Counter()
