/** Describes why a service cannot start: one line that names the fault and what to do. */
import type { EngineErrorCode } from "../../engine/index.ts";
import type { Config } from "../settings/config.ts";
import { ConfigError } from "../settings/setting.ts";

export interface LoadFailure {
  readonly code: string;
  readonly reason: string;
  readonly advice: string;
}

const adviceOf: Partial<Record<EngineErrorCode, string>> = {
  invalid_checkpoint: "Correct the file that the reason names, or download the checkpoint again.",
  unsupported_model:
    "Use a checkpoint of a kind that the README lists. MODEL_DEFINITIONS adds architectures of your own.",
  invalid_configuration:
    "Correct what the reason names: a setting (fovea --help lists them), or what is installed on this machine.",
  runtime_failed:
    "ONNX Runtime rejected this. Download the checkpoint again if the reason is about a file or tensor, otherwise check DEVICE.",
  out_of_memory:
    "Choose a smaller model or DTYPE, or a lower MAX_MODEL_LEN, MAX_NUM_SEQS or MAX_NUM_BATCHED_TOKENS; end other programs that use the device.",
  device_lost: "Restart. If that does not help, check the GPU: nvidia-smi and the kernel's log name its faults.",
  runtime_missing: "docs/embedding.md says which variable to set for the installation.",
  invalid_logits_processor: "docs/logits-processors.md lists the fix for each reason.",
};

/** By the code of the system's error. `PORT` stands for the setting of the port. */
const listenFailures: Readonly<Record<string, Omit<LoadFailure, "code">>> = {
  EADDRINUSE: {
    reason: "Another program listens on this port.",
    advice: "Set PORT to a free port, or end the other program.",
  },
  EACCES: {
    reason: "This user may not listen on this port.",
    advice: "Set PORT to 1024 or higher.",
  },
  EADDRNOTAVAIL: {
    reason: "The host is not an address of this machine.",
    advice: "Set HOST to 0.0.0.0, or to an address of this machine.",
  },
  ENOTFOUND: {
    reason: "The name of the host has no address.",
    advice: "Set HOST to 0.0.0.0, or to an address of this machine.",
  },
};

export interface ListenFailure {
  /** The port that cannot be opened: that of requests, or that of health checks. */
  readonly port: number;
  /** Null for a failure that is not about the address; it is shown in full, with its stack. */
  readonly failure: LoadFailure | null;
}

export function describeListenFailure(
  error: unknown,
  { port, healthPort }: Pick<Config, "port" | "healthPort">,
): ListenFailure {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  const isOfHealthPort = error instanceof Error && "port" in error && error.port === healthPort;
  const failure = listenFailures[code];
  if (failure === undefined) return { port, failure: null };
  if (!isOfHealthPort || healthPort === null) return { port, failure: { code, ...failure } };
  const advice = failure.advice.replace("PORT", "PORT_HEALTH");
  return { port: healthPort, failure: { code, ...failure, advice } };
}

/** Null for a failure that the operator cannot fix; it is shown in full, with its stack. */
export function describeLoadFailure(error: unknown, { engine }: Config): LoadFailure | null {
  if (error instanceof ConfigError) {
    const advice = "Correct the setting that the reason names; fovea --help lists them.";
    return { code: "invalid_configuration", reason: error.problems.join(" "), advice };
  }
  // Without its class: importing the engine's modules would delay opening the port.
  if (!(error instanceof Error) || !("code" in error)) return null;
  const code = error.code as EngineErrorCode;
  const advice =
    openFilesAdvice(error) ??
    weightsAdvice(error) ??
    settingAdvice(error, engine) ??
    (code === "invalid_configuration" ? bucketAdvice(error, engine) : null) ??
    adviceOf[code];
  return advice === undefined ? null : { code, reason: error.message.replaceAll(/\s+/g, " "), advice };
}

/** The file that could not be opened is not at fault, whatever the code says. */
function openFilesAdvice(error: Error): string | null {
  for (let cause: unknown = error; cause instanceof Error; { cause } = cause) {
    if (/\bEMFILE\b/.test(cause.message)) return "Raise this process's limit on open files (ulimit -n).";
    if (/\bENFILE\b/.test(cause.message)) return "Raise the machine's limit on open files (sysctl fs.file-max).";
  }
  return null;
}

/** The runtime worked, so neither it nor the device is at fault. */
function weightsAdvice({ message }: Error): string | null {
  if (!message.includes("the model returned logits that are not numbers")) return null;
  return "Download the checkpoint again: its weights may contain NaN. If they are in order, they overflow in this type: set DTYPE to bfloat16 or float32.";
}

