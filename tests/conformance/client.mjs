// The client of Node runs scenarios of standard input, and prints what each call has done.
// What a scenario sends goes to the acker's queue, too, if there is one.
import { readFileSync } from "node:fs";
import { request } from "node:http";
import * as xorack from "../../clients/javascript/index.js";

const { scenarios, queue_url: acker = "acker" } = JSON.parse(readFileSync(0, "utf8"));
const { fanIn, fanOut, Tracker } = xorack;
const headers = {
  "Content-Type": "application/x-amz-json-1.0",
  "X-Amz-Target": "AmazonSQS.SendMessageBatch",
  Authorization:
    "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/sqs/aws4_request, " +
    "SignedHeaders=host, Signature=0",
};

const camel = (name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
const named = (options) =>
  Object.fromEntries(Object.entries(options).map(([name, value]) => [camel(name), value]));

// Values that JSON has no form of.
const VALUES = {
  $integer: (text) => (Number.isSafeInteger(Number(text)) ? Number(text) : BigInt(text)),
  $float: Number,
  $bytes: (text) => Buffer.from(text, "base64"),
  $moment: (text) => new Date(text),
  $error: (text) => new Error(text),
  $absent: () => undefined,
  $repeated: ([text, times]) => text.repeat(times),
  $nested: (depth) =>
    Array(depth - 1)
      .fill()
      .reduce((inner) => ({ inner }), {}),
};
function decoded(value) {
  if (Array.isArray(value)) return value.map(decoded);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value);
  const [[kind, content] = []] = entries;
  if (entries.length === 1 && Object.hasOwn(VALUES, kind)) return VALUES[kind](content);
  return Object.fromEntries(entries.map(([name, one]) => [name, decoded(one)]));
}

const HANDLERS = {
  generator: (work) =>
    function* (...given) {
      yield work(...given);
    },
  async_generator: (work) =>
    async function* (...given) {
      yield work(...given);
    },
  returns_generator:
    (work) =>
    (...given) =>
      HANDLERS.generator(work)(...given),
  returns_async_generator:
    (work) =>
    (...given) =>
      HANDLERS.async_generator(work)(...given),
  coroutine:
    (work) =>
    async (...given) =>
      work(...given),
  text: () => "a text",
};

class Program {
  tokens = {};
  sent = [];
  groups = [];
  messages = [];
  answers = []; // of the queue to the next calls
  statuses = {};

  tracker({ options = {} }) {
    const send = (...given) => this.send(...given);
    const read = (...given) => this.read(...given);
    this.current = new Tracker(acker, { send, read, tableName: "chains", ...named(options) });
  }

  async send(QueueUrl, Entries) {
    const answer = this.answers.shift();
    if (answer?.raises) throw Object.assign(new Error("no"), answer.raises);
    if (answer) {
      const failed = Entries.filter((_, n) => answer.failed[n]);
      return { Failed: failed.map(({ Id }, n) => ({ Id, ...answer.failed[n] })) };
    }
    if (QueueUrl.startsWith("work")) return void this.messages.push(...Entries);
    this.sent.push(...Entries.map((entry) => entry.MessageBody));
    this.groups.push(...Entries.map((entry) => entry.MessageGroupId ?? null));
    if (acker === "acker") return undefined;
    const body = JSON.stringify({ QueueUrl, Entries });
    const response = await new Promise((resolve, reject) =>
      request(process.env.AWS_ENDPOINT_URL, { method: "POST", headers }, resolve)
        .on("error", reject)
        .end(body),
    );
    return JSON.parse((await response.toArray()).join(""));
  }

  async read(operation, { Key }) {
    if (operation === "DescribeTable")
      return { Table: { KeySchema: [{ AttributeName: "chain", KeyType: "HASH" }] } };
    const status = this.statuses[Key.chain.S];
    if (status?.raises) throw Object.assign(new Error("no"), status.raises);
    return status ? { Item: { chain: Key.chain, status: { S: status } } } : {};
  }

