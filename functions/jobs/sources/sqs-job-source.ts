/** Jobs from Amazon SQS, or a server that speaks its protocol. Only this file imports the client of SQS. */
import {
  ChangeMessageVisibilityCommand,
  DeleteMessageCommand,
  GetQueueAttributesCommand,
  GetQueueUrlCommand,
  ReceiveMessageCommand,
  SendMessageCommand,
  SQSClient,
} from "@aws-sdk/client-sqs";
import type { Message, SendMessageCommandInput } from "@aws-sdk/client-sqs";

import type { Logger } from "../../logger.ts";
import { readTraceContext } from "../../telemetry/trace-context.ts";
import type { JobResult } from "../job-result.ts";
import { LeaseLostError } from "../job-source.ts";
import type { JobSource, LeasedJob } from "../job-source.ts";
import { regionOfQueue } from "./sqs-region.ts";

/** SQS hands out at most this many messages at once. */
const MAX_MESSAGES = 10;
/** Long polling: the most that SQS allows. */
const WAIT_SECONDS = 20;
/** Time limit of calls that do not wait for messages, with their retries. */
const CALL_TIMEOUT_MS = 10_000;
/** SQS hides a message for at most this long after it has handed it out, however often its time is extended. */
const MAX_HIDDEN_SECONDS = 43_200;
/** The last renewal ends this long before, because SQS counts from before its answer arrives. */
const LAST_SECONDS = 60;

/** Codes of missing permissions in AWS's two protocols. */
const accessErrors: ReadonlySet<string> = new Set(["AccessDenied", "AccessDeniedException"]);

export interface SqsJobSourceOptions {
  /** URL of the queue: https://sqs.eu-west-1.amazonaws.com/123456789012/name. */
  readonly queueUrl: string;
  /** For a queue whose URL names none. Null: that of the AWS settings. */
  readonly region: string | null;
  /** Visibility timeout of taken messages in milliseconds: whole seconds. */
  readonly leaseMs: number;
  /** Deliveries after which the runner rejects a job: the queue must allow more. */
  readonly maxNumDeliveries: number;
  readonly logger: Logger;
  /** How long a call waits for messages. Default: 20. */
  readonly waitSeconds?: number;
}

interface RedrivePolicy {
  readonly deadLetterTargetArn: string;
  /** SQS stores what it was given: a number or its text. */
  readonly maxReceiveCount: number | string;
}

/** Whether the files of the AWS SDK name a region. */
export async function namesRegion(): Promise<boolean> {
  const client = new SQSClient({});
  try {
    return (await client.config.region()) !== "";
  } catch {
    return false;
  } finally {
    client.destroy();
  }
}

/**
 * The id of a job is that of its message. A job is released by making its message visible again, and rejected by moving
 * it to the queue's dead-letter queue. Without a dead-letter queue a rejected message is deleted, as its result says why.
 * Rejects if the queue cannot be reached or does not exist.
 */
