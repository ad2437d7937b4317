"""The task: addition of two numbers of up to three digits. What is asked, how it is written in tokens, and how an answer is scored.

Operands stand right-aligned in fields of their own, and the answer is written from its last digit to its first: digits of the same
weight are then always as far apart. How many digits an answer has, and so how long its generation takes, is for the policy to say.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

DIGITS = 3
"""The most digits of an operand."""

PLUS, EQUALS, BLANK, END = 10, 11, 12, 13
"""The tokens that are no digits."""

VOCABULARY = 14
PROMPT_TOKENS = 2 * DIGITS + 2
ANSWER_TOKENS = DIGITS + 2
"""The longest answer: one digit more than an operand, and `END`."""

SEQUENCE_TOKENS = PROMPT_TOKENS + ANSWER_TOKENS


@dataclass(frozen=True)
class Problem:
    """`left + right`."""

    left: int
    right: int

    def prompt(self) -> list[int]:
        """The `PROMPT_TOKENS` tokens that ask."""
        return [*_field(self.left), PLUS, *_field(self.right), EQUALS]

    def answer(self) -> list[int]:
        """The right answer, `END` included."""
        return [*(int(digit) for digit in reversed(str(self.left + self.right))), END]


def draw(rng: random.Random) -> Problem:
    """A problem. Each number of digits is as likely as any other."""
    return Problem(_operand(rng), _operand(rng))


def is_right(problem: Problem, answer: Sequence[int]) -> bool:
    """Whether the generated tokens (`END` included, if it was reached) are the answer."""
    return list(answer) == problem.answer()


def reward(problem: Problem, answer: Sequence[int]) -> float:
    """The share of the answer's tokens that are right: 1 for the right answer, and only for it."""
    right = problem.answer()
    agreeing = sum(generated == wanted for generated, wanted in zip(answer, right, strict=False))
    return agreeing / max(len(right), len(answer))


def held_out(count: int) -> list[Problem]:
    """Problems to measure with, drawn with a seed that nothing else uses."""
    rng = random.Random("held out")
    return [draw(rng) for _ in range(count)]


def _operand(rng: random.Random) -> int:
    digits = rng.randint(1, DIGITS)
    smallest = 0 if digits == 1 else 10 ** (digits - 1)
    return rng.randrange(smallest, 10**digits)


def _field(operand: int) -> list[int]:
    digits = [int(digit) for digit in str(operand)]
    return [BLANK] * (DIGITS - len(digits)) + digits
