/** Options of CLIP's kind of image processor that a request may set, as preprocessor_config.json names them. */
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