export async function createSqsJobSource(options: SqsJobSourceOptions): Promise<JobSource> {
  const { queueUrl, leaseMs, maxNumDeliveries, logger, waitSeconds = WAIT_SECONDS } = options;
  const leaseSeconds = Math.round(leaseMs / 1000);
  const { origin } = new URL(queueUrl);
  const region = regionOfQueue(queueUrl, options.region);
  const client = new SQSClient({ endpoint: origin, ...(region !== undefined && { region }) });
  const queue = { QueueUrl: queueUrl };
  const inTime = () => ({ abortSignal: AbortSignal.timeout(CALL_TIMEOUT_MS) });
  let deadLetterUrl: Promise<string | null> | null = null;

  async function readRedrivePolicy(): Promise<RedrivePolicy | null> {
    const names = ["RedrivePolicy"] as const;
    const { Attributes } = await client.send(
      new GetQueueAttributesCommand({ ...queue, AttributeNames: [...names] }),
      inTime(),
    );
    const policy = Attributes?.RedrivePolicy;
    return policy === undefined ? null : (JSON.parse(policy) as RedrivePolicy);
  }

  async function findDeadLetters(): Promise<string | null> {
    const policy = await readRedrivePolicy();
    if (policy === null) return null;
    const [account, name] = policy.deadLetterTargetArn.split(":").slice(-2) as [string, string];
    const request = { QueueName: name, QueueOwnerAWSAccountId: account };
    return (await client.send(new GetQueueUrlCommand(request), inTime())).QueueUrl ?? null;
  }

  /** Warns about a queue that would lose rejected jobs, or jobs without a result. */
  async function checkQueue(): Promise<void> {
    let policy: RedrivePolicy | null;
    try {
      policy = await readRedrivePolicy();
    } catch (error) {
      if (!(error instanceof Error && accessErrors.has(error.name))) throw error;
      const remedy = "Grant sqs:GetQueueAttributes, or rejected jobs cannot go to the dead-letter queue.";
      return logger.warn("The redrive policy of the queue cannot be read.", { queue: queueUrl, remedy });
    }
    if (policy === null) {
      const remedy = "Give the queue a redrive policy, or messages that are no jobs are deleted after their results.";
      return logger.warn("The queue has no dead-letter queue.", { queue: queueUrl, remedy });
    }
    const maxReceiveCount = Number(policy.maxReceiveCount);
    if (maxReceiveCount > maxNumDeliveries) return;
    const remedy = `Set maxReceiveCount to more than JOB_MAX_DELIVERIES, which is ${maxNumDeliveries}.`;
    const limits = { maxReceiveCount, maxNumDeliveries };
    logger.warn("SQS gives up jobs before they have a result.", { queue: queueUrl, ...limits, remedy });
  }

  async function hide(receipt: string, seconds: number): Promise<void> {
    const request = { ...queue, ReceiptHandle: receipt, VisibilityTimeout: Math.min(seconds, MAX_HIDDEN_SECONDS) };
    await client.send(new ChangeMessageVisibilityCommand(request), inTime());
  }

  async function sendDead(message: SendMessageCommandInput, { text }: JobResult): Promise<void> {
    const reason = { DataType: "String", StringValue: toAscii(text).slice(0, 1000) };
    try {
      await client.send(
        new SendMessageCommand({ ...message, MessageAttributes: { "fovea-result": reason } }),
        inTime(),
      );
    } catch (error) {
      if (!isInvalid(error)) throw error;
      // Attributes count as part of the message, which may have the maximum length already.
      await client.send(new SendMessageCommand(message), inTime());
    }
  }

  function toJob(message: Message): LeasedJob[] {
    const { MessageId: id, ReceiptHandle: receipt, Body: body = "", Attributes, MessageAttributes } = message;
    if (id === undefined || receipt === undefined) return [];
    const receivedAt = performance.now();
    const remove = async (): Promise<void> => {
      await client.send(new DeleteMessageCommand({ ...queue, ReceiptHandle: receipt }), inTime());
    };
    return [
      {
        id,
        body,
        numDeliveries: Number(Attributes?.ApproximateReceiveCount ?? 1),
        traceContext: readTraceContext((name) => MessageAttributes?.[name]?.StringValue),
        lost: new AbortController().signal,
        async renew() {
          const secondsLeft = MAX_HIDDEN_SECONDS - LAST_SECONDS - Math.ceil((performance.now() - receivedAt) / 1000);
          if (secondsLeft <= 0) throw new LeaseLostError(id);
          try {
            await hide(receipt, Math.min(leaseSeconds, secondsLeft));
          } catch (error) {
            if (isLost(error)) throw new LeaseLostError(id, error);
            throw error;
          }
        },
        complete: remove,
        async reject(result) {
          const url = await (deadLetterUrl ??= findDeadLetters().catch((error: unknown) => {
            deadLetterUrl = null;
            throw error;
          }));
          if (url !== null) {
            const groupId = Attributes?.MessageGroupId;
            // Messages of fair queues have groups too, but only FIFO queues accept an id against duplicates.
            const group = groupId === undefined ? {} : { MessageGroupId: groupId };
            const fifo = url.endsWith(".fifo") ? { MessageDeduplicationId: id } : {};
            await sendDead({ QueueUrl: url, MessageBody: body, ...group, ...fifo }, result);
          }
          await remove();
        },
        release: (delayMs) => hide(receipt, Math.ceil(delayMs / 1000)),
      },
    ];
  }

  try {
    await checkQueue();
  } catch (error) {
    client.destroy();
    throw error;
  }
  return {
    name: queueUrl,
    leaseMs,
    answersSenders: false,
    async take(maxNumJobs, signal) {
      const request = new ReceiveMessageCommand({
        ...queue,
        MaxNumberOfMessages: Math.min(maxNumJobs, MAX_MESSAGES),
        WaitTimeSeconds: waitSeconds,
        VisibilityTimeout: leaseSeconds,
        MessageAttributeNames: ["traceparent", "tracestate"],
        MessageSystemAttributeNames: ["ApproximateReceiveCount", "MessageGroupId"],
      });
      const abortSignal = AbortSignal.any([signal, AbortSignal.timeout(waitSeconds * 1000 + CALL_TIMEOUT_MS)]);
      try {
        const { Messages = [] } = await client.send(request, { abortSignal });
        return Messages.flatMap(toJob);
      } catch (error) {
        // A message that SQS hands out at this very moment becomes visible again when its lease ends.
        if (signal.aborted) return [];
        throw error;
      }
    },
    async close() {
      client.destroy();
    },
  };
}

const invalidNames: ReadonlySet<string> = new Set(["InvalidParameterValue", "InvalidParameterValueException"]);
const lostNames: ReadonlySet<string> = new Set([...invalidNames, "MessageNotInflight", "ReceiptHandleIsInvalid"]);

function isLost(error: unknown): boolean {
  return error instanceof Error && lostNames.has(error.name);
}

function isInvalid(error: unknown): boolean {
  return error instanceof Error && invalidNames.has(error.name);
}

/** JSON whose characters SQS accepts in attributes: it refuses U+FFFE and U+FFFF. */
function toAscii(json: string): string {
  return json.replace(/[^\x20-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
