"""Many runs as one thing: defined in a few lines, stopped and continued at will, told as one page.

``definition`` says what a study is and ``builtin`` holds the paper's; ``execute`` runs one, ``lockstep`` lets runs
advance together and ``distributed`` spreads them over machines; ``stats``, ``results``, ``figures`` and ``report`` say
what came out, with episodes from ``replay`` and other people's figures from ``published``.
"""
