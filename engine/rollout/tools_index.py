"""A full-text index over a corpus of articles, for the ``search`` tool: SQLite's FTS5, ranked by BM25 with the title counted four times."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from engine.almanac import Article

MAX_WORDS = 32
MAX_ARTICLE_CHARACTERS = 1_000_000
EXCERPT_WORDS = 60
_WORD = re.compile(r"\w+")
_SCHEMA = """
CREATE VIRTUAL TABLE articles USING fts5(title, text, tokenize = "porter unicode61 remove_diacritics 2");
"""
_QUERY = """
SELECT title, snippet(articles, 1, '', '', '…', ?) FROM articles WHERE articles MATCH ? ORDER BY bm25(articles, 4.0, 1.0), rowid LIMIT ?
"""


class BadCorpus(ValueError):
    """A corpus that cannot be read; the message names the line."""


class Index:
    """Safe to use from several threads. Calls take milliseconds on a small corpus and block: use a thread for a large one."""

    def __init__(self, connection: sqlite3.Connection):
        self._connection, self._lock = connection, threading.Lock()

    @classmethod
    def in_memory(cls, articles: Iterable[Article]) -> Index:
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        _fill(connection, articles)
        return cls(connection)

    @classmethod
    def at(cls, path: Path, articles: Iterable[Article]) -> Index:
        """The index in the file ``path``; made from ``articles`` if it is not there yet, under another name until it is whole."""
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            staged = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
            staged.unlink(missing_ok=True)
            try:
                connection = sqlite3.connect(staged)
                _fill(connection, articles)
                connection.close()
                os.replace(staged, path)
            finally:
                staged.unlink(missing_ok=True)
        return cls(sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False))

    def search(self, words: str, *, results: int) -> list[Article]:
        """The ``results`` best articles that hold any of ``words``, each with its most telling passage."""
        terms = list(dict.fromkeys(_WORD.findall(words.lower())))[:MAX_WORDS]
        if not terms:
            return []
        query = " OR ".join(f'"{term}"' for term in terms)
        with self._lock:
            rows = self._connection.execute(_QUERY, (EXCERPT_WORDS, query, results)).fetchall()
        return [Article(title=title, text=text) for title, text in rows]

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def read_corpus(path: Path) -> Iterator[Article]:
    """The articles of a file of JSON lines: ``title`` and ``text``, on the top level or under ``item``. Raises ``BadCorpus``."""
    with open(path, encoding="utf-8") as lines:
        try:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _article(line, number)
        except UnicodeDecodeError as error:
            raise BadCorpus(f"the corpus is no UTF-8: {error}") from None


def _article(line: str, number: int) -> Article:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise BadCorpus(f"line {number} of the corpus is no JSON") from None
    columns = found.get("item", found) if isinstance(found, dict) else None
    title, text = (columns.get(name) if isinstance(columns, dict) else None for name in ("title", "text"))
    if not isinstance(title, str) or not isinstance(text, str):
        raise BadCorpus(f"line {number} of the corpus has no title and text")
    return Article(title=title, text=text[:MAX_ARTICLE_CHARACTERS])


def _fill(connection: sqlite3.Connection, articles: Iterable[Article]) -> None:
    connection.executescript(_SCHEMA)
    with connection:
        connection.executemany("INSERT INTO articles (title, text) VALUES (?, ?)", ((a.title, a.text) for a in articles))
