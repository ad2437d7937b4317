"""Berth in place of the buffers of three RL frameworks, a module each: they are told apart in `docs/adapters.md`.

A module imports its framework, and so is imported only where that is installed:

- `berth.adapters.trl`: a source of rollouts for TRL's asynchronous GRPO trainer.
- `berth.adapters.verl`: the queue of samples of verl's fully asynchronous recipe.
- `berth.adapters.nemo_rl`: the replay buffer of NeMo-RL's asynchronous GRPO.
"""
