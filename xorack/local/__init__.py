"""AWS on one machine: ministack, as a child or in the background, runs the stack's template.

Nothing here reads the user's AWS configuration or can reach the real AWS: the real AWS rejects the
credentials that `isolation` sets.
"""
