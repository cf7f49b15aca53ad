/** The devices that device suites run on: those that FOVEA_TEST_DEVICES names and that start here. */

export type TestDevice = "cpu" | "cuda";

/** `provide-devices.ts` has checked it; the cpu where it is not set. */
export const testDevices: readonly TestDevice[] = parseTestDevices(process.env.FOVEA_TEST_DEVICES);

/** @throws Error for another name than cpu and cuda. */
export function parseTestDevices(value: string | undefined): readonly TestDevice[] {
  const names = (value ?? "cpu").split(",").map((name) => name.trim());
  const unknown = names.filter((name) => name !== "cpu" && name !== "cuda");
  if (unknown.length > 0) throw new Error(`FOVEA_TEST_DEVICES names ${unknown.join(", ")}; it takes cpu and cuda.`);
  return [...new Set(names)] as TestDevice[];
}
