// An acker in JavaScript, written from docs/protocol.md, that runs docs/vectors.json.
// Usage: node vectors.mjs PATH; prints the number of cases by section, or throws.
import assert from "node:assert";
import { readFileSync } from "node:fs";
import {
  hex,
  long,
  macOf,
  number,
  Tracker,
  unitId,
  xxh64,
} from "../../clients/javascript/index.js";

const hash = (id) => xxh64(long(id), 42n);
const days = (text) => BigInt(Date.parse(text.slice(0, 10)) / 86_400_000);
const microseconds = (text) =>
  BigInt(Date.parse(text)) * 1000n + BigInt((/\.\d{3}(\d{3})/.exec(text) ?? [0, "0"])[1]);
const PARTS = {
  str: (x) => Buffer.from(x),
  bytes: (x) => Buffer.from(x, "base64"),
  int: (x) => long(BigInt(x)),
  bool: (x) => long(x ? 1n : 0n),
  date: (x) => long(days(x)),
  timestamp: (x) => long(microseconds(x)),
  decimal: (x) => Buffer.from(x.includes(".") ? x.replace(/\.?0+$/, "") : x),
};
const bytesOf = (part) => PARTS[Object.keys(part)[0]](Object.values(part)[0]);

// Words of a stamp: word 0, then five tables of `cells`; a hash stands in one word of each.
const wordsOf = (y, cells) =>
  [0, 1, 2, 3, 4].map(
    (j) => 1 + cells * j + Number((y >> BigInt(j * Math.log2(cells))) & BigInt(cells - 1)),
  );
function flip(words, y, cells) {
  for (const at of [0, ...wordsOf(y, cells)]) words[at] ^= y;
}
const zeros = (length) => Array(Math.ceil(length / 8)).fill(0n);
const sparse = (words) =>
  Object.fromEntries(words.map((w, at) => [at, hex(w)]).filter(([, w]) => number(w)));
const toBase64 = (words) => Buffer.concat(words.map(long)).toString("base64");

function stampOf(ids, kind, cells = 16) {
  const words = zeros(kind === "plain" ? 8 : 8 + 40 * cells);
  for (const id of ids) {
    if (kind === "plain") words[0] ^= id;
    else flip(words, hash(id), cells);
  }
  return words;
}

function peel(words) {
  // the rule of two tables: a hash in two of its own words is a unit
  const cells = (words.length - 1) / 5,
    found = new Set();
  if (![16, 64, 256, 1024].includes(cells)) return [found, words.every((word) => !word)];
  for (let progress = true; progress; ) {
    progress = false;
    for (const y of words.slice(1)) {
      if (!y || found.has(y) || wordsOf(y, cells).filter((at) => words[at] === y).length < 2)
        continue;
      flip(words, y, cells);
      found.add(y);
      progress = true;
    }
  }
  return [found, words.every((word) => !word)];
}

// Checks of a request's fields, as in the table of docs/protocol.md.
const text = (least, most) => (x) =>
  typeof x === "string" &&
  !x.includes("\0") &&
  Buffer.byteLength(x) >= least &&
  Buffer.byteLength(x) <= most;
const seconds = (x) => typeof x === "number" && x > 0 && x <= 10 * 366 * 86_400;
const isObject = (x) => typeof x === "object" && x !== null && !Array.isArray(x);
const size = (x) => Buffer.byteLength(JSON.stringify(x));
const base64 = (x) => typeof x === "string" && Buffer.from(x, "base64").toString("base64") === x;
const stamp = (x) => base64(x) && Buffer.from(x, "base64").some(Boolean);
const count = (x) => Number.isInteger(x) && x >= 0 && x < 2 ** 63;
const ids = (x) =>
  Array.isArray(x) &&
  x.every((id) => /^[0-9a-f]{16}$/.test(id) && number(id)) &&
  new Set(x).size === x.length;
