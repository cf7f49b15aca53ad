import * as fc from "fast-check";

import type { AttackClass } from "../attack.ts";
import { bodyAttacks, bodyRoutes } from "../generators/bodies.ts";
import { hostileValue, mutation } from "../generators/hostile-json.ts";
import { prepareForBodies } from "../surroundings.ts";

/** Bodies from the routes' own schemas, with fields of wrong types, values, names and numbers. */
export const fields: AttackClass = {
  name: "fields",
  title: "Fields of wrong types, values and names",
  numCases: 800,
  routes: bodyRoutes.map(({ target }) => `POST ${target}`),
  prepare: prepareForBodies,
  attacks: () => bodyAttacks(fc.array(mutation(hostileValue), { maxLength: 3 })),
};
