import { testAttacks } from "./attack-suite.ts";
import { sizes } from "./classes/sizes.ts";

testAttacks(sizes, 100);
