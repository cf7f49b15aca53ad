import type { AttackClass } from "../attack.ts";
import { bodyAttacks, bodyRoutes } from "../generators/bodies.ts";
import { hugeValue, replacement } from "../generators/hostile-json.ts";
import { prepareForBodies } from "../surroundings.ts";

/** Bodies in which one field has up to a million elements, keys, characters or levels. */
export const sizes: AttackClass = {
  name: "sizes",
  title: "Fields of a million elements, keys, characters or levels",
  numCases: 40,
  routes: bodyRoutes.map(({ target }) => `POST ${target}`),
  prepare: prepareForBodies,
  attacks: () => bodyAttacks(replacement(hugeValue).map((change) => [change])),
  groupSize: 4,
};
