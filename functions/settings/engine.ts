/** Settings of the engine: the model, the device, the scheduler and the logits processors. */
import { fileURLToPath } from "node:url";

import {
  chatTemplateContentFormats,
  deviceNames,
  dtypeNames,
  kvCacheDtypeNames,
  kvLayoutNames,
  promptDtypeNames,
  runnerNames,
} from "../../engine/contract/config.ts";
import { MAX_DATA_PARALLEL_SIZE } from "../../engine/contract/data-parallel.ts";
import { defaultBatchedTokens, defaultEngineLimits, MIN_MODEL_LEN } from "../../engine/contract/default-limits.ts";
import { objectAddressForms } from "../../engine/contract/model-reference.ts";
import { cacheSettings } from "./caches.ts";
import { documentLimitSettings } from "./documents.ts";
import { imageLimitSettings } from "./images.ts";
import { classifierTokens, jsonObject, logitsProcessors, speculativeConfig } from "./json-values.ts";
import { defaultMmLoras, loraModules } from "./lora-modules.ts";
import { pipelineSettings } from "./pipelines.ts";
import { setting } from "./setting.ts";
import {
  anyText,
  boolean,
  bytes,
  checkpointReference,
  commaSeparated,
  fraction,
  integer,
  MEBIBYTE,
  oneOf,
  path,
  searchPath,
  seconds,
} from "./values.ts";
import { videoLimitSettings } from "./videos.ts";

const shippedCheckpoint = fileURLToPath(new URL("../../models/fovea-shapes", import.meta.url));

/** Far more than a machine has. */
const MAX_KV_CACHE_BYTES = 2 ** 47;

/** The largest value of MAX_NUM_SEQS and BATCH_MAX_NUM_SEQS. */
export const MAX_SEQUENCES = 4096;

