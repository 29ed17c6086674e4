# Axes that choose datasets and environments; values of every type.
experiment "axes" {
  agent  = agent.loop
  verify = "restarted"

  matrix {
    dataset     = [dataset.tasks, dataset.more]
    environment = [environment.box, environment.sealed]
    v           = [true, 1.5, "A b/c", "", { k = [1] }, ["x", "y"], "a=b,c"]

    exclude {
      dataset     = dataset.more
      environment = [environment.box, environment.sealed]
      v           = [true, 1.5, "A b/c", ""]
    }
    exclude {
      v = ["x", "y"] # a list that is itself a value of the axis
    }
    exclude {
      environment = environment.sealed
      v           = { k = [1] }
    }
  }
}

dataset "tasks" {
  format = "harbor"
  path   = "tasks"
}

dataset "more" {
  format = "harbor"
  path   = "./more"
  limit  = 3
  success {
    key      = "reward"
    at_least = 0.5
  }
}

environment "box" {
  plugin = "box"
}

environment "sealed" {
  plugin      = "box"
  network     = "allow"
  allow_hosts = ["example.org"]
  limits {
    cpus       = 1.5
    memory_mib = 512
  }
  surface = "box"
  surface_config {
    pull = "always"
  }
}

agent "loop" {
  plugin = "loop"
  config {
    extra = matrix.v
  }
}

model "one" {
  provider = "script"
  name     = "one"
}
