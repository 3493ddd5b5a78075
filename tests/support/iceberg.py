"""Iceberg's runtime for Spark 3.5, with the Jackson that it lacks; for tests alone.

The package `snowpark-connect-deps-iceberg` has the runtime. It calls Jackson under the package
`org.apache.iceberg.shaded`, whose classes it does not have. `jars` copies those of Spark's own
jars, and renames them in each class's pool of constants.
"""

from __future__ import annotations

import importlib.util
import struct
import zipfile
from pathlib import Path

import pyspark

CATALOG = "cat"
_PATH, _DOTTED = b"com/fasterxml/jackson", b"com.fasterxml.jackson"
_SHADED = "org/apache/iceberg/shaded/"
_TEXT = 1
_SIZES = {4: 5, 5: 9, 6: 9, 7: 3, 8: 3, 15: 4, 16: 3, 19: 3, 20: 3}
"""Bytes of an entry of the pool, by its tag; others have 5, and a text has its own length."""
_OF_TWO_PLACES = (5, 6)


def jars(folder: Path) -> list[str]:
    """Return the jars of Iceberg, the missing one made in a folder; none without the package."""
    package = importlib.util.find_spec("snowpark_connect_deps_iceberg")
    if package is None or package.origin is None:
        return []
    found = Path(package.origin).with_name("jars").glob("iceberg-spark-runtime-3.5_2.12-*.jar")
    return [*map(str, found), str(_jackson(folder / "shaded-jackson.jar"))]


def settings(jars: list[str], warehouse: Path) -> dict[str, str]:
    """Return a session's settings: a catalog named `CATALOG` whose tables lie in a folder."""
    catalog = f"spark.sql.catalog.{CATALOG}"
    return {
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": str(warehouse),
    }


def _jackson(target: Path) -> Path:
    """Write a jar of Spark's classes of Jackson, under the name that the runtime calls."""
    folder, written = Path(pyspark.__file__).with_name("jars"), set()
    with zipfile.ZipFile(target, "w") as out:
        for part in ("core", "databind", "annotations"):
            [path] = folder.glob(f"jackson-{part}-2*.jar")
            with zipfile.ZipFile(path) as jar:
                for name in {*jar.namelist()} - written:
                    if name.startswith(_PATH.decode()) and name.endswith(".class"):
                        written.add(name)
                        out.writestr(_SHADED + name, _renamed(jar.read(name)))
    return target


def _renamed(data: bytes) -> bytes:
    """Return a class file whose texts name the shaded package."""
    [count] = struct.unpack(">H", data[8:10])
    out, at, index = bytearray(data[:10]), 10, 1
    while index < count:
        tag, size = data[at], _SIZES.get(data[at], 5)
        if tag == _TEXT:
            size = 3 + struct.unpack(">H", data[at + 1 : at + 3])[0]
            text = data[at + 3 : at + size]
            for old in (_PATH, _DOTTED):
                separator = old[3:4]
                text = text.replace(old, _SHADED.encode().replace(b"/", separator) + old)
            out += struct.pack(">BH", tag, len(text)) + text
        else:
            out += data[at : at + size]
        at += size
        index += 2 if tag in _OF_TWO_PLACES else 1
    return bytes(out + data[at:])
