# Three agents on three tasks, in the sandbox that needs nothing installed.
# `make run` runs this; `bin/berth plan examples/quickstart` shows its trials and their cost.
experiment "quickstart" {
  datasets    = [dataset.samples]
  environment = environment.local

  matrix {
    agent = [agent.oracle, agent.nop, agent.terminus]
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

# Works at a terminal, one reply of a model after the other.
agent "terminus" {
  plugin = "terminus"
  model  = model.scripted
  config {
    max_turns = 40
  }
}

# Answers from a file: no key, no network.
model "scripted" {
  provider = "script"
  script   = "./replies.yaml"
}