const FIELDS = {
  op: (x) => Object.hasOwn(FIELDS_OF, x),
  tag: text(1, 1024),
  id: text(1, 128),
  stamp,
  started: count,
  finished: count,
  timeout: seconds,
  idle_timeout: seconds,
  tolerated_units: count,
  starts: ids,
  finishes: ids,
  finishes_once: (x) => ids(x) && x.length > 0 && x.length <= 10_000,
  cells: (x) => [0, 16, 64, 256, 1024].includes(x),
  detail: (x) => isObject(x) && size(x) <= 4096 && depthOf(JSON.stringify(x)) <= 64,
  reason: text(0, 1024),
  text: text(1, 1024),
  missing: (x) => ids(x) && x.length > 0 && x.length <= 100,
  missing_count: count,
  parents: (x) => Array.isArray(x),
  fail_parent: (x) => typeof x === "boolean",
  resume: (x) =>
    isObject(x) &&
    Object.keys(x).length === 1 &&
    (text(1, 2048)(x.step_functions) || text(1, 1024)(x.lambda)),
};
const NOTED = ["text", "missing", "missing_count"];
const FIELDS_OF = {
  create: [
    "stamp",
    "started",
    "finished",
    "starts",
    "finishes",
    "cells",
    "timeout",
    "idle_timeout",
    "tolerated_units",
    "detail",
    "resume",
    "parents",
    "fail_parent",
  ],
  stamp: ["stamp", "started", "finished", "starts", "finishes", "finishes_once", "cells"],
  fail: ["reason", ...NOTED],
  extend: ["timeout"],
  note: NOTED,
};
const hasIds = (request) =>
  ["starts", "finishes"].some((name) => request[name]?.length) ||
  (!request.finishes_once && ["starts", "finishes", "cells"].some((name) => name in request));
const zeroHash = (list, cells) => cells && list.some((id) => !hash(number(id)));
const lengthOf = (cells) => (cells ? 8 + 40 * cells : 8);

function invalidOnce({ finishes_once: units, finishes = [], cells = 16, stamp }) {
  if (zeroHash(units, cells) || units.some((unit) => finishes.includes(unit)))
    return "finishes_once";
  if (stamp && bytes(stamp).length !== lengthOf(cells)) return "stamp";
}

function invalidIds(request) {
  const given = ["stamp", "started", "finished"].find((name) => name in request);
  const { starts = [], finishes = [], cells = 16 } = request;
  const zero = (list) => zeroHash(list, cells);
  if (given || !(starts.length + finishes.length)) return given ?? "starts";
  if (zero(starts) || zero(finishes)) return zero(starts) ? "starts" : "finishes";
  return bytes(meaning(request).stamp).some(Boolean) ? undefined : "starts";
}

// The request with a stamp that one with ids stands for.
function meaning({ starts = [], finishes = [], cells = 16, ...request }) {
  if (request.finishes_once)
    Object.assign(request, { cells, finishes_once: request.finishes_once.toSorted() });
  if (!starts.length && !finishes.length) return request;
  const sum = stampOf([...starts, ...finishes].map(number), cells ? "traced" : "plain", cells);
  const counts = { started: starts.length, finished: finishes.length };
  return {
    ...request,
    stamp: toBase64(sum),
    ...Object.fromEntries(Object.entries(counts).filter(([, n]) => n)),
  };
}

const fieldsOf = (op) => ["op", "tag", "id", ...FIELDS_OF[op]];

function invalidField(request) {
  if (!isObject(request)) return "request";
  if (!FIELDS.op(request.op)) return "op";
  const allowed = fieldsOf(request.op);
  const wrong = Object.keys(request).find(
    (name) => !allowed.includes(name) || !FIELDS[name](request[name]),
  );
  if (wrong) return wrong;
  return (
    invalidContent(request) ??
    invalidParents(request) ??
    (isStolen(request) ? "id" : tolerates(request) ? undefined : "tolerated_units")
  );
}

// Whether the stamp of a create has as many cells as units are tolerated.
function tolerates({ tolerated_units: most = 0, cells = 16, stamp, ...request }) {
  const length = hasIds(request) ? lengthOf(cells) : bytes(stamp).length;
  return most <= ([648, 2568, 10_248, 40_968].includes(length) ? (length / 8 - 1) / 5 : 0);
}

