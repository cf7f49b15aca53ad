/** The connections of OpenTelemetry's exporters, which the SDK leaves open when it shuts down. */
import type { Agent } from "node:http";

/** Mutable. */
export class ExporterConnections {
  readonly #agents: Agent[] = [];
  #isClosed = false;

  /** For the option `httpAgentOptions` of exporters. */
  readonly createAgent = async (protocol: string): Promise<Agent> => {
    const { Agent } = protocol === "https:" ? await import("node:https") : await import("node:http");
    const agent = new Agent({ keepAlive: true });
    this.#agents.push(agent);
    if (this.#isClosed) refuseConnections(agent);
    return agent;
  };

  /** Messages in progress fail, and so do all later ones: exporters repeat a message whose connection breaks. */
  close(): void {
    this.#isClosed = true;
    for (const agent of this.#agents) {
      refuseConnections(agent);
      agent.destroy();
    }
  }
}

function refuseConnections(agent: Agent): void {
  agent.createConnection = (_options, callback) => {
    callback?.(new Error("The connections to the collector are closed."), null!);
    return null;
  };
}