export const engineSettings = {
  model: setting(
    "MODEL",
    checkpointReference(),
    `Checkpoint: a folder, org/name or hf://org/name@revision of the Hugging Face Hub, or ${objectAddressForms}.`,
    { default: shippedCheckpoint },
  ),
  loraAdapter: setting(
    "LORA_ADAPTER",
    checkpointReference(),
    "LoRA adapter of the model, in the forms of MODEL; its updates are added to the weights. Default: none.",
  ),
  loraModules: setting(
    "LORA_MODULES",
    loraModules(),
    "LoRA adapters that requests choose by their model: name=reference, ... or a JSON list of name and path. Default: none.",
    { unset: [] },
  ),
  defaultMmLoras: setting(
    "DEFAULT_MM_LORAS",
    defaultMmLoras(),
    'LoRA adapter of requests with pictures or videos that choose none by their model: {"image": reference}. Default: none.',
    { unset: [] },
  ),
  dtype: setting(
    "DTYPE",
    oneOf(dtypeNames),
    "Type of the weights: auto, float32 (cpu, webgpu), bfloat16 (cuda), float16 (cuda, webgpu), int8 or int4.",
    {
      default: "auto",
    },
  ),
  device: setting("DEVICE", oneOf(deviceNames), "cpu, cuda or webgpu.", { default: "cpu" }),
  deviceId: setting("DEVICE_ID", integer(0, 1023), "Number of the GPU, from 0.", { default: 0 }),
  dataParallelSize: setting(
    "DATA_PARALLEL_SIZE",
    integer(1, MAX_DATA_PARALLEL_SIZE, "copies"),
    "Copies of the model on the CPU, which divide the cores, the memory and the requests among themselves; default: 2 on two cores, which also divide MAX_NUM_SEQS and KV_CACHE_MEMORY_BYTES, else 1.",
  ),
  numThreads: setting(
    "NUM_THREADS",
    integer(1, 1024, "threads"),
    "Threads per computation of a copy, or of all if DATA_PARALLEL_SIZE is not set; default: the physical cores that the process or its container may use.",
  ),
  /** Null if it depends on the user's home. */
  cacheFolder: setting(
    "CACHE_FOLDER",
    path(),
    "Folder for downloaded checkpoints and quantised weights; default: fovea in $XDG_CACHE_HOME or ~/.cache.",
  ),

  maxModelLen: setting(
    "MAX_MODEL_LEN",
    integer(MIN_MODEL_LEN, Number.MAX_SAFE_INTEGER, "tokens"),
    "Largest number of tokens per sequence, prompt and output together; default: the checkpoint's limit.",
  ),
  maxNumSequences: setting(
    "MAX_NUM_SEQS",
    integer(1, MAX_SEQUENCES, "sequences"),
    "Largest number of sequences that run together, in each copy of the model.",
    { default: defaultEngineLimits.maxNumSequences },
  ),
  maxNumBatchedTokens: setting(
    "MAX_NUM_BATCHED_TOKENS",
    integer(1),
    "Largest number of tokens per step. Longer prompts are split, so that running requests do not stall; default: " +
      `${defaultBatchedTokens("cpu")}, on cuda ${defaultBatchedTokens("cuda")}.`,
  ),
  maxNumWaiting: setting(
    "MAX_NUM_WAITING",
    integer(0, 1_000_000, "requests"),
    "Largest number of waiting requests. One more is answered with 429.",
    { default: defaultEngineLimits.maxNumWaiting },
  ),
  kvLayout: setting(
    "KV_LAYOUT",
    oneOf(kvLayoutNames),
    "Layout of the KV cache: slots, paged (cpu, cuda), or auto, which is paged on cuda.",
    { default: "auto" },
  ),
  promptDtype: setting(
    "PROMPT_DTYPE",
    oneOf(promptDtypeNames),
    "Weights of prompts and of batches of 12 and more sequences (2 beside stored integers of 8 bits): model (those of " +
      "DTYPE), int8 (on cpu, beside int4 and beside integers of AWQ, GPTQ and compressed-tensors: faster, one more byte " +
      "per weight), or auto, which is int8 beside DTYPE=int4 where memory allows and SPECULATIVE_CONFIG is not set.",
    { default: "auto" },
  ),
  kvCacheDtype: setting(
    "KV_CACHE_DTYPE",
    oneOf(kvCacheDtypeNames),
    "Type of keys and values: model (as computed), int8 (a quarter of the memory; cpu with slots), fp8 (half of the " +
      "memory; cuda with a paged cache), or auto, which is int8 beside a dtype of int8 or int4 on cpu, and else model.",
    { default: "auto" },
  ),
  blockSize: setting(
    "BLOCK_SIZE",
    integer(1, 4096, "tokens"),
    "Tokens per block of a paged KV cache; default: 16 on cpu, 64 to 256 on cuda, as the model's attention kernel needs.",
  ),
  numBlocks: setting(
    "NUM_GPU_BLOCKS_OVERRIDE",
    integer(2),
    "Number of blocks of a paged KV cache; default: as many as fit into memory.",
  ),
  kvCacheMemoryBytes: setting(
    "KV_CACHE_MEMORY_BYTES",
    bytes(MEBIBYTE, MAX_KV_CACHE_BYTES),
    "Largest memory of keys and values, such as 4GiB; default: what the weights and a tenth of the machine's memory " +
      "leave, on cuda what GPU_MEMORY_UTILIZATION leaves.",
  ),
  enforceEager: setting(
    "ENFORCE_EAGER",
    boolean(),
    "Run steps over a paged KV cache as they are, without padded shapes and captured CUDA graphs.",
    { default: false },
  ),
  gpuMemoryUtilization: setting(
    "GPU_MEMORY_UTILIZATION",
    fraction(0.01, 1),
    "Share of the GPU's memory for weights, activations, and keys and values.",
    { default: defaultEngineLimits.gpuMemoryUtilization },
  ),
  stepTimeoutMs: setting(
    "ENGINE_STEP_TIMEOUT_SECONDS",
    seconds(0.1, 86_400),
    "Longest step of the engine. After it, /health is 503; after twice as long, requests are ended and /livez is 503.",
    { default: defaultEngineLimits.stepTimeoutMs / 1000 },
  ),
  runner: setting(
    "RUNNER",
    oneOf(runnerNames),
    "What the model computes: generate for text, or pooling for embeddings and the scores of rerankers.",
    { default: "generate" },
  ),
  classifierFromToken: setting(
    "CLASSIFIER_FROM_TOKEN",
    classifierTokens(),
    "With RUNNER=pooling, the tokens of a reranker's classes: no,yes scores by the second less the first, a single token by itself.",
  ),
  warmUp: setting(
    "WARM_UP",
    boolean(),
    "Compute two tokens, and encode a small picture if the model takes any, before the service is ready, so that the first request does not wait for kernels.",
    { default: true },
  ),
  preload: setting(
    "PRELOAD",
    boolean(),
    "Read the weights into the system's cache, several parts at once, while everything else loads. For network disks.",
    { default: false },
  ),
  enablePrefixCaching: setting(
    "ENABLE_PREFIX_CACHING",
    boolean(),
    "Reuse cached keys and values for shared prompt prefixes, images included.",
    { default: true },
  ),

  speculativeConfig: setting(
    "SPECULATIVE_CONFIG",
    speculativeConfig(),
    'Speculative decoding by prompt look-up, such as {"method": "ngram", "num_speculative_tokens": 4}; default: only for requests that ask for it.',
  ),
  logitsProcessors: setting(
    "LOGITS_PROCESSORS",
    logitsProcessors(),
    'Logits processors, applied in this order: module:Export names separated by commas, or a JSON array of names and of {"class", "options"}.',
    { default: "[]" },
  ),
  logitsProcessorPath: setting(
    "LOGITS_PROCESSOR_PATH",
    searchPath(),
    "Folders, separated by colons, in which modules of logits processors are looked up.",
    { default: "." },
  ),

  modelDefinitions: setting(
    "MODEL_DEFINITIONS",
    commaSeparated("module:export names separated by commas", (entry) => /^\S+:\S+$/.test(entry)),
    "Definitions of models of your own: module:export names separated by commas; default: those of installed packages.",
    { unset: [] },
  ),
  modelDefinitionPath: setting(
    "MODEL_DEFINITION_PATH",
    searchPath(),
    "Folders, separated by colons, in which modules of model definitions are looked up.",
    { default: "." },
  ),

  addAllImagesToPrompt: setting(
    "ADD_ALL_IMAGES_TO_PROMPT",
    boolean(),
    "Show the model all images of a prompt; if false, only the last one.",
    { default: true },
  ),
  chatTemplate: setting(
    "CHAT_TEMPLATE",
    anyText(),
    "Chat template instead of the checkpoint's: the path of a file, or the Jinja text itself.",
  ),
  chatTemplateContentFormat: setting(
    "CHAT_TEMPLATE_CONTENT_FORMAT",
    oneOf(chatTemplateContentFormats),
    "How the chat template takes messages: string, openai (a list of parts), or auto, which detects it.",
    { default: "auto" },
  ),
  enableMmEmbeds: setting(
    "ENABLE_MM_EMBEDS",
    boolean(),
    "Accept precomputed image embeddings in requests. They are used without verification.",
    { default: false },
  ),
  mmProcessorOptions: setting(
    "MM_PROCESSOR_KWARGS",
    jsonObject('{"do_normalize": false}'),
    "JSON object: changes to the options of the checkpoint's image processor, named as in preprocessor_config.json.",
    { default: "{}" },
  ),
  ...pipelineSettings,
  imageLimits: imageLimitSettings,
  videoLimits: videoLimitSettings,
  documentLimits: documentLimitSettings,
  caches: cacheSettings,
};
