// xorack for Node: steps around the handlers of messages, and all exports of the package.
// docs/fan-in.md describes what a handler may rely on.
import { randomUUID } from "node:crypto";
import {
  ArgumentError,
  BatchError,
  check,
  checkOptions,
  deduplicationId,
  digestOf,
  isObject,
  MAX_TAG_BYTES,
  parseToken,
  readJson,
  StateError,
  toJson,
  truncated,
  XorAckError,
} from "./protocol.js";
import { checkWork, finished, groupId, sdkSend, sendAll, Tracker } from "./tracker.js";

if (!Map.groupBy) {
  // npm only warns of `engines`, and a later TypeError would not name the cause.
  throw new StateError(`xorack needs Node 22.12 or later, and this is ${process.version}`);
}

export {
  ArgumentError,
  BatchError,
  hex,
  long,
  macOf,
  namesOf,
  number,
  parseToken,
  SendError,
  StateError,
  UnavailableError,
  unitId,
  XorAckError,
  xxh64,
} from "./protocol.js";
export { Tracker } from "./tracker.js";

const NAME = "xorack"; // the attribute, header or field that holds the token

// Log lines, as docs/operations.md describes them: one line of JSON for each kind and batch

function warn(message, fields) {
  console.warn(JSON.stringify({ level: "WARNING", message, ...fields }));
}

function warnOf(message, count, why) {
  if (count) warn(message, { failures: count, why });
}

// Events inside events

const MAX_LAYERS = 8; // S3's notification by SNS in an SQS message has six layers

const isSqs = (layer) =>
  layer.eventSource === "aws:sqs" || "receiptHandle" in layer || "ReceiptHandle" in layer;
const isSns = (layer) =>
  layer.Type === "Notification" && "MessageId" in layer && "Message" in layer;
const hasAll = (layer, ...names) => names.every((name) => name in layer);

// Return the bytes of base64 text, or undefined if the text is not base64.
function decoded(data) {
  if (typeof data !== "string" || Buffer.from(data, "base64").toString("base64") !== data)
    return undefined;
  return Buffer.from(data, "base64");
}

// Return the part of an event that its sender wrote: text or an object.
function bodyOf(layer) {
  if (isSqs(layer)) return layer.body ?? layer.Body;
  if (isSns(layer)) return layer.Message;
  if (isObject(layer.kinesis)) return decoded(layer.kinesis.data);
  if (hasAll(layer, "topic", "offset", "value")) return decoded(layer.value);
  return hasAll(layer, "detail-type", "source", "id") ? layer.detail : undefined;
}

function innerOf(layer, bodies) {
  if (Array.isArray(layer.Records) && layer.Records.length === 1) return layer.Records[0];
  if ("Sns" in layer && !isSqs(layer)) return layer.Sns;
  return bodies ? bodyOf(layer) : undefined;
}

/** Yield an event and the events in it, outermost first; with `bodies`, also the sender's part. */
function* layersOf(event, bodies) {
  let layer = event;
  for (let n = 0; n < MAX_LAYERS; n += 1) {
    if (typeof layer === "string" || Buffer.isBuffer(layer)) layer = readJson(layer);
    if (!isObject(layer)) return;
    yield layer;
    layer = innerOf(layer, bodies);
  }
}

// Tags of chains that start from an event

const unquoted = (key) =>
  key
    .replaceAll("+", " ")
    .replace(/(?:%[0-9a-f]{2})+/gi, (run) =>
      Buffer.from(run.replaceAll("%", ""), "hex").toString(),
    );

function objectTag(holder, decode) {
  const { key, sequencer } = holder?.object ?? {};
  const bucket = holder?.bucket?.name;
  if (!sequencer || typeof key !== "string" || typeof bucket !== "string") return undefined;
  return `${bucket}/${decode(key)}/${sequencer}`;
}

function tagOf(layer) {
  if (isObject(layer.s3)) return objectTag(layer.s3, unquoted);
  if ("detail-type" in layer) {
    const tag = layer.source === "aws.s3" && objectTag(layer.detail, (key) => key);
    if (tag) return tag;
    const { source, id } = layer;
    return typeof source === "string" && typeof id === "string" ? `${source}/${id}` : undefined;
  }
  const messageId = layer.messageId ?? layer.MessageId;
  if (isSqs(layer) && messageId) return `sqs/${messageId}`;
  return isSns(layer) ? `sns/${messageId}` : undefined;
}

