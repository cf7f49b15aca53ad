import { expect, test } from "vitest";

import { parseArguments } from "../../../functions/cli/arguments.ts";

test.for<[string, readonly string[], Readonly<Record<string, string>>]>([
  ["one name", ["--logits-processors", "a.b:C"], { LOGITS_PROCESSORS: "a.b:C" }],
  ["several names", ["--logits-processors", "a.b:C", "d_e:F"], { LOGITS_PROCESSORS: "a.b:C,d_e:F" }],
  ["vLLM's spelling", ["--logits_processors", "a:B", "c:D"], { LOGITS_PROCESSORS: "a:B,c:D" }],
  ["names and commas", ["--logits-processors", "a:B,c:D", "e:F"], { LOGITS_PROCESSORS: "a:B,c:D,e:F" }],
  ["an equals sign", ["--logits_processors=a_b:C"], { LOGITS_PROCESSORS: "a_b:C" }],
  [
    "flags around them",
    ["--max_num_seqs", "4", "--logits-processors", "a:B", "c:D", "--port", "0"],
    { MAX_NUM_SEQS: "4", LOGITS_PROCESSORS: "a:B,c:D", PORT: "0" },
  ],
  ["a command behind them", ["--logits-processors", "a:B", "c:D", "serve"], { LOGITS_PROCESSORS: "a:B,c:D" }],
  ["a command before them", ["serve", "--logits-processors", "a:B", "c:D"], { LOGITS_PROCESSORS: "a:B,c:D" }],
  ["JSON", ["--logits-processors", '[{"class": "a:B"}]'], { LOGITS_PROCESSORS: '[{"class": "a:B"}]' }],
  [
    "switches without values",
    ["--enforce_eager", "--enable-prefix-caching", "--port", "0"],
    { ENFORCE_EAGER: "true", ENABLE_PREFIX_CACHING: "true", PORT: "0" },
  ],
  ["a switch before a command", ["--enforce-eager", "serve"], { ENFORCE_EAGER: "true" }],
  ["a switch at the end", ["serve", "--enforce-eager"], { ENFORCE_EAGER: "true" }],
  ["a switch that is off", ["--no-enable-prefix-caching"], { ENABLE_PREFIX_CACHING: "false" }],
  ["values of switches", ["--enforce-eager", "off", "--playground=0"], { ENFORCE_EAGER: "off", PLAYGROUND: "0" }],
  ["underscores in another flag", ["--served_model_name", "a_b"], { SERVED_MODEL_NAME: "a_b" }],
])("the settings of a command line with %s", ([, argv, settings]) => {
  expect(parseArguments(argv)).toMatchObject({ command: "serve", settings });
});

test.for<[string, readonly string[], RegExp]>([
  ["a list without names", ["--logits-processors"], /--logits-processors needs a value/],
  ["a switch that is off, with a value", ["--no-enforce-eager", "true"], /There is no command true/],
  ["a flag that is no switch, as if it were off", ["--no-port"], /There is no option --no-port/],
  ["several values of another flag", ["--model", "a", "b"], /There is no command b/],
  ["an unknown flag", ["--logits_processor", "a:B"], /did you mean --logits-processors\?/],
])("rejects %s", ([, argv, message]) => {
  expect(() => parseArguments(argv)).toThrow(message);
});
