"""Many runs as one thing: defined in a few lines, stopped and continued at will, told as one page.

``definition`` says what a study is and ``builtin`` holds the paper's; ``execute`` runs one, ``cppo.runs.engine`` lets
its runs advance together and ``distributed`` spreads them over machines; ``compare`` and ``tune`` are asked for by
commands of their own. What came out is told by ``cppo.reports``.
"""
