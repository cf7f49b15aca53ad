/** Reads the videos of a request, chooses the frames that its prompt shows, and decodes those that no cache has. */
import { allOrNone } from "../concurrent-work.ts";
import type { VideoLimits } from "../contract/config.ts";
import { aboutParameter, EngineError, invariant } from "../contract/errors.ts";
import type { PromptRequest, VideoPart, VideoSampling } from "../contract/generation-request.ts";
import { framesHeader } from "../images/decoded-frames.ts";
import type { HeldBytes } from "../images/fetched-bytes.ts";
import type { PictureHeader } from "../images/picture-header.ts";
import type {
  EncodedImage,
  MultiModalProcessor,
  ProcessorOptions,
  ShownVideo,
  VideoItem,
} from "../multimodal/multimodal-processor.ts";
import { frameReferences } from "../videos/frame-sequence.ts";
import { checkSampling, equallySpacedFrames, sampleFrames } from "../videos/sample-frames.ts";
import type { VideoFacts } from "../videos/video-decoder.ts";
import type { OpenedFile, VideoFetching, VideoFiles } from "./video-files.ts";

/** A video that was opened. */
interface FetchedVideo extends Pick<OpenedFile, "contentHash" | "decodeFrames"> {
  /** Names the video in errors: `prompt.videos[0]`. */
  readonly parameter: string;
}

/** Frames of a video, or a page of a document, that are processed and encoded like one image of the prompt. */
export interface FramesPart {
  readonly type: "frames";
  /** A page is an image of the prompt for every model. */
  readonly origin: "video" | "document";
  readonly file: FetchedVideo;
  readonly item: VideoItem;
  /** Places of its frames among those of the file. */
  readonly frameIndices: readonly number[];
  /** False for a model that knows only images: it is one of them. */
  readonly isOfVideo: boolean;
  /** Null for those of images. */
  readonly options: ProcessorOptions | null;
}

export interface OpenedVideo {
  readonly items: readonly FramesPart[];
  /** In place of the placeholder of the video, without its number; null for a model that knows only images. */
  readonly text: string | null;
}

export type OpenedVideos = ReadonlyMap<VideoPart, OpenedVideo>;

export interface VideoLoaderOptions {
  readonly files: Pick<VideoFiles, "open" | "openFrames">;
  readonly processor: MultiModalProcessor;
  readonly limits: VideoLimits;
  /** See `ImageBudgets`. */
  readonly maxDecodedBytes: number;
}

interface VideoRequest extends Pick<
  PromptRequest,
  "tenant" | "cacheSalt" | "priority" | "videoSampling" | "defaultVideoSampling" | "onStage"
> {
  /** The checkpoint's options with the request's changes. */
  readonly processorOptions: ProcessorOptions;
}

/** The sampling of a request, and whether it is the request's own. */
interface ChosenSampling {
  readonly sampling: VideoSampling;
  readonly isChosen: boolean;
}

interface FrameDecoding extends Required<Pick<EncodedImage, "owner" | "onProcessed">> {
  /** Receives the size of decoded frames before they are there. */
  readonly onBytes: (numBytes: number) => void;
}

export interface VideoShare {
  /** That the model accepts. */
  readonly maxFrames: number;
  /** Of the prompt, unless the request chooses frames itself: then it is rejected if they do not fit. */
  readonly maxTokens: number;
}

interface VideoOpening extends ChosenSampling, VideoFetching {
  readonly request: VideoRequest;
}

export class VideoLoader {
  readonly #options: VideoLoaderOptions;

  constructor(options: VideoLoaderOptions) {
    this.#options = options;
  }

  get maxVideos(): number {
    return this.#options.limits.maxVideosPerPrompt;
  }

