// xorack for Node: steps over units, tokens, fan-in and fan-out. docs/protocol.md is what it follows.
// It sends ids, so it needs XXH64 and JSON, no tables and no stamps.
import { AsyncLocalStorage } from "node:async_hooks";
import { createHmac, timingSafeEqual } from "node:crypto";

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
  const canonical = ["xorack-token", "1", unit.toLowerCase(), kind === "plain" ? "0" : cells, ...tags].join("\0");
  return createHmac("sha256", key).update(canonical).digest("hex").slice(0, 32);
}

export class ArgumentError extends Error {
  constructor(field, value, expected) {
    super(`${field}: ${JSON.stringify(value)?.slice(0, 200)}, expected ${expected}`);
    this.name = "ArgumentError";
  }
}

export class SendError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = "SendError";
  }
}

const check = (valid, field, value, expected) => {
  if (!valid) throw new ArgumentError(field, value, expected);
};
const isUnit = (id) => typeof id === "string" && /^[0-9a-f]{16}$/i.test(id) && number(id) !== 0n;
const isTag = (tag) => typeof tag === "string" && tag && !tag.includes("\0") && tag.isWellFormed() && Buffer.byteLength(tag) <= 1024;
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isCells = (cells) => [16, 64, 256, 1024].includes(cells);

