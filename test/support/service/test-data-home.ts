/** The default place for batches of servers under test, separate from those of the user who runs the tests. */
import { tmpdir } from "node:os";
import { join } from "node:path";

export const testDataHome = join(tmpdir(), "fovea-test-data");
