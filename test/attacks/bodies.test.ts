import { testAttacks } from "./attack-suite.ts";
import { fields } from "./classes/fields.ts";
import { processors } from "./classes/processors.ts";
import { sizes } from "./classes/sizes.ts";
import { texts } from "./classes/texts.ts";

testAttacks([fields, texts, processors, sizes]);
