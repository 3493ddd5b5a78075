"""Handlers for AWS Lambda: one thin module per function."""
