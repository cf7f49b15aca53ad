/** Fetches videos and reads what a prompt needs to know of them, where no cache knows it. */
import { allOrNone } from "../concurrent-work.ts";
import type { VideoLimits } from "../contract/config.ts";
import { EngineError, invariant } from "../contract/errors.ts";
import type { PromptRequest, VideoPart } from "../contract/generation-request.ts";
import { observeStage } from "../contract/request-stage.ts";
import type { RequestStage } from "../contract/request-stage.ts";
import { canTellUnchanged, fetchImageIfChanged } from "../images/fetch-image.ts";
import type { FetchImageContext } from "../images/fetch-image.ts";
import type { HeldBytes } from "../images/fetched-bytes.ts";
import type { ImageProcessor, PictureOwner } from "../images/image-processor.ts";
import { bytesOf } from "../images/image-source.ts";
import type { FetchedImage, ImageSource } from "../images/image-source.ts";
import type { ValueCache } from "../multimodal/caches/tiered-cache.ts";
import { contentHashOf } from "../multimodal/hasher.ts";
import { openFrameSequence } from "../videos/frame-sequence.ts";
import type { FrameSequence } from "../videos/frame-sequence.ts";
import { knownVideoKey } from "../videos/known-video.ts";
import type { KnownVideo } from "../videos/known-video.ts";
import type { VideoDecoder, VideoFacts } from "../videos/video-decoder.ts";
import { namingMedia } from "./naming-media.ts";

/** By `knownVideoKey`. */
export type KnownVideoCache = Pick<ValueCache<KnownVideo>, "getMany" | "setMany">;

export interface VideoFilesOptions {
  readonly decoder: VideoDecoder;
  /** For videos that are sent as their frames. */
  readonly images: Pick<ImageProcessor, "readHeader" | "decode">;
  readonly sources: readonly ImageSource[];
  readonly knownVideos: KnownVideoCache;
  readonly limits: VideoLimits;
}

/** What is fetched for a request. */
export interface VideoFetching {
  readonly request: Pick<PromptRequest, "tenant" | "cacheSalt" | "priority" | "onStage">;
  /** Counts the bytes. */
  readonly held: HeldBytes;
  readonly signal: AbortSignal;
}

export interface OpenedFile {
  readonly contentHash: string;
  readonly facts: VideoFacts;
  /** Frames by ascending index. Fetches the file of a known video. Throws EngineError of videos. */
  readonly decodeFrames: FrameSequence["decodeFrames"];
}

/** A file, whose reference is null if it is expected to be known by its `uuid`. */
type VideoFile = Pick<VideoPart, "uuid"> & { readonly reference: string | null };

export class VideoFiles {
  readonly #options: VideoFilesOptions;

  constructor(options: VideoFilesOptions) {
    this.#options = options;
  }

