"""AWS on one machine: ministack, as a child process, takes the stack's template and runs it.

Nothing here reads the user's AWS configuration or can reach the real AWS: the real AWS rejects the
credentials that `isolation` sets.
"""
