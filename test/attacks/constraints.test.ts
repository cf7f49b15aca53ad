import { testAttacks } from "./attack-suite.ts";
import { constraints } from "./classes/constraints.ts";

testAttacks([constraints]);
