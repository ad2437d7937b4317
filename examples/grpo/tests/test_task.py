"""The task: what is asked, and what an answer earns."""

from __future__ import annotations

import random

from task import ANSWER_TOKENS, BLANK, END, EQUALS, PLUS, PROMPT_TOKENS, Problem, draw, held_out, is_right, reward


def test_a_problem_is_written_with_its_operands_right_aligned_and_its_answer_from_the_last_digit() -> None:
    problem = Problem(95, 7)
    assert problem.prompt() == [BLANK, 9, 5, PLUS, BLANK, BLANK, 7, EQUALS]
    assert problem.answer() == [2, 0, 1, END]


def test_every_problem_fits() -> None:
    rng = random.Random(0)
    for problem in [draw(rng) for _ in range(1_000)] + [Problem(999, 999), Problem(0, 0)]:
        assert len(problem.prompt()) == PROMPT_TOKENS
        assert len(problem.answer()) <= ANSWER_TOKENS


def test_only_the_right_answer_earns_a_whole_reward() -> None:
    problem = Problem(95, 7)
    earned = {
        (2, 0, 1, END): 1.0,
        (2, 0, 2, END): 0.75,
        (2, 0, 1): 0.75,
        (2, 0, 1, 0, END): 0.6,
        (): 0.0,
    }
    assert {answer: reward(problem, answer) for answer in earned} == earned
    assert [answer for answer in earned if is_right(problem, answer)] == [(2, 0, 1, END)]


def test_the_held_out_problems_are_always_the_same() -> None:
    assert held_out(5) == held_out(10)[:5]
