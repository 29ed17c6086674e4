experiment "x" {
  datasets = [dataset.t]
  matrix {
    agent       = [agent.a, agent.b]
    environment = [environment.box]
    exclude {
      agent = [agent.a, agent.b]
    }
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
}

agent "b" {
  plugin = "loop"
}
