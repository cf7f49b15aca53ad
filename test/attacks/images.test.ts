import { testAttacks } from "./attack-suite.ts";
import { pictures } from "./classes/pictures.ts";
import { references } from "./classes/references.ts";

testAttacks([references, pictures]);
