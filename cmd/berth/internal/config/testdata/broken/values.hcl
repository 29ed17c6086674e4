experiment "x" {
  datasets    = [dataset.t, dataset.t]
  environment = environment.box
  agent       = agent.a
  repeat      = 0
  verify      = "restart"

  limits {
    in_flight = 0
    time      = "0s"
    cost_usd  = -1
  }
  per_cell {
    cost_usd = 0
    requests = -1
  }
  per_trial {
    agent_time        = "10m"
    time_factor       = -2
    verifier_time     = "-1s"
    tokens            = 0
  }
  retry {
    max      = 1
    wait     = "-1m"
  }
}

dataset "t" {
  format  = "habror"
  path    = "no-such-folder"
  include = ["[a"]
  limit   = -1
}

dataset "u" {
  format = "harbor"
  path   = "values.hcl"
}

environment "box" {
  plugin  = "box"
  network = "allow"
  env     = { "1A" = "x", "A=B" = "y" }
  limits {
    cpus = -1
  }
  surface_config {
  }
}

environment "open" {
  plugin      = "box"
  network     = "public"
  allow_hosts = ["example.org", "example.org:443"]
}

agent "a" {
  plugin = "loop"
}

model "m" {
  provider   = "scirpt"
  base_url   = "example.org"
  parameters = 3
  price {
    input = -1

    tier {
      above  = 0
      output = -2
    }
    tier {
      above = 10
    }
    tier {
      above = 10
    }
  }
}

model "n" {
  provider = "script"
  script   = "no-such-file.json"
}