function invalidParent({ unit, tags, kind = "traced", cells, ...rest }) {
  const checks = {
    parents: !Object.keys(rest).length,
    "parents.unit": ids([unit]),
    "parents.tags": Array.isArray(tags) && tags.length && tags.every(text(1, 1024)),
    "parents.kind": ["plain", "traced"].includes(kind),
    "parents.cells": cells === undefined || (kind === "traced" && cells && FIELDS.cells(cells)),
  };
  return Object.keys(checks).find((name) => !checks[name]);
}

// The invalid field of the units of other chains that a chain is.
function invalidParents({ tag, parents, fail_parent: fails }) {
  if (!parents) return fails === undefined ? undefined : "fail_parent";
  const wrong = parents.map(invalidParent).find(Boolean);
  if (wrong) return wrong;
  const all = parents.flatMap(({ tags }) => tags);
  const size = all.reduce((sum, one) => sum + Buffer.byteLength(one), 0);
  const others = new Set(all).size === all.length && !all.includes(tag);
  if (!others || !all.length || all.length > 100 || size > 4096) return "parents";
}

// What the end of a chain gives its parents.
function endsOf({ tag, status, reason, event, parents, fail_parent: fails }) {
  const id = `chain-${event}`;
  const whole = Buffer.from(`chain ${tag} failed: ${reason}`);
  let size = Math.min(whole.length, 1024);
  while (size < whole.length && (whole[size] & 0xc0) === 0x80) size -= 1;
  const why = whole.subarray(0, size).toString();
  return parents.flatMap(({ unit, tags, kind, cells }) =>
    tags.map((tag) => {
      if (status === "acked") {
        const sizes = kind === "plain" ? { cells: 0 } : cells ? { cells } : {};
        return { op: "stamp", tag, id, finishes: [unit], ...sizes };
      }
      if (fails) return { op: "fail", tag, id, reason: why };
      return { op: "note", tag, id, text: why, missing: [unit] };
    }),
  );
}

// Whether a request that is not the step of a unit has the id of that step.
function isStolen({ op, id, finishes_once: once, ...request }) {
  const [, unit] = /^step-([0-9a-f]{16})$/.exec(id) ?? [];
  const own = hasIds(request) ? request.finishes?.join() === unit : request.finished === 1;
  return unit !== undefined && (op !== "stamp" || once || !number(unit) || !own);
}

function invalidContent(request) {
  const once = request.finishes_once && invalidOnce(request);
  if (hasIds(request))
    return invalidIds(request) ?? once ?? ["tag", "id"].find((name) => !(name in request));
  const needsStamp = !request.finishes_once || "started" in request || "finished" in request;
  if (once) return once;
  if (
    (request.op === "note" || "missing_count" in request) &&
    !("text" in request || "missing" in request)
  )
    return "text";
  return ["tag", "id", ...(needsStamp ? ["stamp"] : [])].find(
    (name) => fieldsOf(request.op).includes(name) && !(name in request),
  );
}

// How many objects and arrays contain each other, at most, in a text of JSON.
function depthOf(json) {
  let depth = 0,
    most = 0;
  for (const [bracket] of json.replace(/"(?:[^"\\]|\\.)*"?/gs, "").matchAll(/[[\]{}]/g)) {
    depth += "[{".includes(bracket) ? 1 : -1;
    most = Math.max(most, depth);
  }
  return most;
}

function parse(body) {
  let message;
  if (depthOf(body) > 128) return [[], ["body"]];
  try {
    message = JSON.parse(body);
  } catch {
    return [[], ["body"]];
  }
  if (!isObject(message)) return [[], ["body"]];
  if (message.version !== 1) return [[], ["version"]];
  const unknown = Object.keys(message).find((name) => name !== "version" && name !== "requests");
  if (unknown) return [[], [unknown]];
  if (!Array.isArray(message.requests) || !message.requests.length) return [[], ["requests"]];
  const wrong = message.requests.map(invalidField);
  const named = wrong.map(
    (field, at) =>
      field && (field === "request" ? `requests[${at}].request` : `requests[${at}].${field}`),
  );
  return [
    message.requests.filter((_, at) => !wrong[at]).map((request) => request.id),
    named.filter(Boolean),
  ];
}

