/** Topics and subscriptions of a server that speaks Pub/Sub's REST API without credentials. */
import { request } from "undici";

export interface PubSubQueue {
  readonly project: string;
  readonly subscription: string;
  /** As JOB_SOURCE takes it. */
  readonly address: string;
  readonly send: (bodies: readonly string[], attributes?: object) => Promise<void>;
  /** Receives and acknowledges the dead letters. */
  readonly deadLetters: () => Promise<readonly string[]>;
}

export interface PubSubQueueOptions {
  /** Null: without a dead-letter policy. Default: the most that Pub/Sub allows. */
  readonly maxDeliveryAttempts?: number | null;
}

interface Received {
  readonly ackId: string;
  readonly message: { readonly data: string };
}

const project = "test-project";

export async function createPubSubQueue(
  url: string,
  name: string,
  { maxDeliveryAttempts = 100 }: PubSubQueueOptions = {},
): Promise<PubSubQueue> {
  const call = async (method: "PUT" | "POST", path: string, body: object): Promise<unknown> => {
    const answer = await request(`${url}/v1/projects/${project}/${path}`, {
      method,
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    if (answer.statusCode !== 200) throw new Error(`${path}: ${await answer.body.text()}`);
    return answer.body.json();
  };
  const topic = `projects/${project}/topics/${name}`;
  const deadLetterTopic = `${topic}-dead`;
  const policy = maxDeliveryAttempts === null ? {} : { deadLetterPolicy: { deadLetterTopic, maxDeliveryAttempts } };
  await call("PUT", `topics/${name}`, {});
  await call("PUT", `topics/${name}-dead`, {});
  await call("PUT", `subscriptions/${name}`, { topic, ackDeadlineSeconds: 10, ...policy });
  await call("PUT", `subscriptions/${name}-dead`, { topic: deadLetterTopic, ackDeadlineSeconds: 10 });
  return {
    project,
    subscription: name,
    address: `${url.replace("http:", "pubsub+http:")}/${project}/${name}`,
    async send(bodies, attributes) {
      const messages = bodies.map((body) => ({
        data: Buffer.from(body).toString("base64"),
        ...(attributes && { attributes }),
      }));
      await call("POST", `topics/${name}:publish`, { messages });
    },
    async deadLetters() {
      const bodies: string[] = [];
      for (;;) {
        const { receivedMessages = [] } = (await call("POST", `subscriptions/${name}-dead:pull`, {
          maxMessages: 100,
          returnImmediately: true,
        })) as { readonly receivedMessages?: readonly Received[] };
        if (receivedMessages.length === 0) return bodies;
        bodies.push(...receivedMessages.map(({ message }) => Buffer.from(message.data, "base64").toString()));
        await call("POST", `subscriptions/${name}-dead:acknowledge`, {
          ackIds: receivedMessages.map(({ ackId }) => ackId),
        });
      }
    },
  };
}
