# A level of Sokoban, played by agents without a model, and by two planners.
experiment "sokoban" {
  datasets    = [dataset.levels]
  environment = environment.room
  model       = model.scripted

  matrix {
    agent = [agent.nop, agent.random, agent.oracle, agent.global, agent.online]
  }
}

dataset "levels" {
  format  = "sokoban"
  path    = "./levels"
  include = ["small-v0-6"] # leave this out for all 60 levels

  config {
    observations = ["image", "grid"]
  }
}

environment "room" {
  plugin  = "local"
  surface = "sokoban" # opened on the sandboxes of local, which stay empty
}

# Does nothing: its score says how hard a level is.
agent "nop" {
  plugin = "nop"
}

agent "random" {
  plugin = "random"
}

# Plays the shortest solution, which is the score 100.
agent "oracle" {
  plugin = "oracle"
  oracle = true
}

# Sees the level once, and plans all moves.
agent "global" {
  plugin = "planner"

  config {
    mode = "global"
  }
}

# Sees the level after each move.
agent "online" {
  plugin = "planner"

  config {
    am         = 5 # moves that it remembers
    om         = 1 # pictures that it is shown
    max_tokens = 300
  }
}

# A model that replies from a file: no key, no network.
model "scripted" {
  provider = "script"
  script   = "./model.yaml"
}
