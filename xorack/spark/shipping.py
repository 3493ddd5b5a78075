"""The package's way to the tasks of a Spark session, on workers that do not have it."""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

import xorack
from xorack.core.errors import StateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ship(spark: SparkSession) -> None:
    """Make the package importable in the tasks of a session.

    Call it before the frames are made whose tasks need the package; again, it does nothing. On
    Connect, a function of ``foreachBatch`` runs in no task: the server has to have the package.

    Args:
        spark: The session.

    Raises:
        StateError: The session is of Spark 3.5, without Connect.
    """
    content = _archive(Path(xorack.__file__).parents[1])
    # Workers import no .whl. A session takes a name once, and again from the same place.
    path = Path(_folder().name, f"xorack-{hashlib.sha256(content).hexdigest()[:16]}.zip")
    if not path.exists():
        path.write_bytes(content)
    try:
        spark.addArtifacts(str(path), pyfile=True)
    except PySparkException:
        raise
    except RuntimeError as error:
        remedy = "name a copy of the wheel, xorack.zip, in --py-files or spark.submit.pyFiles"
        raise StateError(f"this session takes no Python files: {remedy}") from error


@cache
def _folder() -> TemporaryDirectory[str]:
    """Make a folder that stays as long as the process: a classic session reads from it later."""
    return TemporaryDirectory(prefix="xorack-")


def _archive(source: Path) -> bytes:
    """Read a zip, or zip the package's modules in a folder: the same ones to the same bytes."""
    if zipfile.is_zipfile(source):
        return source.read_bytes()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path in sorted(source.glob("xorack/**/*.py")):
            undated = zipfile.ZipInfo(path.relative_to(source).as_posix())
            archive.writestr(undated, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return content.getvalue()
