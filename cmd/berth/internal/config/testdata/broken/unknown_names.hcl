experiment "x" {
  dataset     = [dataset.t]
  repaet      = 3
  environment = environment.box
  agent       = agent.a

  limit {
    in_flight = 1
  }
  limits {
    in_fligth = 1
  }
  per_trial {
    agent_tiem = "1m"
  }
}

dataset "t" {
  format = "harbor"
  paht   = "tasks"
}

environment "box" {
  plugin = "box"
  nework = "none"
}

agnet "a" {
  plugin = "loop"
}

agent "a" {
  plugin = "loop"
  confg {
  }
}

stray = 1
