"""Error messages of one line, with advice if it is known."""

from __future__ import annotations

from botocore import exceptions as aws
from botocore.parsers import ResponseParserError

from xorack.aws.client import error_code
from xorack.core.errors import UnavailableError, XorAckError

EXPECTED = (XorAckError, aws.ClientError, aws.BotoCoreError, ResponseParserError)
"""The errors that `error_text` describes. Any other error is a defect."""

_ADVICE: dict[type[Exception], str] = {
    aws.NoCredentialsError: "no AWS credentials: log in (aws sso login), or set AWS_PROFILE",
    aws.NoRegionError: "no AWS region: pass --region, or set AWS_REGION",
    ResponseParserError: "the response is not from AWS: check for a proxy or a login page",
}


def error_text(error: BaseException) -> str:
    """Describe one of the `EXPECTED` errors in one line, without a full stop."""
    if isinstance(error, UnavailableError):
        return error_text(error.cause)
    text = next((text for kind, text in _ADVICE.items() if isinstance(error, kind)), str(error))
    if isinstance(error, aws.ClientError):
        details = error.response.get("Error", {})
        text = f"AWS rejected {error.operation_name}: {error_code(error)}: {details.get('Message')}"
    return " ".join(text.split())
