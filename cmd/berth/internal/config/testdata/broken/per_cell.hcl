experiment "x" {
  datasets    = [dataset.t]
  environment = environment.box
  repeat      = matrix.n

  matrix {
    agent = [agent.a, agent.b]
    time  = ["10m", "ten minutes", "later"]
    n     = [1, 2]
  }
  per_trial {
    agent_time = matrix.time
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
  config {
    turns = matrix.n
  }
}

agent "b" {
  plugin = "loop"
  config {
    turns = matrix.n == 2 ? "two" : 1
  }
}
