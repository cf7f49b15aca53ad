/** Queues of a server that speaks the protocol of SQS (moto). */
import {
  CreateQueueCommand,
  DeleteMessageCommand,
  GetQueueAttributesCommand,
  ReceiveMessageCommand,
  SendMessageCommand,
  SQSClient,
} from "@aws-sdk/client-sqs";

import type { TraceContext } from "../../../functions/telemetry/trace-context.ts";

export interface SqsQueue {
  readonly url: string;
  /** As JOB_SOURCE takes it. */
  readonly address: string;
  /** `group` is for a fair queue. */
  readonly send: (body: string, headers?: TraceContext, group?: string) => Promise<void>;
  /** Receives and deletes the dead letters. */
  readonly deadLetters: () => Promise<readonly string[]>;
  /** Numbers of messages that are visible, and that workers have. */
  readonly count: () => Promise<{ readonly numVisible: number; readonly numInFlight: number }>;
}

/** @param maxReceiveCount Deliveries after which SQS moves a message to the dead-letter queue; null without one. */
export async function createSqsQueue(
  endpoint: string,
  name: string,
  maxReceiveCount: number | null = 1000,
): Promise<SqsQueue> {
  const client = new SQSClient({
    endpoint,
    region: "us-east-1",
    credentials: { accessKeyId: "test", secretAccessKey: "test" },
  });
  const { QueueUrl: deadUrl = "" } = await client.send(new CreateQueueCommand({ QueueName: `${name}-dead` }));
  const { Attributes } = await client.send(
    new GetQueueAttributesCommand({ QueueUrl: deadUrl, AttributeNames: ["QueueArn"] }),
  );
  const policy = JSON.stringify({ deadLetterTargetArn: Attributes?.QueueArn, maxReceiveCount });
  const { QueueUrl: url = "" } = await client.send(
    new CreateQueueCommand({
      QueueName: name,
      ...(maxReceiveCount !== null && { Attributes: { RedrivePolicy: policy } }),
    }),
  );
  return {
    url,
    address: url.replace(/^http:/, "sqs+http:"),
    async send(body, headers = { traceparent: "" }, group) {
      const given = Object.entries(headers).filter(([, value]) => value !== "");
      const attributes = given.map(([name, value]) => [name, { DataType: "String", StringValue: value }]);
      const MessageAttributes = Object.fromEntries(attributes);
      const message = { QueueUrl: url, MessageBody: body, MessageAttributes };
      await client.send(new SendMessageCommand({ ...message, ...(group !== undefined && { MessageGroupId: group }) }));
    },
    async deadLetters() {
      const bodies: string[] = [];
      for (;;) {
        const { Messages = [] } = await client.send(
          new ReceiveMessageCommand({ QueueUrl: deadUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 0 }),
        );
        if (Messages.length === 0) return bodies;
        for (const { Body = "", ReceiptHandle } of Messages) {
          bodies.push(Body);
          await client.send(new DeleteMessageCommand({ QueueUrl: deadUrl, ReceiptHandle }));
        }
      }
    },
    async count() {
      const names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"] as const;
      const { Attributes: counts = {} } = await client.send(
        new GetQueueAttributesCommand({ QueueUrl: url, AttributeNames: [...names] }),
      );
      return { numVisible: Number(counts[names[0]]), numInFlight: Number(counts[names[1]]) };
    },
  };
}
