"""Whether TRL's settings fit a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import models as m


def refusals(config: m.RunConfig, args: Any, processes: int) -> Iterator[str]:
    """Why an ``AsyncGRPOConfig`` can't train the run's batches in so many processes; nothing if it can."""
    samples = config.batch_size * config.group_size
    trained = (
        args.per_device_train_batch_size * args.gradient_accumulation_steps * processes * args.weight_sync_steps
    )
    if samples != trained:
        yield (
            f"batch_size {config.batch_size} × group_size {config.group_size} is {samples} samples, but between two weight syncs "
            f"TRL trains per_device_train_batch_size {args.per_device_train_batch_size} × gradient_accumulation_steps "
            f"{args.gradient_accumulation_steps} × {processes} processes × weight_sync_steps {args.weight_sync_steps} = {trained}"
        )
    if args.num_generations != config.group_size:
        yield f"num_generations is {args.num_generations}, and group_size {config.group_size}: they are the same thing"
    if args.max_staleness < config.max_staleness:
        yield (
            f"max_staleness is {args.max_staleness}, and the run's {config.max_staleness}: TRL would drop samples of batches; "
            "set TRL's to the run's"
        )
    if args.token_budget is None or args.token_budget > 0:
        yield "token_budget must be 0: with a budget a step has any number of samples, and batches do not end with steps"
    if config.final_batch != "discard":
        yield "a shorter last batch would fill no step: create the run with final_batch='discard'"
    if args.save_strategy == "steps" and args.save_steps >= 1 and args.save_steps % args.weight_sync_steps:
        yield f"save_steps {args.save_steps} is no multiple of weight_sync_steps {args.weight_sync_steps}"
