# A match of 400 frames without pictures, and 20 actions with a picture after each. The
# level has no opponent but the goalkeeper, so that the match continues.
experiment "long" {
  datasets    = [dataset.levels]
  environment = environment.pitch
  model       = model.scripted

  matrix {
    agent = [agent.nop, agent.random, agent.online]
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

agent "online" {
  plugin = "planner"

  config {
    am       = 4 # actions that it remembers
    om       = 2 # pictures that it is shown
    max_loop = 400
  }
}

model "scripted" {
  provider = "script"
  script   = "./model.yaml"
}
