experiment "x" {
  datasets    = [dataset.t]
  agent       = agent.a
  environment = environment.box
  repeat      = matrix.n

  matrix {
    exclude {
      agent = agent.a
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
