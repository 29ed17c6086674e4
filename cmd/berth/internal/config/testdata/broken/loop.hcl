experiment "x" {
  datasets    = [dataset.t]
  environment = environment.box
  agent       = agent.a
}

locals {
  loop = [for x in range(1000) : [for y in range(1000) : [for z in range(1000) : x * y * z]]]
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
    words = [for x in range(1000) : [for y in range(1000) : [for z in range(1000) : [for w in range(1000) : 1 + "x"]]]]
  }
}
