import { testAttacks } from "./attack-suite.ts";
import { limits } from "./classes/limits.ts";

testAttacks(limits, 100);
