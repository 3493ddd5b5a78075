"""AWS on one machine: ministack runs the stack's template, as a child process or in the background.

No code here reads the user's AWS configuration or can reach the real AWS, which rejects the
credentials that `isolation` sets.
"""
