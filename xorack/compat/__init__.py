"""The classes of the npm packages: in memory (`ack`), over DynamoDB (`xor-ack-dynamodb`)."""
