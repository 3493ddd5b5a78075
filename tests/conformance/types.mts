// What programs in TypeScript write, and what its compiler refuses: `tsc --noEmit` compiles it.
import {
  ArgumentError,
  eventTag,
  fanIn,
  fanOut,
  namesOf,
  type Status,
  type Step,
  stepOf,
  type Token,
  Tracker,
  tokenOf,
  unitId,
  XorAckError,
} from "xorack";

interface Message {
  body: string;
}

const tracker = new Tracker("https://sqs.eu-west-1.amazonaws.com/1/acker", {
  keys: ["a key of 16 bytes or more"],
  tableName: "chains",
});
const token: Token = await tracker.start("order/17", {
  parts: ["order", 17, 2n ** 62n],
  timeout: 3600,
  detail: { customer: "Ahab" },
  resume: { lambda: "YQ==" },
});
const children: Token[] = await tracker.step(token, (step: Step) => [step.child("harpoon")]);
await tracker.step(children);
await tracker.start("order/17/parcel", { parent: children, failParent: true });
await tracker.batch(async () => tracker.extend(token, 60));
await tracker.fail(token, "no file", { missing: [token.unit], missing_count: 1 });
const status: Status | undefined = await tracker.state("order/17");
export const handler = fanIn<Message>(
  tracker,
  async (record, step) => {
    await fanOut(step, [[["line", 1], record.body]], "https://sqs.eu-west-1.amazonaws.com/1/work");
  },
  { tags: "order/", skipEnded: true },
);
const answer = await handler({ Records: [] });
const failed: (string | { partition: string; offset: number })[] = answer.batchItemFailures.map(
  (one) => one.itemIdentifier,
);
const found: Token | undefined = tokenOf(tracker, { body: "{}" }, { bodies: true });
const length: number = await stepOf(tracker, { body: "{}" }, (step) => step?.tags.length ?? 0);
const names: Record<string, unknown> = namesOf({ outstanding: [] }, ["harpoon", ["a", ["b", 2]]]);
const id: bigint = unitId(eventTag({ Records: [] }) ?? "none");
export function reasonOf(error: unknown): string {
  if (error instanceof ArgumentError) return error.field;
  return error instanceof XorAckError ? error.code : "unknown";
}
export { failed, found, id, length, names, status };

// @ts-expect-error: a number is no tag
await tracker.start(17);
// @ts-expect-error: there is no such option
await tracker.start("order/17", { timeOut: 60 });
// @ts-expect-error: an error is no reason
await tracker.fail(token, new Error("no file"));
// @ts-expect-error: a name has no fractions of this type
await tracker.step(token, (step) => step.child({}));
// @ts-expect-error: the handler of a batch is a function
fanIn(tracker, "handler");
