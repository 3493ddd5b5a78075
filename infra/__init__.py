"""This project's own stack: one `xorack.cdk.Acker`, settings from the CDK's context, outputs.

The import makes sure that `xorack.cdk` comes before `aws_cdk`: it tells jsii which node to run.
"""

import xorack.cdk  # noqa: F401
