"""The simulation: the real core, services and adapters over simulated AWS.

Theory of operation. `workload` plans chains: the requests of correct senders, and mistakes of
senders, each a function of the seed. What takes effect leaves a mark in the table. So `model` is
the set of the requests whose marks are in the table, and `invariants` follow from that set.
`oracle` sees every write, event, dead letter and deleted message, and checks the invariants at each
of them. A seed determines its schedule. Read in this order: `options`, `workload`, `world`
(machines, time, faults), `table` and `aws` (table, queues and bus with the guarantees of AWS),
`model`, `oracle`, `invariants`, `services` (the calls into xorack), `senders`, `schedule` and
`operator` (the machines). docs/simulation.md says more.

On a deployed stack and on the embedded AWS (tests/e2e), a seed cannot decide the order. There,
`xorack doctor` sends a planned workload, and verifies the chains that it leaves. tests/engines lets
consumers compete over DynamoDB Local. `xorack.ops.doctor.verify.check_event` judges the events of
simulation and doctor, `tests.support.fault_kinds` lists all faults, and `mutants` breaks the code.
"""
