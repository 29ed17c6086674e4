from . import *


def build_scenario(builder):
    builder.config().game_duration = 400
    builder.config().deterministic = False
    builder.config().offsides = False
    builder.config().end_episode_on_score = False
    builder.config().end_episode_on_out_of_play = False
    builder.config().end_episode_on_possession_change = False
    builder.config().right_team_difficulty = 0.0
    builder.config().left_team_difficulty = 1.0
    builder.SetBallPosition(-0.4, 0.0)

    builder.SetTeam(Team.e_Left)
    builder.AddPlayer(-0.96, 0.0, e_PlayerRole_GK)
    builder.AddPlayer(-0.42, 0.0, e_PlayerRole_CF)

    builder.SetTeam(Team.e_Right)
    builder.AddPlayer(-0.98, 0.0, e_PlayerRole_GK)
