"""The append-only event history on disk: segments of JSON lines, one ``Event`` per line, numbered without gap.

::

    root/ENGINE                       this engine's uuid, made once
    root/00000000000000000001.jsonl   a segment, named by the first offset in it

An append is durable when it returns, and only then can ``read_after`` see it. A torn end (the process died while writing) is cut off at
open; damage anywhere else raises. Memory: 8 bytes per event for its place, and one counter per job. Not asynchronous: see ``event_log``.
"""

from __future__ import annotations

import os
import threading
import uuid
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from engine.durable import CrashAt, fsync_directory, make_directory, no_crash, replace_file
from engine.epoch import Epoch
from engine.events import Event

SEGMENT_BYTES = 16 << 20


class JournalBroken(RuntimeError):
    """An earlier append failed half-way, so the end of the file is unknown: open the journal anew."""


class JournalCorrupt(RuntimeError):
    """A line that is no event, or an event out of order, before the journal's torn end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """An event before it has its numbers. ``job`` is "" for events of the engine itself."""

    job: str
    kind: str
    at: datetime
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True)
class _Segment:
    """One file: the byte at which each of its events begins, and the byte after the last."""

    path: Path
    first_offset: int
    starts: array[int]
    end: int = 0


class Journal:
    """Opened by one manager at a time; appends of an older epoch raise ``StaleEpoch``. Thread-safe."""

    def __init__(self, root: Path, epoch: Epoch, *, segment_bytes: int = SEGMENT_BYTES, crash_at: CrashAt = no_crash):
        self.root = root
        self._epoch = epoch
        self._segment_bytes = segment_bytes
        self._crash_at = crash_at
        self._append_lock = threading.Lock()  # held through the fsync
        self._index_lock = threading.Lock()  # held for microseconds, so that reading never waits for the disk's writes
        self._broken = False
        self._seqs: dict[str, int] = {}
        self.last = 0  # offset of the latest durable event
        with epoch.guard():
            make_directory(root)
            self.engine = _identity(root)
            self._segments = [self._load(path, torn_end=False) for path in _segment_paths(root)[:-1]]
            self._segments += [self._load(path, torn_end=True) for path in _segment_paths(root)[-1:]]

    def seq(self, job: str) -> int:
        """The job's latest sequence number, 0 before its first event."""
        return self._seqs.get(job, 0)

    def position(self) -> tuple[int, dict[str, int]]:
        """The offset of the latest durable event, and each job's latest sequence number at that moment."""
        with self._index_lock:
            return self.last, dict(self._seqs)

    def append(self, drafts: list[Draft]) -> list[Event]:
        """Number, write and fsync ``drafts`` in order (one group commit).

        Raises ``StaleEpoch`` with nothing written; after any other error (``OSError``) each further append raises ``JournalBroken``.
        """
        with self._append_lock, self._epoch.guard():
            if self._broken:
                raise JournalBroken(str(self.root))
            events = self._number(drafts)
            lines = [_line(event) for event in events]
            self._broken = True
            segment = self._segment_for(events[0].offset)
            self._write(segment.path, lines)
            self._index(segment, events, lines)
            self._broken = False
            return events

    def read_after(self, offset: int, limit: int) -> list[Event]:
        """Up to ``limit`` events with a greater offset, in order. An offset beyond the end gives none."""
        events: list[Event] = []
        for path, begin, end in self._ranges(offset, limit):
            with open(path, "rb") as file:
                file.seek(begin)
                events += [Event.model_validate_json(line) for line in file.read(end - begin).splitlines()]
        return events

    def _ranges(self, offset: int, limit: int) -> list[tuple[Path, int, int]]:
        """Which bytes of which files hold the up to ``limit`` events after ``offset``."""
        ranges: list[tuple[Path, int, int]] = []
        with self._index_lock:
            for segment in self._segments:
                count = len(segment.starts)
                skip = max(0, offset + 1 - segment.first_offset)
                if skip < count and limit > 0:
                    stop = min(count, skip + limit)
                    limit -= stop - skip
                    ranges.append((segment.path, segment.starts[skip], segment.starts[stop] if stop < count else segment.end))
        return ranges

    def replay(self, *, chunk: int = 1000) -> Iterator[Event]:
        """Every event from the first to the latest, a chunk in memory at a time."""
        offset = 0
        while events := self.read_after(offset, chunk):
            yield from events
            offset = events[-1].offset

    def _number(self, drafts: list[Draft]) -> list[Event]:
        events, seqs = [], {}
        for offset, draft in enumerate(drafts, self.last + 1):
            seq = seqs[draft.job] = seqs.get(draft.job, self.seq(draft.job)) + 1 if draft.job else 0
            event = Event(
                engine=self.engine,
                epoch=self._epoch.number,
                offset=offset,
                job=draft.job,
                seq=seq,
                kind=draft.kind,
                at=draft.at,
                data=draft.data,
            )
            events.append(event)
        return events

    def _segment_for(self, offset: int) -> _Segment:
        if not self._segments or self._segments[-1].end >= self._segment_bytes:
            path = self.root / f"{offset:020d}.jsonl"
            path.touch()
            self._crash_at("journal:segment-made")
            fsync_directory(self.root)
            with self._index_lock:
                self._segments.append(_Segment(path=path, first_offset=offset, starts=array("Q")))
        return self._segments[-1]

    def _write(self, path: Path, lines: list[bytes]) -> None:
        with open(path, "ab") as file:
            for line in lines:
                file.write(line)
            self._crash_at("journal:buffered")
            file.flush()
            self._crash_at("journal:written")
            os.fsync(file.fileno())
        self._crash_at("journal:synced")

    def _index(self, segment: _Segment, events: list[Event], lines: list[bytes]) -> None:
        with self._index_lock:
            for line in lines:
                segment.starts.append(segment.end)
                segment.end += len(line)
            self._seqs.update({event.job: event.seq for event in events if event.job})
            self.last = events[-1].offset

    def _load(self, path: Path, *, torn_end: bool) -> _Segment:
        segment = _Segment(path=path, first_offset=int(path.stem), starts=array("Q"))
        with open(path, "rb") as file:
            for line in file:
                head = _parse_head(line)
                if head is None:
                    if torn_end and not file.read(1):
                        break
                    raise JournalCorrupt(f"{path.name}: no event at byte {segment.end}")
                self._accept(head, segment, len(line))
        if torn_end:
            _truncate(path, segment.end)
        return segment

    def _accept(self, head: _Head, segment: _Segment, line_bytes: int) -> None:
        expected = (self.last + 1, self.seq(head.job) + 1 if head.job else 0)
        if (head.offset, head.seq) != expected or head.offset != segment.first_offset + len(segment.starts):
            raise JournalCorrupt(f"{segment.path.name}: (offset, seq) {(head.offset, head.seq)} at byte {segment.end}, expected {expected}")
        self.last = head.offset
        if head.job:
            self._seqs[head.job] = head.seq
        segment.starts.append(segment.end)
        segment.end += line_bytes


