"""AWS without AWS: what the demo and the tests run on.

Two engines, each for what it does best:

* :mod:`tests.support.in_process`: moto inside the test's own process, made atomic by a lock. Fast,
  strict about types, no Lambda. Unit and functional tests.
* :mod:`xorack.local.embedded`: ministack as a child process. Takes the synthesised CDK template
  whole and runs the Lambda functions by the queue's event source mapping. The demo, and tests from
  end to end.

Neither reads the user's AWS configuration, and neither can reach the real AWS: the credentials that
they set are invalid there.
"""
