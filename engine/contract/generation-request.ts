/** The input of `Engine.generate`: text and image references, not processed yet. */
import type { DocumentContent, TaskName } from "./config.ts";
import type { OnRequestStage } from "./request-stage.ts";
import type { SamplingParams } from "./sampling-params.ts";
import type { JsonObject, ToolCall, ToolDefinition } from "./tools.ts";

/** A reranker's prompt has a message of the role `query` and one of the role `document`. */
export type ChatRole = "system" | "user" | "assistant" | "tool" | "query" | "document";

/** An image of a prompt. */
export type ImagePart =
  | {
      readonly type: "image";
      /** `data:`, `https://` or `s3://` reference; null if the image is expected to be cached under its `uuid`. */
      readonly reference: string | null;
      /** The caller's own name for the image content. A cached image is not fetched again. */
      readonly uuid?: string;
    }
  /** Reference to an .npy or safetensors file with the vision encoder's output for an image. */
  | {
      readonly type: "image_embeds";
      readonly reference: string;
      /** For models whose prompts depend on the shape of a picture (Qwen2-VL, Fuyu). */
      readonly grid?: ImageGrid;
    };

/** A video of a conversation. */
export interface VideoPart {
  readonly type: "video";
  /**
   * `data:`, `https://` or `s3://` reference to a file, or references to its frames, which are images of one size in
   * order. `data:video/jpeg;base64,` has JPEG files, separated by commas. Null if the video is expected to be cached
   * under its `uuid`.
   */
  readonly reference: string | readonly string[] | null;
  /** The caller's own name for the file. One that is known is not fetched again. Not used for frames. */
  readonly uuid?: string;
}

/**
 * Which frames of a video a prompt shows. Default: as the checkpoint's video processor says; without one,
 * `defaultVideoLimits.numFrames` at equal distances.
 */
export interface VideoSampling {
  /** At equal distances, the first and the last among them. Excludes `framesPerSecond`. */
  readonly numFrames?: number;
  readonly framesPerSecond?: number;
}

/** Pictures in time (1), rows and columns of patches, before any are merged. */
export type ImageGrid = readonly [numTimes: number, numRows: number, numColumns: number];

/** A document of a conversation: a PDF file, whose pages are pictures or texts of its message. */
export interface DocumentPart {
  readonly type: "document";
  /** `data:`, `https://` or `s3://` reference to the file. */
  readonly reference: string;
}

/** Which pages of a document a prompt shows, and how. Default: all, as `DocumentLimits` says. */
export interface DocumentPages {
  /** Counted from 1. */
  readonly firstPage?: number | undefined;
  /** Inclusive. A document with fewer pages is shown to its end. */
  readonly lastPage?: number | undefined;
  readonly dotsPerInch?: number | undefined;
  readonly content?: DocumentContent | undefined;
}

export type ContentPart = { readonly type: "text"; readonly text: string } | ImagePart | VideoPart | DocumentPart;

export interface ChatMessage {
  readonly role: ChatRole;
  /** Empty text for an assistant's turn that only calls tools. */
  readonly content: string | readonly ContentPart[];
  /** For an assistant's turn. */
  readonly toolCalls?: readonly ToolCall[];
  /** For an assistant's turn: the text of its thinking. Most chat templates print it for the last turns only. */
  readonly reasoning?: string;
  /** For a tool's result: the call that it answers. */
  readonly toolCallId?: string;
  /** The name of the participant, or of the tool. */
  readonly name?: string;
}

export interface ChatPromptInput {
  readonly kind: "chat";
  readonly messages: readonly ChatMessage[];
  readonly addGenerationPrompt: boolean;
  /** The tools that the chat template describes to the model. Default none. */
  readonly tools?: readonly ToolDefinition[];
  /** Further variables of the chat template (`chat_template_kwargs`), such as `enable_thinking`. */
  readonly templateArguments?: JsonObject;
  /**
   * Leaves the last message open, so that the model continues its text, or its thinking if it has no text. Default false.
   */
  readonly continueFinalMessage?: boolean;
  /**
   * Whether the tokenizer adds its tokens (usually a beginning token) around the rendered conversation. Default: as
   * transformers does (see `addsSpecialTokens`).
   */
  readonly addSpecialTokens?: boolean;
}