function shortened(tag) {
  const bytes = Buffer.from(tag);
  if (bytes.length <= MAX_TAG_BYTES) return tag;
  const digest = digestOf(bytes, 32);
  return `${truncated(bytes, MAX_TAG_BYTES - digest.length - 1)}/${digest}`;
}

/**
 * Return the tag of the chain that an event starts. Every delivery of the event has the same tag.
 * For s3:TestEvent, which S3 sends when its notifications are set up, return undefined.
 */
export function eventTag(event) {
  for (const layer of [...layersOf(event, true)].reverse()) {
    if (layer.Event === "s3:TestEvent" && "Bucket" in layer) return undefined;
    const tag = tagOf(layer);
    if (tag?.isWellFormed()) return shortened(tag);
  }
  throw new ArgumentError("event", event, "one event or record of S3, SNS, SQS or EventBridge");
}

// Tokens of messages

// A token is in a message attribute, an item's attribute, or the last header of its name in Kafka.
function attributeOf(layer) {
  const places = [layer.messageAttributes, layer.MessageAttributes, layer.dynamodb?.NewImage];
  const attribute = places.map((place) => place?.[NAME]).find(isObject);
  const { stringValue, StringValue, Value, S } = attribute ?? {};
  if (attribute) return stringValue || StringValue || Value || S || attribute;
  const headers = "topic" in layer && Array.isArray(layer.headers) ? layer.headers : [];
  const header = headers.findLast((one) => isObject(one) && Object.hasOwn(one, NAME))?.[NAME];
  return Array.isArray(header) ? Buffer.from(header) : header; // Java's bytes are signed
}

const READING = ["bodies", "tags", "required"];

/** Reads tokens. `tags` is the prefix of the tags that a token may name. */
class Reader {
  constructor(tracker, { bodies = false, tags, required = false }) {
    check(tracker instanceof Tracker, "tracker", tracker, "a Tracker");
    const isPrefix = tags == null || (typeof tags === "string" && tags);
    check(isPrefix, "tags", tags, "a prefix of tags");
    const field = bodies ? `, or the field '${NAME}' of a JSON body` : "";
    const place = `the attribute or header '${NAME}'${field}`;
    Object.assign(this, { tracker, bodies, tags: tags ?? "", required, place });
  }

  read(message) {
    for (const layer of layersOf(message, this.bodies)) {
      const places = [attributeOf(layer), this.bodies ? layer[NAME] : undefined];
      const found = places.find((value) => value !== undefined && value !== null);
      if (found !== undefined) return this.checked(found);
    }
    check(!this.required, "token place", null, this.place + this.hint(message));
    return undefined;
  }

  /** Return advice for a message that ReceiveMessage returned without its attributes. */
  hint(message) {
    if (!message?.ReceiptHandle || "MessageAttributes" in message) return "";
    return `: ReceiveMessage gives it with MessageAttributeNames: ["${NAME}"]`;
  }

  checked(value) {
    let tag = "";
    try {
      const { tags } = parseToken(value);
      const expected = `a tag that begins with ${JSON.stringify(this.tags)}`;
      for (tag of tags) check(tag.startsWith(this.tags), "token tags", tag, expected);
      return this.tracker.verified(value);
    } catch (error) {
      warn("token refused", { tag, why: error.message });
      throw error;
    }
  }
}

/** Return the verified token of a message, or undefined if it has none. */
export function tokenOf(tracker, message, options = {}) {
  checkOptions(options, READING);
  return new Reader(tracker, options).read(message);
}

/** Do the work of a message's unit, as `Tracker.step`. Without a token, the step is undefined. */
export async function stepOf(tracker, message, work, options = {}) {
  checkOptions(options, READING);
  checkWork(work, "work");
  const reader = new Reader(tracker, options);
  const token = reader.read(message);
  if (token) return tracker.step(token, work);
  warnOf("messages not tracked", 1, `no token in ${reader.place}${reader.hint(message)}`);
  return finished(await work(undefined), "work");
}

// Batches of records