  /**
   * Fetches the videos of a prompt, and reads of each what a prompt needs to know; decodes nothing. The first failure
   * cancels the others, which have ended when this rejects: with an error of a video (`parameter` is
   * `prompt.videos[index]`), `invalid_argument` for the sampling, `queue_full` or `aborted`.
   *
   * @param room For all videos together.
   * @param held Counts the bytes of the files.
   */
  async open(
    parts: readonly VideoPart[],
    request: VideoRequest,
    { maxFrames, maxTokens }: VideoShare,
    held: HeldBytes,
    signal: AbortSignal,
  ): Promise<OpenedVideos> {
    const chosen = samplingOf(request);
    checkSampling(chosen.sampling);
    const distinct = [...new Set(parts)];
    const share = {
      maxFrames: Math.max(Math.floor(maxFrames / parts.length), 1),
      maxTokens: Math.floor(maxTokens / parts.length),
    };
    const opened = await allOrNone(
      distinct,
      async (part, either) => {
        const parameter = `prompt.videos[${parts.indexOf(part)}]`;
        try {
          const opening = { request, ...chosen, held, signal: either };
          return [part, await this.#open(broughtBy(parts, part), { parameter, ...share }, opening)] as const;
        } catch (error) {
          throw error instanceof EngineError && error.parameter === null ? aboutParameter(error, parameter) : error;
        }
      },
      AbortSignal.any([signal, held.refused]),
    );
    return new Map(opened);
  }

  async #open(
    { reference, uuid }: VideoPart,
    { parameter, maxFrames, maxTokens }: VideoShare & { readonly parameter: string },
    opening: VideoOpening,
  ): Promise<OpenedVideo> {
    const { files, processor, limits } = this.#options;
    const { sampling, request } = opening;
    const { processorOptions } = request;
    const references = reference === null ? null : frameReferences(reference, limits.maxVideoFrames);
    const { facts, ...fetched } =
      references === null && (reference === null || typeof reference === "string")
        ? await files.open({ reference, ...(uuid !== undefined && { uuid }) }, opening)
        : await files.openFrames(references ?? [], sampling.framesPerSecond ?? 1, opening);
    const file = { ...fetched, parameter };
    const show = (maxFrames: number, hasToFit = false): OpenedVideo & { readonly numTokens: number } => {
      const { videos } = processor;
      const framesPerItem = videos?.framesPerItem ?? 1;
      const video = showFrames(facts, framesPerItem, (ofFile) => {
        // Who sends frames has chosen them.
        if (references !== null) return equallySpacedFrames(ofFile.numFrames, maxFrames);
        return (
          videos?.sampleFrames(ofFile, sampling, maxFrames) ??
          sampleFrames(ofFile, sampling, { defaultCount: limits.numFrames, maxFrames })
        );
      });
      const options =
        videos === undefined
          ? (processor.frameOptions?.(processorOptions) ?? null)
          : videos.itemOptions(
              video,
              processorOptions,
              hasToFit ? Math.floor((maxTokens * framesPerItem) / video.frameIndices.length) : undefined,
            );
      const optionsOfLast = (options && videos?.lastItemOptions?.(options)) ?? options;
      const isOfVideo = videos !== undefined;
      const items = itemsOf(video, framesPerItem, { file, isOfVideo, options, optionsOfLast });
      const numTokens = items.length * processor.numImageTokens(video, options ?? processorOptions);
      return { items, text: videos?.textOf(video) ?? null, numTokens };
    };
    const isChosen = references !== null || opening.isChosen;
    let shown = show(Math.min(limits.maxVideoFrames, maxFrames));
    if (isChosen || shown.numTokens <= maxTokens) return shown;
    // Smaller frames first, then fewer.
    shown = show(Math.min(limits.maxVideoFrames, maxFrames), true);
    while (shown.numTokens > maxTokens && shown.items.length > 1) {
      const numFrames = shown.items.reduce((sum, { frameIndices }) => sum + frameIndices.length, 0);
      const numFitting = Math.floor((numFrames * maxTokens) / shown.numTokens);
      const fewer = show(Math.max(Math.min(numFitting, numFrames - shown.items[0]!.frameIndices.length), 1), true);
      invariant(fewer.items.length < shown.items.length, "a model shows no more frames than it may");
      shown = fewer;
    }
    return shown;
  }

