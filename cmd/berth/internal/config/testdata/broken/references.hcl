experiment "x" {
  datasets    = [dataset.terminl]
  environment = enviroment.box
  agent       = "loop"
  model       = agent.loop
  repeat      = local.repeets
}

dataset "terminal" {
  format = "harbor"
  path   = var.pth
}

environment "box" {
  plugin = "box"
}

agent "loop" {
  plugin = "loop"
  models = { default = model.opsu, small = "opus" }
}

model "opus" {
  provider = "script"
  name     = upcase("m")
  script   = "replies.json"
}

user {
  agent = agent.lop
}

verifier "judge" {
  models = [model.opus]
}

locals {
  repeats = 3
}

variable "path" {
  default = "tasks"
}
