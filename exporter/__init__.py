"""gpufault: why do GPU jobs crash on this fleet, and what about our configuration makes it worse?"""

__version__ = "0.1.0"
