"""This project's own stack: one `xorack.cdk.Acker`, its settings from the CDK's context, outputs.

Importing `xorack.cdk` tells jsii which node to run, and so has to happen before anything imports
`aws_cdk`: every module here does, since Python imports a package before its modules.
"""

from __future__ import annotations

import xorack.cdk as xorack_cdk

__all__ = ["xorack_cdk"]
