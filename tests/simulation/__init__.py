"""Deterministic simulation: the real core, services and adapters over simulated AWS.

One seed is one schedule. Read in this order: `plan` (what is asked of the acker), `world`
(machines, time, faults), `aws` (table, queues, bus as AWS promises them), `oracle` (what must
hold), `schedule` (the machines put together), `mutants` (broken code that must be caught).
``python -m tests.simulation SEED`` replays one schedule; docs/simulation.md says more.
"""
