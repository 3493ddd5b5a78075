"""The handlers of the Lambda functions, one module for each function."""
