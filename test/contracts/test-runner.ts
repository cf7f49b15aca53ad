/** The test runner of the calling file: Vitest if it runs the file, otherwise Node's. */

interface TestRunner {
  readonly describe: (name: string, body: () => void) => void;
  readonly test: (name: string, body: () => void) => void;
}

// Node's runner sets its own variable, which takes precedence over inherited ones.
const isVitest = process.env.VITEST !== undefined && process.env.NODE_TEST_CONTEXT === undefined;

/** Imported by name, so that a suite for users runs without Vitest installed. */
export const { describe, test }: TestRunner = isVitest ? await import("vitest") : await import("node:test");
