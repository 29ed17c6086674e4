# A match of football, played by agents without a model, and by two planners with a model
# that replies from a file.
experiment "football" {
  datasets    = [dataset.levels]
  environment = environment.pitch
  model       = model.scripted
  repeat      = 2

  matrix {
    agent = [agent.nop, agent.random, agent.global, agent.online]
  }
}

dataset "levels" {
  format = "harbor"
  path   = "./tasks"
}

environment "pitch" {
  plugin  = "local"
  surface = "football"
}

agent "nop" {
  plugin = "nop"
}

agent "random" {
  plugin = "random"
}

# Sees the match once, and plans all actions.
agent "global" {
  plugin = "planner"

  config {
    mode = "global"
  }
}

# Sees the match after each action.
agent "online" {
  plugin = "planner"

  config {
    max_loop = 20
  }
}

model "scripted" {
  provider = "script"
  script   = "./model.yaml"
}