class _Head(msgspec.Struct, frozen=True):
    """What opening needs of an event; the rest of the line is only checked to be JSON."""

    offset: int
    job: str
    seq: int


_head_decoder = msgspec.json.Decoder(_Head)


def _parse_head(line: bytes) -> _Head | None:
    if not line.endswith(b"\n"):
        return None
    try:
        return _head_decoder.decode(line)
    except msgspec.MsgspecError:
        return None


def read_all(root: Path) -> Iterator[Event]:
    """Every whole event below ``root``, without opening the journal for writing: for looking at a stopped or running engine."""
    for path in _segment_paths(root):
        with open(path, "rb") as file:
            for line in file:
                if _parse_head(line) is None:
                    return
                yield Event.model_validate_json(line)


def _line(event: Event) -> bytes:
    return event.model_dump_json().encode() + b"\n"


def _truncate(path: Path, size: int) -> None:
    if path.stat().st_size > size:
        with open(path, "r+b") as file:
            file.truncate(size)
            os.fsync(file.fileno())


def _segment_paths(root: Path) -> list[Path]:
    return sorted(root.glob("*.jsonl"))


def _identity(root: Path) -> str:
    path = root / "ENGINE"
    if not path.exists():
        replace_file(path, uuid.uuid4().hex.encode())
    return path.read_text()