// Whether JSON text is nested more than 128 levels deep, the protocol's limit in each language.
function isTooDeep(text) {
  let depth = 0;
  for (const [bracket] of text.replace(/"[^"\\]*(?:\\.[^"\\]*)*"?/gs, "").matchAll(/[[\]{}]/g)) {
    depth += bracket === "[" || bracket === "{" ? 1 : -1;
    if (depth > 128) return true;
  }
  return false;
}

// A token from its JSON object, or from its text; the MAC is not verified.
export function parseToken(value) {
  let token = value;
  if (typeof value === "string" || Buffer.isBuffer(value)) {
    try {
      token = isTooDeep(value.toString()) ? undefined : JSON.parse(value.toString());
    } catch {
      check(false, "token text", String(value), "the JSON text of a token");
    }
  }
  check(isObject(token), "token value", token, "a token's JSON object or text");
  const { v, unit, tags, kind, cells, mac } = token;
  check(v === 1, "token v", v, "1: another version made this token");
  check(kind === "traced" || kind === "plain", "token kind", kind, "traced or plain");
  check(isUnit(unit), "token unit", unit, "16 hex digits, not all zero");
  check(Array.isArray(tags) && tags.length >= 1 && tags.length <= 16, "token tags", tags, "a list of 1 to 16 tags");
  check(tags.every(isTag) && new Set(tags).size === tags.length, "token tags", tags, "each tag once, of 1 to 1,024 bytes without NUL");
  check(cells === undefined || (kind === "traced" && isCells(cells)), "token cells", cells, "16, 64, 256 or 1024 of traced stamps");
  check(mac === undefined || mac === null || /^[0-9a-f]{32}$/.test(mac), "token mac", mac, "32 lower-case hex digits");
  return { v, unit: unit.toLowerCase(), tags, kind, ...(cells && cells !== 16 && { cells }), ...(mac && { mac }) };
}

const MAX_CALL_BYTES = 1 << 20, MAX_BODY_BYTES = 250_000, ATTEMPTS = 8;
const sizeOf = ({ MessageBody, MessageAttributes = {} }) =>
  Buffer.byteLength(MessageBody) + Object.entries(MessageAttributes).reduce((sum, [name, { StringValue }]) => sum + name.length + 6 + Buffer.byteLength(StringValue), 0);

// Split a list into parts of at most `most` elements and `bytes` bytes.
function* parts(list, size, most, bytes) {
  let part = [], left = bytes;
  for (const one of list) {
    const own = size(one);
    if (part.length && (part.length === most || own > left)) {
      yield part;
      [part, left] = [[], bytes];
    }
    part.push(one);
    left -= own;
  }
  if (part.length) yield part;
}

function sdkSend(client) {
  let sdk; // loaded at the first call: Lambda's runtime has it
  return async (QueueUrl, Entries) => {
    sdk ??= await import("@aws-sdk/client-sqs");
    client ??= new sdk.SQSClient();
    return client.send(new sdk.SendMessageBatchCommand({ QueueUrl, Entries }));
  };
}

// Send messages; repeat those that the queue did not accept, as SendMessageBatch answers 200 with failures.
async function sendAll(send, queueUrl, messages) {
  for (const part of parts(messages, sizeOf, 10, MAX_CALL_BYTES)) {
    let left = part.map((message, n) => ({ Id: String(n), ...message }));
    for (let attempt = 1; left.length; attempt += 1) {
      let failed;
      try {
        failed = (await send(queueUrl, left))?.Failed ?? [];
      } catch (error) {
        throw new SendError(`queue ${queueUrl}: ${left.length} messages not sent: ${error.message}`, { cause: error });
      }
      const fault = failed.find(({ SenderFault }) => SenderFault) ?? (attempt === ATTEMPTS ? failed[0] : undefined);
      if (fault) throw new SendError(`queue ${queueUrl}: ${failed.length} messages not sent: ${fault.Code}: ${fault.Message}`);
      const ids = new Set(failed.map(({ Id }) => Id));
      left = left.filter(({ Id }) => ids.has(Id));
      if (left.length) await new Promise((resolve) => setTimeout(resolve, Math.random() * 10 * 2 ** attempt));
    }
  }
}

// The id of several units as a group, which is the parent of their children.
function groupOf(tokens) {
  if (tokens.length === 1) return number(tokens[0].unit);
  const names = tokens.flatMap(({ unit, tags }) => tags.map((tag) => Buffer.from(`${unit} ${tag}`)));
  return unitId(names.sort(Buffer.compare).join("\0"));
}

class Step {
  constructor(tracker, tokens) {
    check(tokens.length >= 1 && tokens.length <= 10_000, "tokens", tokens.length, "1 to 10,000 tokens");
    const kinds = new Set(tokens.map(({ kind, cells = 16 }) => `${kind} ${cells}`));
    check(kinds.size === 1, "tokens", tokens, "tokens of one kind and size of stamps");
    const units = tokens.flatMap(({ unit, tags }) => tags.map((tag) => `${unit} ${tag}`));
    check(new Set(units).size === units.length, "tokens", tokens, "each unit once");
    Object.assign(this, { tracker, tokens, tags: [...new Set(tokens.flatMap(({ tags }) => tags))], starts: new Set(), group: groupOf(tokens) });
  }

  // Start a child of the step's units, and return its token: send it with the event.
  child(...names) {
    if (this.ended) throw new Error("the step has ended: its stamp is sent, no child can be started");
    check(this.tags.length <= 16, "tokens", this.tags, "tokens of at most 16 chains");
    const unit = hex(unitId(this.group, ...(names.length ? names : [this.starts.size])));
    const known = this.starts.has(unit) || this.tokens.some((token) => token.unit === unit);
    check(!known, "child", names.map(String), "another unit than those of the step");
    this.starts.add(unit);
    return this.tracker.sign({ ...this.tokens[0], unit, tags: this.tags });
  }

  requests() {
    const { kind, cells } = this.tokens[0], group = hex(this.group), one = this.tokens.length === 1;
    const unitsOf = (tag) => this.tokens.filter(({ tags }) => tags.includes(tag)).map(({ unit }) => unit);
    const starts = this.starts.size ? { starts: [...this.starts] } : {};
    const size = kind === "plain" ? { cells: 0 } : cells ? { cells } : {};
    return this.tags.map((tag) => ({
      op: "stamp", tag, id: `${one ? "step" : "steps"}-${group}`, ...starts, ...(one ? { finishes: [group] } : { finishes_once: unitsOf(tag) }), ...size,
    }));
  }
}

export class Tracker {
  // `send(queueUrl, entries)` answers as SendMessageBatch; by default it is the SDK's, of `client`.
  // Of two keys with a comma between them, the first signs tokens, and both are accepted.
  constructor(queueUrl, { client, send = sdkSend(client), keys = process.env.XORACK_TOKEN_KEY, stamps = "traced", cells = 16 } = {}) {
    check(typeof queueUrl === "string" && queueUrl, "queueUrl", queueUrl, "the URL of an SQS queue");
    check(stamps === "traced" || stamps === "plain", "stamps", stamps, "traced or plain");
    check(isCells(cells) && (stamps === "traced" || cells === 16), "cells", cells, "16, 64, 256 or 1024 of traced stamps");
    Object.assign(this, { queueUrl, send, stamps, cells, batches: new AsyncLocalStorage() });
    this.keys = keys?.split(",").map((key) => key.trim()) ?? [];
    const strong = this.keys.length <= 2 && this.keys.every((key) => Buffer.byteLength(key) >= 16);
    if (!strong) throw new ArgumentError("keys", "(hidden)", "one key of at least 16 bytes, or 2");
  }

  sign({ mac, ...token }) {
    return this.keys.length ? { ...token, mac: macOf(this.keys[0], token) } : token;
  }

  verified(value) {
    const token = parseToken(value), given = Buffer.from(token.mac ?? "".padEnd(32));
    // No early end: the time must not tell which key is nearer.
    const matches = this.keys.filter((key) => timingSafeEqual(Buffer.from(macOf(key, token)), given));
    check(!this.keys.length || matches.length, "token mac", "(hidden)", "a MAC by a key of this tracker");
    return token;
  }

  // Start a chain; the token of its root unit travels with the work, as JSON.
  async start(tag, { parts: names = [tag], timeout, idleTimeout: idle_timeout, toleratedUnits: tolerated_units, detail, resume } = {}) {
    check(isTag(tag), "tag", tag, "a text of 1 to 1,024 bytes without NUL");
    const unit = hex(unitId(...names)), plain = this.stamps === "plain";
    const cells = plain ? { cells: 0 } : this.cells === 16 ? {} : { cells: this.cells };
    await this.#send([{ op: "create", tag, id: `create-${unit}`, starts: [unit], ...cells, timeout, idle_timeout, tolerated_units, detail, resume }]);
    return this.sign({ v: 1, unit, tags: [tag], kind: this.stamps, ...(!plain && cells) });
  }

  // Do the work of a token's unit, or of several. `work` gets the step, whose children it starts.
  // If it throws, nothing is sent: the units stay outstanding until the work is done again.
  async step(tokens, work = () => {}) {
    const step = new Step(this, (Array.isArray(tokens) ? tokens : [tokens]).map((token) => this.verified(token)));
    try {
      const result = await work(step);
      step.ended = true;
      await this.#send(step.requests());
      return result;
    } finally {
      step.ended = true;
    }
  }

  // Fail the chains of a token.
  fail(token, reason, note = {}) {
    return this.#tell("fail", token, { reason, ...note });
  }

  // Tell what was found out: `text`, `missing` (ids) and `missing_count`. The last note of a chain stands.
  note(token, found) {
    return this.#tell("note", token, found);
  }

  // Collect what is sent within `work`, and send it at the end as few messages, also if it throws.
  async batch(work) {
    if (this.batches.getStore()?.open) return work(); // the outer one sends
    const batch = { open: true, requests: [] };
    try {
      return await this.batches.run(batch, work);
    } finally {
      batch.open = false;
      await this.#flush(batch.requests);
    }
  }

  // How many requests the batch around has.
  get collected() {
    return this.batches.getStore()?.requests.length ?? 0;
  }

  async #tell(op, value, content) {
    const { unit, tags } = this.verified(value);
    const id = `${op}-${unit}-${hex(xxh64(Buffer.from(JSON.stringify(content)), 42n))}`;
    await this.#send(tags.map((tag) => ({ op, tag, id, ...content })));
  }

  async #send(requests) {
    const batch = this.batches.getStore();
    if (batch?.open) batch.requests.push(...requests);
    else await this.#flush(requests);
  }

  async #flush(requests) {
    const runs = Map.groupBy(requests, ({ tag }) => (tag.indexOf("/") > 0 ? tag.slice(0, tag.indexOf("/")) : ""));
    const messages = [...runs].flatMap(([run, own]) => {
      const texts = own.map((request) => JSON.stringify(request));
      const bodies = parts(texts, (text) => Buffer.byteLength(text) + 1, 30_000, MAX_BODY_BYTES);
      const group = /^[!-~]{1,128}$/.test(run) ? { MessageGroupId: run } : {};
      return [...bodies].map((body) => ({ MessageBody: `{"version":1,"requests":[${body.join(",")}]}`, ...group }));
    });
    await sendAll(this.send, this.queueUrl, messages);
  }
}

