// Times npm `ack`: node ack.js FOLDER_OF_ACK BYTES STAMPS; prints nanoseconds a stamp.

const crypto = require("node:crypto");
const Ack = require(process.argv[2]);
const bytes = Number(process.argv[3]);
const count = Number(process.argv[4]);
const kinds = 512;
const stamps = [];
for (let i = 0; i < kinds; i++) stamps.push(crypto.randomBytes(bytes));
const ack = new Ack();
ack.on("acked", () => {
  throw new Error("acked");
});
// The root's stamp is not among those below and is never removed: the chain stays open.
ack.add("chain", crypto.randomBytes(bytes));
const go = (n) => {
  for (let i = 0; i < n; i++) ack.stamp("chain", stamps[i % kinds]);
};
go(Math.min(count, 20000)); // until it is compiled
const before = process.hrtime.bigint();
go(count);
console.log(Number(process.hrtime.bigint() - before) / count);
