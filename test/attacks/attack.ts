/** The types of attacks and of classes of attacks. */
import type { Arbitrary } from "fast-check";

import type { Answer } from "./answer-reader.ts";
import type { Wire } from "./wire.ts";

/** Generated from a seed, so that the same seed and case number give the same attack again. */
export interface Attack {
  /** The attacked route, for example `POST /v1/completions`. */
  readonly route: string;
  /** One line that says what is hostile. */
  readonly label: string;
  /** The whole attack as text, shortened if long. */
  readonly shown: string;
  /** Resolves to all answers. Rejects if a required answer does not arrive. */
  readonly run: (wire: Wire) => Promise<readonly Answer[]>;
}

/** The environment of the service of a class, and texts that must not appear in any answer. */
export interface Surroundings extends AsyncDisposable {
  readonly environment: Readonly<Record<string, string>>;
  /** Texts that no answer may contain: keys, URLs with passwords, folders, texts of other tenants. */
  readonly secrets: readonly string[];
  /** Sent with every ordinary request, and with attacks by default. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Called when the service is ready, before the first attack: creates the targets of attacks. */
  readonly plant?: (wire: Wire) => Promise<void>;
  /** Problems noticed since the last call, one sentence each: for example a forbidden connection. */
  readonly takeProblems?: () => readonly string[];
}

export interface AttackClass {
  /** One word, for `--class` and file names. */
  readonly name: string;
  readonly title: string;
  /** Number of cases in every run of the tests. */
  readonly numCases: number;
  /** The attacked routes, in the form of `Attack.route`. */
  readonly routes: readonly string[];
  readonly prepare: () => Promise<Surroundings>;
  readonly attacks: (surroundings: Surroundings) => Arbitrary<Attack>;
  /** Number of concurrent attacks; default 16. */
  readonly groupSize?: number;
  /** Maximum CPU time of one attack beyond the cost of its tokens and the bytes of its body; default 1 s. */
  readonly maxCpuSeconds?: number;
  /** Codes of errors with status 500 or above that are allowed, because the operator's own code fails. */
  readonly allowedErrorCodes?: readonly string[];
}

/** A text in a report, shortened. */
export function shorten(text: string, maxLength = 600): string {
  if (text.length <= maxLength) return text;
  const half = Math.floor(maxLength / 2);
  return `${text.slice(0, half)} … ${text.length - 2 * half} more … ${text.slice(-half)}`;
}
