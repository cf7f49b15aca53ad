/** Options of CLIP-like image processors that a request may set, named as in preprocessor_config.json. */
export const clipRequestOptions: ReadonlySet<string> = new Set([
  "do_resize",
  "size",
  "default_to_square",
  "resample",
  "do_center_crop",
  "crop_size",
  "do_rescale",
  "rescale_factor",
  "do_normalize",
  "image_mean",
  "image_std",
  "do_pad",
]);
