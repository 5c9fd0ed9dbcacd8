"""Strings such as models write under training: reasoning, LaTeX, boxes, lists, markup, half-finished and mixed up, from a seed."""

from __future__ import annotations

import random

PIECES = (
    *(
        "42",
        "-7",
        "3.14",
        "1,234",
        "1/2",
        "0",
        "10^6",
        "2.5e-3",
        "½",
        "½%",
        "12:30",
        "2024-05-06",
        "1 000",
        "٣",
        "９９",
        "one hundred",
        "half",
    ),
    *(
        r"\frac{1}{2}",
        r"\frac{x}{",
        r"\sqrt{2}",
        r"\boxed{42}",
        r"\boxed{",
        r"\boxed{\text{no}}",
        "$x+1$",
        "$",
        "$$",
        r"\(",
        r"\)",
        r"\pi",
        "x^2",
    ),
    *(r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\int_0^1 x dx", r"\infty", r"\{1, 2\}", "[0, 1)", r"x \in \mathbb{R}", r"\le 3", "2x = 4"),
    *(
        "The answer is",
        "not",
        "or",
        "and",
        "so",
        "Step 1:",
        "Therefore,",
        "####",
        "**",
        "```",
        "\n",
        "\n\n",
        "- ",
        "<answer>",
        "</think>",
        "{{item.x}}",
    ),
    *(
        "apples",
        "km",
        "%",
        "°C",
        "€",
        "!",
        "?",
        ".",
        ",",
        "(",
        ")",
        "=",
        "≠",
        "<",
        "∞",
        "日本",
        "🙂",
        "\u200b",
        "\ufffd",
        "\x0b",
        "\u202e",
        "A)",
        "\\",
    ),
)


def model_like(seed: int) -> str:
    """The string of ``seed``: mostly short, now and then long or a piece repeated over and over."""
    rng = random.Random(seed)
    if rng.random() < 0.05:
        return rng.choice(PIECES) * rng.choice((50, 500))
    pieces = rng.choices(PIECES, k=rng.choice((1, 3, 8, 20, 60)))
    text = rng.choice(("", " ", " ")).join(pieces)
    return text[: rng.randrange(len(text) + 1)] if rng.random() < 0.2 else text
