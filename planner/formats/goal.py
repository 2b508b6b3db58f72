"""GOAL, the text form of schedules that LogGOPSim and ATLAHS run."""

from collplan.planner.formats.goal_read import GoalError, parse_goal, read_goal
from collplan.planner.formats.goal_write import write_goal

__all__ = ["GoalError", "parse_goal", "read_goal", "write_goal"]
