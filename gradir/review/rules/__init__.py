"""The rules that make findings of changes: functions from the evidence to findings."""
