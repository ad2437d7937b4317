"""Sampling and learning, without a ledger."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation import accuracy
from grpo import Gathering, State, fresh
from model import Params, answer_log_probs, init
from sampling import Floats, Samples, Weights, sample
from task import Problem, is_right

log_probs = jax.jit(answer_log_probs)
# Four in all tests, and pieces of up to four: each number of rows is compiled for.
PROBLEMS = [Problem(1, 2), Problem(30, 4), Problem(500, 60), Problem(7, 8)]


@pytest.fixture(scope="module")
def params() -> Params:
    return init(0)


def sampled(params: Params, version: int = 0) -> Samples:
    weights = Weights(version, params)
    return sample(PROBLEMS, 1, lambda: weights)


def rows(samples: Samples, begin: int, end: int) -> Samples:
    return Samples(
        samples.tokens[begin:end], samples.mask[begin:end], samples.log_probs[begin:end], samples.versions[begin:end]
    )


def advantages(count: int) -> Floats:
    return np.linspace(-1, 1, count, dtype=np.float32)


def test_the_log_probs_of_samples_are_those_that_the_trainer_computes(params: Params) -> None:
    samples = sampled(params)
    computed = np.asarray(log_probs(params, jnp.asarray(samples.tokens)))
    np.testing.assert_allclose(samples.log_probs * samples.mask, computed * samples.mask, atol=1e-4)


def test_weights_that_change_between_two_tokens_are_recorded_by_token(params: Params) -> None:
    asked = 0

    def newer_each_time() -> Weights:
        nonlocal asked
        asked += 1
        return Weights(7 + (asked > 2), params)

    samples = sample(PROBLEMS, 1, newer_each_time)
    longest = int(samples.mask.sum(axis=1).argmax())
    assert samples.length(longest) > 2
    assert samples.version_changes(longest) == [(7, 0), (8, 2)]


def test_a_batch_in_pieces_makes_the_step_of_the_whole_batch(params: Params) -> None:
    samples, weights = sampled(params), advantages(4)
    whole, pieces = Gathering(fresh(params), 4), Gathering(fresh(params), 4)
    whole.add(samples, weights)
    pieces.add(rows(samples, 0, 3), weights[:3])
    pieces.add(rows(samples, 3, 4), weights[3:])
    of_pieces = pieces.step().params
    for name, value in whole.step().params.items():
        np.testing.assert_allclose(value, of_pieces[name], atol=1e-5)


def test_the_same_pieces_make_the_same_step_to_the_bit(params: Params) -> None:
    def step() -> State:
        gathering = Gathering(fresh(params), 4)
        gathering.add(sampled(params), advantages(4))
        return gathering.step()

    once, again = step(), step()
    assert all((once.params[name] == again.params[name]).all() for name in params)


def test_a_step_makes_what_had_an_advantage_likelier(params: Params) -> None:
    samples = sampled(params)
    gathering = Gathering(fresh(params), 4)
    gathering.add(rows(samples, 0, 1), np.ones(1, np.float32))

    def log_prob(of: Params) -> float:
        return float((log_probs(of, jnp.asarray(samples.tokens)) * samples.mask)[0].sum())

    assert log_prob(gathering.step().params) > log_prob(params)


def test_tokens_that_moved_out_of_the_clip_range_do_not_move_the_weights(params: Params) -> None:
    samples = sampled(params)
    # As if the policy that sampled them had thought each of them much less likely.
    moved = Samples(samples.tokens, samples.mask, samples.log_probs - 1, samples.versions)
    state = fresh(params)
    gathering = Gathering(state, 4)
    gathering.add(moved, np.ones(4, np.float32))
    assert all((value == params[name]).all() for name, value in gathering.step().params.items())


def test_staleness_is_counted_by_token(params: Params) -> None:
    samples = sampled(params)
    samples.versions[:, 0], samples.versions[:, 1:] = 3, 5
    start = fresh(params)
    gathering = Gathering(State(5, params, start.mean, start.square), 4)
    gathering.add(samples, advantages(4))
    counted = {staleness: of.tokens for staleness, of in gathering.staleness().items()}
    assert counted == {2: 4, 0: int(samples.mask.sum()) - 4}


def test_nothing_behind_an_answers_end_counts(params: Params) -> None:
    samples = sampled(params)
    samples.mask[:, 2:] = 0
    scribbled = samples.log_probs.copy()
    scribbled[samples.mask == 0] = 99
    other = Samples(samples.tokens, samples.mask, scribbled, samples.versions)
    steps = []
    for each in (samples, other):
        gathering = Gathering(fresh(params), 4)
        gathering.add(each, advantages(4))
        steps.append(gathering.step().params)
    assert all((steps[0][name] == steps[1][name]).all() for name in params)


def test_the_share_of_right_answers_to_be_expected_is_that_which_is_sampled(params: Params) -> None:
    asked = [Problem(1, 2)] * 4_096
    weights = Weights(0, params)
    samples = sample(asked, 1, lambda: weights)
    right = [row for row in range(len(asked)) if is_right(asked[row], samples.answer(row))]
    expected = accuracy(params, asked[:1])
    assert expected == pytest.approx(np.exp((samples.log_probs * samples.mask)[right[0]].sum()), rel=1e-3)
    # Three standard deviations of the number of those that are right.
    assert abs(len(right) - expected * 4_096) < 3 * (expected * 4_096) ** 0.5
