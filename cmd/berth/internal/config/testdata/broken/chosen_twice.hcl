experiment "x" {
  datasets    = [dataset.t]
  agent       = agent.a
  environment = environment.box
  model       = model.m

  matrix {
    agent       = [agent.a]
    model       = [model.m]
    dataset     = [dataset.t]
    environment = [environment.box]
  }
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
  model  = model.m
  models = { default = model.m }
}

model "m" {
  provider = "script"
  name     = "m"
}
