import * as fc from "fast-check";

import type { Answer } from "../answer-reader.ts";
import { shorten } from "../attack.ts";
import type { Attack, AttackClass } from "../attack.ts";
import { fillPath, nameOf, routes } from "../generators/routes.ts";
import type { Route } from "../generators/routes.ts";
import { prepareSharedStores } from "../shared-stores.ts";
import type { SharedStores } from "../shared-stores.ts";

/** Clients without a key, with a wrong one, or with their own, try to reach data of another tenant. */
export const tenants: AttackClass = {
  name: "tenants",
  title: "Missing, wrong and foreign API keys on all routes, and what other tenants own",
  numCases: 200,
  routes: routes.map(nameOf),
  prepare: prepareSharedStores,
  attacks: (surroundings) => tenantAttacks(surroundings as SharedStores),
};

function tenantAttacks({ ids, uuid, ownKey }: SharedStores): fc.Arbitrary<Attack> {
  const authorization = fc.constantFrom(
    "",
    "Bearer",
    "Bearer ",
    `bearer   ${ownKey}`,
    `Bearer ${ownKey}`,
    `Bearer ${ownKey} ${ownKey}`,
    `Bearer ${ownKey},`,
    `Bearer ${ownKey.slice(0, -1)}`,
    `Bearer ${ownKey}a`,
    `Bearer ${ownKey.toUpperCase()}`,
    `Bearer "${ownKey}"`,
    `Basic ${Buffer.from(`a:${ownKey}`).toString("base64")}`,
    ownKey,
    "Bearer __proto__",
    "Bearer ,",
    "Bearer undefined",
    `Bearer ${"a".repeat(8000)}`,
    `Bearer\t${ownKey}`,
  );
  // The ids are known only once the service is ready, so attacks refer to their positions.
  const onRoute = fc
    .tuple(fc.constantFrom(...routes), authorization, fc.nat(1), fc.constantFrom("", "?limit=100", "?after=%"))
    .map(([route, header, place, query]) => routeAttack(route, header, query, () => ids[place]!));
  const ofUuid = fc.constantFrom(`Bearer ${ownKey}`).map((header) => uuidAttack(header, uuid));
  const ofFile = fc.nat(1).map((place) => fileAttack(() => ids[place]!));
  const ofPart = fc.nat(1).map((place) => partAttack(() => ids[place]!));
  return fc.oneof(
    { weight: 10, arbitrary: onRoute },
    { weight: 1, arbitrary: ofUuid },
    { weight: 1, arbitrary: ofFile },
    { weight: 1, arbitrary: ofPart },
  );

  function routeAttack(route: Route, header: string, query: string, idOf: () => string): Attack {
    return {
      route: nameOf(route),
      label: `${nameOf(route)}${query} with ${header === "" ? "no key" : shorten(header.replaceAll(ownKey, "OWN KEY"), 60)}`,
      get shown() {
        return `${fillPath(route.path, idOf())}${query.replace("%", idOf())}`;
      },
      async run(wire) {
        const target = fillPath(route.path, idOf()) + query.replace("%", idOf());
        const answer = await wire.send({
          method: route.method,
          target,
          headers: { authorization: header },
          ...(route.method === "POST" && { body: "{}" }),
        });
        const isKnown = /^bearer +(\S+)\s*$/i.exec(header)?.[1] === ownKey;
        checkAccess(answer, route, isKnown);
        return [answer];
      },
    };
  }
}

function checkAccess({ status, text }: Answer, { path }: Route, isKnown: boolean): void {
  if (!path.startsWith("/v1")) return;
  if (!isKnown && status !== 401) throw new Error(`Status ${status} without a key: ${text.slice(0, 200)}`);
  if (isKnown && status === 401) throw new Error("A right key is refused.");
  if (isKnown && path.includes(":") && status !== 404)
    throw new Error(`Status ${status} for what another tenant owns.`);
}

function uuidAttack(authorization: string, uuid: string): Attack {
  return {
    route: "POST /v1/chat/completions",
    label: "a picture by the name that another tenant gave it",
    shown: uuid,
    async run(wire) {
      const content = [{ type: "image_url", image_url: null, uuid }];
      const body = { messages: [{ role: "user", content }], max_tokens: 1 };
      const answer = await wire.sendJson("/v1/chat/completions", body, { authorization });
      if (answer.status < 400) throw new Error(`Another tenant's picture is used: ${answer.text.slice(0, 200)}`);
      return [answer];
    },
  };
}

function fileAttack(idOf: () => string): Attack {
  return {
    route: "POST /v1/batches",
    label: "a batch of another tenant's file",
    shown: "input_file_id of another tenant",
    async run(wire) {
      const body = { input_file_id: idOf(), endpoint: "/v1/completions", completion_window: "24h" };
      const answer = await wire.sendJson("/v1/batches", body);
      if (answer.status < 400) throw new Error("Another tenant's file becomes a batch.");
      return [answer];
    },
  };
}

function partAttack(idOf: () => string): Attack {
  return {
    route: "POST /v1/chat/completions",
    label: "a part of a message that is another tenant's file",
    shown: "file_id of another tenant",
    async run(wire) {
      const messages = [{ role: "user", content: [{ type: "file", file: { file_id: idOf() } }] }];
      const answer = await wire.sendJson("/v1/chat/completions", { messages, max_tokens: 1 });
      // Its content is no PDF, so only the reason tells whether it was read.
      if (!answer.text.includes("is not an uploaded file")) throw new Error("Another tenant's file is read.");
      return [answer];
    },
  };
}
