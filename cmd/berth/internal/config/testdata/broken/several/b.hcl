dataset "t" {
  format = "harbor"
  path   = "../tasks"
}

environment "box" {
  plugin = "box"
}

agent "a" {
  plugin = "loop"
}

locals {
  n = 2
}

experiment "y" {
}
