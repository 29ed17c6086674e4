# What stands under a name that is unknown, or in a block that cannot be read,
# is looked at in the same pass.
experiment "x" {
  datasets = [dataset.t]
  agent    = agent.a
  repaet   = var.times

  limit {
    in_flight = local.nobody
  }
}

dataset "t" {
  format = "harbor"
  path   = "tasks"
}

environment "box" {
  plugin = "box"
  config {
    sokcet = upperr("x")
    deeper {
      still = matrix.effort
    }
  }
}

agent "a" {
  plugin = "no-such-plugin"
  config {
    effort = var.effort
  }
}

agent {
  plugin = agent.b
}

agnet "b" {
  plugin = var.plugin
}

locals {
  nested {
    x = var.deep
  }
}

stray = var.stray
