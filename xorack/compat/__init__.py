"""The classes of the npm packages: `ack` in memory, and `xor-ack-dynamodb` over DynamoDB."""