/** Return the name by which Lambda knows a failed record. */
function idOf(record) {
  const { topic, partition, offset } = record;
  if (topic) return { partition: `${topic}-${partition}`, offset };
  return record.kinesis?.sequenceNumber ?? record.dynamodb?.SequenceNumber ?? record.messageId;
}

/** Return the key whose records keep their order, or undefined, as in standard queues. */
function orderingKey(record) {
  if (record.topic) return `${record.topic}-${record.partition}`;
  if (record.eventSource !== "aws:sqs")
    return record.kinesis ? String(record.eventID).split(":")[0] : "shard";
  return record.eventSourceARN?.endsWith(".fifo") ? record.attributes.MessageGroupId : undefined;
}

const BATCH_SOURCES = ["aws:sqs", "aws:kinesis", "aws:dynamodb"];
const PIPE_SOURCES = ["aws:sqs", "aws:dynamodb"]; // pipes give records of Kinesis another shape
const KAFKA_SOURCES = ["aws:kafka", "SelfManagedKafka"];

function recordsOf(event) {
  const isKafka = isObject(event?.records);
  const given = isKafka ? Object.values(event.records).flat() : (event?.Records ?? event);
  const records = Array.isArray(given) ? given : []; // EventBridge Pipes pass only a list
  const sources = isKafka ? [event.eventSource] : records.map((record) => record?.eventSource);
  const known = isKafka ? KAFKA_SOURCES : Array.isArray(event) ? PIPE_SOURCES : BATCH_SOURCES;
  const isOne = new Set(sources).size === 1 && known.includes(sources[0]);
  const expected =
    "an event of SQS, Kinesis, DynamoDB Streams or Kafka, or a pipe's records of SQS or " +
    "DynamoDB Streams; use stepOf for other events";
  check(isOne, "event", event, expected);
  return records;
}

/** Knows which chains have ended. A status that was read counts for ten seconds. */
class Ended {
  static #MS = 10_000;
  static #MOST = 10_000;
  #known = new Map();
  #asksAfter = 0;

