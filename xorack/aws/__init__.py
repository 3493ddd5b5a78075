"""Adapters that store chains in DynamoDB, carry requests over SQS and publish to EventBridge."""
