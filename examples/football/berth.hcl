# A match of football, played by agents without a model, and by a planner with a scripted one.
experiment "football" {
  datasets    = [dataset.levels]
  environment = environment.pitch
  model       = model.scripted
  repeat      = 2

  matrix {
    agent = [agent.nop, agent.random, agent.planner]
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

agent "planner" {
  plugin = "planner"

  config {
    max_loop = 20
  }
}

model "scripted" {
  provider = "script"
  script   = "./model.yaml"
}

verifier "reward" {
  plugin = "reward"
}
