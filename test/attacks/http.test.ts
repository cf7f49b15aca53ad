import { testAttacks } from "./attack-suite.ts";
import { framing } from "./classes/framing.ts";
import { limits } from "./classes/limits.ts";
import { paths } from "./classes/paths.ts";
import { uploads } from "./classes/uploads.ts";

testAttacks([paths, framing, uploads, limits]);