  /**
   * Fetches nothing that was named before, and only what its source does not confirm as unchanged. Throws EngineError of
   * videos and of their sources, `queue_full` or `aborted`.
   */
  async open(file: VideoFile, fetching: VideoFetching): Promise<OpenedFile> {
    const key = await namingMedia("video", () => this.#keyOf(file, fetching.request));
    const [known = null] = key === null ? [] : await this.#options.knownVideos.getMany([key]);
    if (known !== null && file.uuid !== undefined) return this.#openKnown(file, known, fetching);
    const answer = await this.#fetchIfChanged(file.reference, known?.validator ?? null, fetching);
    if (answer.kind === "unchanged") {
      invariant(known !== null, "a video without a validator cannot be unchanged");
      return this.#openKnown(file, known, fetching);
    }
    const { bytes, validator } = answer;
    const { decoder, knownVideos } = this.#options;
    const { signal, request } = fetching;
    const [contentHash, facts] = await Promise.all([
      contentHashOf(bytes),
      decoder.readFacts({ bytes, owner: ownerOf(request) }, signal),
    ]);
    if (key !== null && (file.uuid !== undefined || validator !== null)) {
      knownVideos.setMany([{ key, value: { validator, contentHash, facts } }]);
    }
    return {
      contentHash,
      facts,
      decodeFrames: (indices, owner, decoding) => decoder.decodeFrames({ bytes, owner }, indices, decoding),
    };
  }

  /**
   * A video as its frames, which are fetched each time. Throws like `open`, and EngineError of images.
   *
   * @param framesPerSecond At which the frames follow each other.
   */
  async openFrames(
    references: readonly string[],
    framesPerSecond: number,
    fetching: VideoFetching,
  ): Promise<OpenedFile> {
    const { request, signal } = fetching;
    const frames = await allOrNone(
      references,
      async (frame, either) => bytesOf(await this.#fetchIfChanged(frame, null, { ...fetching, signal: either })),
      signal,
    );
    const hashes = await Promise.all(frames.map(contentHashOf));
    const opening = { owner: ownerOf(request), signal };
    return {
      ...(await openFrameSequence(frames, framesPerSecond, this.#options.images, opening)),
      contentHash: hashes.join(" "),
    };
  }

  /** Its frames are expected to be cached, too: its bytes are fetched for those that are not. */
  #openKnown({ reference, uuid }: VideoFile, { contentHash, facts }: KnownVideo, fetching: VideoFetching): OpenedFile {
    let fetched: Promise<Uint8Array> | null = null;
    const fetchAgain = async (signal: AbortSignal): Promise<Uint8Array> => {
      const bytes = bytesOf(await this.#fetchIfChanged(reference, null, { ...fetching, signal }));
      if ((await contentHashOf(bytes)) === contentHash) return bytes;
      throw uuid === undefined
        ? new EngineError("image_unreachable", "The video changed while it was read. Send the request again.")
        : new EngineError(
            "invalid_video",
            "Another video was sent under this uuid before. Give a changed video a new uuid.",
          );
    };
    return {
      contentHash,
      facts,
      decodeFrames: async (indices, owner, signal) => {
        const isFirst = fetched === null;
        fetched ??= fetchAgain(signal);
        const video = { bytes: await fetched, owner, isAdmitted: !isFirst };
        return this.#options.decoder.decodeFrames(video, indices, signal);
      },
    };
  }

  /** Null if nothing confirms that the video is still the same. */
  #keyOf({ reference, uuid }: VideoFile, { tenant = "", cacheSalt }: VideoFetching["request"]): string | null {
    const tenantSalt = JSON.stringify([tenant, cacheSalt ?? null]);
    if (uuid !== undefined) return knownVideoKey({ uuid }, tenantSalt);
    const isTold = reference !== null && canTellUnchanged(this.#options.sources, reference);
    return isTold ? knownVideoKey({ reference }, tenantSalt) : null;
  }

  /** @throws EngineError `invalid_argument` without a reference. */
  async #fetchIfChanged(
    reference: string | null,
    validator: string | null,
    { request, held, signal }: VideoFetching,
  ): Promise<FetchedImage> {
    const { sources, limits } = this.#options;
    if (reference === null) {
      throw new EngineError(
        "invalid_argument",
        "The video was sent as a uuid only, and is not cached. Send the video with its uuid.",
      );
    }
    const context: FetchImageContext = {
      signal,
      limits: { maxImageBytes: limits.maxVideoBytes, fetchTimeoutMs: limits.fetchTimeoutMs },
      tenant: request.tenant,
      onBytes: (numBytes) => held.add(numBytes),
    };
    return namingMedia("video", () =>
      observeStage(
        "fetch",
        request.onStage,
        () => fetchImageIfChanged(sources, reference, validator, context),
        (answer) => fetchAttributes(reference, answer),
      ),
    );
  }
}

function fetchAttributes(reference: string, answer: FetchedImage): RequestStage["attributes"] {
  return {
    "url.scheme": reference.slice(0, Math.max(reference.indexOf(":"), 0)),
    "fovea.video.unchanged": answer.kind === "unchanged",
    ...(answer.kind === "fetched" && { "fovea.video.bytes": answer.bytes.byteLength }),
  };
}

function ownerOf(request: VideoFetching["request"]): PictureOwner {
  const { tenant = "", priority = 0 } = request;
  return { tenant, request, priority };
}
