"""Error messages of one line, with advice where it is known."""

from __future__ import annotations

from botocore import exceptions as aws
from botocore.parsers import ResponseParserError

from xorack.core.errors import UnavailableError, XorAckError

EXPECTED = (XorAckError, aws.ClientError, aws.BotoCoreError, ResponseParserError)
"""The errors that `explain` describes; any other is a defect."""

_ADVICE: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    (
        (aws.NoCredentialsError, aws.PartialCredentialsError),
        "no AWS credentials: log in (aws sso login, aws configure) or set AWS_PROFILE",
    ),
    ((aws.NoRegionError,), "no AWS region: give --region, or set AWS_REGION"),
    ((aws.ProfileNotFound,), "{error}: AWS_PROFILE names it"),
    (
        (aws.EndpointConnectionError, aws.ConnectTimeoutError, aws.ReadTimeoutError),
        "cannot reach {url}: check the network and the region",
    ),
    (
        (ResponseParserError,),
        "the response is not from AWS: is there a proxy, or a network that requires a login?",
    ),
)
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired"}
_REJECTED = {
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}


def explain(error: BaseException) -> str:
    """Describe one of the `EXPECTED` errors in one line, without a full stop."""
    if isinstance(error, UnavailableError):
        return explain(error.cause)
    if isinstance(error, aws.ClientError):
        return _explain_rejection(error)
    for kinds, advice in _ADVICE:
        if isinstance(error, kinds):
            url = getattr(error, "kwargs", {}).get("endpoint_url", "AWS")
            return advice.format(error=error, url=url)
    return " ".join(str(error).split())


def _explain_rejection(error: aws.ClientError) -> str:
    details = error.response.get("Error", {})
    code = str(details.get("Code", "Unknown"))
    if code in _EXPIRED:
        return "the AWS credentials have expired: log in again"
    if code in _REJECTED:
        return f"AWS rejects the credentials ({code}): log in again, or check AWS_PROFILE"
    message = " ".join(str(details.get("Message", "")).split())
    return f"AWS rejected {error.operation_name}: {code}: {message}"
