"""What ends a run early. Both carry one line for the user."""


class Trouble(Exception):
    """The run can't go on."""


class Skipped(Exception):
    """The suite can't be run on this machine: exit status 77, as test harnesses expect."""