  /**
   * Decodes the frames of parts in groups, each of one video and small enough to be in memory beside those of other
   * requests. Throws EngineError of videos or `aborted`.
   */
  async *decode(
    parts: readonly FramesPart[],
    decoding: FrameDecoding,
    signal: AbortSignal,
  ): AsyncGenerator<{ readonly parts: readonly FramesPart[]; readonly images: readonly EncodedImage[] }> {
    const groups = groupsOf(parts, this.#options.maxDecodedBytes);
    const sizes = groups.map((group) => group.reduce((sum, part) => sum + headerOf(part).numBytes, 0));
    decoding.onBytes(Math.max(...sizes));
    for (const group of groups) yield { parts: group, images: await this.#decodeGroup(group, decoding, signal) };
  }

  /** @param parts Of one video. */
  async #decodeGroup(
    parts: readonly FramesPart[],
    { owner, onProcessed }: FrameDecoding,
    signal: AbortSignal,
  ): Promise<EncodedImage[]> {
    const { parameter, decodeFrames } = parts[0]!.file;
    const indices = [...new Set(parts.flatMap(({ frameIndices }) => frameIndices))].sort((left, right) => left - right);
    try {
      const frames = await decodeFrames(indices, owner, signal);
      const pixels = new Map(frames.map(({ index, data }) => [index, data]));
      return parts.map((part) => {
        const header = headerOf(part);
        const together = new Uint8Array(header.numBytes);
        const numFrameBytes = header.numBytes / part.frameIndices.length;
        for (const [at, index] of part.frameIndices.entries()) {
          const frame = pixels.get(index);
          invariant(
            frame?.length === numFrameBytes,
            "a decoder returns the frames asked for, in the size of the video",
          );
          together.set(frame, at * numFrameBytes);
        }
        return { bytes: together, header, parameter, owner, onProcessed, isOfVideo: part.isOfVideo };
      });
    } catch (error) {
      throw error instanceof EngineError && error.parameter === null ? aboutParameter(error, parameter) : error;
    }
  }
}

/** @param maxBytes Of the decoded frames of a group, unless a single item has more. */
function groupsOf(parts: readonly FramesPart[], maxBytes: number): FramesPart[][] {
  const groups: FramesPart[][] = [];
  let numBytes = 0;
  for (const part of parts) {
    const group = groups.at(-1);
    const added = headerOf(part).numBytes;
    if (group !== undefined && group[0]?.file === part.file && numBytes + added <= maxBytes) {
      group.push(part);
      numBytes += added;
    } else {
      groups.push([part]);
      numBytes = added;
    }
  }
  return groups;
}

/** Of its frames, as the pixel processor gets them. */
export function headerOf({ item: { video }, frameIndices }: FramesPart): PictureHeader {
  return framesHeader(video, frameIndices.length);
}

/** The frames that `choose` takes, the last one repeated until they fill items. */
function showFrames(
  { width, height, frameTimes, durationSeconds, fps }: VideoFacts,
  framesPerItem: number,
  choose: (file: Omit<ShownVideo, "frameIndices" | "frameSeconds">) => readonly number[],
): ShownVideo {
  const file = { width, height, numFrames: frameTimes.length, framesPerSecond: fps, durationSeconds };
  const chosen = choose(file);
  invariant(
    chosen.length > 0 && chosen.every((index) => index >= 0 && index < file.numFrames),
    "a model shows frames that the video has",
  );
  const numMissing = (framesPerItem - (chosen.length % framesPerItem)) % framesPerItem;
  const frameIndices = [...chosen, ...Array<number>(numMissing).fill(chosen.at(-1)!)];
  return { ...file, frameIndices, frameSeconds: frameIndices.map((index) => frameTimes[index]!) };
}

function itemsOf(
  video: ShownVideo,
  framesPerItem: number,
  {
    optionsOfLast,
    ...common
  }: Pick<FramesPart, "file" | "isOfVideo" | "options"> & {
    readonly optionsOfLast: ProcessorOptions | null;
  },
): FramesPart[] {
  const length = video.frameIndices.length / framesPerItem;
  return Array.from({ length }, (_, index) => ({
    type: "frames",
    origin: "video",
    ...common,
    ...(index === length - 1 && { options: optionsOfLast }),
    item: { video, index },
    frameIndices: video.frameIndices.slice(index * framesPerItem, (index + 1) * framesPerItem),
  }));
}

/** Of several videos with one uuid, any may bring the video. */
function broughtBy(parts: readonly VideoPart[], part: VideoPart): VideoPart {
  if (part.reference !== null) return part;
  return parts.find(({ uuid, reference }) => uuid === part.uuid && reference !== null) ?? part;
}

function samplingOf({ videoSampling = {}, defaultVideoSampling = {} }: VideoRequest): ChosenSampling {
  const isChosen = Object.values(videoSampling).some((value) => value !== undefined);
  return { sampling: isChosen ? videoSampling : defaultVideoSampling, isChosen };
}
