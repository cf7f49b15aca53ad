/** Fetches the bytes of an image reference from the source of its scheme. */
import { untilAborted } from "../concurrent-work.ts";
import type { ImageLimits } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import { RunningTimer } from "../running-timer.ts";
import { describeReference } from "./describe-reference.ts";
import { bytesOf } from "./image-source.ts";
import type { FetchedImage, FetchImageOptions, ImageSource } from "./image-source.ts";

export interface FetchImageContext extends Pick<FetchImageOptions, "tenant" | "onBytes"> {
  readonly signal: AbortSignal;
  readonly limits: Pick<ImageLimits, "maxImageBytes" | "fetchTimeoutMs">;
}

/**
 * Returns the encoded bytes of one image: at most `maxImageBytes`, within `fetchTimeoutMs` for redirects, retries and
 * body together. Throws EngineError `invalid_image_reference`, `image_unreachable`, `image_too_large`, or `aborted`
 * when `signal` ends it.
 */
export async function fetchImage(
  sources: readonly ImageSource[],
  reference: string,
  context: FetchImageContext,
): Promise<Uint8Array> {
  return bytesOf(await fetchImageIfChanged(sources, reference, null, context));
}

/**
 * Like `fetchImage`, with the `validator` of `ImageSource.fetchIfChanged`. Sources without that method always fetch.
 */
export async function fetchImageIfChanged(
  sources: readonly ImageSource[],
  reference: string,
  validator: string | null,
  { signal, limits, tenant, onBytes }: FetchImageContext,
): Promise<FetchedImage> {
  const source = findSource(sources, reference);
  const timeout = new AbortController();
  using _ = new RunningTimer(limits.fetchTimeoutMs, () => timeout.abort());
  const ended = AbortSignal.any([signal, timeout.signal]);
  const options = { signal: ended, maxImageBytes: limits.maxImageBytes, tenant, onBytes };
  try {
    // Programs may bring sources that do not stop at the signal.
    if (source.fetchIfChanged !== undefined) {
      return await untilAborted(source.fetchIfChanged(reference, { ...options, validator }), ended);
    }
    const bytes = await untilAborted(source.fetch(reference, options), ended);
    return { kind: "fetched", bytes, validator: null };
  } catch (error) {
    if (signal.aborted) {
      throw new EngineError("aborted", "The request was aborted while its image was being fetched.", { cause: error });
    }
    if (timeout.signal.aborted && error === timeout.signal.reason) {
      throw new EngineError(
        "image_unreachable",
        `The image ${describeReference(reference)} did not arrive within ${limits.fetchTimeoutMs} ms.`,
        { cause: error, setting: "fetchTimeoutMs", isTransient: true },
      );
    }
    throw error;
  }
}

/**
 * Whether the reference's source can confirm that an image is unchanged. Throws like `fetchImage` if there is no
 * source.
 */
export function canTellUnchanged(sources: readonly ImageSource[], reference: string): boolean {
  return findSource(sources, reference).fetchIfChanged !== undefined;
}

function findSource(sources: readonly ImageSource[], reference: string): ImageSource {
  const served = sources.flatMap((source) => source.schemes.map((scheme) => `${scheme}:`)).join(", ");
  const scheme = /^([a-z][a-z0-9+.-]*):/i.exec(reference.slice(0, 64))?.[1]?.toLowerCase();
  if (scheme === undefined) {
    throw new EngineError(
      "invalid_image_reference",
      `The image reference ${describeReference(reference)} is not a URL; supported schemes: ${served}.`,
    );
  }
  const source = sources.find((candidate) => candidate.schemes.includes(scheme));
  if (source === undefined) {
    throw new EngineError(
      "invalid_image_reference",
      `The image reference ${describeReference(reference)} has the scheme ${scheme}:; supported schemes: ${served}.`,
      scheme === "http" ? { setting: "allowHttp" } : {},
    );
  }
  return source;
}
