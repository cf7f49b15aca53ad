/** The test runner that runs the calling file: Vitest where it does, else the one that comes with Node. */

interface TestRunner {
  readonly describe: (name: string, body: () => void) => void;
  readonly test: (name: string, body: () => void) => void;
}

// Node's runner sets a variable of its own, which counts before what its process has inherited.
const isVitest = process.env.VITEST !== undefined && process.env.NODE_TEST_CONTEXT === undefined;

/** Loaded by name, so that a suite for users runs without Vitest installed. */
export const { describe, test }: TestRunner = isVitest ? await import("vitest") : await import("node:test");
