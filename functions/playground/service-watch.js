/** Waits until the server is ready, and shows its state until then. */

/** @import { ServerClient } from "./server-client.js" */

const POLL_MS = 1000;

/** @typedef {"connecting" | "starting" | "ready" | "stalled" | "draining" | "failed" | "unreachable" | "locked"} ShownState */

/** @type {Readonly<Record<ShownState, string>>} */
const words = {
  connecting: "Connecting",
  starting: "Model is loading",
  ready: "Ready",
  stalled: "The engine is stuck in a step",
  draining: "Shutting down",
  failed: "The engine has failed",
  unreachable: "Server unreachable, retrying",
  locked: "API key needed",
};

/**
 * @param {HTMLElement} element
 * @param {ShownState} state
 */
export function showState(element, state) {
  element.dataset.state = state;
  // Setting the same text again would make screen readers read it again.
  if (element.textContent !== words[state]) element.textContent = words[state];
}

/**
 * Resolves once the server is ready.
 *
 * @param {ServerClient} client
 * @param {(state: ShownState) => void} onState
 */
export async function waitUntilReady(client, onState) {
  while (true) {
    const state = await readState(client);
    if (state === "ready") return;
    onState(state);
    const { promise, resolve } = Promise.withResolvers();
    setTimeout(resolve, POLL_MS, undefined);
    await promise;
  }
}

/**
 * @param {ServerClient} client
 * @returns {Promise<ShownState>}
 */
async function readState(client) {
  try {
    return await client.state();
  } catch (error) {
    const status = error instanceof Error && "status" in error ? error.status : 0;
    return status === 500 ? "failed" : "unreachable";
  }
}
