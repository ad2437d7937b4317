// A rollout worker on Node's own fetch: node worker.mjs http://127.0.0.1:8080/v1/runs/RUN NAME
//
// It keeps eight prompts of the run's queue in flight and ends when the run is finished. Generations that the ledger cancels
// it stops. Calls that fail in an outage it repeats as they were, which is safe.
import { randomUUID } from "node:crypto";

const [run, worker] = process.argv.slice(2);
const session = randomUUID(); // a worker that starts again is another session: what this one held is given back
const inFlight = new Map(); // id -> what stops its generation
let weights = { version: 0, lineage: 0 };

async function call(path, body) {
  const headers = { "content-type": "application/json" };
  const request = body ? { method: "POST", headers, body: JSON.stringify(body) } : {};
  for (;;) {
    const response = await fetch(`${run}/${path}`, request).catch(() => null);
    const answer = await response?.json().catch(() => null);
    if (response?.ok && answer) return answer;
    // No answer, no database, or one that lost writes and waits for its trainer: none is for ever.
    const passes = !answer || response.status >= 429 || answer.code === "ledger_behind";
    if (!passes) throw Object.assign(new Error(answer.detail), { code: answer.code });
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

// Stands for an engine: a reward and a length, unless it is stopped.
async function generate(prompt, data, signal) {
  for (let token = 0; token < 64; token++) {
    await new Promise(setImmediate);
    signal.throwIfAborted();
  }
  return { reward: Number(data.answer === prompt.length), tokens: 64 };
}

async function rollOut({ id, prompt, data }, lineage) {
  const stop = new AbortController();
  inFlight.set(id, stop);
  const entry = `trajectories/${id}`;
  try {
    const result = await generate(prompt, data, stop.signal);
    await call(`${entry}/occupy`, { worker, session, lineage, ...result });
  } catch (error) {
    if (stop.signal.aborted || error.code === "trajectory_discarded" || error.code === "superseded") return;
    if (error.code) throw error; // "fenced": another process works under this name
    await call(`${entry}/discard`, { worker, session, reason: "engine_failed", note: String(error), requeue: true });
  } finally {
    inFlight.delete(id);
  }
}

// Here weights are loaded, for the generations that start from now on: those in flight go on with what they have.
function load({ policy_version: version, lineage }) {
  weights = { version, lineage };
}

// Keeps the lease, loads newer weights, and stops what was cancelled, until the run is finished.
async function beat() {
  for (let cancelled = [], finished = false; !finished; ) {
    const acknowledged = cancelled.map(({ id }) => id);
    const answer = await call(`workers/${worker}/heartbeat`, { session, ...weights, acknowledged, wait_ms: 10_000 });
    ({ cancelled, finished } = answer);
    cancelled.forEach(({ id }) => inFlight.get(id)?.abort());
    load(answer);
  }
}

async function work() {
  for (let finished = false; !finished; ) {
    const held = weights;
    const wanted = { worker, session, ...held, request_id: randomUUID(), wait_ms: 10_000 };
    const answer = await call("reservations", wanted).catch(async (error) => {
      if (!error.code?.startsWith("version_")) throw error;
      load(await call("versions/latest")); // too old, or abandoned by a rewind
      return { granted: [], finished: false };
    });
    for (const slot of answer.granted) await rollOut(slot, held.lineage);
    ({ finished } = answer);
  }
}

await Promise.all([beat(), ...Array.from({ length: 8 }, work)]);
