import { testAttacks } from "./attack-suite.ts";
import { processors } from "./classes/processors.ts";

testAttacks(processors, 100);
