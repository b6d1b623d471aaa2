"""The numbers that report and pages share: queries over the history's tables, answered as frozen values.

Root incidents are counted as the correlator counts them: without consequences of others. Times are Unix seconds.
"""
