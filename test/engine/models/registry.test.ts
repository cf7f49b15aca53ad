import { expect, test } from "vitest";

import { loadShippedDefinition, shippedDefinitions } from "../../../engine/models/registry.ts";

test.for(Object.entries(shippedDefinitions))("the definition listed as %s has this name", async ([name, load]) => {
  const { architecture, towerType } = await load();
  expect(towerType === undefined ? architecture : `${architecture} of ${towerType}`).toBe(name);
});

test("the definition of a tower serves this tower, and the architecture's own all others", async () => {
  const architectures = ["LlavaForConditionalGeneration"];
  const load = async (model_type: string) => loadShippedDefinition({ architectures, vision_config: { model_type } });
  expect((await load("pixtral")).towerType).toBe("pixtral");
  expect((await load("clip_vision_model")).towerType).toBeUndefined();
  expect((await loadShippedDefinition({ architectures })).towerType).toBeUndefined();
});

test.for(["MambaForCausalLM", "constructor", "LlavaForConditionalGeneration of pixtral"])(
  "rejects the architecture %s, and names those that are served once",
  async (architecture) => {
    const error: unknown = await loadShippedDefinition({ architectures: [architecture] }).catch((reason) => reason);
    expect(error).toMatchObject({ code: "unsupported_model" });
    const [, known] = /^The architecture .+ is not supported; supported are: (.+)\.$/.exec((error as Error).message)!;
    const names = known!.split(", ");
    expect(names).toContain("LlavaForConditionalGeneration");
    expect(new Set(names).size).toBe(names.length);
    expect(known).not.toContain("pixtral");
  },
);
