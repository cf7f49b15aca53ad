/** The tokens of Molmo 2's pictures: the whole picture, then its crops joined to one; or a frame of a video. */
import type { CropOptions, PooledGrids } from "./crops.ts";

/** In the order of their numbers in `token_kinds`. */
export const pictureTokens = [
  "lowResolutionStart",
  "start",
  "end",
  "patch",
  "lineEnd",
  "frameStart",
  "frameEnd",
] as const;
export type PictureToken = (typeof pictureTokens)[number];

/** The tokens as the tokenizer spells them. */
export const tokenTexts: Readonly<Record<PictureToken, string>> = {
  lowResolutionStart: "<low_res_im_start>",
  start: "<im_start>",
  end: "<im_end>",
  patch: "<im_patch>",
  lineEnd: "<im_col>",
  frameStart: "<frame_start>",
  frameEnd: "<frame_end>",
};

/** A picture's tokens, of which those called `patch` stand for its features in their order. */
export function layOutPicture({ whole, crops }: PooledGrids, options: CropOptions): PictureToken[] {
  if (crops === null) {
    const [start, end] = options.use_frame_special_tokens
      ? (["frameStart", "frameEnd"] as const)
      : (["start", "end"] as const);
    return [start, ...rowsOf(whole, options.video_use_col_tokens), end];
  }
  const { image_use_col_tokens: endsLines, use_single_crop_col_tokens: endsWholeLines } = options;
  return [
    options.use_single_crop_start_token ? "lowResolutionStart" : "start",
    ...rowsOf(whole, endsWholeLines ?? endsLines),
    "end",
    "start",
    ...rowsOf(crops, endsLines),
    "end",
  ];
}

function rowsOf({ rows, columns }: PooledGrids["whole"], endsLines: boolean): PictureToken[] {
  const row = Array.from({ length: columns }, (): PictureToken => "patch");
  if (endsLines) row.push("lineEnd");
  return Array.from({ length: rows }, () => row).flat();
}
