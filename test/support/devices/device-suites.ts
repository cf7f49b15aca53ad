/** The test files that run on every device of FOVEA_TEST_DEVICES: docs/gpu-experiments.md says what each shows. */
export const deviceSuites = [
  "test/gpu/experiments.test.ts",
  "test/gpu/goldens.test.ts",
  "test/gpu/leaks.test.ts",
  "test/gpu/sampling-tail.test.ts",
];
