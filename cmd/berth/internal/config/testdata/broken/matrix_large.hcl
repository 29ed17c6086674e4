experiment "x" {
  datasets    = [dataset.t]
  agent       = agent.a
  environment = environment.box

  matrix {
    a = range(100)
    b = range(100)
    c = range(2)
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
