"""What AWS Lambda runs: one thin module a function."""
