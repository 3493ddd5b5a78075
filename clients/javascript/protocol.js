// The protocol's pure part: ids of units, stamps, tokens, and the checks of arguments.
// docs/protocol.md describes it, and docs/vectors.json has examples.
import { createHash, createHmac } from "node:crypto";

// Errors

/** The base class of all errors of this package. */
export class XorAckError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = this.constructor.name;
  }

  get code() {
    return this.name;
  }
}

/** An argument, a token or an event is invalid. `field` is its name in the protocol. */
export class ArgumentError extends XorAckError {
  constructor(field, value, expected, { argument = field, problem } = {}) {
    super(`${argument}: ${problem ?? `${shown(value)}, expected ${expected}`}`);
    Object.assign(this, { field, expected: expected ?? "" });
  }
}

/** The stored state, or the state of a step, does not allow the call. */
export class StateError extends XorAckError {}

/** A temporary failure of AWS: the same call may succeed later. `cause` is the SDK's error. */
export class UnavailableError extends XorAckError {}

/** The queue did not accept some messages. Repeat the call: the ids stay the same. */
export class SendError extends XorAckError {
  constructor(reason, { queueUrl = "", unsent = [], ...options } = {}) {
    super(reason, options);
    Object.assign(this, { queueUrl, unsent });
  }
}

/** Every record of a batch failed: Lambda delivers all of them again. */
export class BatchError extends XorAckError {
  constructor(errors) {
    const message = errors[0]?.message ?? String(errors[0]);
    super(`all ${errors.length} records of the batch failed; the first: ${message}`, {
      cause: errors[0],
    });
    this.errors = errors;
  }
}

const MAX_SHOWN = 80;