// The state machine of docs/protocol.md, for one chain. Times are in seconds.
const bytes = (text) => Buffer.from(text ?? "", "base64");
const time = (at, start) => new Date(1000 * (start + at)).toISOString();

class Chain {
  constructor(limits) {
    Object.assign(this, {
      limits,
      status: "absent",
      stamp: bytes(),
      started: 0,
      finished: 0,
      seen: new Map(),
      shared: new Set(),
    });
  }
  // The request without the units that another one has finished.
  once({ finishes_once: units = [], cells, ...request }) {
    const own = /^step-([0-9a-f]{16})$/.exec(request.id)?.[1];
    const again = own && this.shared.has(own) ? [own] : [];
    const fresh = units.filter((unit) => !this.shared.has(unit) && !this.seen.has(`step-${unit}`));
    for (const unit of fresh) this.shared.add(unit);
    if (!units.length && !again.length) return request;
    const old = request.stamp ? bytes(request.stamp) : Buffer.alloc(lengthOf(cells));
    const size = old.length === 8 ? 0 : (old.length / 8 - 1) / 5;
    const changed = bytes(
      toBase64(stampOf([...fresh, ...again].map(number), size ? "traced" : "plain", size)),
    );
    const stamp = Buffer.from(old.map((byte, n) => byte ^ changed[n])).toString("base64");
    return { ...request, stamp, finished: (request.finished ?? 0) + fresh.length - again.length };
  }
  outcome({ resume, tolerated_units: tolerated, ...request }, length) {
    // who waits is no content, nor is a default
    if (tolerated) request.tolerated_units = tolerated;
    const own = request.stamp
      ? bytes(request.stamp).length
      : request.finishes_once && lengthOf(request.cells);
    const content = JSON.stringify(Object.entries(request).sort());
    const taken = request.op === "create" && (this.created || this.ended !== undefined);
    if (taken && this.seen.get(request.id) !== content) return "TagExists";
    if (this.seen.has(request.id))
      return this.seen.get(request.id) === content ? "duplicate" : "RequestIdReused";
    if (request.op === "stamp" && length && own !== length) return "BufferLengthsUnequal";
    if (this.ended !== undefined) return "late";
    this.seen.set(request.id, content);
    if (request.op === "create") this.created = true;
    return "applied";
  }
  // biome-ignore lint/complexity/noExcessiveCognitiveComplexity: the rules of one batch
  apply(at, given) {
    // creates, notes, fails, then the rest; a create decides the length of stamps
    const requests = given.map(meaning),
      outcomes = [];
    const rank = ({ op }) =>
      ["stamp", "extend"].includes(op) ? 3 : ["create", "note", "fail"].indexOf(op);
    const order = [...requests.keys()].sort(
      (a, b) => rank(requests[a]) - rank(requests[b]) || a - b,
    );
    let length = this.stamp.length;
    for (const n of order) {
      outcomes[n] = this.outcome(requests[n], length);
      if (outcomes[n] === "applied") requests[n] = this.once(requests[n]);
      if (outcomes[n] === "applied" && requests[n].stamp) length = bytes(requests[n].stamp).length;
    }
    for (const n of order) if (outcomes[n] === "applied") this.add(at, requests[n]);
    if (!outcomes.includes("applied")) return outcomes;
    if (this.status === "absent")
      [this.status, this.waits] = ["pending", at + this.limits.pending_timeout];
    if (this.created) this.status = "open";
    if (this.status === "open" && this.failing) this.end(at, "failed", this.failing);
    else if (this.status === "open" && this.zero && this.started === this.finished)
      this.end(at, "acked");
    return outcomes;
  }
  add(
    at,
    {
      op,
      stamp: text,
      started = 0,
      finished = 0,
      timeout,
      idle_timeout: idle,
      tolerated_units: tolerated = 0,
      detail,
      reason,
      ...found
    },
  ) {
    const stamp = bytes(text);
    if (stamp.length) {
      const old = this.stamp;
      if (old.length && old.length !== stamp.length)
        this.failing ??=
          `the create's stamp has ${stamp.length} bytes, ` +
          `but stamps of ${old.length} bytes came before it`;
      this.stamp = Buffer.from(stamp.map((byte, n) => byte ^ (old[n] ?? 0)));
      this.stamped = at;
    }
    this.started += started;
    this.finished += finished;
    const { text: said = null, missing = [], missing_count: lacking = null } = found;
    if (said ?? missing.length) this.note = { text: said, missing, missing_count: lacking };
    if (op === "fail") this.failing ??= reason ?? "fail was asked";
    if (op === "extend")
      Object.assign(this, {
        deadline: at + (timeout ?? this.limits.default_timeout),
        extended: at,
      });
    if (op !== "create") return;
    Object.assign(this, { createdAt: at, idle, tolerated, detail });
    if (this.extended === undefined) this.deadline = at + (timeout ?? this.limits.default_timeout);
  }
  get zero() {
    return this.stamp.length > 0 && this.stamp.every((byte) => !byte);
  }
  get words() {
    return this.stamp.length < 8
      ? [1n]
      : zeros(this.stamp.length).map((_, at) => this.stamp.readBigUInt64LE(8 * at));
  }
  get isTolerated() {
    const left = this.started - this.finished,
      [ids, complete] = peel(this.words);
    return (
      left > 0 && left <= this.tolerated && complete && ids.size > 0 && ids.size <= this.tolerated
    );
  }
  sweep(at) {
    if (this.status === "pending" && at >= this.waits) this.end(at, "failed", "never created");
    if (
      this.status !== "open" ||
      at <
        Math.min(
          this.deadline,
          Math.max(this.stamped, this.extended ?? 0) + (this.idle ?? Infinity),
        )
    )
      return;
    const counts =
      `timed out: the stamp is zero, but ${this.started} units were started ` +
      `and ${this.finished} finished`;
    if (!this.zero && this.isTolerated) return this.end(at, "acked");
    this.end(at, "failed", this.zero && this.started !== this.finished ? counts : "timed out");
  }
  end(at, status, reason) {
    Object.assign(this, { status, reason, ended: at });
  }
  // biome-ignore lint/complexity/noExcessiveCognitiveComplexity: the fields of one event
  event(tag, first) {
    if (this.ended === undefined) return null;
    const { status, started, finished, detail = {}, reason, ended, stamp, note } = this;
    const from = this.createdAt ?? first;
    const times = {
      created_at: time(from, this.limits.start),
      ended_at: time(ended, this.limits.start),
    };
    const event = {
      version: 1,
      tag,
      status,
      ...times,
      duration_ms: 1000 * (ended - from),
      started,
      finished,
      detail,
    };
    const tolerated = status === "acked" && started > finished;
    const lacks = note && (note.missing.length || note.missing_count);
    if (status === "acked" && !tolerated) return lacks ? { ...event, note } : event;
    const failed = {
        ...event,
        ...(tolerated ? { tolerated_units: this.tolerated } : { reason }),
        ...(note && { note }),
      },
      noted = note?.missing ?? [];
    if (!noted.length && !tolerated && ![8, 648, 2568, 10_248, 40_968].includes(stamp.length))
      return failed;
    const [found, complete] = peel(this.words);
    const units = started > 0 && started >= finished + !this.zero ? started - finished : null;
    const all = complete && found.size >= (units ?? 0) && (found.size > 0 || !noted.length);
    const named = found.size ? [...found].map((y) => NAMES.get(y)).sort() : noted;
    return {
      ...failed,
      outstanding: named,
      outstanding_units: units,
      outstanding_named: found.size,
      outstanding_complete: all,
    };
  }
}
// The names of the traced units in the vectors: no inverse of the hash is needed.
const NAMES = new Map([5n, 6n, 7n, 8n].map((id) => [hash(id), hex(id)]));

