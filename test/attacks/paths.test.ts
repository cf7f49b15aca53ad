import { testAttacks } from "./attack-suite.ts";
import { paths } from "./classes/paths.ts";

testAttacks(paths, 100);
