# Limits of the run, of one environment, of an agent and of a model.
experiment "limits" {
  datasets    = [dataset.tasks]
  environment = environment.box
  agent       = agent.loop
  model       = model.m
  limits {
    in_flight  = 32
    building   = 4
    verifying  = 8
    memory_mib = 65536
    environment "box" {
      building = 2
    }
    agent "loop" {
      in_flight = 3
    }
    model "m" {
      in_flight = 5
      verifying = 1
    }
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

model "m" {
  provider = "openai"
  name     = "m"
}
