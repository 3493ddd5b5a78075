"""`xorack doctor` finds faults of a deployed acker, and says what to do about them.

`reading` asks AWS, `checks` examines the answers, `trial` sends chains and verifies their events.
"""
