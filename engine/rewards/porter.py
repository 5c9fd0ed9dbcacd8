"""Porter's stemmer for English: "An algorithm for suffix stripping", Program 14 (3), 1980, as published there.

Words of two letters and less, and words with other than the letters a to z, stay as they are.
"""

from __future__ import annotations

import re
from functools import lru_cache

_STEP_2 = (
    *(("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("abli", "able"), ("alli", "al")),
    *(("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"), ("ator", "ate"), ("alism", "al")),
    *(("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble")),
)
_STEP_3 = (("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""))
_STEP_4 = (
    *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti", "ous"),
    *("ive", "ize"),
)


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """The stem of a lower-case ``word``."""
    if len(word) < 3 or not re.fullmatch("[a-z]+", word):
        return word
    word = _plural(word)
    word = _past(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _replaced(word, _STEP_2)
    word = _replaced(word, _STEP_3)
    return _tidied(_cut(word))


def _plural(word: str) -> str:
    for ending, instead in (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", "")):
        if word.endswith(ending):
            return word.removesuffix(ending) + instead
    return word


def _past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        if word.endswith(ending) and _has_vowel(word.removesuffix(ending)):
            return _completed(word.removesuffix(ending))
    return word


def _completed(root: str) -> str:
    """What "hop(p)", "fil" and "conflat" were before "-ing": a letter doubled is halved, an e that was lost is put back."""
    if root.endswith(("at", "bl", "iz")) or (_measure(root) == 1 and _ends_short(root)):
        return root + "e"
    return root[:-1] if _ends_double(root) and root[-1] not in "lsz" else root


def _replaced(word: str, rules: tuple[tuple[str, str], ...]) -> str:
    for ending, instead in sorted(rules, key=lambda rule: -len(rule[0])):
        if word.endswith(ending):
            root = word.removesuffix(ending)
            return root + instead if _measure(root) > 0 else word
    return word


def _cut(word: str) -> str:
    for ending in sorted(_STEP_4, key=len, reverse=True):
        if word.endswith(ending):
            root = word.removesuffix(ending)
            fits = _measure(root) > 1 and (ending != "ion" or root.endswith(("s", "t")))
            return root if fits else word
    return word


def _tidied(word: str) -> str:
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _ends_short(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word


def _shape(word: str) -> str:
    """``word`` as c (consonant) and v (vowel); a y behind a consonant is a vowel."""
    shape = ""
    for position, letter in enumerate(word):
        vowel = letter in "aeiou" or (letter == "y" and position > 0 and shape[-1] == "c")
        shape += "v" if vowel else "c"
    return shape


def _measure(root: str) -> int:
    """How often a run of vowels is followed by a run of consonants: Porter's m."""
    return len(re.findall("v+c+", _shape(root)))


def _has_vowel(root: str) -> bool:
    return "v" in _shape(root)


def _ends_double(root: str) -> bool:
    return len(root) > 1 and root[-1] == root[-2] and _shape(root)[-1] == "c"


def _ends_short(root: str) -> bool:
    """Consonant, vowel, consonant, the last of them not w, x or y: Porter's *o."""
    return _shape(root).endswith("cvc") and root[-1] not in "wxy"
