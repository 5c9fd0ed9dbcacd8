"""What each kind of adversarial case teaches, in words for the person whose reward fell for it."""

from __future__ import annotations

GROUPS = {"exploit": "Answers without the right answer", "equivalence": "Right answers in other words", "distinction": "Near misses"}
_WRONGLY_PAID = {
    "empty": "An answer without words is paid. The model would learn to say nothing.",
    "echo": "Repeating the question is paid. Look at the answer only, not at any text that holds it.",
    "shotgun": "Listing candidates is paid: the right one is among them. Take the final answer only, or refuse several.",
    "negation": "A text that says it is not the answer is paid. A search for the answer's text cannot tell the two apart.",
    "contradiction": "An answer that is taken back is paid. What stands last should count.",
    "padding": "Endless filler is paid. The model would learn to write to its limit.",
    "format only": "The format alone is paid, with nothing in it. Pay for the content, and for the format on top at most.",
    "judge injection": "Words to the judge are paid. Mark the completion as data, or do not let a model judge this.",
    "judge flattery": "Praise for the judge is paid.",
    "template echo": "The names of the template's places are paid, with nothing filled in.",
    "refusal": "Refusing to answer is paid.",
}
_WRONGLY_REFUSED = {
    "plain": "The answer as it stands is not paid. Is a certain format demanded? Then the model is paid for the format first.",
    "spelled numbers": "A number in words is not paid.",
    "thousands separators": "1,234 and 1234 are the same number.",
    "LaTeX": "The same value in LaTeX is not paid. Models that were trained on mathematics write it.",
    "units": "A right number with its unit is not paid.",
    "fractions": "The same value as a fraction or a decimal is not paid.",
    "decimals": "The same value with more or fewer decimals is not paid.",
    "percent": "The same value as a percentage is not paid.",
    "reasoning": "The right answer behind its reasoning is not paid. Models that think aloud would be trained not to.",
    "long text": "The right answer at the end of a long text is not paid.",
    "letters": "The right letter in another dress is not paid.",
    "capitals and blanks": "Capitals or blanks alone make it wrong.",
    "in a sentence": "The right answer inside a sentence is not paid.",
}
_NEAR_MISS = "A wrong answer that looks like the right one is paid. Compare values, not pieces of text."
_OTHER_WORDS = "A right answer in another form is not paid. The model would learn the form instead of the skill."


def false_accept(group: str, kind: str) -> str:
    return _WRONGLY_PAID.get(kind, _NEAR_MISS if group == "distinction" else "Nothing in this text deserves the reward.")


def false_reject(kind: str) -> str:
    return _WRONGLY_REFUSED.get(kind, _OTHER_WORDS)
