# Agents with their own models, verifiers, a user, budgets.
experiment "roles" {
  datasets    = [dataset.tasks]
  environment = environment.box
  agent       = agent.own
  model       = model.one

  limits {
    in_flight = 4
    time      = "2h"
    cost_usd  = 10
    tokens    = 1000000
    requests  = 500
  }
  per_trial {
    verifier_time     = "5m"
    time_factor       = 2
    max_steps         = 30
    tokens            = 10000
    requests          = 20
  }
  per_cell {
    cost_usd = 4
    tokens   = 200000
    requests = 100
  }
  retry {
    max      = 3
    on       = ["preempted"]
    wait     = "2s"
  }
}

dataset "tasks" {
  format  = "harbor"
  path    = "tasks"
  limit   = 2
  exclude = ["slow-*"]
  lenient = true
}

environment "box" {
  plugin = "box"
}

agent "own" {
  plugin = "loop"
  oracle = true
  model  = model.two
  models = { small = model.one }
  env    = { A = "b" }
}

agent "player" {
  plugin = "loop"
}

model "one" {
  provider     = "openai"
  name         = "one"
  allow_models = ["one-mini"]
  replay       = "run/2026"
  in_flight    = 8
  price {
    input        = 1
    cached_input = 0.1
    cache_write  = 1.25
    output       = 4

    tier {
      above  = 500000
      input  = 3
      output = 9
    }
    tier {
      above        = 200000
      input        = 2
      cached_input = 0.2
      output       = 6
    }
  }
  parameters {
    temperature = 0.2
    nested      = { a = [1, null] }
  }
}

model "two" {
  provider = "script"
  script   = "prompts/system.txt"
}

verifier "strict" {
  models = { default = model.one, filter = model.two }
  env    = { LEVEL = 3 }
  config {
    key = "k"
  }
}

verifier "other/judge" {
  plugin = "strict"
  model  = model.two
  config {
    key = "other"
  }
}

user {
  agent    = agent.player
  model    = model.one
  persona  = "In a hurry."
  time     = "1m"
  cost_usd = 0.5
}
