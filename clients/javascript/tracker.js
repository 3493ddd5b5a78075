// Chains and steps: the calls of producers and workers, and how their requests reach the queue.
import { AsyncLocalStorage } from "node:async_hooks";
import { randomUUID, timingSafeEqual } from "node:crypto";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import {
  cellsOf,
  check,
  checkCells,
  checkCount,
  checkDetail,
  checkMissing,
  checkOptions,
  checkResume,
  checkSeconds,
  checkTag,
  checkTolerated,
  checkUnit,
  childId,
  cleanText,
  digestOf,
  groupOf,
  hex,
  macOf,
  noteId,
  number,
  parentsOf,
  parseToken,
  SendError,
  StateError,
  sumOf,
  toJson,
  UnavailableError,
  unitId,
} from "./protocol.js";

// AWS's answers

/** Codes of transient errors, the same as in xorack/aws/client.py. */
const TRANSIENT = new Set([
  "BandwidthLimitExceeded",
  "InternalError",
  "InternalFailure",
  "InternalServerError",
  "InternalServiceError",
  "KMSThrottlingException",
  "KmsThrottled",
  "KmsThrottlingException",
  "LimitExceededException",
  "PriorRequestNotComplete",
  "ProvisionedThroughputExceededException",
  "ReplicatedWriteConflictException",
  "RequestLimitExceeded",
  "RequestThrottled",
  "RequestThrottledException",
  "RequestTimeout",
  "RequestTimeoutException",
  "ServiceUnavailable",
  "ServiceUnavailableException",
  "SlowDown",
  "ThrottledException",
  "Throttling",
  "ThrottlingException",
  "TooManyRequestsException",
  "TransactionConflictException",
  "TransactionInProgressException",
]);
/** Errors of connections: Node's codes, and the SDK's names for time-outs. */
const CONNECTION = new Set([
  "EAI_AGAIN",
  "ECONNABORTED",
  "ECONNREFUSED",
  "ECONNRESET",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ENOTFOUND",
  "EPIPE",
  "ETIMEDOUT",
  "TimeoutError",
  "UND_ERR_CONNECT_TIMEOUT",
  "UND_ERR_SOCKET",
]);

/** Return whether a code is transient, also after a service's name: KMS.ThrottlingException. */
const isTransientCode = (code) => TRANSIENT.has(String(code).split(".").at(-1));

const codesOf = (error) => [error?.name, error?.Code, error?.code, error?.cause?.code];

function isTransient(error) {
  const status = error?.$metadata?.httpStatusCode ?? 0;
  const codes = codesOf(error);
  return status >= 500 || codes.some((code) => isTransientCode(code) || CONNECTION.has(code));
}

/** Import a package of the SDK from beside this package, or else from the program's folder. */
async function sdkOf(name, instead) {
  try {
    return await import(name);
  } catch (error) {
    if (error.code !== "ERR_MODULE_NOT_FOUND") throw error;
  }
  for (const place of [process.argv[1], join(process.cwd(), "x")].filter(Boolean)) {
    try {
      return await import(pathToFileURL(createRequire(place).resolve(name)));
    } catch (error) {
      if (!["ERR_MODULE_NOT_FOUND", "MODULE_NOT_FOUND"].includes(error.code)) throw error;
    }
  }
  throw new StateError(`there is no package ${name}: npm install ${name}, or give ${instead}`);
}

/** Return a function that calls SendMessageBatch by a client of the SDK. */
export function sdkSend(client) {
  let sending = client;
  return async (QueueUrl, Entries) => {
    const { SendMessageBatchCommand, SQSClient } = await sdkOf("@aws-sdk/client-sqs", "send");
    sending ??= new SQSClient();
    return sending.send(new SendMessageBatchCommand({ QueueUrl, Entries }));
  };
}

// The work can do without this answer, so it waits only a second to connect, and one to read.
const READ_CONFIG = {
  maxAttempts: 2,
  requestHandler: { connectionTimeout: 1000, requestTimeout: 1000 },
};

