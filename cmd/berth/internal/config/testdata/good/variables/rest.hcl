dataset "tasks" {
  format = "harbor"
  path   = "../tasks"
}

environment "box" {
  plugin = "box"
}

agent "loop" {
  plugin = "loop"
  config {
    effort = var.effort
    words  = [for s in var.sizes : "size ${s}"]
    extra  = [var.later, var.nothing, var.REGION_of_host]
    token  = var.password
  }
}

executor "cluster" {
  workers   = 4
  partition = "long"
  time      = "24h"
  options   = ["--exclusive"]
}
