/** Where servers under test keep batches unless told: not among those of whoever runs the tests. */
import { tmpdir } from "node:os";
import { join } from "node:path";

export const testDataHome = join(tmpdir(), "fovea-test-data");
