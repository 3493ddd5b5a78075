// An order whose lines are steps, in the embedded AWS, which asks for no signature.
// Usage: xorack local start; eval "$(xorack local env)"; node examples/javascript_order.mjs order/17 harpoon rope
import { Tracker } from "../clients/javascript/index.js";

const [tag, ...lines] = process.argv.slice(2);
const { XORACK_QUEUE_URL, AWS_ENDPOINT_URL } = process.env;
const authorization = "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0";

async function send(QueueUrl, Entries) {
  const headers = { "Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "AmazonSQS.SendMessageBatch", authorization };
  const answer = await fetch(AWS_ENDPOINT_URL, { method: "POST", headers, body: JSON.stringify({ QueueUrl, Entries }) });
  if (!answer.ok) throw new Error(`SQS: ${answer.status}`);
  return answer.json();
}

const tracker = new Tracker(XORACK_QUEUE_URL, { send });
const root = await tracker.start(tag, { timeout: 60, detail: { lines: lines.length } });
const tokens = await tracker.step(root, (step) => lines.map((line) => step.child(line)));
for (const token of tokens) await tracker.step(token, () => console.log(tag, token.unit));
