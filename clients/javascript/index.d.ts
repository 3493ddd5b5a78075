/** A started unit and its chains, as JSON that travels with the work. */
export interface Token {
  v: 1;
  /** The unit's id: 16 hex digits. */
  unit: string;
  tags: string[];
  kind: "traced" | "plain";
  cells?: 64 | 256 | 1024;
  mac?: string;
}
/** A token, its JSON object, or its JSON text. */
export type AnyToken = Token | string | Uint8Array;
/** A part of a name: a text, a whole number up to 2^53, a bigint of 64 bits, or bytes. */
export type Part = string | number | bigint | boolean | Uint8Array;
/** A child's name, or a path: the name at each level, where a list is a name of several parts. */
export type Candidate = Part | (Part | Part[])[];
export type Status = "pending" | "open" | "acked" | "failed";

/** A finding about a chain. `missing` has the ids of units. */
export interface Note {
  text?: string;
  missing?: Iterable<string | bigint>;
  missing_count?: number | bigint;
}
/** An entry of SendMessageBatch. */
export interface Entry {
  Id?: string;
  MessageBody: string;
  MessageGroupId?: string;
  MessageDeduplicationId?: string;
  MessageAttributes?: Record<string, { DataType: string; StringValue: string }>;
}
export interface Failure {
  Id?: string;
  Code?: string;
  Message?: string;
  SenderFault?: boolean;
}
/** A request to the acker, as docs/protocol.md describes it. */
export interface Request {
  op: "create" | "stamp" | "fail" | "extend" | "note";
  tag: string;
  id: string;
}
/** Answers as SQS's SendMessageBatch. */
export type Send = (
  queueUrl: string,
  entries: Entry[],
) => Promise<{ Failed?: Failure[] } | undefined> | undefined;
/** Answers as DynamoDB's DescribeTable and GetItem. */
export type Read = (
  operation: "DescribeTable" | "GetItem",
  input: Record<string, unknown>,
) => Promise<unknown>;

/** The base class of all errors of this package; `code` is its name. */
export class XorAckError extends Error {
  readonly code: string;
}
/** An argument, a token or an event is invalid. `field` is its name in the protocol. */
export class ArgumentError extends XorAckError {
  readonly field: string;
  readonly expected: string;
}
/** The stored state, or the state of a step, does not allow the call. */
export class StateError extends XorAckError {}
/** A temporary failure of AWS: the same call may succeed later. */
export class UnavailableError extends XorAckError {}
/** The queue did not accept some messages. Repeat the call: the ids stay the same. */
export class SendError extends XorAckError {
  readonly queueUrl: string;
  /** The bodies that were not accepted. */
  readonly unsent: string[];
}
/** Every record of a batch failed: Lambda delivers all of them again. */
export class BatchError extends XorAckError {
  readonly errors: unknown[];
}

export interface Step {
  readonly tokens: Token[];
  readonly tags: string[];
  /** Start a child of the step's units. Without a name, its name is its number. */
  child(...names: Part[]): Token;
}

export interface TrackerOptions {
  /** A client of @aws-sdk/client-sqs. */
  client?: unknown;
  /** Sends messages instead of the SDK. */
  send?: Send;
  /** A key of at least 16 bytes, or a list of two; by default those of XORACK_TOKEN_KEY. */
  keys?: string | string[] | null;
  stamps?: "traced" | "plain";
  cells?: 16 | 64 | 256 | 1024;
  /** The group of all messages, or null; by default each tag up to its first slash. */
  group?: string | null | ((request: Request) => string | null);
  /** The acker's table, which `state` reads; by default that of XORACK_TABLE. */
  tableName?: string;
  /** Reads the table instead of the SDK. */
  read?: Read;
}
/** Times are in seconds. */
export interface StartOptions {
  /** The name of the root unit; by default the tag. */
  parts?: Part[];
  timeout?: number;
  idleTimeout?: number;
  toleratedUnits?: number | bigint;
  /** A JSON object of at most 4 KiB, which the chain's events return. */
  detail?: Record<string, unknown>;
  resume?: { step_functions: string } | { lambda: string };
  /** The unit of another chain that this chain is, or several: the tokens of `step.child`. */
  parent?: AnyToken | AnyToken[];
  /** Whether the parent's chains fail as soon as this chain does. */
  failParent?: boolean;
}
export class Tracker {
  /** The queue's URL is by default that of the environment variable XORACK_QUEUE_URL. */
  constructor(queueUrl?: string, options?: TrackerOptions);
  /** Start a chain, and return the token of its root unit. */
  start(tag: string, options?: StartOptions): Promise<Token>;
  /** Do the work of one unit or several. If `work` throws, nothing is sent. */
  step<Result>(
    tokens: AnyToken | AnyToken[],
    work?: (step: Step) => Result | Promise<Result>,
  ): Promise<Result>;
  /** Fail the chains of a token, for a reason that is cut off after 1,024 bytes. */
  fail(token: AnyToken, reason: string, note?: Note): Promise<void>;
  /** Add a finding to the chains of a token. */
  note(token: AnyToken, note: Note): Promise<void>;
  /** Move the deadline of a token's chains to this number of seconds from now. */
  extend(token: AnyToken, timeout: number): Promise<void>;
  /** Read the status of a chain; undefined if there is no such chain. */
  state(tag: string): Promise<Status | undefined>;
  /** Collect the requests within `work`, and send them at the end. */
  batch<Result>(work: () => Result | Promise<Result>): Promise<Result>;
}

export interface Reading {
  /** Also look for the token in JSON bodies, and in the events inside them. */
  bodies?: boolean;
  /** The prefix of the tags that a token may name. */
  tags?: string;
  /** Reject messages without a token. */
  required?: boolean;
}
export interface BatchResponse {
  batchItemFailures: { itemIdentifier: string | { partition: string; offset: number } }[];
}
export function tokenOf(tracker: Tracker, message: object, options?: Reading): Token | undefined;
/** Do the work of a message's unit; the step is undefined without a token. */
export function stepOf<Result>(
  tracker: Tracker,
  message: object,
  work: (step: Step | undefined) => Result | Promise<Result>,
  options?: Reading,
): Promise<Result>;
/** `skipEnded` skips a record if all its chains have ended. It reads the table. */
// biome-ignore lint/suspicious/noExplicitAny: a record's shape is that of its source
export function fanIn<Record = any>(
  tracker: Tracker,
  work: (record: Record, step: Step | undefined, context: unknown) => unknown,
  options?: Reading & { skipEnded?: boolean },
): (event: object, context?: unknown) => Promise<BatchResponse>;
export function fanOut(
  step: Step | undefined,
  messages: Iterable<[Part | Part[], unknown]>,
  queueUrl: string,
  options?: { send?: Send; client?: unknown; group?: string },
): Promise<number>;
/** The tag of the chain that an event starts, or undefined for s3:TestEvent. */
export function eventTag(event: object): string | undefined;
/** The ids of outstanding units, each with its candidate, or null. */
export function namesOf(
  outstanding: object | Iterable<string | bigint>,
  candidates: Iterable<Candidate>,
  ...root: Part[]
): Record<string, Candidate | null>;

export function parseToken(value: AnyToken): Token;
export function macOf(key: string, token: Token): string;
export function unitId(...parts: Part[]): bigint;
export function xxh64(bytes: Uint8Array, seed: bigint): bigint;
export function hex(id: bigint): string;
export function long(id: bigint): Uint8Array;
export function number(id: string): bigint;
