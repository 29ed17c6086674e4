from . import *


def build_scenario(builder):
    builder.config().game_duration = 400
    builder.config().deterministic = False
    builder.config().offsides = False
    builder.config().end_episode_on_score = True
    builder.config().end_episode_on_out_of_play = True
    builder.config().end_episode_on_possession_change = True
    builder.config().right_team_difficulty = 0.0
    builder.config().left_team_difficulty = 1.0
    builder.SetBallPosition(0.38, 0.05)

    builder.SetTeam(Team.e_Left)
    builder.AddPlayer(-0.96, 0.0, e_PlayerRole_GK)
    builder.AddPlayer(0.36, 0.05, e_PlayerRole_CF)
    builder.AddPlayer(0.42, -0.2, e_PlayerRole_LM)
    builder.AddPlayer(0.3, 0.25, e_PlayerRole_RM)
    builder.AddPlayer(0.1, 0.0, e_PlayerRole_CM)
    builder.AddPlayer(0.05, -0.15, e_PlayerRole_CM)
    builder.AddPlayer(0.05, 0.15, e_PlayerRole_CM)
    builder.AddPlayer(-0.3, -0.25, e_PlayerRole_LB)
    builder.AddPlayer(-0.35, -0.08, e_PlayerRole_CB)
    builder.AddPlayer(-0.35, 0.08, e_PlayerRole_CB)
    builder.AddPlayer(-0.3, 0.25, e_PlayerRole_RB)

    builder.SetTeam(Team.e_Right)
    builder.AddPlayer(-0.98, 0.0, e_PlayerRole_GK)
    builder.AddPlayer(-0.66, -0.22, e_PlayerRole_RB)
    builder.AddPlayer(-0.7, -0.08, e_PlayerRole_CB)
    builder.AddPlayer(-0.7, 0.08, e_PlayerRole_CB)
    builder.AddPlayer(-0.66, 0.22, e_PlayerRole_LB)
    builder.AddPlayer(-0.5, -0.1, e_PlayerRole_CM)
    builder.AddPlayer(-0.52, 0.02, e_PlayerRole_CM)
    builder.AddPlayer(-0.5, 0.15, e_PlayerRole_CM)
    builder.AddPlayer(-0.2, -0.2, e_PlayerRole_LM)
    builder.AddPlayer(-0.2, 0.2, e_PlayerRole_RM)
    builder.AddPlayer(-0.1, 0.0, e_PlayerRole_CF)
