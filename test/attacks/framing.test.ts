import { testAttacks } from "./attack-suite.ts";
import { framing } from "./classes/framing.ts";

testAttacks(framing, 100);
