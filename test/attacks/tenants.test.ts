import { testAttacks } from "./attack-suite.ts";
import { tenants } from "./classes/tenants.ts";

testAttacks(tenants, 100);
