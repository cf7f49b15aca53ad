/**
 * Resolves the names of public hosts by queries of our own (c-ares). The system's `getaddrinfo` takes one of libuv's four
 * threads for as long as a name server is silent, so a few slow names of a request would stop decoders and files.
 */
import { Resolver } from "node:dns";
import type { LookupAddress } from "node:dns";
import type { LookupFunction } from "node:net";
import { callbackify, promisify } from "node:util";

export interface NameLookupOptions {
  /** `address:port` of name servers. Default: the system's. */
  readonly servers?: readonly string[];
}

/** Answers take milliseconds. A lookup ends after a few of these times the number of name servers. */
const QUERY_TIMEOUT_MS = 2000;
const MAX_TRIES = 2;

/** Loopback (RFC 6761, section 6.3), which name servers need not know. */
const localName = /(?:^|\.)localhost\.?$/i;

/**
 * Asks for addresses of both families at once; IPv4 comes first. Names of /etc/hosts and search domains are not used,
 * because they lead to private networks. Fails with code `ENOTFOUND` for a name without an address, and `EAI_AGAIN` if
 * no name server answers or it fails.
 */
export function createNameLookup({ servers }: NameLookupOptions = {}): LookupFunction {
  const resolver = new Resolver({ timeout: QUERY_TIMEOUT_MS, tries: MAX_TRIES });
  if (servers !== undefined) resolver.setServers(servers);
  const resolve4 = promisify((name: string, done: Done) => resolver.resolve4(name, done));
  const resolve6 = promisify((name: string, done: Done) => resolver.resolve6(name, done));

  async function resolve(hostname: string, wanted: number): Promise<LookupAddress[]> {
    if (localName.test(hostname)) return [{ address: "127.0.0.1", family: 4 }];
    const answers = await Promise.allSettled([
      wanted === 6 ? [] : resolve4(hostname),
      wanted === 4 ? [] : resolve6(hostname),
    ]);
    const addresses = answers.flatMap((answer, index) =>
      answer.status === "fulfilled" ? answer.value.map((address) => ({ address, family: index === 0 ? 4 : 6 })) : [],
    );
    if (addresses.length > 0) return addresses;
    const failure = answers.find((answer) => answer.status === "rejected" && !isAbsent(answer.reason));
    throw Object.assign(new Error(`The name ${hostname.slice(0, 60)} has no address.`), {
      code: failure === undefined ? "ENOTFOUND" : "EAI_AGAIN",
    });
  }

  const resolveWithCallback = callbackify(resolve);
  return (hostname, { all, family }, callback) => {
    const wanted = family === 4 || family === "IPv4" ? 4 : family === 6 || family === "IPv6" ? 6 : 0;
    resolveWithCallback(hostname, wanted, (error, addresses) => {
      if (error !== null) callback(error, []);
      else if (all === true) callback(null, addresses);
      else callback(null, addresses[0]!.address, addresses[0]!.family);
    });
  };
}

type Done = (error: NodeJS.ErrnoException | null, addresses: string[]) => void;

/** Whether a name server says that there is no such name, or none of this family. */
function isAbsent(error: unknown): boolean {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return code === "ENOTFOUND" || code === "ENODATA" || code === "EBADNAME";
}
