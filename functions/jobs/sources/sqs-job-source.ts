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
import type { Message } from "@aws-sdk/client-sqs";

import { readTraceContext } from "../../telemetry/trace-context.ts";
import { LeaseLostError } from "../job-source.ts";
import type { JobSource, LeasedJob } from "../job-source.ts";

/** SQS hands out at most this many messages at once. */
const MAX_MESSAGES = 10;
/** Long polling: the most that SQS allows. */
const WAIT_SECONDS = 20;
/** Time limit of calls that do not wait for messages, with their retries. */
const CALL_TIMEOUT_MS = 10_000;
/** The longest time that SQS hides a message. */
const MAX_HIDDEN_SECONDS = 43_200;

export interface SqsJobSourceOptions {
  /** URL of the queue: https://sqs.eu-west-1.amazonaws.com/123456789012/name. */
  readonly queueUrl: string;
  /** Null: that of the queue's URL, or of the AWS settings. */
  readonly region: string | null;
  /** Visibility timeout of taken messages in milliseconds: whole seconds. */
  readonly leaseMs: number;
  /** How long a call waits for messages. Default: 20. */
  readonly waitSeconds?: number;
}

/**
 * The id of a job is that of its message. A job is released by making its message visible again, and rejected by moving
 * it to the queue's dead-letter queue. Without a dead-letter queue a rejected message is deleted, as its result says why.
 */
export function createSqsJobSource(options: SqsJobSourceOptions): JobSource {
  const { queueUrl, leaseMs, waitSeconds = WAIT_SECONDS } = options;
  const leaseSeconds = Math.round(leaseMs / 1000);
  const { origin, hostname } = new URL(queueUrl);
  const region = options.region ?? /^sqs\.([a-z0-9-]+)\.amazonaws\./.exec(hostname)?.[1];
  const client = new SQSClient({ endpoint: origin, ...(region !== undefined && { region }) });
  const queue = { QueueUrl: queueUrl };
  const inTime = () => ({ abortSignal: AbortSignal.timeout(CALL_TIMEOUT_MS) });
  let deadLetterUrl: Promise<string | null> | null = null;

  async function findDeadLetters(): Promise<string | null> {
    const names = ["RedrivePolicy"] as const;
    const { Attributes } = await client.send(
      new GetQueueAttributesCommand({ ...queue, AttributeNames: [...names] }),
      inTime(),
    );
    const policy = Attributes?.RedrivePolicy;
    if (policy === undefined) return null;
    const { deadLetterTargetArn } = JSON.parse(policy) as { readonly deadLetterTargetArn: string };
    const [account, name] = deadLetterTargetArn.split(":").slice(-2) as [string, string];
    const request = { QueueName: name, QueueOwnerAWSAccountId: account };
    return (await client.send(new GetQueueUrlCommand(request), inTime())).QueueUrl ?? null;
  }

  async function hide(receipt: string, seconds: number): Promise<void> {
    const request = { ...queue, ReceiptHandle: receipt, VisibilityTimeout: Math.min(seconds, MAX_HIDDEN_SECONDS) };
    await client.send(new ChangeMessageVisibilityCommand(request), inTime());
  }

  function toJob(message: Message): LeasedJob[] {
    const { MessageId: id, ReceiptHandle: receipt, Body: body = "", Attributes, MessageAttributes } = message;
    if (id === undefined || receipt === undefined) return [];
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
          try {
            await hide(receipt, leaseSeconds);
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
            const reason = { DataType: "String", StringValue: result.text.slice(0, 1000) };
            const groupId = Attributes?.MessageGroupId;
            const fifo = groupId === undefined ? {} : { MessageGroupId: groupId, MessageDeduplicationId: id };
            const request = {
              QueueUrl: url,
              MessageBody: body,
              MessageAttributes: { "fovea-result": reason },
              ...fifo,
            };
            await client.send(new SendMessageCommand(request), inTime());
          }
          await remove();
        },
        release: (delayMs) => hide(receipt, Math.ceil(delayMs / 1000)),
      },
    ];
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

function isLost(error: unknown): boolean {
  const names = [
    "InvalidParameterValue",
    "MessageNotInflight",
    "ReceiptHandleIsInvalid",
    "InvalidParameterValueException",
  ];
  return error instanceof Error && names.includes(error.name);
}
