/** A request that attacks nothing. Its answer and cost are learned once and must not change. */
import { readFile } from "node:fs/promises";

import type { Figures, ServiceUnderAttack } from "./service-under-attack.ts";
import type { Wire } from "./wire.ts";

const picture = new URL("../../models/fovea-shapes/examples/scene.png", import.meta.url);
const MAX_TOKENS = 6;
const NUM_LEARNING_ROUNDS = 5;
/** As multiples of the steps that it takes alone. */
const MAX_STEPS_FACTORS = {
  // Sequences of attacks take part in its steps, and the engine continues while the HTTP thread works for others.
  beside: 40,
  // Room for the last steps of sequences whose client has just disconnected.
  after: 8,
};

export interface OrdinaryOutcome {
  readonly faults: readonly string[];
  /** Steps of the engine until the answer, as a multiple of its steps alone. */
  readonly factor: number;
  /** At the time of the answer; null without an answer. */
  readonly figures: Figures | null;
}

export type Moment = "beside" | "after";

/** Mutable only while it learns. */
export class OrdinaryRequest {
  readonly #service: Pick<ServiceUnderAttack, "figures">;
  readonly #wire: Wire;
  readonly #body: object;
  #text = "";
  #numSteps = 0;

  private constructor(service: Pick<ServiceUnderAttack, "figures">, wire: Wire, body: object) {
    this.#service = service;
    this.#wire = wire;
    this.#body = body;
  }

  /** Repeats the request until everything cacheable is cached. Throws if the answers differ. */
  static async learn(service: Pick<ServiceUnderAttack, "figures">, wire: Wire): Promise<OrdinaryRequest> {
    const ordinary = new OrdinaryRequest(service, wire, await createBody());
    let { numSteps } = await service.figures();
    for (let round = 0; round < NUM_LEARNING_ROUNDS; round++) {
      const { text, figures } = await ordinary.#ask();
      if (round > 0 && text !== ordinary.#text) throw new Error(`The same request has two answers: ${text}`);
      ordinary.#text = text;
      ordinary.#numSteps = figures.numSteps - numSteps;
      numSteps = figures.numSteps;
    }
    return ordinary;
  }

  /** The same request over other connections. */
  over(wire: Wire): OrdinaryRequest {
    const same = new OrdinaryRequest(this.#service, wire, this.#body);
    same.#text = this.#text;
    same.#numSteps = this.#numSteps;
    return same;
  }

  /** Problems of the current answer, one sentence each. */
  async ask(moment: Moment, before: Figures): Promise<OrdinaryOutcome> {
    try {
      const { text, figures } = await this.#ask();
      const factor = (figures.numSteps - before.numSteps) / this.#numSteps;
      const faults: string[] = [];
      if (text !== this.#text) faults.push(`An ordinary request ${moment} has another answer: ${text}`);
      if (factor > MAX_STEPS_FACTORS[moment]) {
        faults.push(`An ordinary request ${moment} took ${factor * this.#numSteps} steps, not ${this.#numSteps}.`);
      }
      return { faults, factor, figures };
    } catch (error) {
      return {
        faults: [`An ordinary request ${moment} failed: ${(error as Error).message}`],
        factor: 0,
        figures: null,
      };
    }
  }

  async #ask(): Promise<{ readonly text: string; readonly figures: Figures }> {
    const { status, text } = await this.#wire.sendJson("/v1/chat/completions", this.#body);
    if (status !== 200) throw new Error(`status ${status}, ${text.slice(0, 300)}`);
    const { choices, usage } = JSON.parse(text) as Record<string, unknown>;
    return { text: JSON.stringify([choices, withoutCache(usage)]), figures: await this.#service.figures() };
  }
}

async function createBody(): Promise<object> {
  const url = `data:image/png;base64,${await readFile(picture, "base64")}`;
  const content = [
    { type: "image_url", image_url: { url } },
    { type: "text", text: "Describe the picture." },
  ];
  return { messages: [{ role: "user", content }], temperature: 0, max_tokens: MAX_TOKENS };
}

/** The reused part of a prompt depends on earlier requests. */
function withoutCache(usage: unknown): unknown {
  const { prompt_tokens_details: _, ...counts } = usage as Record<string, unknown>;
  return counts;
}
