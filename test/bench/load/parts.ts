/** Parts of the benches of loads that `--only` names. */
import { benchDtypes, numThreads } from "../settings.ts";
import type { LoadShape } from "./run-load.ts";

/** What requests ask for, by the name of the part. */
const shapes = {
  "256-in": { name: "256 in, 128 out", promptTokens: 256, outputTokens: 128 },
  "16-in": { name: "16 in, 64 out", promptTokens: 16, outputTokens: 64 },
  "1024-in": { name: "1,024 in, 64 out", promptTokens: 1024, outputTokens: 64 },
} as const satisfies Record<string, LoadShape>;

export const mainLoad: LoadShape = shapes["256-in"];

const clientCounts = { "1-client": 1, "8-clients": 8, "32-clients": 32, "64-clients": 64 } as const;
const engineForms = ["one-copy", "copies"] as const;
const vllmForms = ["bfloat16", "w8a8"] as const;

const kinds = {
  dtypes: benchDtypes,
  vllmForms,
  engineForms,
  clients: Object.keys(clientCounts) as (keyof typeof clientCounts)[],
  loads: [...(Object.keys(shapes) as (keyof typeof shapes)[]), "open" as const],
};

export const loadPartNames: readonly string[] = Object.values(kinds).flat();

/** What is measured; a kind of which `--only` names nothing is measured whole. */
export interface LoadParts {
  readonly dtypes: typeof kinds.dtypes;
  readonly vllmForms: readonly (typeof vllmForms)[number][];
  /** Copies of the model in our engine: one, or as many as threads. Null, where none is named: as by default. */
  readonly numCopies: readonly (number | null)[];
  /** Of closed loops. */
  readonly clientCounts: readonly number[];
  readonly shapes: readonly LoadShape[];
  /** Whether requests also arrive at random. */
  readonly open: boolean;
}

/** @throws Error that names the parts there are, if one is unknown. */
export function selectLoadParts(only: readonly string[]): LoadParts {
  const unknown = only.filter((part) => !loadPartNames.includes(part));
  if (unknown.length > 0)
    throw new Error(`A load has no part ${unknown.join(", ")}, only ${loadPartNames.join(", ")}.`);
  const named = <Part extends string>(parts: readonly Part[]): readonly Part[] => {
    const selected = parts.filter((part) => only.includes(part));
    return selected.length > 0 ? selected : parts;
  };
  const loads = named(kinds.loads);
  const forms = kinds.engineForms.filter((form) => only.includes(form));
  return {
    dtypes: named(kinds.dtypes),
    vllmForms: named(kinds.vllmForms),
    numCopies: forms.length > 0 ? forms.map((form) => (form === "copies" ? numThreads : 1)) : [null],
    clientCounts: named(kinds.clients).map((part) => clientCounts[part]),
    shapes: loads.flatMap((part) => (part === "open" ? [] : [shapes[part]])),
    open: loads.includes("open"),
  };
}
