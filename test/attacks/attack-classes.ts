/** All classes of attacks. Each has a number of cases for every run of the tests. */
import type { AttackClass } from "./attack.ts";
import { batches } from "./classes/batches.ts";
import { constraints } from "./classes/constraints.ts";
import { fields } from "./classes/fields.ts";
import { framing } from "./classes/framing.ts";
import { limits } from "./classes/limits.ts";
import { paths } from "./classes/paths.ts";
import { pictures } from "./classes/pictures.ts";
import { processors } from "./classes/processors.ts";
import { references } from "./classes/references.ts";
import { sizes } from "./classes/sizes.ts";
import { stalls } from "./classes/stalls.ts";
import { streams } from "./classes/streams.ts";
import { tenants } from "./classes/tenants.ts";
import { texts } from "./classes/texts.ts";
import { uploads } from "./classes/uploads.ts";

export const attackClasses: readonly AttackClass[] = [
  fields,
  texts,
  sizes,
  limits,
  paths,
  framing,
  stalls,
  streams,
  pictures,
  references,
  constraints,
  processors,
  uploads,
  batches,
  tenants,
];