function sdkRead() {
  let client;
  return async (operation, input) => {
    const sdk = await sdkOf("@aws-sdk/client-dynamodb", "read");
    client ??= new sdk.DynamoDBClient(READ_CONFIG);
    return client.send(new sdk[`${operation}Command`](input));
  };
}

// Sending

const MAX_CALL_BYTES = 1 << 20;
const MAX_CALL_ENTRIES = 10;
const MAX_BODY_BYTES = 250_000;
const MAX_REQUESTS = 31_774;
const ATTEMPTS = 8;
const MAX_WAIT_MS = 5000;

const sizeOf = ({ MessageBody, MessageAttributes = {} }) =>
  Object.entries(MessageAttributes).reduce(
    (sum, [name, { StringValue }]) => sum + name.length + 6 + Buffer.byteLength(StringValue),
    Buffer.byteLength(MessageBody),
  );

/** Split a list into parts of a limited number of elements and bytes. One element may be larger. */
function* partsOf(list, size, most, bytes) {
  let part = [];
  let left = bytes;
  for (const element of list) {
    const own = size(element);
    if (part.length && (part.length === most || own > left)) {
      yield part;
      part = [];
      left = bytes;
    }
    part.push(element);
    left -= own;
  }
  if (part.length) yield part;
}

/** Call SendMessageBatch once. Return the entries that were not accepted, by their ids. */
async function failuresOf(send, queueUrl, entries) {
  try {
    const answer = await send(queueUrl, entries);
    const failed = (answer?.Failed ?? []).map(({ Id, Code, Message, SenderFault }) => {
      const isPermanent = Boolean(SenderFault) && !isTransientCode(Code);
      return [Id, { isPermanent, reason: `${Code}: ${Message}` }];
    });
    return new Map(failed);
  } catch (error) {
    if (error instanceof StateError) throw error; // the SDK is not installed
    const isTooLong = codesOf(error).some((code) => String(code).endsWith("BatchRequestTooLong"));
    if (isTooLong && entries.length > 1) {
      // Emulators, and AWS before August 2025, take 256 KiB a call.
      const half = entries.length >> 1;
      const first = await failuresOf(send, queueUrl, entries.slice(0, half));
      return new Map([...first, ...(await failuresOf(send, queueUrl, entries.slice(half)))]);
    }
    const failure = { isPermanent: !isTransient(error), cause: error };
    const reason = `${error?.name ?? "Error"}: ${error?.message ?? error}`;
    return new Map(entries.map(({ Id }) => [Id, { ...failure, reason }]));
  }
}

async function sendBatch(send, queueUrl, batch) {
  let left = batch.map((message, n) => ({ Id: String(n), ...message }));
  const lost = new Map();
  for (let attempt = 1; left.length; attempt += 1) {
    const failures = await failuresOf(send, queueUrl, left);
    for (const [id, failure] of failures)
      if (failure.isPermanent || attempt === ATTEMPTS) lost.set(id, failure);
    left = left.filter(({ Id }) => failures.has(Id) && !lost.has(Id));
    const longest = Math.min(MAX_WAIT_MS, 10 * 2 ** (attempt - 1));
    if (left.length) await new Promise((go) => setTimeout(go, Math.random() * longest));
  }
  if (!lost.size) return;
  const [{ reason, cause }] = lost.values();
  const unsent = batch.filter((_, n) => lost.has(String(n))).map((entry) => entry.MessageBody);
  const count = `${unsent.length} ${unsent.length === 1 ? "message" : "messages"} not sent`;
  throw new SendError(`queue ${queueUrl}: ${count}: ${reason}`, { queueUrl, unsent, cause });
}

/** Send messages. SendMessageBatch answers 200 with failed entries, which are sent again. */
export async function sendAll(send, queueUrl, messages) {
  for (const batch of partsOf(messages, sizeOf, MAX_CALL_ENTRIES, MAX_CALL_BYTES))
    await sendBatch(send, queueUrl, batch);
}

const MAX_GROUP = 128;

/** Return the MessageGroupId of a name: the name, or the part that SQS accepts and a hash. */
export function groupId(name) {
  if (/^[!-~]{1,128}$/.test(name)) return name;
  const accepted = name.replace(/[^!-~]/gu, "_").slice(0, MAX_GROUP - 17);
  return `${accepted}-${digestOf(name, 16)}`;
}

