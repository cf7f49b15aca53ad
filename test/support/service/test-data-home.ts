/**
 * The default place for batches of servers under test, separate from those of the user who runs the tests. Test files
 * that run at the same time have one each: their servers would process each other's batches.
 */
import { tmpdir } from "node:os";
import { join } from "node:path";

export const testDataHome = join(tmpdir(), `fovea-test-data-${process.env.VITEST_POOL_ID ?? "0"}`);
