/** Which frames of its videos a request asks for, from the fields of vLLM, of transformers and of Alibaba. */
import type { GenerationRequest, VideoSampling } from "../../engine/index.ts";
import { formatPath } from "../http/wire-parameter.ts";
import { refusedOption } from "./refused-option.ts";
import type { ChatCompletionRequest } from "./schemas/chat-completion-request.ts";

type OptionName = "num_frames" | "fps";

interface Option {
  readonly name: OptionName;
  readonly value: number;
  readonly path: string;
}

/** Options of a video processor that have no effect: frames are sampled once, while the file is read. */
const withoutEffect: ReadonlySet<string> = new Set(["do_sample_frames"]);

/** vLLM's number for all frames, and for a rate that is left open. */
const UNLIMITED = -1;

export interface SamplingDefaults {
  /** Of requests that do not say. */
  readonly videoSampling: VideoSampling;
  /** The frames of a video that `num_frames: -1` means. */
  readonly maxVideoFrames: number;
}

type SampledFields = Pick<ChatCompletionRequest, "messages" | "media_io_kwargs" | "mm_processor_kwargs">;

/**
 * The sampling of all videos of a request, or else the deployment's; empty if nothing says. As in vLLM, a field of the
 * request replaces the whole default.
 *
 * @throws HttpError 400 for an unknown option, for a value out of range, and for values that contradict each other.
 */
export function videoSamplingOf(
  fields: SampledFields,
  { videoSampling: defaultSampling, maxVideoFrames }: SamplingDefaults,
): Pick<GenerationRequest, "videoSampling" | "defaultVideoSampling"> {
  const options = [
    ...optionsBelow(fields.media_io_kwargs?.video, "media_io_kwargs.video"),
    ...optionsOfProcessor(fields.mm_processor_kwargs),
    ...optionsOfParts(fields.messages),
  ];
  const sampling = toSampling(options, maxVideoFrames);
  if (sampling !== null) return { videoSampling: sampling };
  return Object.keys(defaultSampling).length === 0 ? {} : { defaultVideoSampling: defaultSampling };
}

/** The options of the image processor: those without the options of videos. */
export function imageProcessorOptions(given: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const { num_frames: _numFrames, fps: _fps, do_sample_frames: _samples, videos_kwargs: _videos, ...options } = given;
  return options;
}

function toSampling(options: readonly Option[], maxVideoFrames: number): VideoSampling | null {
  const numFrames = onlyOption(options, "num_frames");
  const fps = onlyOption(options, "fps");
  const hasRate = fps !== null && fps.value !== UNLIMITED;
  if (numFrames === null || (hasRate && numFrames.value === UNLIMITED)) {
    return hasRate ? { framesPerSecond: fps.value } : null;
  }
  if (hasRate) {
    throw refusedOption(fps.path, `${fps.path} cannot be combined with ${numFrames.path}; leave one out`);
  }
  return { numFrames: numFrames.value === UNLIMITED ? maxVideoFrames : numFrames.value };
}

function onlyOption(options: readonly Option[], name: OptionName): Option | null {
  const [first, ...others] = options.filter((option) => option.name === name);
  const other = others.find(({ value }) => value !== first?.value);
  if (first === undefined || other === undefined) return first ?? null;
  throw refusedOption(
    other.path,
    `${other.path} is ${other.value} and ${first.path} is ${first.value}; all videos of a request have one value`,
  );
}

function optionsOfProcessor(given: SampledFields["mm_processor_kwargs"]): Option[] {
  const { num_frames, fps, do_sample_frames, videos_kwargs: below } = given ?? {};
  const path = "mm_processor_kwargs";
  return [
    ...optionsBelow({ num_frames, fps, do_sample_frames }, path),
    ...optionsBelow(below, `${path}.videos_kwargs`),
  ];
}

function optionsOfParts(messages: SampledFields["messages"]): Option[] {
  return messages.flatMap(({ content }, message) =>
    typeof content === "object" && content !== null
      ? content.flatMap((part, index) =>
          "fps" in part ? optionsBelow({ fps: part.fps }, `messages[${message}].content[${index}]`) : [],
        )
      : [],
  );
}

function optionsBelow(given: unknown, path: string): Option[] {
  if (given === null || given === undefined) return [];
  if (typeof given !== "object" || Array.isArray(given)) throw refusedOption(path, `${path} must be an object`);
  return Object.entries(given).flatMap(([name, value]: [string, unknown]) => {
    if (value === null || value === undefined || withoutEffect.has(name)) return [];
    const option = `${path}.${formatPath([name])}`;
    if (name !== "num_frames" && name !== "fps") {
      throw refusedOption(
        option,
        `${option} cannot be set; the options of videos that can be set are num_frames and fps`,
      );
    }
    return [{ name, value: readNumber(name, value, option), path: option }];
  });
}

function readNumber(name: OptionName, value: unknown, path: string): number {
  const isNumber = typeof value === "number" && Number.isFinite(value);
  if (isNumber && value === UNLIMITED) return value;
  const isAllowed = isNumber && (name === "fps" ? value > 0 : Number.isSafeInteger(value) && value >= 1);
  if (isAllowed) return value;
  const rule = name === "fps" ? "a number above 0" : "a whole number of at least 1, or -1 for all frames";
  throw refusedOption(path, `${path} must be ${rule}`);
}
