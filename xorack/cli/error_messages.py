"""What went wrong, in one line that names the thing."""

from __future__ import annotations

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
)
from botocore.parsers import ResponseParserError

from xorack.core.errors import XorAckError
from xorack.core.ports import Unavailable

__all__ = ["EXPECTED", "explain", "printable"]

EXPECTED = (XorAckError, ClientError, BotoCoreError, ResponseParserError)
"""The errors that `explain` has words for; any other is a defect of ours."""

_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
_UNKNOWN = frozenset(
    {
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)


def printable(text: str) -> str:
    """A text that may come from anybody, without what would steer a terminal or end the line.

    Args:
        text: For example a tag: nearly any characters are allowed in one.

    Returns:
        The text, control and other unprintable characters as escapes.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode()
        for c in text
    )


def explain(error: BaseException) -> str:
    """An error in one line, with what helps where that is known.

    Args:
        error: One of `EXPECTED`.

    Returns:
        The line, without a full stop.
    """
    if isinstance(error, Unavailable):
        return explain(error.cause)
    if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
        return "no AWS credentials: log in (aws sso login, aws configure) or set AWS_PROFILE"
    if isinstance(error, NoRegionError):
        return "no AWS region: give --region, or set AWS_REGION"
    if isinstance(error, ProfileNotFound):
        return f"{error}: AWS_PROFILE names it"
    if isinstance(error, (EndpointConnectionError, ConnectTimeoutError, ReadTimeoutError)):
        url = getattr(error, "kwargs", {}).get("endpoint_url", "AWS")
        return f"cannot reach {url}: is the network up, and the region right?"
    if isinstance(error, ResponseParserError):
        return "what answered is not AWS: is there a proxy, or a network that wants a login first?"
    if isinstance(error, ClientError):
        return _explain_refusal(error)
    return " ".join(str(error).split())


def _explain_refusal(error: ClientError) -> str:
    said = error.response.get("Error", {})
    code = str(said.get("Code", "Unknown"))
    message = " ".join(str(said.get("Message", "")).split())
    if code in _EXPIRED:
        return "the AWS credentials have expired: log in again"
    if code in _UNKNOWN:
        return f"AWS does not take the credentials ({code}): log in again, or check AWS_PROFILE"
    return f"AWS refused {error.operation_name}: {code}: {message}"