/** Return the group of a request's message: its tag up to the first slash, if it has one. */
const byRun = ({ tag }) => (tag.indexOf("/") > 0 ? tag.slice(0, tag.indexOf("/")) : null);

function* messagesOf(requests, group) {
  const nameOf = typeof group === "function" ? group : () => group;
  for (const [name, own] of Map.groupBy(requests, nameOf)) {
    const size = (text) => Buffer.byteLength(text) + 1;
    const grouped = name == null ? {} : { MessageGroupId: groupId(name) };
    for (const texts of partsOf(own.map(toJson), size, MAX_REQUESTS, MAX_BODY_BYTES))
      yield { MessageBody: `{"version":1,"requests":[${texts.join(",")}]}`, ...grouped };
  }
}

// Steps

const MAX_STEP_UNITS = 10_000;
const MAX_CHILD_TAGS = 16;
const MAX_IDS = 40; // more ids would take as many bytes as the smallest traced stamp

/** Return the fields of a request for units: their ids if these are shorter than a stamp. */
function carried(cells, starts, finishes = []) {
  if (cells && starts.length + finishes.length <= MAX_IDS) {
    const size = cells === 16 ? {} : { cells };
    const ids = { ...(starts.length && { starts }), ...(finishes.length && { finishes }) };
    return { ...ids, ...size };
  }
  const stamp = sumOf([...starts, ...finishes].map(number), cells).toString("base64");
  const counts = { started: starts.length, finished: finishes.length };
  return { stamp, ...Object.fromEntries(Object.entries(counts).filter(([, count]) => count)) };
}

/** A step of the work, made by `Tracker.step`. It finishes units and starts their children. */
class Step {
  #tracker;
  #starts = new Set();
  #group;
  #ended = false;

  constructor(tracker, tokens) {
    const most = MAX_STEP_UNITS;
    const isFew = tokens.length >= 1 && tokens.length <= most;
    check(isFew, "tokens", `${tokens.length} tokens`, `1 to ${most} tokens`);
    const kinds = new Set(tokens.map(cellsOf));
    check(kinds.size === 1, "tokens", tokens, "tokens of one kind and size of stamps");
    const units = tokens.flatMap(({ unit, tags }) => tags.map((tag) => `${unit} ${tag}`));
    check(new Set(units).size === units.length, "tokens", tokens, "each unit once");
    this.tokens = tokens;
    this.tags = [...new Set(tokens.flatMap(({ tags }) => tags))];
    this.#tracker = tracker;
    this.#group = groupOf(tokens);
  }

  get tracker() {
    return this.#tracker;
  }

