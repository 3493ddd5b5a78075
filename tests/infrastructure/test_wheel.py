"""The construct from a wheel, without the checkout, in the example's stack."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from aws_cdk import App

from examples.own_stack.app import Warehouse
from infra.synth import ROOT
from xorack.local.environment import ensure

from .templates import FUNCTIONS, Template, python

pytestmark = pytest.mark.slow

EXAMPLE = ROOT / "examples" / "own_stack"
PACKED = (
    "Makefile",
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
    "cdk.json",
    "infra",
    "xorack",
    "lambda_src",
)

SYNTH = """
import runpy, sys
runpy.run_path("app.py", run_name="__main__")
import xorack
print(xorack.__file__)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """What the wheel is built from."""
    source = tmp_path_factory.mktemp("source")
    ignore = shutil.ignore_patterns("__pycache__")
    for path in map(ROOT.joinpath, PACKED):
        if path.is_dir():
            shutil.copytree(path, source / path.name, ignore=ignore)
        else:
            shutil.copy(path, source)
    return source


@pytest.fixture(scope="module")
def wheel(source):
    """The wheel that `make wheel` builds beside what an older build left."""
    old = source / "build" / "lib" / "xorack" / "gone.py"
    old.parent.mkdir(parents=True)
    old.touch()
    make = ("make", "--no-print-directory", "--old-file=venv", "wheel", f"PY={sys.executable}")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("M")}
    made = subprocess.check_output(make, cwd=source, env=kept, text=True)
    return source / made.split()[-1]


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory):
    """A folder with what the wheel installs."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


@pytest.fixture(scope="module")
def example(site, tmp_path_factory):
    """The example's template, synthesised with the wheel."""
    out = tmp_path_factory.mktemp("cdk")
    context = json.dumps(json.loads((EXAMPLE / "cdk.json").read_text())["context"])
    environment = {"CDK_OUTDIR": str(out), "CDK_CONTEXT_JSON": context, "PYTHONPATH": str(site)}
    assert Path(python(SYNTH, cwd=EXAMPLE, **environment).splitlines()[-1]).is_relative_to(site)
    return Template.read(out / "warehouse.template.json")


def test_the_construct_works_on_the_oldest_cdk_that_the_extra_takes(site, tmp_path):
    """And beside another Powertools than the functions have, of which nothing is read."""
    (extra,) = re.findall(r"^cdk = (\[.+\])$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    oldest = [re.sub(r">=([0-9.]+),.*", r"==\1.*", one) for one in json.loads(extra)[:2]]
    packages = tmp_path / "packages"
    install = ("uv", "pip", "install", "--quiet", "--python", sys.executable, "--target", packages)
    others = ["aws-lambda-powertools==3.36.*"]
    command = [sys.executable, ROOT / "tools" / "venv.py", *install, *oldest, *others]
    subprocess.run(command, check=True)
    path = os.pathsep.join(map(str, (site, packages)))
    context = json.dumps(json.loads((EXAMPLE / "cdk.json").read_text())["context"])
    environment = {"CDK_OUTDIR": str(tmp_path / "out"), "CDK_CONTEXT_JSON": context}
    python(SYNTH, cwd=EXAMPLE, PYTHONPATH=path, **environment)
    made = Template.read(tmp_path / "out" / "warehouse.template.json")
    assert {made.environment(name)["PARTITION_KEY"] for name in FUNCTIONS} == {"tag"}
    assert (made.code_folder / "aws_lambda_powertools").is_dir()


def contents(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_build_with_isolation_from_the_source_distribution_makes_the_same_wheel(
    source, wheel, tmp_path
):
    build = ("uv", "build", "--quiet", "--out-dir", tmp_path, source)
    subprocess.run([sys.executable, ROOT / "tools" / "venv.py", *build], check=True)
    (built,) = tmp_path.glob("*.whl")
    assert contents(built) == contents(wheel)


def test_the_wheel_has_the_handlers_and_one_package(site):
    tops = {path.name for path in site.iterdir() if path.suffix != ".dist-info"}
    assert tops == {"xorack"}
    assert not (site / "xorack" / "gone.py").exists()
    (asset,) = (site / "xorack" / "local" / "app" / "assembly").glob("asset.*")
    for path in (ROOT / "lambda_src").glob("*.py"):
        assert (asset / "lambda_src" / path.name).is_file()
    pages = [{path.name for path in (root / "xorack/web/page").iterdir()} for root in (site, ROOT)]
    assert pages[0] == pages[1] - {"__pycache__"}


PRODUCER = """
import os, sys, xorack
from xorack import Tracker
assert "site-packages" in xorack.__file__
tracker = Tracker(os.environ["XORACK_QUEUE_URL"])
with tracker.step(tracker.start("order/17")) as step:
    child = step.child("rope")
with tracker.step(child):
    pass
"""
SHELL = """set -e
JSII_NODE=/nowhere xorack local start --json  # a synthesis would fail
eval "$(xorack local env)"
python -c "$PRODUCER"
xorack wait order/17 --timeout 1m >&2
xorack list --json
xorack local events
xorack local stop
"""


def test_an_installed_wheel_runs_the_stack_and_tracks_an_order(wheel, tmp_path):
    """In a new environment, outside the checkout; its other packages are the checkout's."""
    environment = tmp_path / "venv"
    subprocess.check_call([sys.executable, "-m", "venv", "--without-pip", environment])
    programs = environment / "bin"
    pip = [sys.executable, "-m", "pip", "--python", programs / "python", "install"]
    subprocess.check_call([*pip, "--quiet", "--no-deps", "--no-index", wheel])
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "shared.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    inherited = {name: os.environ[name] for name in ("HOME", "TMPDIR") if name in os.environ}
    out = subprocess.run(
        ["sh", "-c", SHELL],
        cwd=tmp_path,
        env={
            **inherited,
            "PATH": f"{programs}:/usr/bin:/bin",
            "PRODUCER": PRODUCER,
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "XDG_CACHE_HOME": str(cache(tmp_path)),
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    start, listed, event, stop = out.splitlines()
    assert json.loads(start)["started"]
    assert json.loads(listed)["status"] == "acked"
    assert json.loads(event)["detail"]["tag"] == "order/17"
    assert stop == "stopped"


def cache(folder):
    """A cache that has the embedded AWS of the checkout, since each test would install it."""
    made = ensure()
    cached = folder / "cache" / "xorack"
    cached.mkdir(parents=True)
    fingerprint = (made.parents[1] / "made-of").read_text()
    (cached / f"ministack-{fingerprint[:12]}").symlink_to(made.parents[1])
    return folder / "cache"


def test_the_example_is_what_the_checkout_makes_to_the_byte_of_the_code(example):
    context = json.loads((EXAMPLE / "cdk.json").read_text())["context"]
    ours = Template.of_stack(Warehouse(App(context=context), "warehouse"))
    assert example.body == ours.body  # the code's key has the hash of its contents


def test_the_template_names_nothing_of_the_users_machine(example):
    text = json.dumps(example.body)
    for name in (str(ROOT), str(example.path.parent), "xorack-code-"):
        assert name not in text
