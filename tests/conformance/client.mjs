// A scenario for the client of Node: reads it from standard input, prints what was sent and answered.
// What it sends goes to the acker's queue, too, if the scenario names one.
import { readFileSync } from "node:fs";
import { request } from "node:http";
import { Tracker, fanIn, fanOut } from "../../clients/javascript/index.js";

const { calls, queue_url: acker = "acker" } = JSON.parse(readFileSync(0, "utf8"));
const done = { sent: [], tokens: {}, failures: [], messages: [] };
let refused = false;
const headers = {
  "Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "AmazonSQS.SendMessageBatch",
  Authorization: "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0",
};
const send = async (QueueUrl, Entries) => {
  if (refused) throw new Error("AccessDenied");
  if (QueueUrl === "work") return void done.messages.push(...Entries);
  done.sent.push(...Entries.map((entry) => entry.MessageBody));
  if (acker === "acker") return undefined;
  const body = JSON.stringify({ QueueUrl, Entries });
  const answer = await new Promise((resolve, reject) =>
    request(process.env.AWS_ENDPOINT_URL, { method: "POST", headers }, resolve).on("error", reject).end(body));
  return JSON.parse((await answer.toArray()).join(""));
};
const tracker = new Tracker(acker, { send });
const of = (names) => names.map((name) => done.tokens[name]);

const CALLS = {
  start: async ({ tag, options, as }) => void (done.tokens[as] = await tracker.start(tag, options)),
  step: ({ units, children, raises }) =>
    tracker.step(of(units), (step) => {
      for (const [name, parts] of Object.entries(children)) done.tokens[name] = step.child(...parts);
      if (raises) throw new Error("raises");
    }).catch((error) => { if (!raises) throw error; }),
  fan_in: async ({ event, raising, refused: now = false, bodies }) => {
    const handler = fanIn(tracker, (record, step) => {
      if (of(raising).some(({ unit }) => unit === step.tokens[0].unit)) throw new Error("a bad day");
    }, { bodies, required: true });
    refused = now;
    const answer = await handler(event).catch(() => null);
    refused = false;
    done.failures.push(answer ? answer.batchItemFailures.map((one) => one.itemIdentifier) : "raised");
  },
  fan_out: async ({ units, messages, as }) => {
    await tracker.step(of(units), (step) => fanOut(step, messages, "work"));
    as.forEach((name, n) => (done.tokens[name] = JSON.parse(done.messages.at(n - as.length).MessageAttributes.xorack.StringValue)));
  },
  fail: ({ unit, reason }) => tracker.fail(done.tokens[unit], reason),
  note: ({ unit, text }) => tracker.note(done.tokens[unit], { text }),
};
for (const one of calls) await CALLS[one.call](one);
done.messages = done.messages.map(({ MessageBody }) => MessageBody);
console.log(JSON.stringify(done));
