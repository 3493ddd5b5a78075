// An order whose lines are steps, in the embedded AWS, which asks for no signature.
// Usage: xorack local start; eval "$(xorack local env)"
//        node examples/javascript_order.mjs order/17 harpoon rope
import { request } from "node:http";
import { Tracker } from "../clients/javascript/index.js";

const [tag, ...lines] = process.argv.slice(2);
const { XORACK_QUEUE_URL, AWS_ENDPOINT_URL } = process.env;
const headers = {
  "Content-Type": "application/x-amz-json-1.0",
  "X-Amz-Target": "AmazonSQS.SendMessageBatch",
  Authorization:
    "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/sqs/aws4_request, " +
    "SignedHeaders=host, Signature=0",
};
const send = (QueueUrl, Entries) =>
  new Promise((resolve, reject) => {
    const sent = request(AWS_ENDPOINT_URL, { method: "POST", headers }, async (answer) => {
      const body = (await answer.toArray()).join("");
      answer.statusCode === 200
        ? resolve(JSON.parse(body))
        : reject(new Error(`SQS: ${answer.statusCode} ${body}`));
    });
    sent.on("error", reject).end(JSON.stringify({ QueueUrl, Entries }));
  });

const tracker = new Tracker(XORACK_QUEUE_URL, { send });
const root = await tracker.start(tag, { timeout: 60, detail: { lines: lines.length } });
const tokens = await tracker.step(root, (step) => lines.map((line) => step.child(line)));
for (const token of tokens) await tracker.step(token, () => console.log(tag, token.unit));
