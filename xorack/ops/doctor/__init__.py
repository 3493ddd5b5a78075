"""`xorack doctor`: what is wrong with a deployed acker, and what to do about it.

`reading` asks AWS, `checks` judges the answers, `trial` sends chains and verifies their events.
"""
