import { readFile } from "node:fs/promises";
import { main } from "assemblyscript/asc";
import { expect, test } from "vitest";

test("the compiled kernel is what `npm run build:kernel` makes of its source", async () => {
  const folder = "engine/images/kernel";
  let compiled: Uint8Array | null = null;
  const { error } = await main([`${folder}/filter.ts`, "--config", `${folder}/asconfig.json`, "--target", "release"], {
    writeFile(name, contents) {
      expect(name).toBe(`${folder}/filter.wasm`);
      compiled = contents as Uint8Array;
    },
  });
  expect(error).toBeNull();
  expect(compiled).toEqual(new Uint8Array(await readFile(`${folder}/filter.wasm`)));
});