  /** Start a child of the step's units, and return its token: send it with the event. */
  child(...names) {
    const most = MAX_CHILD_TAGS;
    check(this.tags.length <= most, "tokens", this.tags, `tokens of at most ${most} chains`);
    if (this.#ended) throw new StateError("the step has ended: start its children before its end");
    const id = childId(this.#group, ...(names.length ? names : [this.#starts.size]));
    const unit = hex(checkUnit(id, cellsOf(this.tokens[0])));
    const isKnown = this.#starts.has(unit) || this.tokens.some((token) => token.unit === unit);
    const name = names.length ? names.map(String).join(", ") : unit;
    check(!isKnown, "child", name, "another unit than those of the step");
    this.#starts.add(unit);
    return this.#tracker.sign({ ...this.tokens[0], unit, tags: this.tags });
  }

  /** End the step, which then takes no more children. */
  end() {
    this.#ended = true;
  }

  /** Return the requests that end the step, one for each chain. */
  requests() {
    const cells = cellsOf(this.tokens[0]);
    const starts = [...this.#starts];
    const group = hex(this.#group);
    if (this.tokens.length === 1) {
      const fields = carried(cells, starts, [group]);
      return this.tags.map((tag) => ({ op: "stamp", tag, id: `step-${group}`, ...fields }));
    }
    const size = cells === 16 ? {} : { cells };
    const fields = { ...size, ...(starts.length && carried(cells, starts)) };
    const units = new Map(this.tags.map((tag) => [tag, []]));
    for (const { unit, tags } of this.tokens) for (const tag of tags) units.get(tag).push(unit);
    return this.tags.map((tag) => {
      const once = { finishes_once: units.get(tag) };
      return { op: "stamp", tag, id: `steps-${group}`, ...once, ...fields };
    });
  }
}

// Trackers

const isGenerator = (value) =>
  Object.prototype.toString.call(value).endsWith("Generator]") && typeof value.next === "function";

/** Refuse a generator, because calling it does not run it. */
export function checkWork(work, field, argument = field) {
  const expected = "a function, async or not, but not a generator";
  const isFunction = typeof work === "function";
  const kind = Object.prototype.toString.call(work);
  check(isFunction && !kind.includes("Generator"), field, work, expected, { argument });
}

/** Return the result of a function that has run. */
export function finished(result, field) {
  const problem = "it returned a generator, whose code does not run: pass a function";
  check(!isGenerator(result), field, null, "", { problem });
  return result;
}

const MIN_KEY_BYTES = 16;
const MAX_KEYS = 2;
const KEY_VARIABLE = "XORACK_TOKEN_KEY";

/**
 * Return the keys of tokens. Only the variable is split at commas, because a key may contain them.
 * An invalid key is an error: it must not turn verification off.
 */
function keysOf(given) {
  const variable = process.env[KEY_VARIABLE]?.split(",").map((key) => key.trim());
  const known = given ?? variable;
  if (known === undefined) return [];
  const keys = Array.isArray(known) ? known : [known];
  const isText = (key) => typeof key === "string" && Buffer.byteLength(key) >= MIN_KEY_BYTES;
  const expected = `one key of at least ${MIN_KEY_BYTES} bytes, or ${MAX_KEYS}`;
  const isValid = keys.length >= 1 && keys.length <= MAX_KEYS && keys.every(isText);
  const [field, argument] = given == null ? [KEY_VARIABLE, KEY_VARIABLE] : ["token_key", "keys"];
  const problem = `expected ${expected}: the first signs tokens`;
  check(isValid, field, null, "", { argument, problem });
  return keys;
}

const QUEUE_VARIABLE = "XORACK_QUEUE_URL";
const TABLE_VARIABLE = "XORACK_TABLE";

/** Check a queue's URL. A client or a function of the caller may accept other names. */
function checkQueueUrl(url, hasSender) {
  const expected = "the URL of an SQS queue, as the stack's output QueueUrl";
  const fail = (more) => {
    const text = `${expected}${more}`;
    check(false, "queue_url", url, text, { argument: "queueUrl" });
  };
  if (typeof url !== "string" || !url) fail(` or the variable ${QUEUE_VARIABLE} has`);
  const [arn, , , region, account, name] = url.split(":");
  if (arn === "arn" && name)
    fail(`; this ARN has https://sqs.${region}.amazonaws.com/${account}/${name}`);
  if (!hasSender && !url.includes("://")) fail(", and not the name of the queue");
}

const STATUSES = new Set(["pending", "open", "acked", "failed"]);
const OPTIONS = ["client", "send", "keys", "stamps", "cells", "group", "tableName", "read"];
const START_OPTIONS = [
  "parts",
  "timeout",
  "idleTimeout",
  "toleratedUnits",
  "detail",
  "resume",
  "parent",
  "failParent",
];

/** Tracks the work of producers and workers. */
export class Tracker {
  #keys;
  #partitionKey;
  #batches = new AsyncLocalStorage();

  constructor(queue, options = {}) {
    checkOptions(options, OPTIONS);
    const { client, keys, group = byRun } = options;
    const queueUrl = queue || process.env[QUEUE_VARIABLE];
    checkQueueUrl(queueUrl, client || options.send);
    const tableName = options.tableName || process.env[TABLE_VARIABLE];
    const stamps = options.stamps ?? "traced";
    check(["traced", "plain"].includes(stamps), "stamps", stamps, "traced or plain");
    const cells = checkCells(options.cells ?? 16);
    const isTraced = stamps === "traced" || cells === 16;
    check(isTraced, "cells", cells, "traced stamps: plain ones have no cells");
    const isName = typeof group === "string" && group;
    const isGroup = group === null || isName || typeof group === "function";
    check(isGroup, "group", group, "the name of a group of messages, a function, or null");
    const send = options.send ?? sdkSend(client);
    const read = options.read ?? sdkRead();
    Object.assign(this, { queueUrl, stamps, cells, tableName, group, send, read });
    this.#keys = keysOf(keys);
  }

  /** Return a token with its MAC, or without a MAC if there is no key. */
  sign({ mac, ...token }) {
    return this.#keys.length ? { ...token, mac: macOf(this.#keys[0], token) } : token;
  }

  /** Read a token, and verify its MAC if there is a key. */
  verified(value) {
    const token = parseToken(value);
    const given = Buffer.from(token.mac ?? " ".repeat(32));
    // Compare with all keys: the time must not reveal which key is nearer.
    const isOf = (key) => timingSafeEqual(Buffer.from(macOf(key, token)), given);
    const matches = this.#keys.filter(isOf);
    const what = token.mac ? "of another key or a changed token" : "missing";
    const problem = `${what}; set the same ${KEY_VARIABLE} for all senders`;
    check(!this.#keys.length || matches.length, "token mac", null, "", { problem });
    return token;
  }

  /** Start a chain, and return the token of its root unit, which travels with the work as JSON. */
  async start(tag, options = {}) {
    checkTag(tag);
    checkOptions(options, START_OPTIONS);
    const { parts, timeout, idleTimeout, toleratedUnits, detail, resume } = options;
    check(parts == null || Array.isArray(parts), "parts", parts, "a list of parts of a name");
    const { stamps: kind, cells: size } = this;
    const cells = cellsOf({ kind, cells: size });
    const unit = hex(checkUnit(unitId(...(parts ?? [tag])), cells));
    const fields = carried(cells, [unit]);
    if (timeout != null) fields.timeout = checkSeconds(timeout, "timeout");
    if (idleTimeout != null)
      fields.idle_timeout = checkSeconds(idleTimeout, "idle_timeout", "idleTimeout");
    if (toleratedUnits != null) fields.tolerated_units = checkTolerated(toleratedUnits, cells);
    if (detail != null) fields.detail = checkDetail(detail);
    if (resume != null) fields.resume = checkResume(resume);
    Object.assign(fields, this.#parentsOf(tag, options));
    await this.#send([{ op: "create", tag, id: `create-${unit}`, ...fields }]);
    const token = { v: 1, unit, tags: [tag], kind };
    return this.sign(cells && cells !== 16 ? { ...token, cells } : token);
  }

  #parentsOf(tag, { parent, failParent }) {
    const [field, argument] = ["fail_parent", "failParent"];
    const isFlag = failParent == null || typeof failParent === "boolean";
    check(isFlag, field, failParent, "true or false", { argument });
    check(!failParent || parent != null, field, failParent, "a parent beside it", { argument });
    if (parent == null) return {};
    const tokens = (Array.isArray(parent) ? parent : [parent]).map((one) => this.verified(one));
    const parents = parentsOf(tokens, tag);
    return { parents, ...(failParent && { fail_parent: true }) };
  }

  /**
   * Do the work of a token's unit, or of several. `work` gets the step, whose children it starts.
   * If it throws, nothing is sent: the units stay outstanding until the work is done again.
   */
  async step(tokens, work = () => {}) {
    checkWork(work, "work");
    const list = Array.isArray(tokens) ? tokens : [tokens];
    const step = new Step(
      this,
      list.map((token) => this.verified(token)),
    );
    try {
      const result = finished(await work(step), "work");
      step.end();
      await this.#send(step.requests());
      return result;
    } finally {
      step.end();
    }
  }

  /** Fail the chains of a token, for a reason that is cut off after 1,024 bytes. */
  async fail(token, reason, note = {}) {
    const { unit, tags } = this.verified(token);
    await this.#tell("fail", unit, tags, {
      reason: cleanText(reason, "reason"),
      ...noteOf(note),
    });
  }

  /** Add a finding to the chains of a token: `text`, `missing` (ids), and `missing_count`. */
  async note(token, note) {
    const { unit, tags } = this.verified(token);
    const fields = noteOf(note);
    const problem = "missing, expected a value: a note needs text or missing";
    check("text" in fields || fields.missing, "text", null, "", { problem });
    await this.#tell("note", unit, tags, fields);
  }

  /** Move the deadline of a token's chains to this number of seconds from now. */
  async extend(value, timeout) {
    const { tags } = this.verified(value);
    const id = `extend-${randomUUID().replaceAll("-", "")}`;
    checkSeconds(timeout, "timeout");
    await this.#send(tags.map((tag) => ({ op: "extend", tag, id, timeout })));
  }

  /**
   * Read the status of a chain by one eventually consistent read: `pending` before the create,
   * `open`, `acked` or `failed`; undefined if there is no such chain.
   */
  async state(tag) {
    checkTag(tag);
    const { tableName: TableName } = this;
    const expected = "the name of the acker's table: the stack's output TableName";
    const argument = "tableName";
    check(typeof TableName === "string" && TableName, "table_name", TableName, expected, {
      argument,
    });
    this.#partitionKey ??= await this.#keyOf(TableName);
    const input = {
      TableName,
      Key: { [this.#partitionKey]: { S: tag } },
      ProjectionExpression: "#key, #status",
      ExpressionAttributeNames: { "#key": this.#partitionKey, "#status": "status" },
    };
    const { Item: item } = await this.#read("GetItem", input);
    const status = item && (item.status?.S ?? "open");
    if (item && !STATUSES.has(status)) throw new StateError(`tag: ${tag} is not a chain`);
    return status;
  }

  async #keyOf(TableName) {
    const { Table } = await this.#read("DescribeTable", { TableName });
    return Table.KeySchema.find(({ KeyType }) => KeyType === "HASH").AttributeName;
  }

  async #read(operation, input) {
    try {
      return await this.read(operation, input);
    } catch (error) {
      const message = `${error?.name}: ${error?.message}`;
      if (isTransient(error)) throw new UnavailableError(message, { cause: error });
      if (error?.name !== "ResourceNotFoundException") throw error;
      throw new StateError(`there is no table ${input.TableName}`, { cause: error });
    }
  }

  /** Collect the requests within `work`, and send them at the end, also if `work` throws. */
  async batch(work) {
    checkWork(work, "work");
    const isNested = this.#batches.getStore()?.open;
    if (isNested) return finished(await work(), "work"); // the outer batch sends
    const batch = { open: true, requests: [] };
    try {
      return finished(await this.#batches.run(batch, work), "work");
    } finally {
      batch.open = false;
      await this.#flush(batch.requests);
    }
  }

  /** Return the number of requests in the batch around this call. */
  get collected() {
    return this.#batches.getStore()?.requests.length ?? 0;
  }

  async #tell(op, unit, tags, content) {
    const id = noteId(op, unit, content);
    await this.#send(tags.map((tag) => ({ op, tag, id, ...content })));
  }

  async #send(requests) {
    const batch = this.#batches.getStore();
    if (batch?.open) batch.requests.push(...requests);
    else await this.#flush(requests);
  }

  async #flush(requests) {
    await sendAll(this.send, this.queueUrl, messagesOf(requests, this.group));
  }
}

const NOTE_FIELDS = ["text", "missing", "missing_count"];

function noteOf(note) {
  checkOptions(note, NOTE_FIELDS);
  const { text, missing, missing_count: count } = note;
  const fields = {};
  if (text != null) fields.text = cleanText(text, "text");
  check(fields.text !== "", "text", text, "a string of 1 to 1024 UTF-8 bytes without NUL");
  const ids = missing == null ? [] : checkMissing(missing);
  if (ids.length) fields.missing = ids;
  if (count != null) fields.missing_count = checkCount(count, "missing_count");
  return fields;
}
