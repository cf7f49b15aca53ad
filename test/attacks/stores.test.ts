import { testAttacks } from "./attack-suite.ts";
import { batches } from "./classes/batches.ts";
import { tenants } from "./classes/tenants.ts";

testAttacks([tenants, batches]);