// Objects may contain secrets or customers' data, so a message has only their size.
function shown(value) {
  if (Array.isArray(value)) return `a list of ${value.length}`;
  if (typeof value === "function") return `a function ${value.name}`.trim();
  if (typeof value === "object" && value !== null) {
    const kind = value.constructor?.name ?? "Object";
    return kind === "Object" ? `an object of ${Object.keys(value).length}` : `a value of ${kind}`;
  }
  const text =
    typeof value === "string" ? JSON.stringify(value.slice(0, MAX_SHOWN + 1)) : String(value);
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}...` : text;
}

export function check(valid, field, value, expected, options) {
  if (!valid) throw new ArgumentError(field, value, expected, options);
}

/** Refuse unknown options, because a misspelt option would be ignored. */
export function checkOptions(options, known) {
  check(isObject(options), "options", options, `an object of ${known.join(", ")}`);
  for (const name of Object.keys(options))
    check(known.includes(name), name, options[name], "", {
      problem: `unknown option: use ${known.join(", ")}`,
    });
}

// Hashes and ids

const MASK = (1n << 64n) - 1n;
const P1 = 0x9e3779b185ebca87n;
const P2 = 0xc2b2ae3d27d4eb4fn;
const P3 = 0x165667b19e3779f9n;
const P4 = 0x85ebca77c2b2ae63n;
const P5 = 0x27d4eb2f165667c5n;
const SEED = 42n; // of Spark SQL's xxhash64

const rotated = (x, bits) => ((x << bits) | (x >> (64n - bits))) & MASK;
const round = (sum, lane) => (rotated((sum + lane * P2) & MASK, 31n) * P1) & MASK;

/** Return XXH64 of bytes, with a seed. */
export function xxh64(data, seed) {
  const bytes = Buffer.isBuffer(data) ? data : Buffer.from(data);
  let at = 0;
  let h = (seed + P5) & MASK;
  if (bytes.length >= 32) {
    let sums = [seed + P1 + P2, seed + P2, seed, seed - P1].map((x) => x & MASK);
    for (; at + 32 <= bytes.length; at += 32) {
      const start = at;
      sums = sums.map((sum, n) => round(sum, bytes.readBigUInt64LE(start + 8 * n)));
    }
    h = [1n, 7n, 12n, 18n].reduce((sum, bits, n) => sum + rotated(sums[n], bits), 0n) & MASK;
    for (const sum of sums) h = ((h ^ round(0n, sum)) * P1 + P4) & MASK;
  }
  h = (h + BigInt(bytes.length)) & MASK;
  for (; at + 8 <= bytes.length; at += 8)
    h = (rotated(h ^ round(0n, bytes.readBigUInt64LE(at)), 27n) * P1 + P4) & MASK;
  for (; at + 4 <= bytes.length; at += 4)
    h = (rotated(h ^ ((BigInt(bytes.readUInt32LE(at)) * P1) & MASK), 23n) * P2 + P3) & MASK;
  for (; at < bytes.length; at += 1)
    h = (rotated(h ^ ((BigInt(bytes[at]) * P5) & MASK), 11n) * P1) & MASK;
  h = ((h ^ (h >> 33n)) * P2) & MASK;
  h = ((h ^ (h >> 29n)) * P3) & MASK;
  return h ^ (h >> 32n);
}

/** Return the 8 little-endian bytes of an integer. */
export function long(x) {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt.asUintN(64, x));
  return bytes;
}
/** Convert an id to 16 hex digits, and back. */
export const hex = (id) => id.toString(16).padStart(16, "0");
export const number = (text) => BigInt(`0x${text}`);

const MIN_LONG = -(1n << 63n);
const MAX_LONG = (1n << 63n) - 1n;

// JavaScript rounds numbers above 2^53, so they are refused.
function bytesOf(part) {
  if (typeof part === "string") {
    check(part.isWellFormed(), "part", part, "a string without lone surrogates");
    return Buffer.from(part);
  }
  if (part instanceof Uint8Array) return Buffer.from(part);
  if (typeof part === "boolean") return long(part ? 1n : 0n);
  const isInteger = typeof part === "bigint" || Number.isSafeInteger(part);
  const expected = "a string, a Uint8Array, a whole number up to 2^53, or a bigint of 64 bits";
  check(isInteger, "part", part, expected);
  const integer = BigInt(part);
  check(integer >= MIN_LONG && integer <= MAX_LONG, "part", part, expected);
  return long(integer);
}

/** Return the id of the unit that these parts name. */
export function unitId(...parts) {
  check(parts.length, "parts", parts, "at least one part of a name");
  return parts.reduce((seed, part) => xxh64(bytesOf(part), seed), SEED) || 1n;
}

/** Return the id of a child: `unitId` of its parent's id, signed, and its name. */
export const childId = (parent, ...parts) => unitId(BigInt.asIntN(64, parent), ...parts);

// Stamps

/** Return the XOR of the stamps of units, with this number of cells; 0 cells mean plain stamps. */
export function sumOf(ids, cells) {
  const words = new BigUint64Array(cells ? 1 + 5 * cells : 1);
  const bits = BigInt(cells ? Math.log2(cells) : 0);
  const places = BigInt(cells - 1);
  for (const id of ids) {
    const value = cells ? xxh64(long(id), SEED) : id;
    words[0] ^= value;
    for (let table = 0; cells && table < 5; table += 1)
      words[1 + cells * table + Number((value >> (BigInt(table) * bits)) & places)] ^= value;
  }
  const bytes = Buffer.alloc(8 * words.length);
  words.forEach((word, at) => {
    bytes.writeBigUInt64LE(word, 8 * at);
  });
  return bytes;
}

const UNIT_OF_ZERO = 0xfaec1e2ac606499cn; // its hash is 0, so it has no traced stamp

export function checkUnit(id, cells, field = "unit") {
  const expected = "an id other than faec1e2ac606499c, which hashes to 0";
  check(!cells || id !== UNIT_OF_ZERO, field, hex(id), expected);
  return id;
}

// Checks of fields, as the acker makes them

export const MAX_TAG_BYTES = 1024;
const MAX_TEXT_BYTES = 1024;
const MAX_DETAIL_BYTES = 4096;
const MAX_DETAIL_DEPTH = 64;
const MAX_SECONDS = 10 * 366 * 86_400;
const MAX_MISSING = 100;
const MAX_PARENTS = 100;
const SIZES = [16, 64, 256, 1024];
const RESUME = {
  step_functions: [2048, /^[\0-\x7f]+$/, "ASCII characters"],
  lambda: [1024, /^[A-Za-z0-9+/]+={0,2}$/, "characters of a callback id, base64"],
};

export const isObject = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const isPlain = (value) =>
  isObject(value) && [Object.prototype, null].includes(Object.getPrototypeOf(value));

export function checkTag(tag, field = "tag") {
  const isText = typeof tag === "string" && tag.isWellFormed() && !tag.includes("\0");
  const valid = isText && tag && Buffer.byteLength(tag) <= MAX_TAG_BYTES;
  check(valid, field, tag, `a string of 1 to ${MAX_TAG_BYTES} UTF-8 bytes without NUL`);
  return tag;
}

export function checkCells(cells, field = "cells") {
  check(SIZES.includes(cells), field, cells, SIZES.join(", "));
  return cells;
}

export function checkSeconds(value, field, argument = field) {
  const valid = typeof value === "number" && value > 0 && value <= MAX_SECONDS;
  check(valid, field, value, `seconds, above 0 and up to ${MAX_SECONDS}`, { argument });
  return value;
}

export function checkCount(value, field, argument = field) {
  const isInteger = typeof value === "bigint" || Number.isSafeInteger(value);
  const valid = isInteger && value >= 0 && value <= MAX_LONG;
  check(valid, field, value, `a whole number from 0 to ${MAX_LONG}`, { argument });
  return value;
}

/** Check that a stamp names all tolerated units: at most one for each cell, and none if plain. */
export function checkTolerated(value, cells) {
  const [field, argument] = ["tolerated_units", "toleratedUnits"];
  checkCount(value, field, argument);
  const expected = cells
    ? `at most the number of cells, ${cells}`
    : "0: plain stamps name no units";
  check(value <= cells, field, value, expected, { argument });
  return value;
}

// JSON.stringify prints numbers from 2^53 to 10^21 as integers, which rounding may have changed.
function isJson(value, depth) {
  if (typeof value === "string") return value.isWellFormed();
  if (typeof value === "boolean" || value === null) return true;
  if (typeof value === "bigint") return value >= MIN_LONG && value <= MASK;
  if (typeof value === "number")
    return Number.isFinite(value) && (Number.isSafeInteger(value) || !/^-?\d+$/.test(value));
  if (depth > MAX_DETAIL_DEPTH || !(Array.isArray(value) || isPlain(value))) return false;
  const isAbsent = (one) => one === undefined && !Array.isArray(value);
  return Object.entries(value).every(
    ([key, one]) => key.isWellFormed() && (isAbsent(one) || isJson(one, depth + 1)),
  );
}

/** Return JSON text, in which a bigint is an integer; or undefined if a number is not finite. */
export function toJson(value) {
  let allFinite = true;
  const text = JSON.stringify(value, (_, one) => {
    allFinite &&= typeof one !== "number" || Number.isFinite(one);
    return typeof one === "bigint" ? JSON.rawJSON(String(one)) : one;
  });
  return allFinite ? text : undefined;
}

export function checkDetail(detail) {
  const expected =
    `a JSON object of at most ${MAX_DETAIL_BYTES} bytes, ${MAX_DETAIL_DEPTH} deep, of strings ` +
    "without lone surrogates, numbers up to 2^53, bigints of 64 bits, booleans, lists and objects";
  check(isPlain(detail) && isJson(detail, 1), "detail", detail, expected);
  const size = Buffer.byteLength(toJson(detail));
  check(size <= MAX_DETAIL_BYTES, "detail", `${size} bytes`, expected);
  return detail;
}

// The value is a secret, so no message shows it.
export function checkResume(resume) {
  const kinds = isObject(resume) ? Object.keys(resume) : [];
  check(kinds.length === 1 && Object.hasOwn(RESUME, kinds[0]), "resume", null, "", {
    problem: 'expected an object with "step_functions" (a task token) or "lambda" (a callback id)',
  });
  const [[kind, token]] = Object.entries(resume);
  const [most, form, characters] = RESUME[kind];
  const valid = typeof token === "string" && token.length <= most && form.test(token);
  check(valid, `resume.${kind}`, null, "", { problem: `expected 1 to ${most} ${characters}` });
  return resume;
}

/** Return the text of the first bytes, without a partial character at their end. */
export function truncated(bytes, most) {
  let end = Math.min(bytes.length, most);
  while (end < bytes.length && (bytes[end] & 0xc0) === 0x80) end -= 1;
  return bytes.toString("utf8", 0, end);
}

/** Return the units of other chains that a chain with this tag is, from their tokens. */
export function parentsOf(tokens, tag) {
  check(tokens.length, "parents", tokens, "a token, or several", { argument: "parent" });
  const own = tokens.some(({ tags }) => tags.includes(tag));
  check(!own, "parents", tag, "other chains: a chain cannot be its own parent", {
    argument: "parent",
  });
  const all = tokens.flatMap(({ tags }) => tags);
  const isFew = all.length <= MAX_PARENTS && new Set(all).size === all.length;
  const size = all.reduce((sum, one) => sum + Buffer.byteLength(one), 0);
  const expected = `at most ${MAX_PARENTS} different chains, whose tags have at most 4,096 bytes`;
  check(isFew && size <= MAX_DETAIL_BYTES, "parents", all, expected, { argument: "parent" });
  for (const token of tokens) checkUnit(number(token.unit), cellsOf(token), "parents.unit");
  return tokens.map(({ unit, tags, kind, cells }) => ({
    unit,
    tags: [...tags].sort(),
    kind,
    ...(cells && { cells }),
  }));
}

/** Return a reason or a text without NUL and lone surrogates, cut off as the protocol requires. */
export function cleanText(value, field) {
  check(typeof value === "string", field, value, "a string");
  const escaped = value
    .replaceAll("\0", "")
    .replace(/\p{Surrogate}/gu, (one) => `\\u${one.charCodeAt(0).toString(16)}`);
  return truncated(Buffer.from(escaped), MAX_TEXT_BYTES);
}

/** Check a set of units' ids, 16 hex digits or bigints: at most 100, without repetition. */
export function checkMissing(ids) {
  const isList = typeof ids?.[Symbol.iterator] === "function" && typeof ids !== "string";
  check(isList, "missing", ids, "a list of ids");
  const texts = Array.from(ids, (id) => {
    const text = typeof id === "bigint" ? hex(BigInt.asUintN(64, id)) : id;
    check(isUnit(text), "missing", id, "ids, each 16 hex digits, not all zero");
    return text.toLowerCase();
  });
  const valid = texts.length <= MAX_MISSING && new Set(texts).size === texts.length;
  check(valid, "missing", texts, `at most ${MAX_MISSING} ids, each once`);
  return texts.sort();
}

/** Return the id of a fail or a note about a unit, which follows from the request's content. */
export function noteId(op, unit, { missing, ...content }) {
  const fields = { ...content, ...(missing && { missing: missing.join(" ") }) };
  const named = ["reason", "text", "missing", "missing_count"].filter((name) => name in fields);
  const parts = named.flatMap((name) => [name, fields[name]]);
  return `${op}-${unit}-${hex(unitId(op, ...parts))}`;
}

// Tokens

const MAX_TAGS = 16;
const isUnit = (id) => typeof id === "string" && /^(?!0{16})[0-9a-f]{16}$/i.test(id);

// The limit is the same in each language, whatever its parser accepts.
const MAX_JSON_DEPTH = 128;

function isTooDeep(text) {
  let depth = 0;
  const outsideOfStrings = text.replace(/"[^"\\]*(?:\\.[^"\\]*)*"?/gs, "");
  for (const [bracket] of outsideOfStrings.matchAll(/[[\]{}]/g)) {
    depth += bracket === "[" || bracket === "{" ? 1 : -1;
    if (depth > MAX_JSON_DEPTH) return true;
  }
  return false;
}

/** Return the value of JSON text or of its UTF-8 bytes, or undefined if it is not JSON. */
export function readJson(value) {
  try {
    const isText = typeof value === "string";
    const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
    const text = isText ? value : decoder.decode(value);
    return isTooDeep(text) ? undefined : JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Read a token from its JSON object or its text. The MAC is not verified. */
export function parseToken(value) {
  let token = value;
  if (typeof value === "string" || value instanceof Uint8Array) {
    token = readJson(value);
    check(token !== undefined, "token text", String(value), "the JSON text of a token");
  }

  check(isObject(token), "token value", token, "a token, its JSON object or its JSON text");
  const { v, unit, tags, kind, cells, mac } = token;
  check(v === 1, "token v", v, "1, as another version of xorack made this token");
  check(kind === "traced" || kind === "plain", "token kind", kind, "traced or plain");
  check(isUnit(unit), "token unit", unit, "16 hex digits, not all zero");
  const isList = Array.isArray(tags) && tags.length >= 1 && tags.length <= MAX_TAGS;
  check(isList, "token tags", tags, `a list of 1 to ${MAX_TAGS} tags`);
  for (const tag of tags) checkTag(tag, "token tags");
  check(new Set(tags).size === tags.length, "token tags", tags, "each tag once");
  check(
    kind === "traced" || cells === undefined,
    "token cells",
    cells,
    "no cells for plain stamps",
  );
  if (cells !== undefined) checkCells(cells, "token cells");
  const isMac = typeof mac === "string" && /^[0-9a-f]{32}$/.test(mac);
  check(isMac || mac === undefined || mac === null, "token mac", mac, "32 lower-case hex digits");
  const size = cells && cells !== 16 ? { cells } : {};
  return { v, unit: unit.toLowerCase(), tags: [...tags], kind, ...size, ...(mac && { mac }) };
}

/** Return the cells of a token's stamps, 0 for plain stamps. */
export const cellsOf = ({ kind, cells = 16 }) => (kind === "plain" ? 0 : cells);

function canonicalOf(token) {
  const head = ["xorack-token", "1", token.unit.toLowerCase(), cellsOf(token)];
  return [...head, ...token.tags].join("\0");
}

/** Return the MAC of a token: 16 bytes of HMAC-SHA256 over its canonical form. */
export const macOf = (key, token) =>
  createHmac("sha256", key).update(canonicalOf(token)).digest("hex").slice(0, 32);

/** Return the first hex digits of the SHA-256 of text or bytes. */
export const digestOf = (data, digits) =>
  createHash("sha256").update(data).digest("hex").slice(0, digits);

/** Return the id by which a FIFO queue recognises a repeated message with this token. */
export const deduplicationId = (token) => digestOf(canonicalOf(token), 32);

/** Return the id of a step: that of its only unit, or an id of all units and their chains. */
export function groupOf(tokens) {
  if (tokens.length === 1) return number(tokens[0].unit);
  const names = tokens.flatMap(({ unit, tags }) =>
    tags.map((tag) => Buffer.from(`${unit} ${tag}`)),
  );
  return unitId(names.sort(Buffer.compare).join("\0"));
}

// Names of outstanding units

// Many callers pass an entire event instead of its detail.
const detailOf = (event) =>
  isObject(event) && "detail-type" in event && isObject(event.detail) ? event.detail : event;

/**
 * Return the names of outstanding units: an object of ids, each with its candidate, or null. A
 * candidate is a part of a name, or a path: the name at each level below the root, where a list is
 * a name of several parts.
 */
export function namesOf(event, candidates, ...root) {
  const outstanding = detailOf(event);
  const isEvent = isObject(outstanding) && !(Symbol.iterator in outstanding);
  const ids = isEvent ? (outstanding.outstanding ?? []) : outstanding;
  const parts = isEvent && !root.length ? [outstanding.tag ?? ""] : root;
  check(parts.length, "root", parts, "the parts of the root unit, such as the chain's tag");
  const isList = (value) => typeof value === "object" && value !== null && Symbol.iterator in value;
  check(isList(ids), "outstanding", ids, "the detail of an event, or ids");
  check(isList(candidates), "candidates", candidates, "several names, such as a list");
  const units = Array.from(ids, (id) => {
    const unit = typeof id === "bigint" ? hex(BigInt.asUintN(64, id)) : id;
    check(isUnit(unit), "outstanding", id, "a unit's id: 16 hex digits, or a bigint");
    return unit.toLowerCase();
  });
  const names = new Map(units.map((unit) => [unit, null]));
  let left = names.size;
  const explain = (id, name) => {
    if (names.get(hex(id)) !== null) return;
    names.set(hex(id), name);
    left -= 1;
  };
  const start = unitId(...parts);
  explain(start, parts.length === 1 ? parts[0] : parts);
  for (const candidate of left ? candidates : []) {
    const path = Array.isArray(candidate) ? candidate : [candidate];
    path.reduce((parent, name, level) => {
      const id = childId(parent, ...(Array.isArray(name) ? name : [name]));
      explain(id, level + 1 === path.length ? candidate : path.slice(0, level + 1));
      return id;
    }, start);
    if (!left) break;
  }
  return Object.fromEntries(names);
}
