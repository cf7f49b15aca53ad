import { testAttacks } from "./attack-suite.ts";
import { pictures } from "./classes/pictures.ts";

testAttacks(pictures, 100);
