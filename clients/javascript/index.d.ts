/** A started unit and its chains, as JSON that travels with the work. */
export interface Token {
  v: 1;
  unit: string;
  tags: string[];
  kind: "traced" | "plain";
  cells?: 64 | 256 | 1024;
  mac?: string;
}
export type AnyToken = Token | string | Buffer;
/** A part of a name: text, an integer of 64 bits, or bytes. */
export type Part = string | number | bigint | Buffer;
export interface Note { text?: string; missing?: string[]; missing_count?: number }
export interface Entry { Id?: string; MessageBody: string; MessageGroupId?: string; MessageAttributes?: object }
/** Answers as SQS's SendMessageBatch. */
export type Send = (queueUrl: string, entries: Entry[]) => Promise<{ Failed?: object[] } | void> | void;

export class ArgumentError extends Error {}
export class SendError extends Error {}

export interface Step {
  readonly tokens: Token[];
  readonly tags: string[];
  child(...names: Part[]): Token;
}

export class Tracker {
  constructor(queueUrl: string, options?: { client?: unknown; send?: Send; keys?: string; stamps?: "traced" | "plain"; cells?: 16 | 64 | 256 | 1024 });
  /** Times are in seconds. */
  start(tag: string, options?: { parts?: Part[]; timeout?: number; idleTimeout?: number; toleratedUnits?: number; detail?: object; resume?: object }): Promise<Token>;
  step<Result>(tokens: AnyToken | AnyToken[], work?: (step: Step) => Result | Promise<Result>): Promise<Result>;
  fail(token: AnyToken, reason: string, note?: Note): Promise<void>;
  note(token: AnyToken, found: Note): Promise<void>;
  batch<Result>(work: () => Result | Promise<Result>): Promise<Result>;
}

export interface Reading { bodies?: boolean; tags?: string; required?: boolean }
export function tokenOf(tracker: Tracker, record: object, options?: Reading): Token | undefined;
export function fanIn<Record = any>(
  tracker: Tracker,
  work: (record: Record, step: Step | undefined, context: unknown) => unknown,
  options?: Reading,
): (event: object, context?: unknown) => Promise<{ batchItemFailures: { itemIdentifier: string | { partition: string; offset: number } }[] }>;
export function fanOut(
  step: Step | undefined, messages: Iterable<[Part | Part[], unknown]>, queueUrl: string,
  options?: { send?: Send; client?: unknown; group?: string },
): Promise<number>;

export function parseToken(value: AnyToken): Token;
export function macOf(key: string, token: Token): string;
export function unitId(...parts: Part[]): bigint;
export function xxh64(bytes: Buffer, seed: bigint): bigint;
export function hex(id: bigint): string;
export function long(id: bigint): Buffer;
export function number(id: string): bigint;
