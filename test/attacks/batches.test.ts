import { testAttacks } from "./attack-suite.ts";
import { batches } from "./classes/batches.ts";

testAttacks(batches, 100);