// What Lambda polls: the name by which a failed record is reported, and the lane whose order it keeps.
const byPosition = ({ topic, partition, offset }) => ({ partition: `${topic}-${partition}`, offset });
const idOf = (record) => record.kinesis?.sequenceNumber ?? record.dynamodb?.SequenceNumber ?? (record.topic ? byPosition(record) : record.messageId);
function laneOf(record) {
  if (record.topic) return `${record.topic}-${record.partition}`;
  if (record.eventSource !== "aws:sqs") return record.kinesis ? record.eventID.split(":")[0] : "shard";
  return record.eventSourceARN?.endsWith(".fifo") ? record.attributes.MessageGroupId : undefined;
}

function recordsOf(event) {
  const kafka = isObject(event?.records), records = kafka ? Object.values(event.records).flat() : event?.Records;
  const sources = new Set(kafka ? [event.eventSource] : Array.isArray(records) ? records.map((one) => one?.eventSource) : []);
  const known = kafka ? ["aws:kafka", "SelfManagedKafka"] : ["aws:sqs", "aws:kinesis", "aws:dynamodb"];
  check(sources.size === 1 && known.includes([...sources][0]), "event", event, "an event of SQS, Kinesis, DynamoDB Streams or Kafka");
  return records;
}

const text = (base64) => Buffer.from(base64 ?? "", "base64").toString();
const json = (body) => {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
};

