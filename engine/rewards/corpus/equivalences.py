"""Right answers in other clothes. A reward that rejects them teaches a format instead of a skill, or nothing at all."""

from __future__ import annotations

from engine.rewards.corpus import Case, Topic

NUMBER = "Give the number."


def _right(kind: str, answer: str, *texts: str, topic: Topic = "number", question: str = NUMBER) -> list[Case]:
    return [Case(group="equivalence", kind=kind, topic=topic, question=question, answer=answer, text=text, right=True) for text in texts]


CASES: tuple[Case, ...] = (
    *_right(
        "plain",
        "42",
        "42",
        " 42\n",
        "42.",
        "The answer is 42.",
        "6 * 7 = 42",
        "So x = 42!",
        "**42**",
        "#### 42",
        "Answer: 42",
        "042",
        "+42",
    ),
    *_right("plain", "-5", "-5", "−5", "x = -5", "negative 5", "minus 5", "It is -5."),
    *_right("decimals", "42", "42.0", "42.00", "4.2e1"),
    *_right("decimals", "0.5", ".5", "0.50", "5e-1", "0,5"),
    *_right("fractions", "0.5", "1/2", "1 / 2", "\\frac{1}{2}", "\\frac12", "$\\dfrac{1}{2}$", "½", "2/4", "\\boxed{\\frac{1}{2}}"),
    *_right("fractions", "3/4", "0.75", "\\frac{3}{4}", "6/8", "¾", "3 / 4"),
    *_right("fractions", "1.5", "3/2", "1 1/2", "1\\frac{1}{2}", "1½", "\\frac{3}{2}"),
    *_right("fractions", "-1/2", "-0.5", "-\\frac{1}{2}", "\\frac{-1}{2}"),
    *_right("percent", "50%", "50%", "50 %", "50\\%", "50 percent", "0.5"),
    *_right("percent", "0.25", "25%", "25 percent"),
    *_right(
        "units", "42", "42 km", "42km", "$42", "42 dollars", "42 °C", "$42^\\circ$", "42 cm^2", "42 m²", "42 m2", "\\text{42 apples}", "€42"
    ),
    *_right("units", "18.50", "$18.50", "18.50 USD", "USD 18.50", "18.5 dollars", "\\$18.50"),
    *_right(
        "thousands separators", "1234", "1,234", "1 234", "1\u00a0234", "1\u202f234", "1'234", "1{,}234", "1\\,234", "1,234.00", "1_234"
    ),
    *_right("thousands separators", "1234567", "1,234,567", "1.234.567", "1 234 567", "12,34,567", "1234567"),
    *_right(
        "LaTeX",
        "42",
        "$42$",
        "\\(42\\)",
        "\\[42\\]",
        "\\boxed{42}",
        "$\\boxed{42}$",
        "\\boxed{\\text{42}}",
        "\\fbox{42}",
        "$x = 42$",
        "\\mathbf{42}",
    ),
    *_right(
        "LaTeX",
        "42",
        "$4.2 \\times 10^{1}$",
        "$4.2 \\cdot 10^1$",
        "4.2 × 10^1",
        "$\\left(42\\right)$",
        "We get $\\boxed{42}$ apples, 3 more than before.",
    ),
    *_right("powers", "1024", "2^10", "$2^{10}$"),
    *_right("spelled numbers", "42", "forty-two", "Forty two.", "The answer is forty-two.", "\\boxed{\\text{forty-two}}"),
    *_right("spelled numbers", "105", "one hundred and five", "one hundred five", "a hundred and five"),
    *_right("spelled numbers", "12000", "twelve thousand", "12 thousand"),
    *_right("spelled numbers", "2.5", "two and a half"),
    *_right("spelled numbers", "0.75", "three quarters", "three-quarters"),
    *_right("spelled numbers", "3000000", "3 million", "three million"),
    *_right("reasoning", "42", "First 6 + 6 = 12, then 12 * 3 = 36, and 36 + 6 = 42.", "Of the 100 apples, 42 are left.", "40\n+ 2\n= 42"),
    *_right(
        "reasoning", "42", "Step 1: 6 * 7. Step 2: count. The answer is 42. I am sure that this is the right one.", "It is not 41, but 42."
    ),
    *_right("long text", "42", "let me think, " * 2000 + "the answer is 42", "42" + " and that is all" * 500),
    *_right("expressions", "2\\sqrt{3}", "2\\sqrt{3}", "$\\sqrt{12}$", "\\boxed{2\\sqrt3}", "$2 \\cdot 3^{1/2}$", topic="expression"),
    *_right("expressions", "x^2+2x+1", "$(x+1)^2$", "$1 + 2x + x^2$", "\\boxed{x^2 + 2x + 1}", topic="expression"),
    *_right("expressions", "\\frac{\\pi}{4}", "$\\pi/4$", "$0.25\\pi$", "\\boxed{\\frac{\\pi}{4}}", topic="expression"),
    *_right("expressions", "(3, 4)", "(3, 4)", "\\boxed{(3,4)}", "$(3, 4)$", topic="expression"),
    *_right("capitals and blanks", "Paris", "Paris", " paris ", "PARIS", "Paris.", topic="text", question="What is the capital of France?"),
    *_right(
        "in a sentence", "Paris", "The capital of France is Paris.", "It's Paris!", topic="text", question="What is the capital of France?"
    ),
    *_right(
        "letters",
        "B",
        "B",
        "(B)",
        "B)",
        "The answer is B.",
        "\\boxed{B}",
        topic="choice",
        question="A) Lyon B) Paris. Answer with the letter.",
    ),
)
