/** A bare HTTP service with injected faults, which the search for faults must find. */
import { once } from "node:events";
import { createServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import * as fc from "fast-check";

import type { AttackClass } from "./attack.ts";
import type { ServiceUnderAttack } from "./service-under-attack.ts";

/** The reaction of `/attack` to a number; attacks send 0 to 1000. */
export type Fault = (size: number, response: ServerResponse, state: State) => void;

/** Mutable: the reported state of the service. */
export interface State {
  numSteps: number;
  cpuSeconds: number;
  numSequences: number;
  numHeldBytes: number;
  numSockets: number;
  isPoisoned: boolean;
  readonly complaints: string[];
}

/** Answers ordinary requests correctly, and attacks with 200 unless `fault` has answered. */
export async function startFaultyService(fault: Fault): Promise<ServiceUnderAttack> {
  const state: State = {
    numSteps: 0,
    cpuSeconds: 0,
    numSequences: 0,
    numHeldBytes: 0,
    numSockets: 1,
    isPoisoned: false,
    complaints: [],
  };
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = await text(request);
    if (request.url === "/attack") fault(Number(body), response, state);
    state.numSteps += state.isPoisoned ? 1000 : 1;
    if (!response.writableEnded) sendJson(response, 200, { choices: [body.length], usage: {} });
  };
  const server = createServer((request, response) => void answer(request, response));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    figures: async () => ({ ...state, numGeneratedTokens: 0, numRequests: 0, residentBytes: 0 }),
    holdings: async () => ({ numBytes: state.numHeldBytes, numResources: { TCPSocketWrap: state.numSockets } }),
    takeComplaints: () => state.complaints.splice(0),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

export function sendJson(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}

/** Sends numbers. The route is the parity of the number, so that routes can be filtered. */
export const numbers: AttackClass = {
  name: "numbers",
  title: "Numbers",
  numCases: 100,
  routes: ["POST /even", "POST /odd"],
  prepare: async () => ({ environment: {}, secrets: ["the-secret"], async [Symbol.asyncDispose]() {} }),
  attacks: () =>
    fc.nat(1000).map((size) => ({
      route: size % 2 === 0 ? "POST /even" : "POST /odd",
      label: `size ${size}`,
      shown: String(size),
      run: async (wire) => [await wire.send({ method: "POST", target: "/attack", body: String(size) })],
    })),
};
