import { expect, test } from "vitest";

import { parsePreprocessorConfig } from "../../../engine/images/preprocessor-config.ts";

const clipDefaults = {
  padToSquare: null,
  resize: { rule: { kind: "shortest-edge", edge: 224 }, filter: "bicubic" },
  centerCrop: { width: 224, height: 224 },
  rescaleFactor: 1 / 255,
  normalize: { mean: [0.48145466, 0.4578275, 0.40821073], std: [0.26862954, 0.26130258, 0.27577711] },
};

test.for([
  {},
  { image_processor_type: "CLIPImageProcessor" },
  { image_processor_type: "CLIPImageProcessorFast", processor_class: "LlavaProcessor" },
  { image_processor_type: "CLIPImageProcessorPil" },
  { feature_extractor_type: "CLIPFeatureExtractor", size: 224, crop_size: 224 },
  { image_processor_type: "LlavaImageProcessor", do_pad: false, size: { shortest_edge: 224 } },
  { size: { shortest_edge: 224, longest_edge: null }, crop_size: { height: 224, width: 224 }, do_convert_rgb: null },
  { crop_size: [224, 224], do_something_new: false, pad_size: null, data_format: "channels_first" },
  { image_processor: { image_processor_type: "CLIPImageProcessor" }, patch_size: 14, image_token: "<image>" },
])("%j is CLIP's processor with its defaults", (config) => {
  expect(parsePreprocessorConfig(config)).toEqual(clipDefaults);
});

test("SigLIP's processor resizes the whole picture to a square, whatever its shape", () => {
  expect(parsePreprocessorConfig({ image_processor_type: "SiglipImageProcessorFast" })).toEqual({
    padToSquare: null,
    resize: { rule: { kind: "exact", width: 224, height: 224 }, filter: "bicubic" },
    centerCrop: null,
    rescaleFactor: 1 / 255,
    normalize: { mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5] },
  });
});

test("the filter of Gemma 3's processor is bilinear unless the file says otherwise", () => {
  const filterOf = (config: object) =>
    parsePreprocessorConfig({ image_processor_type: "Gemma3ImageProcessor", ...config }).resize?.filter;
  expect([filterOf({}), filterOf({ resample: 3 })]).toEqual(["bilinear", "bicubic"]);
});

test("steps that are turned off are skipped", () => {
  const off = { do_resize: false, do_center_crop: false, do_rescale: false, do_normalize: false };
  expect(parsePreprocessorConfig(off)).toEqual({
    padToSquare: null,
    resize: null,
    centerCrop: null,
    rescaleFactor: null,
    normalize: null,
  });
});

test.for([
  [
    { size: 100, default_to_square: true },
    { kind: "exact", width: 100, height: 100 },
  ],
  [{ size: [30, 40] }, { kind: "exact", width: 40, height: 30 }],
  [{ size: { height: 30, width: 40 } }, { kind: "exact", width: 40, height: 30 }],
  [{ size: 100 }, { kind: "shortest-edge", edge: 100 }],
] as const)("%j resizes by %j", ([config, rule]) => {
  expect(parsePreprocessorConfig(config).resize?.rule).toEqual(rule);
});

test("LLaVA's padding has the mean colour, rounded down", () => {
  const config = { image_processor_type: "LlavaImageProcessor", do_pad: true };
  expect(parsePreprocessorConfig(config).padToSquare).toEqual([122, 116, 104]);
});

test.for([
  [{ image_processor_type: "BitImageProcessor" }, "BitImageProcessor"],
  [{ image_processor_type: "SiglipImageProcessor", do_pad: true }, "do_pad"],
  [{ image_processor_type: "CLIPImageProcessor", do_pad: true }, "do_pad"],
  [
    { size: { shortest_edge: 224, longest_edge: 448 } },
    'size has the fields "shortest_edge", "longest_edge"; expected height and width, or shortest_edge alone',
  ],
  [{ size: { max_height: 10, max_width: 10 } }, 'size has the fields "max_height", "max_width"'],
  [{ crop_size: { shortest_edge: 224 } }, 'crop_size has the fields "shortest_edge"; expected height and width.'],
  [{ do_thumbnail: true }, "do_thumbnail"],
  [{ image_grid_pinpoints: [[336, 672]] }, "image_grid_pinpoints"],
  [{ auto_map: { AutoImageProcessor: "processing.Mine" } }, "auto_map"],
] as const)("%j is rejected by name: %s", ([config, name]) => {
  expect(() => parsePreprocessorConfig(config)).toThrow(
    expect.objectContaining({ code: "unsupported_model", message: expect.stringContaining(name) }),
  );
});

test.for([
  [null, "", "it is null; expected an object."],
  ["CLIP", "", 'it is "CLIP"; expected an object.'],
  [{ do_resize: "yes" }, "do_resize", 'do_resize is "yes"; expected true or false.'],
  [{ resample: 6 }, "resample", "resample is 6; expected an integer from 0 to 5."],
  [{ resample: 1.5 }, "resample", "resample is 1.5; expected an integer from 0 to 5."],
  [{ size: { height: 0, width: 5 } }, "size.height", "size.height is 0; expected an integer from 1 to 16384."],
  [{ size: [5, 0.5] }, "size[1]", "size[1] is 0.5; expected an integer from 1 to 16384."],
  [
    { size: "large" },
    "size",
    'size is "large"; expected an integer from 1 to 16384, a list of two, or an object of such lengths.',
  ],
  [{ crop_size: -1 }, "crop_size", "crop_size is -1; expected an integer from 1 to 16384"],
  [{ crop_size: 1e9 }, "crop_size", "crop_size is 1000000000; expected an integer"],
  [
    { image_mean: [0.5, 0.5] },
    "image_mean",
    "image_mean is a list of 2 elements; expected a number from -255 to 255, or a list of three.",
  ],
  [{ image_mean: 1e308 }, "image_mean", "image_mean is 1e+308; expected a number from -255 to 255"],
  [{ image_std: [0.5, 0, 0.5] }, "image_std[1]", "image_std[1] is 0; expected a number from 0.001 to 255."],
  [{ image_std: [1e-300, 1, 1] }, "image_std[0]", "image_std[0] is 1e-300; expected a number from 0.001 to 255."],
  [
    { image_std: 0.001, do_rescale: false },
    "image_std",
    "image_std makes pixel values of up to 254592 together with the other options; expected at most 1024.",
  ],
  [{ rescale_factor: "1/255" }, "rescale_factor", 'rescale_factor is "1/255"; expected a number from 0 to 1.'],
  [{ rescale_factor: 1e308 }, "rescale_factor", "rescale_factor is 1e+308; expected a number from 0 to 1."],
  [{ data_format: "channels_last" }, "data_format", 'data_format is "channels_last"; expected "channels_first".'],
] as const)("%j is not a valid config: %s", ([config, parameter, message]) => {
  expect(() => parsePreprocessorConfig(config)).toThrow(
    expect.objectContaining({
      code: "invalid_checkpoint",
      parameter,
      message: expect.stringContaining(message),
    }),
  );
});
