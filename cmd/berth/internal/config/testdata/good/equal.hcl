# Nothing reads matrix.note: cells that are the same are left out, with a warning.
experiment "equal" {
  datasets    = [dataset.tasks]
  environment = environment.box

  matrix {
    agent = [agent.loop, agent.other]
    note  = ["a", "b", "c", "d"]
  }
}

dataset "tasks" {
  format = "harbor"
  path   = "tasks"
}

environment "box" {
  plugin = "box"
}

agent "loop" {
  plugin = "loop"
}

agent "other" {
  plugin = "loop"
  config {
    effort = matrix.note
  }
}
