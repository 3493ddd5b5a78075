"""This project's own stack: an `xorack.cdk.Acker`, its settings from the CDK's context, outputs.

This module imports `xorack.cdk` before `aws_cdk`, because `xorack.cdk` tells jsii which Node to
run.
"""

import xorack.cdk  # noqa: F401
