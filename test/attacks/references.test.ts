import { testAttacks } from "./attack-suite.ts";
import { references } from "./classes/references.ts";

testAttacks(references, 100);
