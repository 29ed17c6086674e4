# Two agents on three tasks, in the sandbox that needs nothing installed.
# `make run` runs this; `bin/berth plan examples/quickstart` shows what it comes to.
experiment "quickstart" {
  datasets    = [dataset.samples]
  environment = environment.local

  matrix {
    agent = [agent.oracle, agent.nop]
  }
}

dataset "samples" {
  format = "harbor"
  path   = "./tasks"
}

environment "local" {
  plugin = "local"
}

# The same tasks in containers: write environment.podman or environment.docker
# above. `bin/berth doctor` says which of them this machine can use.
environment "podman" {
  plugin = "podman"
}

environment "docker" {
  plugin = "docker"
}

# Runs the reference solution of each task, so that every task must pass.
agent "oracle" {
  plugin = "oracle"
  oracle = true
}

# Does nothing, so that no task may pass.
agent "nop" {
  plugin = "nop"
}
