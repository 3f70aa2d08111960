"""Every decision of Apportion, as pure functions over plain data.

Nothing here reads a clock, a file, the network or the environment, and nothing logs: what a decision
needs comes in as an argument, what it decides goes out as a value with its reasons. The webhook, the
reconciler and the command line call the same functions.
"""

__version__ = "0.1.0"
