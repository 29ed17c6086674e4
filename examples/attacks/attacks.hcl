# Agents that try to pass without solving their task, in each verification mode.
# What is expected of each is in its task.toml: see README.md.
experiment "attacks" {
  datasets    = [dataset.attacks]
  environment = environment.here
  agent       = agent.oracle

  verify      = matrix.mode

  # An agent that gets a second attempt has found a way around the first.
  retry {
    max  = 1
    wait = "0s"
  }

  matrix {
    mode = ["live", "restarted", "image", "separate"]
  }
}

# Try another one with --var environment=podman.
variable "environment" {
  default = "local"
}

dataset "attacks" {
  format = "harbor"
  path   = "./tasks"
}

environment "here" {
  plugin = var.environment
}

# An attack is the reference solution of its task.
agent "oracle" {
  plugin = "oracle"
  oracle = true
}
