"""The schema of the table lists each field of a chain in the list of its type."""

from dataclasses import fields

from xorack.aws import schema
from xorack.core.chain import Chain


def test_each_field_of_a_chain_is_in_exactly_one_list():
    types = {field.name: str(field.type).removesuffix(" | None") for field in fields(Chain)}
    del types["tag"]  # the partition key
    lists = {
        "int": schema.NUMBERS, "str": schema.STRINGS, "Status": schema.STRINGS,
        "bytes": schema.BINARIES, "bool": schema.FLAGS,
    }  # fmt: skip
    for name, kind in types.items():
        assert name in lists[kind], name
    listed = [*schema.NUMBERS, *schema.STRINGS, *schema.BINARIES, *schema.FLAGS]
    assert sorted(listed) == sorted(types)
    # The other names of an item are not fields of a chain.
    others = {schema.DUE_SHARD, schema.EXPIRES_AT, schema.FORMAT_NAME, schema.SPILLED_MARKS}
    assert {*types, *others} == schema.RESERVED


def test_times_are_the_numbers_in_milliseconds_since_the_epoch():
    ends = ("_at", "deadline", "_until")
    times = [name for name in schema.NUMBERS if name.endswith(ends)]
    assert list(schema.TIMES) == times
