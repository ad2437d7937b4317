"""One of two ranks of the trainer, which writes down what it trained. `torchrun trl_rank.py URL RUN MODEL DIRECTORY`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

# The support of the tests, which pytest finds by itself.
sys.path.append(str(Path(__file__).resolve().parents[1]))

import pytest
from test_trl import stand_in_for_the_gpu, trainer_on

import berth

if __name__ == "__main__":
    url, name, model, directory = sys.argv[1:]
    stand_in_for_the_gpu(pytest.MonkeyPatch())
    run = berth.connect(url).run(name)
    trainer = trainer_on(run, Path(model), Path(directory), max_steps=100, gradient_accumulation_steps=2)
    trainer.train()
    assert trainer.accelerator.num_processes == 2
    trained = [list(trainer.trained[step]) for step in sorted(trainer.trained)]
    Path(directory, f"rank-{trainer.accelerator.process_index}.json").write_text(json.dumps(trained))
