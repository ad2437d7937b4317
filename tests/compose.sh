#!/usr/bin/env bash
# `docker compose up` as a new user meets it: the image builds, both services become healthy, the README's calls work,
# and a run is still there after a `down` and an `up`. In a compose project of its own, on a free port.
#
# From the README it runs each code block that follows a line with `tests/compose.sh` in it (an HTML comment).
set -euo pipefail
cd "$(dirname "$0")/.."

not_run() {
  printf '\n*** NOT RUN: tests/compose.sh: %s ***\n\n' "$1" >&2
  exit 0
}
docker info >/dev/null 2>&1 || not_run 'no container engine answers'
docker compose version >/dev/null 2>&1 || not_run 'the docker compose plugin is not installed'

export COMPOSE_PROJECT_NAME="berth-test-$$" BERTH_PORT=0

finish() {
  local status=$?
  trap - EXIT
  if [[ $status != 0 ]]; then docker compose ps --all; docker compose logs --no-color --tail 50; fi >&2
  docker compose down --volumes --rmi local >/dev/null 2>&1
  exit "$status"
}
trap finish EXIT

say() { printf 'compose: %s\n' "$*"; }

up() {
  docker compose up --detach --wait --wait-timeout 120
  address=$(docker compose port berth 8080)
}

readme_calls() {
  awk '/^```/ { if (inside) { inside = 0 } else { inside = marked; marked = 0 } next }
       inside
       /tests\/compose\.sh/ { marked = 1 }' README.md
}

# The names of the runs.
runs() { curl --fail-with-body --silent --show-error --max-time 30 "http://$address/v1/runs" | grep -o '"run": *"[^"]*"'; }

say 'building the image, without optimisation'
docker compose build --build-arg CARGO_PROFILE_RELEASE_OPT_LEVEL=0
say 'starting'
up

calls=$(readme_calls)
[[ $calls == *curl* ]] || { say 'README.md has no calls marked for this script' >&2; exit 1; }
say "the calls of the README, on $address:"
printf '%s\n' "$calls"
bash -euo pipefail -c "
  curl() { command curl --fail-with-body --silent --show-error --max-time 30 \"\$@\" && echo; }
  ${calls//127.0.0.1:8080/$address}"

say 'down and up again'
before=$(runs)
docker compose down
up
after=$(runs)
[[ $before == "$after" ]] || { say "runs before: $before, and after: $after" >&2; exit 1; }

say 'PASSED'
