import type { AttackClass } from "../attack.ts";
import { bodyAttacks, bodyRoutes } from "../generators/bodies.ts";
import { hugeValue, replacement } from "../generators/hostile-json.ts";
import { openSurroundings } from "../surroundings.ts";

/** Bodies of which one field has up to a million elements, keys, characters or levels. */
export const sizes: AttackClass = {
  name: "sizes",
  title: "Fields of a million elements, keys, characters or levels",
  routes: bodyRoutes.map(({ target }) => `POST ${target}`),
  prepare: () => openSurroundings({ ENABLE_MM_EMBEDS: "true" }),
  attacks: () => bodyAttacks(replacement(hugeValue).map((change) => [change])),
  groupSize: 4,
};
