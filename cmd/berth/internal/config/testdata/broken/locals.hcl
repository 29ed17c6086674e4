experiment "x" {
  datasets    = [dataset.t]
  environment = environment.box
  agent       = agent.a
  repeat      = [local.a, local.self, local.bad, local.none, local.div, local.nul]
}

locals {
  a    = local.b
  b    = local.c + 1
  c    = local.a
  self = "${local.self}!"
  bad  = 1 + "x"
  none = local.nothing
  div  = 1 / 0
  nul  = "a${null}"
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
