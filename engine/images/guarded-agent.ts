/** Connections that reach only public addresses, whatever names and redirects say. */
import type { LookupAddress } from "node:dns";
import { isIP, isIPv6, type LookupFunction } from "node:net";
import type { Agent, buildConnector } from "undici";

import { EngineError } from "../contract/errors.ts";
import { isPublicAddress } from "./public-address.ts";

export interface GuardedAgentOptions {
  /** `host:port` entries, as in the URL, that may be private: object stores of the same cluster. */
  readonly allowedPrivateHosts: ReadonlySet<string>;
  /** For their names. */
  readonly lookup: LookupFunction;
  /** For the names of all other hosts. */
  readonly publicLookup: LookupFunction;
  /** Of all hosts together. Default: no limit. */
  readonly maxNumConnections?: number | undefined;
  /** PEM certificates trusted instead of the public authorities, or null. */
  readonly certificateAuthorities: string | null;
}

const CONNECT_TIMEOUT_MS = 5_000;
/** Per host; more requests to it wait. */
const MAX_CONNECTIONS = 16;

/**
 * Checks addresses where the socket is opened: a name is resolved once, all its addresses are checked, and the socket
 * connects to one of them. A name that resolves differently a moment later therefore gains nothing. Rejections fail the
 * request with EngineError `invalid_image_reference`, and too many connections with `queue_full`.
 */
export async function createGuardedAgent(options: GuardedAgentOptions): Promise<Agent> {
  // Imported by the first request that needs it, to keep the start fast.
  const { Agent, buildConnector } = await import("undici");
  const common: buildConnector.BuildOptions = {
    allowH2: false,
    timeout: CONNECT_TIMEOUT_MS,
    ...(options.certificateAuthorities !== null && { ca: options.certificateAuthorities }),
  };
  const connectAnywhere = buildConnector({ ...common, lookup: options.lookup });
  const connectToPublic = buildConnector({ ...common, lookup: publicOnly(options.publicLookup) });
  const { maxNumConnections = Number.POSITIVE_INFINITY } = options;
  let numConnections = 0;
  const counted = (callback: buildConnector.Callback): buildConnector.Callback => {
    numConnections += 1;
    return (...result) => {
      const [error, socket] = result;
      if (error !== null) numConnections -= 1;
      else socket.once("close", () => (numConnections -= 1));
      callback(...result);
    };
  };
  return new Agent({
    allowH2: false,
    connections: MAX_CONNECTIONS,
    connect(target, connected) {
      if (numConnections >= maxNumConnections) return connected(tooManyConnections(maxNumConnections), null);
      const callback = counted(connected);
      const host = target.hostname.replace(/^\[|\]$/g, "");
      const port = target.port || (target.protocol === "https:" ? "443" : "80");
      if (options.allowedPrivateHosts.has(`${isIPv6(host) ? `[${host}]` : host}:${port}`)) {
        connectAnywhere(target, callback);
      } else if (isIP(host) !== 0 && !isPublicAddress(host)) {
        callback(notPublic(), null);
      } else {
        connectToPublic(target, callback);
      }
    },
  });
}

/** Fails a lookup if any address is not public: a name with both kinds is suspicious. */
function publicOnly(lookup: LookupFunction): LookupFunction {
  return (hostname, options, callback) => {
    lookup(hostname, { ...options, all: true }, (error, found, family) => {
      if (error !== null) return callback(error, []);
      const addresses: LookupAddress[] = typeof found === "string" ? [{ address: found, family: family ?? 4 }] : found;
      if (addresses.length === 0 || !addresses.every(({ address }) => isPublicAddress(address))) {
        return callback(notPublic(), []);
      }
      if (options.all === true) return callback(null, addresses);
      callback(null, addresses[0]!.address, addresses[0]!.family);
    });
  };
}

function tooManyConnections(maxNumConnections: number): EngineError {
  const message = `Pictures are being fetched over ${maxNumConnections} connections, as many as the service may open.`;
  return new EngineError("queue_full", `${message} Send the request again later.`);
}

function notPublic(): EngineError {
  return new EngineError("invalid_image_reference", "The image's host has an address that is not public.", {
    setting: "allowedPrivateHosts",
  });
}