  of(names) {
    return names.map((one) => this.tokens[one?.token ?? one] ?? one);
  }

  async start({ tag, options, as }) {
    const given = named(options ?? {});
    if (given.parent)
      given.parent = Array.isArray(given.parent)
        ? this.of(given.parent)
        : this.of([given.parent])[0];
    this.tokens[as] = await this.current.start(tag, given);
  }

  step({ units, children = {}, count = 0, raises }) {
    return this.current
      .step(this.of(units), (step) => {
        for (const [name, parts] of Object.entries(children))
          this.tokens[name] = step.child(...parts);
        this.many = Array.from({ length: count }, () => step.child());
        if (raises) throw new Error("raises");
      })
      .then(
        () => undefined,
        (error) => {
          if (!raises) throw error;
        },
      );
  }

  // Finish the children of the last step with a count, by steps of so many units.
  async finish_all({ by }) {
    const many = this.many;
    for (let at = 0; at < many.length; at += by) await this.current.step(many.slice(at, at + by));
  }

  async fan_in({
    event,
    raising,
    bodies,
    required = true,
    skip_ended: skipEnded,
    handler = "plain",
  }) {
    const handled = [];
    const plain = (record, step) => {
      handled.push(record);
      if (this.of(raising).some(({ unit }) => unit === step?.tokens[0].unit))
        throw new Error("a bad day");
    };
    const work = HANDLERS[handler]?.(plain) ?? plain;
    const answer = await fanIn(this.current, work, { bodies, required, skipEnded })(event);
    this.handled = handled.length;
    return answer.batchItemFailures.map((one) => one.itemIdentifier);
  }

  async step_of({ message, bodies, required, child }) {
    return xorack.stepOf(this.current, message, (step) => step?.child(child).unit ?? null, {
      bodies,
      required,
    });
  }

  async fan_out({ units, messages, as = [], to = "work", group }) {
    await this.current.step(this.of(units), (step) => fanOut(step, messages, to, { group }));
    as.forEach((name, n) => {
      const { StringValue } = this.messages.at(n - as.length).MessageAttributes.xorack;
      this.tokens[name] = JSON.parse(StringValue);
    });
  }

  fail({ unit, reason }) {
    return this.current.fail(this.of([unit])[0], reason);
  }

  note({ unit, ...note }) {
    return this.current.note(this.of([unit])[0], note);
  }

  extend({ unit, timeout }) {
    return this.current.extend(this.of([unit])[0], timeout);
  }

  async state({ tag }) {
    return (await this.current.state(tag)) ?? null;
  }

  unit_id({ parts }) {
    return xorack.hex(xorack.unitId(...parts));
  }

  event_tag({ event }) {
    return xorack.eventTag(event);
  }

  names_of({ outstanding, candidates, root = [] }) {
    return xorack.namesOf(outstanding, candidates, ...root);
  }
}

// What a call returned, or the field of an invalid argument, or the name of any other error.
async function outcomeOf(program, { call, queue = [], statuses = {}, ...given }) {
  Object.assign(program, { answers: queue, statuses });
  try {
    return { answer: (await program[call](given)) ?? null };
  } catch (error) {
    if (!(error instanceof xorack.XorAckError)) throw error;
    return { error: error.field ?? error.name };
  }
}

const results = [];
for (const { calls, environ = {} } of scenarios) {
  const program = new Program();
  const logged = [];
  console.warn = (line) => logged.push(JSON.parse(line).message);
  program.tracker({});
  Object.assign(process.env, environ);
  const outcomes = [];
  for (const call of calls.map(decoded)) outcomes.push(await outcomeOf(program, call));
  const { sent, groups, tokens, messages, handled = null } = program;
  const entries = messages.map((one) => [
    one.MessageGroupId ?? null,
    one.MessageDeduplicationId ?? null,
  ]);
  results.push({ sent, groups, tokens, outcomes, messages, entries, logged, handled });
  for (const name of Object.keys(environ)) delete process.env[name];
}
console.log(JSON.stringify(results));
