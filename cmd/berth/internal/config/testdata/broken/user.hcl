experiment "x" {
  datasets    = [dataset.t]
  environment = environment.box
  agent       = agent.a
}

dataset "t" {
  format = "harbor"
  path   = "tasks"
}

environment "box" {
  plugin = "box"
}

agent "a" {
  plugin = "loop"
  oracle = true
}

user {
  agent       = agent.a
  model       = model.m
  environment = environment.bxo
  time        = "-1s"
  cost_usd    = -1
  max_turns   = 3
}

executor "cluster" {
  workers = -1
  time    = matrix.time
  nodes   = 3
}