// The token of a record: in its attribute or header, with `bodies` also in the field of its JSON.
function find(record, bodies) {
  const { messageAttributes, MessageAttributes, dynamodb, kinesis, topic, value } = record;
  const attribute = messageAttributes?.xorack ?? MessageAttributes?.xorack ?? dynamodb?.NewImage?.xorack;
  if (attribute !== undefined) return attribute.stringValue ?? attribute.StringValue ?? attribute.S ?? attribute;
  const header = topic && record.headers?.findLast((one) => Object.hasOwn(one, "xorack"))?.xorack;
  if (header) return Buffer.from(header); // Java's bytes have a sign
  const body = kinesis ? text(kinesis.data) : topic ? text(value) : (record.body ?? record.Body);
  return bodies ? json(body)?.xorack : undefined;
}

// The verified token of a record; undefined without one. `tags` is a prefix of its tags.
export function tokenOf(tracker, record, options = {}) {
  const { tags = "" } = options, found = find(record, options.bodies);
  if (found === undefined || found === null) {
    check(!options.required, "token place", null, "the attribute or header xorack");
    return undefined;
  }
  const token = tracker.verified(found);
  check(token.tags.every((tag) => tag.startsWith(tags)), "token tags", token.tags, `tags that begin with ${tags}`);
  return token;
}

// Turn a function of a record and its step into a Lambda handler of batches. The event source mapping
// must report batch item failures. What fails blocks what is behind it in its shard, partition or group.
export function fanIn(tracker, work, options = {}) {
  check(options.tags !== "", "tags", options.tags, "a prefix of tags");
  return async (event, context) => {
    const records = recordsOf(event), failed = new Set(), handled = [], blocked = new Set(), errors = [];
    check(options.bodies || !records[0].kinesis, "bodies", options.bodies, "true: a record of Kinesis has a token in its data alone");
    const fail = (record, error) => {
      failed.add(record);
      errors.push(error);
      if (laneOf(record) !== undefined) blocked.add(laneOf(record));
    };
    const handle = async (record) => {
      const before = tracker.collected;
      try {
        if (blocked.has(laneOf(record))) throw new Error("a record before it in its lane failed: both come again");
        const token = tokenOf(tracker, record, options);
        await (token ? tracker.step(token, (step) => work(record, step, context)) : work(record, undefined, context));
        handled.push([record, tracker.collected > before]);
      } catch (error) {
        fail(record, error);
      }
    };
    try {
      await tracker.batch(async () => {
        for (const record of records) await handle(record);
      });
    } catch (error) {
      if (!(error instanceof SendError)) throw error;
      const before = new Set(blocked);
      blocked.clear();
      for (const [record, requests] of handled) if (requests || blocked.has(laneOf(record))) fail(record, error);
      before.forEach((lane) => blocked.add(lane));
    }
    // Lambda counts an error of a batch that fails as a whole.
    if (records.length && failed.size === records.length) throw new AggregateError(errors, `all ${records.length} records failed: ${errors[0].message}`);
    return { batchItemFailures: records.filter((record) => failed.has(record)).map((record) => ({ itemIdentifier: idOf(record) })) };
  };
}

// Start a child of a step for each message, and send it with its token to a standard queue: pairs of
// the child's name (a part, or a list of parts) and the body. Returns the number of messages.
export async function fanOut(step, messages, queueUrl, { send, client, group } = {}) {
  const made = [...messages].map(([child, body]) => {
    const token = step && JSON.stringify(step.child(...(Array.isArray(child) ? child : [child])));
    return {
      MessageBody: typeof body === "string" ? body : JSON.stringify(body), ...(group && { MessageGroupId: group }),
      ...(token && { MessageAttributes: { xorack: { DataType: "String", StringValue: token } } }),
    };
  });
  await sendAll(send ?? (client ? sdkSend(client) : step?.tracker.send ?? sdkSend()), queueUrl, made);
  return made.length;
}
