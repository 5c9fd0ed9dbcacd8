"""Against numbers worked out by hand; the working stands beside each."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.grader_spec import METRICS
from engine.rewards.similarity import similarity

FOUND, WANTED = "The cat sat on the mat", "the cat is on the mat"


@pytest.mark.parametrize(
    ("metric", "score"),
    [
        ("fuzzy_match", 2 * 19 / 43),  # "he cat s on the mat" of 22 and 21 characters: case counts
        ("bleu", (5 / 6 * 4 / 6 * 2 / 5 * 1 / 4) ** 0.25),  # 5 of 6; (3+1) of (5+1); (1+1) of (4+1); (0+1) of (3+1); equal lengths
        ("gleu", 9 / 18),  # 5 + 3 + 1 + 0 shared n-grams of 6 + 5 + 4 + 3
        ("meteor", 5 / 6 * (1 - 0.5 * (2 / 5) ** 3)),  # P = R = 5/6, in the two chunks "the cat" and "on the mat"
        ("rouge_1", 10 / 12),
        ("rouge_2", 6 / 10),  # "the cat", "on the", "the mat"
        ("rouge_3", 2 / 8),  # "on the mat"
        ("rouge_4", 0.0),
        ("rouge_5", 0.0),
        ("rouge_l", 10 / 12),  # the cat on the mat
    ],
)
def test_the_textbook_sentence(metric, score):
    assert similarity(metric, FOUND, WANTED) == pytest.approx(score)


@pytest.mark.parametrize(
    ("a", "b", "score"), [("kitten", "sitting", 8 / 13), ("abc", "xyz", 0.0), ("this is a test", "this is a test!", 28 / 29)]
)
def test_fuzzy_match_counts_insertions_and_deletions(a, b, score):
    assert similarity("fuzzy_match", a, b) == pytest.approx(score)


def test_bleu_punishes_what_is_too_short():
    # All of its two words and of its one pair match; e^(1 − 4/2).
    assert similarity("bleu", "the cat", "the cat sat down") == pytest.approx(0.36787944)


def test_repeating_one_right_word_does_not_pay():
    assert similarity("rouge_1", "the the the the", "the cat") == pytest.approx(2 / 6)
    # 1 of 4, then (0+1) of (3+1): the pair "the the" is nowhere in the reference.
    assert similarity("bleu", "the the the the", "the cat") == pytest.approx((1 / 4 * 1 / 4) ** 0.5)


def test_meteor_matches_stems():
    # P = R = 1 in one chunk of two words: 1 − 0.5·(1/2)³.
    assert similarity("meteor", "cats running", "cat runs") == pytest.approx(0.9375)


def test_meteor_prefers_the_place_that_goes_on():
    # "b" could match either b; behind "a" it goes on with the second: one chunk, P = 1, R = 2/3.
    mean = 10 * (2 / 3) / (2 / 3 + 9)
    assert similarity("meteor", "a b", "b a b") == pytest.approx(mean * (1 - 0.5 * (1 / 2) ** 3))


def test_scripts_without_blanks_are_compared_character_by_character():
    assert similarity("rouge_1", "日本語", "日本人") == pytest.approx(2 / 3)


@pytest.mark.parametrize("metric", METRICS)
def test_equal_texts_score_one_and_an_empty_one_scores_nothing(metric):
    assert [
        similarity(metric, WANTED, WANTED),
        similarity(metric, "", ""),
        similarity(metric, "", WANTED),
        similarity(metric, WANTED, ""),
    ] == [1, 1, 0, 0]


@settings(max_examples=60)
@given(st.sampled_from(METRICS), st.text(max_size=60) | st.text("ab .", max_size=60), st.text(max_size=60) | st.text("ab .", max_size=60))
def test_every_score_lies_between_nothing_and_one(metric, a, b):
    assert 0.0 <= similarity(metric, a, b) <= 1.0 + 1e-12
