"""AWS on one machine. ministack, as a child or in the background, runs the stack's template.

No code here reads the user's AWS configuration or can reach the real AWS, which rejects the
credentials that `isolation` sets.
"""
