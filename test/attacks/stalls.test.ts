import { testAttacks } from "./attack-suite.ts";
import { stalls } from "./classes/stalls.ts";

testAttacks([stalls]);
