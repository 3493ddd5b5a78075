"""Deterministic simulation: the real core, services and adapters over simulated AWS.

One seed is one schedule. Read in this order: `options` (sizes, probabilities, faults), `workload`
(the requests), `world` (machines, time, faults), `table` and `aws` (table, queues and bus with the
guarantees of AWS), `model`, `oracle` and `invariants` (what must hold), `services` (the calls into
xorack), `senders`, `schedule` and `operator` (the machines), `mutants` (broken code that the
simulation must catch). docs/simulation.md says more.
"""
