"""Deterministic simulation: the real core, services and adapters over simulated AWS.

One seed is one schedule. Read in this order: `options` (sizes, probabilities, faults), `workload`
(the requests), `world` (machines, time, faults), `aws` (table, queue and bus with the guarantees of
AWS), `oracle` (the invariants), `services` (the calls into xorack), `schedule` (the machines),
`mutants` (broken code that the simulation must catch). docs/simulation.md says more.
"""
