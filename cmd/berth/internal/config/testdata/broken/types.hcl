experiment "x" {
  datasets    = dataset.t
  environment = environment.box
  agent       = agent.a
  repeat      = "many"

  limits {
    in_flight = [1]
    cost_usd  = true
    time      = 10
  }
  per_trial {
    agent_time = "10 minutes"
    cost_usd   = "five"
    max_steps  = 1.5
  }
  retry {
    max = -1
    on  = ["environment_error", "failed"]
  }
}

dataset "t" {
  format  = "harbor"
  path    = ["tasks"]
  include = "hello-*"
  limit   = 1e30
}

environment "box" {
  plugin  = "box"
  network = "off"
  env     = { A = [1] }
}

agent "a" {
  plugin = "loop"
  oracle = "perhaps"
}
