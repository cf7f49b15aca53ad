/** What an attack is, and what a class of attacks brings along. */
import type { Arbitrary } from "fast-check";

import type { Wire } from "./wire.ts";

/** One HTTP answer, as its client sees it. */
export interface Answer {
  readonly method: string;
  /** As it was asked for, query included. */
  readonly target: string;
  readonly status: number;
  /** Names in lower case; of a name that came twice, the last value. */
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
  /** False where the client left before the end. */
  readonly isComplete: boolean;
}

/** Made from a seed, so that the same seed and case number make the same attack again. */
export interface Attack {
  /** The route it is aimed at, as `POST /v1/completions`. */
  readonly route: string;
  /** One line: what is hostile about it. */
  readonly label: string;
  /** The whole of it as text, shortened where it is long. */
  readonly shown: string;
  /** Resolves to all answers that came. Rejects where one that is due does not come. */
  readonly run: (wire: Wire) => Promise<readonly Answer[]>;
}

/** What the service of a class runs with, and what must not show in any answer. */
export interface Surroundings extends AsyncDisposable {
  readonly environment: Readonly<Record<string, string>>;
  /** Texts that no answer may hold: keys, URLs with passwords, folders, texts of other tenants. */
  readonly secrets: readonly string[];
  /** Sent with every ordinary request, and with attacks unless they say otherwise. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Called when the service is ready, before the first attack: leaves what attacks are to reach for. */
  readonly plant?: (wire: Wire) => Promise<void>;
  /** What the surroundings have noticed since the last call, one sentence each: a connection where none may be. */
  readonly takeProblems?: () => readonly string[];
}

export interface AttackClass {
  /** One word, for `--class` and the names of files. */
  readonly name: string;
  readonly title: string;
  /** That every run of the tests makes. */
  readonly numCases: number;
  /** Routes that its attacks are aimed at, as `Attack.route` has them. */
  readonly routes: readonly string[];
  readonly prepare: () => Promise<Surroundings>;
  readonly attacks: (surroundings: Surroundings) => Arbitrary<Attack>;
  /** Attacks that run at once; 16 unless told. */
  readonly groupSize?: number;
  /** CPU time that one attack may cost beyond what its tokens and the bytes of its body cost; 1 s unless told. */
  readonly maxCpuSeconds?: number;
  /** Codes of errors with status 500 or above that are right, since the operator's own code fails. */
  readonly allowedErrorCodes?: readonly string[];
}

/** A text in a report, shortened. */
export function shorten(text: string, maxLength = 600): string {
  if (text.length <= maxLength) return text;
  const half = Math.floor(maxLength / 2);
  return `${text.slice(0, half)} … ${text.length - 2 * half} more … ${text.slice(-half)}`;
}
