experiment "x" {
  datasets    = [dataset.t]
  environment = environment.box
  agent       = agent.a
}

agent "a" {
  plugin = "loop"
}

locals {
  n = 1
}
