from __future__ import annotations

import pytest

from engine.rewards.porter import stem

# The examples of Porter's paper, run through all steps.
PAPER = """
caresses caress, ponies poni, ties ti, caress caress, cats cat, feed feed, agreed agre, plastered plaster, bled bled, motoring motor,
sing sing, conflated conflat, troubled troubl, sized size, hopping hop, tanned tan, falling fall, hissing hiss, fizzed fizz, failing fail,
filing file, happy happi, sky sky, relational relat, conditional condit, rational ration, digitizer digit, radically radic,
operator oper, feudalism feudal, decisiveness decis, hopefulness hope, triplicate triplic, formative form, electrical electr,
goodness good, revival reviv, inference infer, airliner airlin, adjustable adjust, replacement replac, adoption adopt, effective effect,
probate probat, rate rate, cease ceas, controlling control, rolling roll, generalizations gener, oscillators oscil
"""


@pytest.mark.parametrize(("word", "root"), [pair.split() for pair in PAPER.replace("\n", " ").split(",")])
def test_it_strips_as_the_paper_does(word, root):
    assert stem(word) == root


@pytest.mark.parametrize("word", ["", "a", "is", "größen", "x1s", "日本"])
def test_what_is_no_english_word_stays(word):
    assert stem(word) == word
