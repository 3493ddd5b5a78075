"""Families of chains: chains that are units of others, on three levels or many of one parent.

When a chain ends, the acker sends a finish to its parents. No sender sends that finish, so the
oracle expects it at the end of the chain. Some families are a cycle, which ends by deadlines. Other
families use all or a few of their tags again.
"""

from dataclasses import replace
from random import Random

from tests.simulation.options import DAY_SECONDS, Options, pick
from tests.simulation.workload import ChainWorkload, Submission
from xorack.core.chain import Parent
from xorack.core.request import Request

_BLOCK = 6
"""Of so many consecutive chains, the first four may be a family."""
_PARENTS = {0: (), 1: (0,), 2: (0, 1), 3: (1,)}
"""A grandparent, its child, a child of both, and a grandchild: the chains of which each is a unit.
In a cycle the grandparent is a unit of the grandchild."""
_WIDE = 10
"""Schedules of so many chains may have one parent of all others, which has spilled marks."""


def parents_of(seed: int, number: int, options: Options) -> tuple[int, dict[int, tuple[int, ...]]]:
    """Return the first number of a chain's family, and the parents of each member, if it has one.

    Members are counted from the first one on.
    """
    first = options.spilling_chains
    if options.months or number < first:
        return 0, {}
    if options.chains >= _WIDE and Random(f"{seed}/wide family").random() < options.family:
        return first, {0: (), **dict.fromkeys(range(1, options.chains - first), (0,))}
    if options.spilling_chains:
        return 0, {}
    first = number - number % _BLOCK
    rare = Random(f"{seed}/family/{first}").random() < options.family
    if not rare or first + len(_PARENTS) > options.chains or number - first >= len(_PARENTS):
        return 0, {}
    is_cycle = Random(f"{seed}/cycle/{first}").random() < options.cycle
    return first, {**_PARENTS, 0: (3,) if is_cycle else ()}


class _Member:
    """A chain of a family."""

    def __init__(self, seed: int, number: int, options: Options) -> None:
        self.first, self.parents = parents_of(seed, number, options)
        shared = Random(f"{seed}/family/{self.first}/all")
        self.cells = shared.choice((0, 16))
        self.units = [shared.getrandbits(64) | 1 for _ in self.parents]
        self.is_reused = options.rounds > 1 and shared.random() < options.reused_tag
        self.all_reused = shared.random() < 0.5
        self.number = number - self.first
        self.tags = [f"chain-{self.first + n}" for n in range(len(self.units))]
        self.options, self.random = options, Random(f"{seed}/family/{number}")
        self.own = self.random.getrandbits(64) | 1

    def create(self) -> Submission:
        random, options, above = self.random, self.options, self.parents[self.number]
        mine = [n for n, parents in self.parents.items() if self.number in parents]
        starts = [self.own, *(self.units[child] for child in mine)]
        fields: dict = {"timeout": pick(random, options.timeouts)}
        if fields["timeout"] == "short":
            fields["timeout"] = random.uniform(0.5, 1.5) * options.span / 1000
        if self.parents[0]:
            fields["timeout"] = fields["timeout"] or DAY_SECONDS
        if above:
            tags = tuple(self.tags[parent] for parent in above)
            fields["parents"] = [Parent(self.units[self.number], tags, self.cells)]
            # One of many children that fails would end most wide families.
            fields["fail_parent"] = random.random() < 0.3 / len(self.parents) * 4
        if self.cells and random.random() < options.tolerance:
            fields["tolerated_units"] = random.choice((1, 1, 2))
        tag = self.tags[self.number]
        request = Request.create(tag, "create", starts=starts, cells=self.cells, **fields)
        return Submission(tag, "create", request, frozenset(starts))

    def submissions(self) -> list[Submission]:
        random, options, tag = self.random, self.options, self.tags[self.number]
        made = [self.create()]
        if random.random() >= options.missing_work / max(1, len(self.parents) / 8):
            work = Request.stamp_(tag, "work", finishes=[self.own], cells=self.cells)
            made.append(Submission(tag, "work", work, frozenset([self.own])))
        if random.random() < options.fail / max(1, len(self.parents) / 8):
            made.append(Submission(tag, "fail", Request.fail(tag, "fail", "it broke")))
        for one in made:
            one.after = int(random.random() * options.span)
            if random.random() < 0.2:
                one.copies = (int(random.random() * options.span),)
        return made

    def all_runs(self) -> list[Submission]:
        """Return the submissions, also those of the runs that use the tag again."""
        first = self.submissions()
        every = list(first)
        if self.is_reused and (self.all_reused or self.random.random() < 0.5):
            for run in range(1, self.options.rounds):
                same = self.random.random() < self.options.same_ids
                every += [_repeated(one, run, same) for one in first]
        return every


def _repeated(one: Submission, run: int, same_id: bool) -> Submission:
    if same_id:
        return replace(one, run=run)
    request = Request.from_json({**one.raw, "id": f"{one.name}.{run}"})
    return replace(one, name=request.id, request=request, run=run)


def family_workload(seed: int, number: int, options: Options) -> ChainWorkload | None:
    """Return the workload of a member of a family; None if the chain is none."""
    if not parents_of(seed, number, options)[1]:
        return None
    member = _Member(seed, number, options)
    return ChainWorkload(member.tags[member.number], member.all_runs())