function settingAdvice(error: Error, { cacheFolder, hub }: Config["engine"]): string | null {
  switch ("setting" in error ? error.setting : null) {
    case "cacheFolder":
      return `CACHE_FOLDER is ${cacheFolder}: set it to a writable folder with enough free space.`;
    case "hubCacheFolder":
      return `Check the connection to the hub (HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE). Or set HF_HUB_CACHE, which is ${hub.cacheFolder}, to a folder that has the repository, or that is writable and has enough free space.`;
    case "dtype":
      return "Leave DTYPE out, or set it to a type that the reason names.";
    case "device":
      return "Set DEVICE to a device that the reason names.";
    case "deviceId":
      return "Set DEVICE_ID to the number of a device that is there and fits, counted from 0, or DEVICE to another device.";
    case "dataParallelSize":
      return "Leave DATA_PARALLEL_SIZE out, or let all parts of the model compute on the CPU.";
    case "visionDtype":
      return "Leave VISION_DTYPE, VISION_DEVICE, PROJECTOR_DTYPE and PROJECTOR_DEVICE out, or set them as the reason says.";
    case "modelDefinitions":
      return "Correct MODEL_DEFINITIONS (module:export), MODEL_DEFINITION_PATH, or the package that the reason names.";
    case "multimodalPipeline":
      return "Leave MULTIMODAL_PIPELINE out, or set it to a pipeline that fits; PIPELINE_PATH lists the folders of your own.";
    case "pipelineParams":
      return "Correct the parameter in PIPELINE_PARAMS.";
    case "promptDtype":
      return "Leave PROMPT_DTYPE out, or set it to model.";
    case "speculativeConfig":
      return "Leave SPECULATIVE_CONFIG out, or change the setting that the reason names, if it names one.";
    case "runner":
      return "Set RUNNER=pooling for embeddings and scores, leave it out for text, and leave out what the reason names.";
    case "classifierFromToken":
      return "Correct the tokens in CLASSIFIER_FROM_TOKEN, or leave it out.";
    case "kvLayout":
      return "Leave KV_LAYOUT out, or set it as the reason says.";
    case "blockSize":
      return "Leave BLOCK_SIZE and NUM_GPU_BLOCKS_OVERRIDE out, or set them as the reason says.";
    case "gpuMemoryUtilization":
      return "Set GPU_MEMORY_UTILIZATION, KV_CACHE_MEMORY_BYTES or NUM_GPU_BLOCKS_OVERRIDE to a number that fits.";
    case "largestExpectedImage":
      return "Give smaller sizes in LIMIT_MM_PER_PROMPT, or set VISION_DEVICE to cpu.";
    case "hubToken":
      return "Set HF_TOKEN to a token that may read the repository, or correct the repository's name.";
    case "hubEndpoint":
      return "Leave HF_ENDPOINT out, or set it to the address of a hub.";
    case "azure":
      return "Set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME with credentials (docs/checkpoints.md).";
    case "gcsEmulatorUrl":
      return "Leave STORAGE_EMULATOR_HOST out, or set it to the address of an emulator.";
    case "model":
      return "Set MODEL to an existing folder, to org/name of the Hugging Face Hub, or to s3://, gs:// or az:// and a prefix.";
    case "loraAdapter":
      return "Set LORA_ADAPTER to a folder, a repository of the hub or an address with an adapter of the model in MODEL, or leave it out. LORA_MODULES takes adapters that requests choose.";
    case "loraModules":
      return "Set LORA_MODULES to adapters of the model in MODEL, each a folder, a repository of the hub or an address, or leave them out. LORA_ADAPTER takes one for all requests.";
    case "chatTemplate":
      return "Set CHAT_TEMPLATE to the path of a template, or to the Jinja text itself.";
    case "kvCacheDtype":
      return "Leave KV_CACHE_DTYPE out, or set it to model.";
    case "kvCacheMemoryBytes":
      return "Raise KV_CACHE_MEMORY_BYTES, or set MAX_MODEL_LEN to a length that fits.";
    case "maxNumSequences":
      return "Set MAX_NUM_SEQS or MAX_MODEL_LEN to a number that fits.";
    case "maxModelLen":
      return "Set MAX_MODEL_LEN to a length within the limit.";
    case "maxNumBatchedTokens":
      return "Set MAX_NUM_BATCHED_TOKENS or MAX_NUM_SEQS to a number that fits.";
    default:
      return null;
  }
}

/** For a reason that names the bucket: other wrong settings have the same code. */
function bucketAdvice({ message }: Error, { model, loraAdapter }: Config["engine"]): string | null {
  const references = { MODEL: model, LORA_ADAPTER: loraAdapter ?? "" };
  const [name, reference] =
    Object.entries(references).find(([, each]) => /^(s3|gs|az):/.test(each) && message.includes(each)) ?? [];
  if (reference === undefined) return null;
  return `Check the bucket and prefix of ${name}, ${storeSettings(reference)}the credentials and their rights, and the connection to the store.`;
}

function storeSettings(reference: string): string {
  if (reference.startsWith("s3:")) return "AWS_REGION, ";
  return reference.startsWith("az:") ? "AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, " : "";
}
