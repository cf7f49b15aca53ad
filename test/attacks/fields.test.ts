import { testAttacks } from "./attack-suite.ts";
import { fields } from "./classes/fields.ts";

testAttacks(fields, 100);
