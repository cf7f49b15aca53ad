import { testAttacks } from "./attack-suite.ts";
import { uploads } from "./classes/uploads.ts";

testAttacks(uploads, 100);
