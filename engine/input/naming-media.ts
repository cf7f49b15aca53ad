/** Errors of sources, which fetch images and say so, for what else is fetched. */
import { EngineError } from "../contract/errors.ts";
import type { EngineErrorCode, ServingSetting } from "../contract/errors.ts";

export type FetchedMedia = "video" | "document";

/** By the setting of images that has the same meaning. */
const settings: Readonly<Record<FetchedMedia, Readonly<Partial<Record<string, ServingSetting>>>>> = {
  video: { maxImageBytes: "maxVideoBytes", fetchTimeoutMs: "videoFetchTimeoutMs" },
  document: { maxImageBytes: "maxDocumentBytes" },
};

const tooLarge = { video: "video_too_large", document: "document_too_large" } as const satisfies Record<
  FetchedMedia,
  EngineErrorCode
>;

/** Runs something that fetches, with errors about what is fetched. */
export async function namingMedia<Result>(media: FetchedMedia, run: () => Result | Promise<Result>): Promise<Result> {
  try {
    return await run();
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    const { code, message, cause, parameter, setting } = error;
    throw new EngineError(
      code === "image_too_large" ? tooLarge[media] : code,
      message.replaceAll(/\bimage\b/g, media),
      {
        cause,
        ...(parameter !== null && { parameter }),
        ...(setting !== null && { setting: settings[media][setting] ?? setting }),
      },
    );
  }
}
