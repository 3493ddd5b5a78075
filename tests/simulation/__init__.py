"""The harness for exactly once: one plan, one judge, one list of faults, two ways to run them.

Theory of operation. `workload` plans chains: the requests of correct senders, and mistakes of
senders, each a function of the seed. What takes effect leaves a mark in the table. So `model` is
the set of the requests whose marks are there, and `invariants` follow from that set. `oracle` reads
the table, the events, the dead letters and the deleted messages, and checks the invariants at each
of them. `options` lists the kinds of faults. Two runners use all of it:

- the schedules of this package: the real core, services and adapters over simulated AWS. One seed
  is one schedule, and the oracle sees every write. Read in this order: `options`, `workload`,
  `world` (machines, time, faults), `table` and `aws` (table, queues and bus with the guarantees of
  AWS), `model`, `oracle`, `invariants`, `services` (the calls into xorack), `senders`, `schedule`
  and `operator` (the machines);
- `tests.engines`: processes that are killed, over other implementations of DynamoDB and a proxy
  that injects the faults. The oracle sees what is left at the end. tests/e2e has the same proxy.

`mutants` is broken code that both must catch. `measure` judges a deployed stack by its own plan: a
load of a million chains is not kept in memory, and nobody sees its marks. docs/simulation.md says
more.
"""
