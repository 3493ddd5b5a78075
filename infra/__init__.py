"""This project's own stack: an `xorack.cdk.Acker`, its settings from the CDK's context, outputs.

The import ensures that `xorack.cdk` is imported before `aws_cdk`: it tells jsii which Node to run.
"""

import xorack.cdk  # noqa: F401
