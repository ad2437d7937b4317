"""Berth in the place of the buffers of three RL frameworks, a module each. `docs/adapters.md` maps their terms to Berth's.

None is imported by ``import berth``. The first two import their framework:

- `berth.adapters.trl`: a source of rollouts for TRL's asynchronous GRPO trainer.
- `berth.adapters.verl`: the queue of samples of verl's fully asynchronous recipe.
- `berth.adapters.nemo_rl`: the replay buffer of NeMo-RL's asynchronous GRPO.
"""