// A tracker, and the requests that it sends.
function tracked(options) {
  const sent = [];
  const send = (_, entries) =>
    void sent.push(...entries.flatMap(({ MessageBody }) => JSON.parse(MessageBody).requests));
  return [new Tracker("queue", { send, ...options }), sent];
}

const vectors = JSON.parse(readFileSync(process.argv[2], "utf8"));
const CHECKS = {
  units: ({ parts, id }) => assert.equal(hex(unitId(...parts.map(bytesOf))), id),
  hashes: ({ id, hash: y }) => assert.equal(hex(hash(number(id))), y),
  stamps: ({ ids, kind, cells, length, words }) => {
    const sum = stampOf(ids.map(number), kind, cells);
    assert.deepEqual([8 * sum.length, sparse(sum)], [length, words]);
  },
  peeling: ({ length, words, ids, complete }) => {
    const residual = zeros(length).map((_, at) => number(words[at] ?? "0"));
    const [found, all] = peel(residual);
    assert.deepEqual([found, all], [new Set(ids.map(number).map(hash)), complete]);
  },
  // JSON.parse does not see repeated keys.
  messages: ({ body, accepted, rejected, strict_json: strict }) =>
    strict || assert.deepEqual(parse(body), [accepted, rejected]),
  transitions: ({ steps }) => {
    const chain = new Chain(vectors.limits);
    for (const { at, requests, outcomes, chain: state } of steps) {
      requests ? assert.deepEqual(chain.apply(at, requests), outcomes) : chain.sweep(at);
      const { status, started, finished, stamp } = chain;
      assert.deepEqual(
        {
          status,
          stamp: stamp.toString("base64"),
          started,
          finished,
          event: chain.event("t", steps[0].at),
        },
        state,
      );
    }
  },
  trackers: async ({ kind, tag, parts, children, tokens, requests }) => {
    const [tracker, sent] = tracked({ stamps: kind });
    const root = await tracker.start(tag, parts.length ? { parts: parts.map(bytesOf) } : {});
    const made = await tracker.step(root, (step) =>
      children.map((names) => step.child(...names.map(bytesOf))),
    );
    assert.deepEqual([root, ...made], tokens);
    assert.deepEqual(sent.map(kind === "plain" ? meaning : (one) => one), requests);
  },
  groups: async ({ tokens, children, ids: made, requests }) => {
    const [tracker, sent] = tracked();
    const starts = await tracker.step(tokens, (step) =>
      children.map((parts) => step.child(...parts.map(bytesOf)).unit),
    );
    assert.deepEqual(starts, made);
    assert.deepEqual(sent.map(meaning), requests.map(meaning));
  },
  notes: async ({ op, token, fields: { reason, ...note }, requests }) => {
    const [tracker, sent] = tracked();
    await (op === "fail" ? tracker.fail(token, reason, note) : tracker.note(token, note));
    assert.deepEqual(sent, requests);
  },
  parents: ({ create, invalid }) =>
    assert.equal(invalidField(create) ?? null, invalid, JSON.stringify(create)),
  ends: ({ requests, ...child }) => assert.deepEqual(endsOf(child), requests),
  token_texts: async ({ text, token }) => {
    const read = async () => tracked()[0].step(text, (step) => step.tokens[0]);
    if (!token) return assert.rejects(read, /token/);
    assert.deepEqual({ ...(await read()), mac: undefined }, { ...token, mac: undefined });
  },
  tokens: async ({ key, token }) => {
    assert.equal(macOf(key, token), token.mac);
    const step = (keys, given) => tracked({ keys })[0].step(given, (step) => step.child());
    // A lost key does not turn verification off.
    assert.throws(() => tracked({ keys: "" }), /16 bytes/);
    const child = await step(["a new key of mine", key], token);
    assert.equal(child.mac, macOf("a new key of mine", child));
    for (const forged of [
      { ...token, unit: hex(7n) },
      { ...token, mac: undefined },
    ])
      await assert.rejects(step(key, forged), /token mac/);
  },
};
for (const [section, check] of Object.entries(CHECKS)) {
  for (const vector of vectors[section]) await check(vector);
  console.log(section, vectors[section].length);
}
