import { testAttacks } from "./attack-suite.ts";
import { texts } from "./classes/texts.ts";

testAttacks(texts, 100);
