"""Adapters: chains, requests and events over DynamoDB, SQS and EventBridge."""
