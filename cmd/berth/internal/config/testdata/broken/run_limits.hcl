experiment "limits" {
  datasets    = [dataset.d]
  environment = environment.box
  agent       = agent.loop
  keep_mib    = 10000000000000
  limits {
    in_flight = 0
    building  = -1
    environment "bax" {
      in_flight = 2
    }
    agent "loop" {
      verifying = 0
    }
    model "m" {
    }
  }
}

dataset "d" {
  format = "harbor"
  path   = "tasks"
}

environment "box" {
  plugin = "box"
}

agent "loop" {
  plugin = "loop"
}
