"""Families of chains: a grandparent, its child, and two grandchildren, one of both.

What a chain gives its parents is no request of a sender: the oracle expects it once the chain ends.
Some families are a cycle, which ends by deadlines.
"""

from random import Random

from tests.simulation.options import DAY_SECONDS, Options, pick
from tests.simulation.workload import ChainWorkload, Submission
from xorack.core.chain import Parent
from xorack.core.request import Request

_BLOCK = 6
"""Of so many consecutive chains, the first four may be a family."""
_MEMBERS = ("grandparent", "parent", "of both", "grandchild")


def is_of_family(seed: int, number: int, options: Options) -> bool:
    """Return whether a chain is a member of a family."""
    block = number - number % _BLOCK
    few = options.months or block < options.spilling_chains or block + 4 > options.chains
    rare = Random(f"{seed}/family/{block}").random() < options.family
    return rare and not few and number - block < len(_MEMBERS)


def family_workload(seed: int, number: int, options: Options) -> ChainWorkload | None:
    """Return the workload of a member of a family; None if the chain is none."""
    if not is_of_family(seed, number, options):
        return None
    block = number - number % _BLOCK
    shared, member = Random(f"{seed}/family/{block}/all"), number - block
    tags = [f"chain-{block + n}" for n in range(len(_MEMBERS))]
    cells, cyclic = shared.choice((0, 16)), shared.random() < 0.15
    units = [shared.getrandbits(64) | 1 for _ in tags]
    # The chains of which each member is a unit.
    of = {0: [3] if cyclic else [], 1: [0], 2: [0, 1], 3: [1]}
    random = Random(f"{seed}/family/{number}")
    own = random.getrandbits(64) | 1
    starts = [own, *(units[child] for child, parents in of.items() if member in parents)]
    fields: dict = {"timeout": pick(random, options.timeouts)}
    if fields["timeout"] == "short":
        fields["timeout"] = random.uniform(0.5, 1.5) * options.span / 1000
    if cyclic:
        fields["timeout"] = fields["timeout"] or DAY_SECONDS
    if of[member]:
        above = tuple(tags[parent] for parent in of[member])
        fields["parents"] = [Parent(units[member], above, cells)]
        fields["fail_parent"] = random.random() < 0.3
    if cells and random.random() < options.tolerance:
        fields["tolerated_units"] = 1
    tag = tags[member]
    create = Request.create(tag, "create", starts=starts, cells=cells, **fields)
    submissions = [Submission(tag, "create", create, frozenset(starts))]
    if random.random() >= options.missing_work:
        work = Request.stamp_(tag, "work", finishes=[own], cells=cells)
        submissions.append(Submission(tag, "work", work, frozenset([own])))
    if random.random() < options.fail:
        submissions.append(Submission(tag, "fail", Request.fail(tag, "fail", "it broke")))
    for one in submissions:
        one.after = int(random.random() * options.span)
        if random.random() < 0.2:
            one.copies = (int(random.random() * options.span),)
    return ChainWorkload(tag, submissions)
