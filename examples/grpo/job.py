"""A whole job on this machine: a server, rollout processes, a trainer and a cleaner, some of which it kills on the way.
It feeds the problems.

    python job.py --directory DIR [--seed N] [--max-staleness N] [--stream] [--versions N] [--kills]

At the end the run's event log is checked by `berth verify`, and what the job found is in DIR/result.json.
"""

from __future__ import annotations

import argparse
import queue
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import berth

from feeding import Feeder
from files import Files, save_checkpoint
from grpo import fresh
from kills import Kill, all_kinds
from processes import Ended, Process, berth_binary, end_orderly_on_signals, python
from results import Result, measure
from settings import Settings
from warmup import warm_up

LONGEST_SILENCE_S = 300
"""A job in which nothing happens for so long hangs: that is an error, and Berth says what it waits for."""

FEED_EVERY = 5
"""Versions from one look at the prompt queue to the next."""

SHARED_MEMORY = Path("/dev/shm")


class Job:
    """One job, from its first process to its last."""

    def __init__(self, settings: Settings, kills: list[Kill]) -> None:
        self._settings = settings
        self._kills = list(kills)
        self._killed: list[str] = []
        self._news: queue.Queue[object] = queue.Queue()
        self._began_s = time.monotonic()
        directory = Path(settings.directory)
        self._settings_file = directory / "settings.json"
        settings.save(self._settings_file)

        file = str(self._settings_file)
        listen = settings.url.removeprefix("http://")
        serve = [berth_binary(), "serve", "--listen", listen, "--data-dir", str(directory / "berth-data")]
        commands = {"server": serve, "trainer": python("trainer.py", file), "cleaner": python("cleaner.py", file)}
        for number in range(settings.rollouts):
            name = f"rollout-{number}"
            commands[name] = python("rollout.py", file, name)
        self._processes = {name: Process(name, command, directory, self._news) for name, command in commands.items()}
        self._unfinished = set(self._processes) - {"server"}

    def run(self, start: Path) -> Result:
        """Runs it to its end, and has its event log checked. `start` is the checkpoint that version 0 is."""
        try:
            self._prepare(start)
            self._see_through()
            self._verify()
            return self._measure()
        finally:
            for process in self._processes.values():
                process.stop()

    def _prepare(self, start: Path) -> None:
        files = Files(self._settings)
        shutil.copy(start, files.checkpoints / "00000.npz")
        self._processes["server"].start()
        run = self._settings.connect()
        # Four times what is trained until the next look: groups that are filtered, as all right or all wrong, use problems up, too.
        self._feeder = Feeder(run, self._settings.seed, 4 * FEED_EVERY * self._settings.batch_size)
        self._feeder.fill()
        run.publish_initial(files.save_weights(files.load_checkpoint(0)))
        for name in sorted(self._unfinished):
            self._processes[name].start()
        self._say("job", f"started: server, {', '.join(sorted(self._unfinished))}")
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        try:
            for event in self._settings.connect(patience_s=60).follow():
                self._news.put(event)
        except berth.BerthError as error:
            # At the end, too: when the server is gone, and nobody looks for news any more.
            self._news.put(error)

    def _see_through(self) -> None:
        while self._unfinished:
            news = self._next_news()
            if isinstance(news, Ended):
                self._see_end(news)
            elif isinstance(news, berth.Event):
                self._see_event(news)
            elif isinstance(news, berth.BerthError):
                raise news
        left = list(Files(self._settings).payloads.iterdir())
        if left:
            raise RuntimeError(f"{len(left)} payloads that nobody will read were not deleted, as {left[0].name}")
        if self._kills:
            raise RuntimeError(f"the job ended before {self._kills}")

    def _next_news(self) -> object:
        try:
            return self._news.get(timeout=LONGEST_SILENCE_S)
        except queue.Empty:
            summary = self._settings.connect().explain().summary
            raise RuntimeError(f"nothing happened for {LONGEST_SILENCE_S} s. {summary}") from None

    def _see_end(self, ended: Ended) -> None:
        process = ended.process
        if ended.status != 0 or process.name not in self._unfinished:
            raise RuntimeError(f"{process.name} ended with {ended.status}:\n{process.last_words()}")
        self._unfinished.remove(process.name)
        self._say(process.name, "is done")

    def _see_event(self, event: berth.Event) -> None:
        for kill in [kill for kill in self._kills if kill.is_due(event)]:
            self._kills.remove(kill)
            process = self._processes[kill.victim]
            pid = process.kill()
            self._killed.append(f"{kill.victim} at {event.type} {event.version}")
            self._say(kill.victim, f"killed (SIGKILL, pid {pid}) after {event.type} {event.version}")
            self._say(kill.victim, f"starts again (pid {process.start()})")
        if event.type == "trainer_opened" and event.raw.get("epoch", 0) > 1:
            behind = event.raw["policy_version"] - event.raw["resumed_from"]
            self._say("trainer", f"goes on from version {event.raw['resumed_from']}, {behind} behind the latest")
        if event.type == "publish" and event.version is not None:
            if event.version % FEED_EVERY == 0:
                self._feeder.fill()
            if event.version % 20 == 0:
                self._say("trainer", f"published version {event.version}")

    def _verify(self) -> None:
        command = [berth_binary(), "verify", "--run", self._settings.run, "--url", self._settings.url]
        verified = subprocess.run(command, capture_output=True, text=True)
        Path(self._settings.directory, "verify.txt").write_text(verified.stdout + verified.stderr)
        if verified.returncode != 0:
            raise RuntimeError(f"berth verify found violations:\n{verified.stdout}{verified.stderr}")
        self._say("verify", verified.stdout.splitlines()[0])

    def _measure(self) -> Result:
        run = self._settings.connect()
        result = measure(self._settings, self._killed, run.events(), run.status().totals)
        result.save(self._settings.directory)
        self._say(
            "policy",
            ", ".join(
                f"{right:.1%} at version {version}"
                for version, right in result.curve[:: max(1, len(result.curve) // 5)]
            ),
        )
        return result

    def _say(self, who: str, what: str) -> None:
        print(f"{time.monotonic() - self._began_s:7.1f} s  {who:<10} {what}", flush=True)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def start_from(seed: int, path: Path) -> Path:
    """The checkpoint of the warmed-up policy of this seed; it is made if it is not there yet."""
    if not path.exists():
        began_s = time.monotonic()
        save_checkpoint(path, fresh(warm_up(seed)))
        print(f"warmed up seed {seed} in {time.monotonic() - began_s:.1f} s", flush=True)
    return path


def run_job(directory: Path, start: Path, *, kills: bool, **chosen: Any) -> Result:
    """Runs a job in a new directory; `chosen` are the settings that differ from their defaults."""
    directory.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="berth-grpo-", dir=SHARED_MEMORY) as shared:
        url = f"http://127.0.0.1:{_free_port()}"
        settings = Settings(run="grpo", url=url, directory=str(directory.resolve()), shared=shared, **chosen)
        schedule = all_kinds(settings.versions, settings.checkpoint_every, stream=settings.stream) if kills else []
        return Job(settings, schedule).run(start)


def main() -> None:
    parser = argparse.ArgumentParser(description="GRPO on addition, over Berth, on this machine.")
    parser.add_argument("--directory", type=Path, required=True, help="a new directory for all that the job leaves")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-staleness", type=int, default=1)
    parser.add_argument("--stream", action="store_true", help="take each batch in pieces, as its groups finish")
    parser.add_argument("--versions", type=int, default=200)
    parser.add_argument("--kills", action="store_true", help="kill processes on the way")
    told = vars(parser.parse_args())
    end_orderly_on_signals()
    directory = told.pop("directory")
    start = start_from(told["seed"], directory.with_name(f"start-{told['seed']}.npz"))
    run_job(directory, start, **told)


if __name__ == "__main__":
    main()
