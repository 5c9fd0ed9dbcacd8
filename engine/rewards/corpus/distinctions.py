"""Near misses: wrong answers that look right to a reward that compares loosely."""

from __future__ import annotations

from engine.rewards.corpus import Case, Topic


def _miss(kind: str, answer: str, *texts: str, topic: Topic = "number", question: str = "Give the number.") -> list[Case]:
    return [Case(group="distinction", kind=kind, topic=topic, question=question, answer=answer, text=text, right=False) for text in texts]


CASES: tuple[Case, ...] = (
    *_miss("digits", "42", "421", "142", "4.2", "24", "4 2", "402", "42.5", "41.99", "420"),
    *_miss("sign", "42", "-42", "−42", "x = -42", "negative 42", "minus forty-two"),
    *_miss("sign", "-5", "5", "+5", "10 - 5"),
    *_miss("off by one", "42", "41", "43", "The answer is 43."),
    *_miss("size", "42", "42 thousand", "4.2 million", "42e3", "42 × 10^3", "$42 \\times 10^{3}$"),
    *_miss("size", "12000", "12", "1,200", "120000", "twelve hundred", "12 million"),
    *_miss("inverse", "42", "1/42", "\\frac{1}{42}"),
    *_miss("inverse", "3/4", "4/3", "\\frac{4}{3}", "3", "4", "-3/4"),
    *_miss("fractions", "0.5", "1", "2", "1/3", "0.05", "5", "one and a half", "\\frac{1}{20}"),
    *_miss("mixed numbers", "1.5", "1/2", "1 1/3", "11/2", "1.05"),
    *_miss("rounding", "3.14159", "3.14", "3.1416", "22/7"),
    *_miss("separators", "1234", "1.234", "1,23", "12,34", "123,4", "1,2345"),
    *_miss("long integers", "12345678901234567890", "12345678901234567891", "1234567890123456789", "1.2345678901234568e19"),
    *_miss("last step", "42", "6 * 7 = 42, so together 84.", "She has 42 now and had 10 before, which makes 52.", "42 - 2 = 40"),
    *_miss("spelled numbers", "42", "forty", "twenty-four", "four hundred and two", "forty-two thousand", "forty-three"),
    *_miss("percent", "50%", "5%", "500%", "0.05"),
    *_miss("signs of terms", "x^2+2x+1", "$x^2-2x+1$", "$x^2+2x$", "$(x-1)^2$", "$x^2+2x+2$", topic="expression"),
    *_miss("roots", "2\\sqrt{3}", "$3\\sqrt{2}$", "$\\sqrt{6}$", "$2\\sqrt{3}+1$", "$-2\\sqrt{3}$", topic="expression"),
    *_miss("order", "(3, 4)", "(4, 3)", "(3, 5)", "$(3, 4, 5)$", topic="expression"),
    *_miss("other words", "Paris", "Pari", "Parish", "London", "Paris, Texas", topic="text", question="What is the capital of France?"),
    *_miss("letters", "B", "A", "b)A", "C", "The answer is D.", topic="choice", question="A) Lyon B) Paris. Answer with the letter."),
)
