import { testAttacks } from "./attack-suite.ts";
import { streams } from "./classes/streams.ts";

testAttacks([streams]);