export type Prompt =
  | ChatPromptInput
  /** `images` are in the order of the model's image placeholders in `text`. */
  | {
      readonly kind: "text";
      readonly text: string;
      readonly addSpecialTokens: boolean;
      readonly images?: readonly ImagePart[];
    }
  /** Text and images in order. Each image stands between the model's image markers, where it has such markers. */
  | { readonly kind: "parts"; readonly parts: readonly ContentPart[]; readonly addSpecialTokens: boolean }
  /**
   * `images` are in the order of the placeholders in `tokenIds`: one image token each, or already as many as each image
   * has features.
   */
  | { readonly kind: "tokens"; readonly tokenIds: readonly number[]; readonly images?: readonly ImagePart[] };

/** The fields of a request that determine its prompt's tokens and the identity of its images. */
export type PromptRequest = Pick<
  GenerationRequest,
  | "prompt"
  | "truncatePromptTokens"
  | "truncationSide"
  | "mmProcessorOptions"
  | "videoSampling"
  | "defaultVideoSampling"
  | "documentPages"
  | "tenant"
  | "cacheSalt"
  | "priority"
  | "onStage"
> &
  Partial<Pick<GenerationRequest, "samplingParams">>;

/** The size of a prompt, with image placeholders expanded. */
export interface PromptFigures {
  readonly numPromptTokens: number;
  /** Prompt tokens that are embeddings of images. */
  readonly numImageTokens: number;
  /** Prompt tokens that are embeddings of frames of videos. */
  readonly numVideoTokens: number;
}

export interface GenerationRequest {
  /** Unique among the requests in flight. */
  readonly requestId: string;
  readonly prompt: Prompt;
  readonly samplingParams: SamplingParams;
  /**
   * Sequences generated from the prompt, which is processed once. The seeds of the further sequences follow the
   * request's seed. Default 1. Greedy sampling accepts only 1, since all sequences would be equal.
   */
  readonly numChoices?: number;
  /**
   * Shortens a longer prompt to this many tokens, or for -1 to as many as fit into the model's length next to
   * `maxTokens` of output. Images are removed as a whole. If left out, a prompt that is too long is rejected.
   */
  readonly truncatePromptTokens?: number;
  /** The end of the prompt at which tokens are removed. Default `left`, the oldest. */
  readonly truncationSide?: "left" | "right";
  /** What the only output has in place of text: `ModelInfo.task`. Default `generate`: text. */
  readonly task?: TaskName;
  /** Whether the first output of each choice contains the prompt. Default false. */
  readonly includePrompt?: boolean;
  /**
   * Changes to the image processor's options (`mm_processor_kwargs`), as preprocessor_config.json names them, at the
   * top level or below `images_kwargs`. Unknown options are rejected.
   */
  readonly mmProcessorOptions?: Readonly<Record<string, unknown>>;
  /** For all videos of the prompt. If their frames do not fit into it, the request is rejected. */
  readonly videoSampling?: VideoSampling;
  /** In place of an empty `videoSampling`. If the frames do not fit, they are made smaller, or fewer are shown. */
  readonly defaultVideoSampling?: VideoSampling;
  /** For all documents of the prompt. */
  readonly documentPages?: DocumentPages;
  /** Owner of the request's image uuids: an equal uuid of another tenant is another image. Default "". */
  readonly tenant?: string;
  /**
   * Lower values are scheduled first, and preempted last; equal values in order of arrival. Default 0. See `WaitingQueue`
   * for how long a request can be overtaken.
   */
  readonly priority?: number;
  /** Name of the LoRA adapter that computes the request: one of `EngineConfig.loraModules`. Default: none. */
  readonly adapter?: string;
  /** Requests with different salts do not share cached prompts and images. */
  readonly cacheSalt?: string;
  /** Receives the times of the request's stages. Measured only if it is given. */
  readonly onStage?: OnRequestStage;
}