  async isEvery(tracker, tags) {
    for (const tag of tags) if (!(await this.#hasEnded(tracker, tag))) return false;
    return true;
  }

  async #hasEnded(tracker, tag) {
    const now = Date.now();
    const { ended, until } = this.#known.get(tag) ?? { until: 0 };
    if (now < Math.max(until, this.#asksAfter)) return ended ?? false;
    const status = await this.#read(tracker, tag);
    const hasEnded = status === "acked" || status === "failed";
    if (this.#known.size >= Ended.#MOST) this.#known.clear();
    this.#known.set(tag, { ended: hasEnded, until: now + Ended.#MS });
    return hasEnded;
  }

  // If a status cannot be read, the work is done.
  async #read(tracker, tag) {
    try {
      return await tracker.state(tag);
    } catch (error) {
      this.#asksAfter = Date.now() + Ended.#MS;
      const why = `${error.name}: ${error.message}`;
      warn("chains not checked for their end", { why });
      return undefined;
    }
  }
}

/** The records of one event, in their order. */
class Batch {
  failed = new Map();
  untracked = 0;
  skipped = 0;
  #blocked = new Set();
  #handled = [];

  constructor(reader, work, context, ended) {
    Object.assign(this, { reader, work, context, ended });
  }

  /** Call the function with a record and its step, unless an earlier record of its key failed. */
  async handle(record) {
    const { tracker } = this.reader;
    const before = tracker.collected;
    try {
      if (this.#blocked.has(orderingKey(record)))
        throw new StateError("an earlier record of this order failed; both are delivered again");
      const token = this.reader.read(record);
      if (token && this.ended && (await this.ended.isEvery(tracker, token.tags))) {
        this.skipped += 1;
        return;
      }
      const call = async (step) => finished(await this.work(record, step, this.context), "handler");
      await (token ? tracker.step(token, call) : call(undefined));
      this.untracked += token ? 0 : 1;
      this.#handled.push({ record, requests: tracker.collected - before });
    } catch (error) {
      this.#fail(record, error);
    }
  }

  /** Fail the records whose requests were not sent, and later records whose order they keep. */
  failUnsent(error) {
    const lanes = new Set();
    for (const { record, requests } of this.#handled) {
      if (!requests && !lanes.has(orderingKey(record))) continue;
      this.#fail(record, error);
      if (orderingKey(record) !== undefined) lanes.add(orderingKey(record));
    }
  }

  #fail(record, error) {
    this.failed.set(record, error);
    if (orderingKey(record) !== undefined) this.#blocked.add(orderingKey(record));
  }
}

/**
 * Turn a function of a record, its step and Lambda's context into a Lambda handler of batches. The
 * event source mapping must report batch item failures. A failed record blocks later records of its
 * shard, partition or FIFO group.
 */
export function fanIn(tracker, work, options = {}) {
  checkOptions(options, [...READING, "skipEnded"]);
  checkWork(work, "handler", "work");
  const reader = new Reader(tracker, options);
  const { tableName } = tracker;
  const table = "the name of the acker's table: skipEnded reads the chains' states";
  const argument = "tableName";
  check(!options.skipEnded || tableName, "table_name", tableName, table, { argument });
  const ended = options.skipEnded ? new Ended() : undefined;
  return async (event, context) => {
    const records = recordsOf(event);
    const expected = "true, because a Kinesis record can have a token only in its data";
    check(reader.bodies || !records[0].kinesis, "bodies", reader.bodies, expected);
    const batch = new Batch(reader, work, context, ended);
    try {
      await tracker.batch(async () => {
        for (const record of records) await batch.handle(record);
      });
    } catch (error) {
      if (!(error instanceof XorAckError)) throw error;
      batch.failUnsent(error);
    }
    warnOf("messages not tracked", batch.untracked, `no token in ${reader.place}`);
    warnOf("messages skipped", batch.skipped, "chains that have ended");
    const failed = records.filter((record) => batch.failed.has(record));
    // If a complete batch fails, throw, so that Lambda counts an error.
    if (failed.length === records.length)
      throw new BatchError(failed.map((record) => batch.failed.get(record)));
    return { batchItemFailures: failed.map((record) => ({ itemIdentifier: idOf(record) })) };
  };
}

// Fan-out

function messageOf(step, pair, queueUrl, group) {
  const isPair = Array.isArray(pair) && pair.length === 2;
  check(isPair, "messages", pair, "pairs of a child's name and a body");
  const [name, content] = pair;
  const token = step?.child(...(Array.isArray(name) ? name : [name]));
  const body = typeof content === "string" ? content : toJson(content);
  check(typeof body === "string", "messages", content, "a body that is a string or JSON");
  const text = token && JSON.stringify(token);
  // By default a FIFO queue compares only bodies, and would drop the second of two equal bodies.
  const id = token ? deduplicationId(token) : randomUUID().replaceAll("-", "");
  return {
    MessageBody: body,
    ...(group != null && { MessageGroupId: groupId(group) }),
    ...(queueUrl.endsWith(".fifo") && { MessageDeduplicationId: id }),
    ...(text && { MessageAttributes: { [NAME]: { DataType: "String", StringValue: text } } }),
  };
}

/**
 * Start a child of a step for each message, and send the message with the child's token. `messages`
 * has pairs of the child's name (a part, or a list of parts) and the body, or is a Map. Return the
 * number of messages.
 */
export async function fanOut(step, messages, queueUrl, options = {}) {
  checkOptions(options, ["send", "client", "group"]);
  const { send, client, group } = options;
  const isUrl = typeof queueUrl === "string" && queueUrl;
  check(isUrl, "queue_url", queueUrl, "the URL of an SQS queue", { argument: "queueUrl" });
  const isGrouped = !queueUrl.endsWith(".fifo") || group != null;
  check(isGrouped, "group", group, "the message group, because a FIFO queue needs it");
  check(group == null || typeof group === "string", "group", group, "the message group");
  const isList = typeof messages === "object" && messages !== null && Symbol.iterator in messages;
  check(isList, "messages", messages, "pairs of a child's name and a body");
  const entries = Array.from(messages, (pair) => messageOf(step, pair, queueUrl, group));
  const sending = send ?? (client ? sdkSend(client) : (step?.tracker.send ?? sdkSend()));
  await sendAll(sending, queueUrl, entries);
  return entries.length;
}
