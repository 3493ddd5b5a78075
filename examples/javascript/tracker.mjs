// A sender in JavaScript, written from docs/protocol.md: XXH64 and JSON, no tables and no stamps.
// Usage on this machine: xorack local start; eval "$(xorack local env)"; node tracker.mjs order/17 harpoon rope
import { createHmac } from "node:crypto";
import { request } from "node:http";
import { pathToFileURL } from "node:url";

const M = (1n << 64n) - 1n;
const [P1, P2, P3, P4, P5] = [
  0x9e3779b185ebca87n, 0xc2b2ae3d27d4eb4fn, 0x165667b19e3779f9n, 0x85ebca77c2b2ae63n, 0x27d4eb2f165667c5n,
];
const rotl = (x, n) => ((x << n) | (x >> (64n - n))) & M;
const round = (acc, lane) => (rotl((acc + lane * P2) & M, 31n) * P1) & M;

export function xxh64(bytes, seed) {
  let [at, h] = [0, (seed + P5) & M];
  if (bytes.length >= 32) {
    let v = [seed + P1 + P2, seed + P2, seed, seed - P1].map((x) => x & M);
    for (; at + 32 <= bytes.length; at += 32) v = v.map((x, i) => round(x, bytes.readBigUInt64LE(at + 8 * i)));
    h = [1n, 7n, 12n, 18n].reduce((sum, n, i) => sum + rotl(v[i], n), 0n) & M;
    for (const x of v) h = ((h ^ round(0n, x)) * P1 + P4) & M;
  }
  h = (h + BigInt(bytes.length)) & M;
  for (; at + 8 <= bytes.length; at += 8) h = (rotl(h ^ round(0n, bytes.readBigUInt64LE(at)), 27n) * P1 + P4) & M;
  for (; at + 4 <= bytes.length; at += 4) h = (rotl(h ^ ((BigInt(bytes.readUInt32LE(at)) * P1) & M), 23n) * P2 + P3) & M;
  for (; at < bytes.length; at += 1) h = (rotl(h ^ ((BigInt(bytes[at]) * P5) & M), 11n) * P1) & M;
  h = ((h ^ (h >> 33n)) * P2) & M;
  h = ((h ^ (h >> 29n)) * P3) & M;
  return h ^ (h >> 32n);
}

export const long = (x) => Buffer.from(new BigUint64Array([BigInt.asUintN(64, x)]).buffer);
export const hex = (x) => x.toString(16).padStart(16, "0");
export const number = (text) => BigInt("0x" + text);

// The id of the unit that these parts name: strings, integers or buffers.
export function unitId(...parts) {
  const bytesOf = (part) => (Buffer.isBuffer(part) ? part : typeof part === "string" ? Buffer.from(part) : long(BigInt(part)));
  return parts.map(bytesOf).reduce((seed, bytes) => xxh64(bytes, seed), 42n) || 1n;
}

// The MAC of a token: HMAC-SHA256 over its canonical form, 16 bytes.
export function macOf(key, { unit, tags, kind, cells = 16 }) {
  const canonical = ["xorack-token", "1", unit, kind === "plain" ? "0" : cells, ...tags].join("\0");
  return createHmac("sha256", key).update(canonical).digest("hex").slice(0, 32);
}

export class Tracker {
  // `send` takes the body of a message for the acker's queue and returns a promise. Of two keys
  // with a comma between them, the first signs tokens, and both are accepted.
  constructor(send, keys = process.env.XORACK_TOKEN_KEY) {
    this.keys = keys?.split(",").map((key) => key.trim()) ?? [];
    if (this.keys.some((key) => Buffer.byteLength(key) < 16)) throw new Error("XORACK_TOKEN_KEY: expected keys of at least 16 bytes");
    this.signed = ({ mac, ...token }) => (this.keys.length ? { ...token, mac: macOf(this.keys[0], token) } : token);
    this.send = (...requests) => send(JSON.stringify({ version: 1, requests }));
  }

  // Start a chain; the token of its root unit travels with the work, as JSON.
  async start(tag, { parts = [tag], ...options } = {}) {
    const unit = hex(unitId(...parts));
    await this.send({ op: "create", tag, id: `create-${unit}`, starts: [unit], ...options });
    return this.signed({ v: 1, unit, tags: [tag], kind: "traced" });
  }

  // Do the work of a token's unit. `work` gets a function that starts a child and returns its token.
  // If it throws, nothing is sent: the unit stays outstanding until the work is done again.
  async step(token, work) {
    const { unit, tags, kind, cells } = token, starts = [];
    if (this.keys.length && !this.keys.some((key) => macOf(key, token) === token.mac)) throw new Error("a token of another key");
    const child = (...parts) => {
      starts.push(hex(unitId(number(unit), ...(parts.length ? parts : [starts.length]))));
      return this.signed({ ...token, unit: starts.at(-1) });
    };
    const result = await work(child);
    const ids = { ...(starts.length && { starts }), finishes: [unit], ...(kind === "plain" ? { cells: 0 } : cells && { cells }) };
    await this.send(...tags.map((tag) => ({ op: "stamp", tag, id: `step-${unit}`, ...ids })));
    return result;
  }

  // Tell what was found out: `text`, `missing` (ids) and `missing_count`. The last note of a chain stands.
  async note({ unit, tags }, found) {
    const id = `note-${unit}-${hex(xxh64(Buffer.from(JSON.stringify(found)), 42n))}`;
    await this.send(...tags.map((tag) => ({ op: "note", tag, id, ...found })));
  }
}

// Send to the queue of `xorack local`, which asks for no signature. On AWS, use its SDK.
export const toQueue = (url, endpoint) => (body) =>
  new Promise((resolve, reject) => {
    const headers = {
      "Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "AmazonSQS.SendMessage",
      Authorization: "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0",
    };
    const sent = request(endpoint, { method: "POST", headers }, (answer) =>
      answer.resume().on("end", () => (answer.statusCode === 200 ? resolve() : reject(new Error(`SQS: ${answer.statusCode}`)))));
    sent.on("error", reject).end(JSON.stringify({ QueueUrl: url, MessageBody: body }));
  });

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [tag, ...lines] = process.argv.slice(2);
  const { XORACK_QUEUE_URL: url, AWS_ENDPOINT_URL: endpoint } = process.env;
  const tracker = new Tracker(toQueue(url, endpoint));
  const root = await tracker.start(tag, { timeout: 60, detail: { lines: lines.length } });
  const tokens = await tracker.step(root, (child) => lines.map((line) => child(line)));
  for (const token of tokens) await tracker.step(token, () => console.log(tag, token.unit));
}
