"""How alike two texts are, from 0 to 1: the metrics of OpenAI's ``text_similarity`` grader, but for ``cosine``, which needs embeddings.

Written anew from the papers named at each. Words are runs of letters and digits, case folded; a Chinese, Japanese or Thai character is a
word of its own, since those scripts write no blanks. Two empty texts are alike, and an empty and a full one are not. Texts are cut to
``MAX_CHARACTERS`` so that time stays bounded.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from math import exp, log

from engine.rewards.porter import stem

MAX_CHARACTERS = 20_000

_UNSPACED = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+"
_WORDS = re.compile(_WORD)
_TOKENS = re.compile(rf"{_WORD}|[^\w\s]")
_BLEU_ORDER = 4


def similarity(metric: str, answer: str, reference: str) -> float:
    """``metric``: one of ``grader_spec.METRICS``."""
    answer, reference = answer[:MAX_CHARACTERS], reference[:MAX_CHARACTERS]
    return _METRICS[metric](answer, reference)


def fuzzy_match(answer: str, reference: str) -> float:
    """1 − d/(m+n), where d counts the insertions and deletions that turn one text into the other: 2·LCS/(m+n), over characters."""
    return _both_or_neither(answer, reference, lambda: 2 * _common(answer, reference) / (len(answer) + len(reference)))


def bleu(answer: str, reference: str) -> float:
    """Papineni et al., "BLEU", 2002: the geometric mean of n-gram precisions times the brevity penalty, n from 1 to 4.

    For n ≥ 2 one is added to matches and to totals (Lin and Och, "ORANGE", 2004), since a sentence often shares no 4-gram; orders that
    the shorter text does not have are left out, so that a short text equal to its reference scores 1.
    """
    found, wanted = _tokens(answer), _tokens(reference)
    return _both_or_neither(found, wanted, lambda: _bleu(found, wanted))


def _bleu(found: list[str], wanted: list[str]) -> float:
    logs = []
    for n in range(1, min(_BLEU_ORDER, len(found), len(wanted)) + 1):
        matches, total = _overlap(found, wanted, n), len(found) - n + 1
        extra = 0 if n == 1 else 1
        if matches + extra == 0:
            return 0.0
        logs.append(log((matches + extra) / (total + extra)))
    penalty = min(0.0, 1 - len(wanted) / len(found))
    return exp(penalty + sum(logs) / len(logs))


def gleu(answer: str, reference: str) -> float:
    """Wu et al., "Google's Neural Machine Translation System", 2016: the lesser of precision and recall over all 1- to 4-grams."""
    found, wanted = _tokens(answer), _tokens(reference)
    return _both_or_neither(found, wanted, lambda: _gleu(found, wanted))


def _gleu(found: list[str], wanted: list[str]) -> float:
    orders = range(1, _BLEU_ORDER + 1)
    matches = sum(_overlap(found, wanted, n) for n in orders)
    return matches / max(sum(max(0, len(words) - n + 1) for n in orders) for words in (found, wanted))


def rouge(n: int) -> Callable[[str, str], float]:
    """Lin, "ROUGE", 2004: ROUGE-N as the F1 of n-gram precision and recall. Texts shorter than n words score 1 when equal, else 0."""

    def score(answer: str, reference: str) -> float:
        found, wanted = _words(answer), _words(reference)
        if min(len(found), len(wanted)) < n:
            return float(found == wanted)
        return 2 * _overlap(found, wanted, n) / (len(found) + len(wanted) - 2 * n + 2)

    return score


def rouge_l(answer: str, reference: str) -> float:
    """Lin, "ROUGE", 2004: the F1 of the longest common subsequence of words."""
    found, wanted = _words(answer), _words(reference)
    return _both_or_neither(found, wanted, lambda: 2 * _common(found, wanted) / (len(found) + len(wanted)))


def meteor(answer: str, reference: str) -> float:
    """Banerjee and Lavie, "METEOR", 2005: 10PR/(R+9P) of matched words, less up to half for their order (0.5·(chunks/matches)³).

    Words match exactly, then by their stem (Porter). Of several places a word could match, the one that goes on where the word before
    it matched is taken. Synonyms are not looked up: that needs WordNet. A text equal to its reference scores 1, without the penalty
    that the formula takes for its single chunk.
    """
    found, wanted = _words(answer), _words(reference)
    if found == wanted:
        return 1.0
    places = _aligned(found, wanted)
    pairs = [(i, place) for i, place in enumerate(places) if place is not None]
    if not pairs:
        return 0.0
    precision, recall = len(pairs) / len(found), len(pairs) / len(wanted)
    mean = 10 * precision * recall / (recall + 9 * precision)
    chunks = 1 + sum(b != (a[0] + 1, a[1] + 1) for a, b in itertools.pairwise(pairs))
    return mean * (1 - 0.5 * (chunks / len(pairs)) ** 3)


def _aligned(found: list[str], wanted: list[str]) -> list[int | None]:
    places: list[int | None] = [None] * len(found)
    taken: set[int] = set()
    for form in (str, stem):
        index: dict[str, list[int]] = {}
        for position, word in enumerate(wanted):
            if position not in taken:
                index.setdefault(form(word), []).append(position)
        for i, word in enumerate(found):
            open_places = index.get(form(word))
            if places[i] is None and open_places:
                following = places[i - 1] + 1 if i and places[i - 1] is not None else None
                place = following if following in open_places else open_places[0]
                open_places.remove(place)
                taken.add(place)
                places[i] = place
    return places


def _words(text: str) -> list[str]:
    return _WORDS.findall(text.casefold())


def _tokens(text: str) -> list[str]:
    return _TOKENS.findall(text.casefold())


def _overlap(found: Sequence[Hashable], wanted: Sequence[Hashable], n: int) -> int:
    """How many n-grams both have, each counted at most as often as in either."""
    return (_ngrams(found, n) & _ngrams(wanted, n)).total()


def _ngrams(words: Sequence[Hashable], n: int) -> Counter[tuple[Hashable, ...]]:
    return Counter(zip(*(words[start:] for start in range(n)), strict=False))


def _common(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Length of the longest common subsequence, all of ``a`` at once as the bits of one number (Hyyrö, "Bit-parallel LCS-length
    computation revisited", 2004): as many steps as ``b`` is long.
    """
    masks: dict[Hashable, int] = {}
    for position, symbol in enumerate(a):
        masks[symbol] = masks.get(symbol, 0) | 1 << position
    full = (1 << len(a)) - 1
    row = full
    for symbol in b:
        matched = row & masks.get(symbol, 0)
        row = (row + matched | row - matched) & full
    return len(a) - row.bit_count()


def _both_or_neither(a: Sequence[Hashable], b: Sequence[Hashable], score: Callable[[], float]) -> float:
    return score() if a and b else float(not a and not b)


_METRICS: dict[str, Callable[[str, str], float]] = {
    "fuzzy_match": fuzzy_match,
    "bleu": bleu,
    "gleu": gleu,
    "meteor": meteor,
    "rouge_l": rouge_l,
    **{f"rouge_{n}": rouge(n) for n in range(1, 6)},
}
