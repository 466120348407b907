"""The tools of a group as those of other agent frameworks. `ClientGroup` imports the module of one when it is asked for."""
