experiment "x" {
  datasets    = [dataset.t, dataset.u]
  environment = environment.box
  agent       = agent.a
}

dataset "t" {
  format = "harbor"
  path   = "tasks"
  config {
    imaeg    = "i"
    snapshot = "perhaps"
  }
}

dataset "u" {
  format = "harbour"
  path   = "tasks"
  config {
    anything = 1
  }
}

environment "box" {
  plugin = "box"
}

agent "a" {
  plugin = "loop"
}
